"""Encoders on both sides: ids, rows after each block, vectors."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.encoders.encoder import Encoder
from fastattn.errors import CheckpointError
from fastattn.loading.loaded_model import load_model
from fastattn.loading.model_cache import Loading
from fastattn.ops import backend
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.verification.comparison import (
    Bounds,
    Comparison,
    compare_ids,
    compare_rows,
    compare_states,
    name_states,
    worst_of_each,
)
from fastattn.verification.frameworks import blaming, framework, versions


class FastattnEncoder:
    """fastattn's side: an Encoder of the folder and its model, in the same precision.

    name  of the framework, with versions
    """

    name = "fastattn"

    def __init__(self, path: Path, checkpoint: Checkpoint, precision: str):
        text = checkpoint.text
        assert isinstance(text, EncoderText) and checkpoint.spec.encoder is not None
        self._encoder = Encoder(path, precision)
        # It maps the weights that the Encoder has packed.
        self._model = load_model(checkpoint, precision, None, backend("cpu"), Loading()).model
        longest = self._encoder.max_length
        self._tokenizer = HuggingFaceTokenizer(text.tokenizer, longest, text.lowercase, text.truncation_side)
        self._prompt = text.prompts.get(text.default_prompt or "", "")

    def ids(self, text: str) -> list[int]:
        """The ids of a text with the default prompt, special ones included, cut where this side cuts it."""
        return [int(index) for index in self._tokenizer.encode([self._prompt + text])[0]]

    def token(self, index: int) -> str | None:
        return self._tokenizer.token(index)

    def states(self, ids: Sequence[int]) -> Mapping[str, np.ndarray]:
        """Rows [T, D] by the names of ``name_states``."""
        *states, output_TD = self._model.encoder.states(np.array(ids, np.int32))
        return name_states(states, output_TD)

    def vector(self, text: str) -> np.ndarray:
        """float32 [E]."""
        return self._encoder.encode(text)


def compare_encoders(
    ours: FastattnEncoder, theirs: "EncoderSide", texts: Sequence[str], bounds: Bounds
) -> list[Comparison]:
    """Ids, layers, vectors. The layers of both sides get our ids, so that only the models may differ."""
    ids = [ours.ids(text) for text in texts]
    framework = theirs.name.partition(" ")[0]
    comparisons = [compare_ids(ids, [theirs.ids(text) for text in texts], ours.token)]
    for number, text in enumerate(texts):
        location = f"text {number + 1}"
        if ids[number]:
            states = ours.states(ids[number]), theirs.states(ids[number])
            comparisons += compare_states(*states, bounds.rows, location, framework)
        vectors = ours.vector(text)[None], theirs.vector(text)[None]
        comparisons.append(compare_rows("vector", *vectors, bounds.rows, location))
    return worst_of_each(comparisons)


TRANSFORMERS = ("transformers", "torch")
FROM_HERE = {"local_files_only": True, "trust_remote_code": False}  # without False transformers asks on the terminal


class TransformersEncoder:
    """transformers' side of a comparison, with the methods of FastattnEncoder.

    The vector is the mean of the rows, fastattn's default.
    """

    def __init__(self, path: Path, checkpoint: Checkpoint):
        transformers, torch = framework(*TRANSFORMERS)
        self.name = versions(*TRANSFORMERS)
        text = checkpoint.text
        assert isinstance(text, EncoderText)
        with blaming(f"{path}: transformers cannot read it"):
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(path, **FROM_HERE)
            model = transformers.AutoModel.from_pretrained(
                path, attn_implementation="eager", dtype=torch.float32, **FROM_HERE
            )
        check_class(path, model)
        model = model.eval()
        self._model = model.get_encoder() if hasattr(model, "decoder") else model
        # A tokenizer's own limit may be beyond the model's positions.
        self._max_length = min(self._tokenizer.model_max_length, text.max_length)

    def ids(self, text: str) -> list[int]:
        with blaming("transformers' tokenizer fails"):
            return list(self._tokenizer(text, truncation=True, max_length=self._max_length)["input_ids"])

    def token(self, index: int) -> str | None:
        return str(self._tokenizer.convert_ids_to_tokens(index))

    def states(self, ids: Sequence[int]) -> Mapping[str, np.ndarray]:
        """Where a norm follows the blocks, transformers shows the norm's output as the last block's."""
        import torch

        with blaming("transformers' model fails"), torch.no_grad():
            output = self._model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        return name_states([rows[0].numpy() for rows in output.hidden_states], output.last_hidden_state[0].numpy())

    def vector(self, text: str) -> np.ndarray:
        return self.states(self.ids(text))["output"].mean(axis=0)


def check_class(path: Path, model: Any) -> None:
    """Raise CheckpointError where the folder names a class of its own code, and transformers has read another one.

    jina-v2's BERT says that it is a BERT: transformers would load some of its weights, and draw the rest at random.
    """
    named = getattr(model.config, "auto_map", None) or {}
    theirs = str(named.get("AutoModel", "")).rpartition(".")[2]
    if theirs not in ("", type(model).__name__):
        raise CheckpointError(
            f"{path}: transformers has no {theirs}, only a {type(model).__name__}; the folder's own code is not run"
        )


class SentenceTransformersEncoder(TransformersEncoder):
    """sentence-transformers' side of a comparison."""

    def __init__(self, path: Path, checkpoint: Checkpoint):
        packages = ("sentence-transformers", *TRANSFORMERS)
        sentence_transformers, _, torch = framework(*packages)
        self.name = versions(*packages)
        with blaming(f"{path}: sentence-transformers cannot read it"):
            self._sentence_transformer = sentence_transformers.SentenceTransformer(
                str(path),
                device="cpu",
                **FROM_HERE,
                model_kwargs={"attn_implementation": "eager", "dtype": torch.float32},
            )
        whole = self._sentence_transformer.eval()
        self._model, self._tokenizer = whole[0].auto_model, whole.tokenizer
        check_class(path, self._model)
        self._prompt = whole.prompts.get(whole.default_prompt_name) or ""

    def ids(self, text: str) -> list[int]:
        # older versions call it tokenize
        read = getattr(self._sentence_transformer, "preprocess", None) or self._sentence_transformer.tokenize
        with blaming("sentence-transformers' tokenizer fails"):
            ids: list[int] = read([self._prompt + text])["input_ids"][0].tolist()
        return ids

    def vector(self, text: str) -> np.ndarray:
        with blaming("sentence-transformers' model fails"):
            vector_E: np.ndarray = self._sentence_transformer.encode([text], show_progress_bar=False)[0]
        return vector_E


EncoderSide = FastattnEncoder | TransformersEncoder
