"""Encoders on both sides: ids, rows after each block, vectors."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from fastattn.encoders.encoder import Encoder
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


class EncoderSide(Protocol):
    """An encoder, here or in its source framework.

    name  of the framework, with the versions of what it is made of
    """

    name: str

    def ids(self, text: str) -> list[int]:
        """The ids of a text with the default prompt, special ones included, cut where the side cuts it."""
        ...

    def token(self, index: int) -> str | None:
        """The token of an id."""
        ...

    def states(self, ids: Sequence[int]) -> Mapping[str, np.ndarray]:
        """Rows [T, D] by the names of ``name_states``."""
        ...

    def vector(self, text: str) -> np.ndarray:
        """float32 [E]."""
        ...


class FastattnEncoder:
    """fastattn's side: an Encoder of the folder and its model, in the same precision."""

    name = "fastattn"

    def __init__(self, path: Path, checkpoint: Checkpoint, precision: str):
        text = checkpoint.text
        assert isinstance(text, EncoderText) and checkpoint.spec.encoder is not None
        self._encoder = Encoder(path, precision)
        # What the Encoder has packed is mapped, not packed again.
        self._model = load_model(checkpoint, precision, None, backend("cpu"), Loading()).model
        longest = self._encoder.max_length
        self._tokenizer = HuggingFaceTokenizer(text.tokenizer, longest, text.lowercase, text.truncation_side)
        self._prompt = text.prompts.get(text.default_prompt or "", "")

    def ids(self, text: str) -> list[int]:
        return [int(index) for index in self._tokenizer.encode([self._prompt + text])[0]]

    def token(self, index: int) -> str | None:
        return self._tokenizer.token(index)

    def states(self, ids: Sequence[int]) -> Mapping[str, np.ndarray]:
        *states, output_TD = self._model.encoder.states(np.array(ids, np.int32))
        return name_states(states, output_TD)

    def vector(self, text: str) -> np.ndarray:
        return self._encoder.encode(text)


def compare_encoders(ours: EncoderSide, theirs: EncoderSide, texts: Sequence[str], bounds: Bounds) -> list[Comparison]:
    """Ids, layers, vectors. Both sides' layers get the ids from here, so that they tell of the model alone."""
    ids = [ours.ids(text) for text in texts]
    framework = theirs.name.partition(" ")[0]
    found = [compare_ids(ids, [theirs.ids(text) for text in texts], ours.token)]
    for number, text in enumerate(texts):
        location = f"text {number + 1}"
        if ids[number]:
            states = ours.states(ids[number]), theirs.states(ids[number])
            found += compare_states(*states, bounds.rows, location, framework)
        vectors = ours.vector(text)[None], theirs.vector(text)[None]
        found.append(compare_rows("vector", *vectors, bounds.rows, location))
    return worst_of_each(found)
