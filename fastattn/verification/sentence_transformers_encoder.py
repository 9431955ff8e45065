"""sentence-transformers folders in sentence-transformers: plain attention, float32."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fastattn.spec.checkpoint import Checkpoint
from fastattn.verification.frameworks import blaming, framework, silence, versions
from fastattn.verification.transformers_encoder import FROM_HERE, check_class, hidden_states

PACKAGES = ("sentence-transformers", "transformers", "torch")


class SentenceTransformersEncoder:
    """sentence-transformers' side of a comparison, an ``EncoderSide``."""

    def __init__(self, path: Path, checkpoint: Checkpoint):
        sentence_transformers, transformers, torch = framework(*PACKAGES)
        self.name = versions(*PACKAGES)
        silence(transformers)
        with blaming(f"{path}: sentence-transformers cannot read it"):
            self._model = sentence_transformers.SentenceTransformer(
                str(path),
                device="cpu",
                **FROM_HERE,
                model_kwargs={"attn_implementation": "eager", "dtype": torch.float32},
            )
        self._model.eval()
        check_class(path, self._model[0].auto_model)
        self._prompt = self._model.prompts.get(self._model.default_prompt_name) or ""

    def ids(self, text: str) -> list[int]:
        # older versions call it tokenize
        read = getattr(self._model, "preprocess", None) or self._model.tokenize
        with blaming("sentence-transformers' tokenizer fails"):
            ids: list[int] = read([self._prompt + text])["input_ids"][0].tolist()
        return ids

    def token(self, index: int) -> str | None:
        return str(self._model.tokenizer.convert_ids_to_tokens(index))

    def states(self, ids: Sequence[int]) -> Mapping[str, np.ndarray]:
        return hidden_states(self._model[0].auto_model, ids)

    def vector(self, text: str) -> np.ndarray:
        with blaming("sentence-transformers' model fails"):
            vector_E: np.ndarray = self._model.encode([text], show_progress_bar=False)[0]
        return vector_E
