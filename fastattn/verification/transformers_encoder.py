"""Encoders of Hugging Face directories in transformers: plain attention, float32."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText
from fastattn.verification.comparison import name_states
from fastattn.verification.frameworks import blaming, framework, silence, versions

PACKAGES = ("transformers", "torch")
FROM_HERE = {"local_files_only": True, "trust_remote_code": False}  # without it, transformers asks on the terminal


class TransformersEncoder:
    """transformers' side of a comparison, an ``EncoderSide``.

    The vector is the mean of the rows, as in fastattn where a folder does not say otherwise.
    """

    def __init__(self, path: Path, checkpoint: Checkpoint):
        transformers, torch = framework(*PACKAGES)
        self.name = versions(*PACKAGES)
        silence(transformers)
        text = checkpoint.text
        assert isinstance(text, EncoderText)
        with blaming(f"{path}: transformers cannot read it"):
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(path, **FROM_HERE)
            model = transformers.AutoModel.from_pretrained(
                path, attn_implementation="eager", dtype=torch.float32, **FROM_HERE
            )
        check_class(path, model)
        self._model = _encoder_of(model.eval())
        stated = self._tokenizer.model_max_length
        # No further than positions go, which many a tokenizer's own limit does not know of.
        self._max_length = min(stated, text.max_length)

    def ids(self, text: str) -> list[int]:
        with blaming("transformers' tokenizer fails"):
            return list(self._tokenizer(text, truncation=True, max_length=self._max_length)["input_ids"])

    def token(self, index: int) -> str | None:
        return str(self._tokenizer.convert_ids_to_tokens(index))

    def states(self, ids: Sequence[int]) -> Mapping[str, np.ndarray]:
        return hidden_states(self._model, ids)

    def vector(self, text: str) -> np.ndarray:
        return self.states(self.ids(text))["output"].mean(axis=0)


def check_class(path: Path, model: Any) -> None:
    """Raise CheckpointError where the folder's model is code of its own, and transformers has read it as another.

    jina-v2's BERT says that it is a BERT: its weights would be loaded in part, the others drawn at random.
    """
    named = getattr(model.config, "auto_map", None) or {}
    theirs = str(named.get("AutoModel", "")).rpartition(".")[2]
    if theirs not in ("", type(model).__name__):
        raise CheckpointError(
            f"{path}: transformers has no {theirs}, only a {type(model).__name__}; the folder's own code is not run"
        )


def _encoder_of(model: Any) -> Any:
    """The encoder's half where a model has two."""
    return model.get_encoder() if hasattr(model, "decoder") else model


def hidden_states(model: Any, ids: Sequence[int]) -> dict[str, np.ndarray]:
    """The rows of a sentence by ``name_states``.

    Where a norm follows the blocks, transformers shows its output in the place of the last block's.
    """
    import torch

    with blaming("transformers' model fails"), torch.no_grad():
        found = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
    return name_states([rows[0].numpy() for rows in found.hidden_states], found.last_hidden_state[0].numpy())
