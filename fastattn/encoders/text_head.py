"""Numbers of texts and of pairs of texts: an encoder, its head, and what makes scores or probabilities of them."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from fastattn.encoders.loaded_encoder import Make, plan_batches
from fastattn.encoders.text_model import TextModel
from fastattn.errors import CheckpointError
from fastattn.scheduling.request import Plan
from fastattn.spec.architecture import StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText
from fastattn.system.progress import Progress


class HeadedModel(TextModel):
    """An encoder whose head gives each text numbers, one for each label."""

    def _checked(self, checkpoint: Checkpoint, text: EncoderText, stack: StackSpec) -> Checkpoint:
        head = checkpoint.spec.head
        if head is None:
            raise CheckpointError(f"a classifier is expected: {checkpoint.headless or 'the checkpoint has no head'}")
        if head.rows == "each":
            raise CheckpointError("a classifier of texts is expected, the checkpoint's head is for each token")
        return checkpoint

    def _prepare(self) -> None:
        self._typed = self._encoder.text.token_types and self._encoder.spec.token_types > 1

    def _plan_texts(self, texts: Sequence[str], progress: Progress | None = None) -> Plan:
        """numbers_BF of the texts."""
        ids_B = self._encoder.tokenizer.encode(texts, self._encoder.loaded.threads)
        return (yield from self._plan(ids_B, None, progress, "texts"))

    def _plan_pairs(self, pairs: Sequence[tuple[str, str]], progress: Progress | None = None) -> Plan:
        """numbers_BF of the pairs."""
        ids_B, types_B = self._encoder.tokenizer.encode_pairs(pairs, self._encoder.loaded.threads)
        return (yield from self._plan(ids_B, types_B if self._typed else None, progress, "pairs"))

    def _plan(
        self,
        ids_B: Sequence[np.ndarray],
        types_B: Sequence[np.ndarray] | None,
        progress: Progress | None,
        what: str,
    ) -> Plan:
        def make_for(numbers: list[int]) -> Make:
            if self._head.spec.padding < 0:
                return self._head
            return partial(self._before_padding, [_unpadded(ids_B[b], self._head.spec.padding) for b in numbers])

        return (
            yield from plan_batches(
                ids_B, make_for, self._head.spec.outputs, self._encoder.loaded.threads, progress, types_B, what
            )
        )

    def _before_padding(self, lengths_B: list[int], rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        """What the head gives of so many first rows of each sentence; those may have seen the others."""
        rows_R = np.concatenate([np.arange(start, start + length) for start, length in zip(starts_B1, lengths_B)])
        kept_RD = self._encoder.loaded.ops.take_rows(rows_ND, rows_R)
        return self._head(kept_RD, np.concatenate([[0], np.cumsum(lengths_B)]))


def _unpadded(ids: np.ndarray, padding: int) -> int:
    """How many ids there are up to the last that is no padding; the first alone if all are."""
    others = np.flatnonzero(ids != padding)
    return int(others[-1]) + 1 if len(others) else min(len(ids), 1)


def activated(name: str, numbers_BF: np.ndarray) -> np.ndarray:
    """float32 of the shape of the numbers: ``name`` is from text_spec.PROBABILITIES or SCORES.

    In float64, so that a number's bits do not depend on its place in the array.
    """
    return _ACTIVATIONS[name](numbers_BF.astype(np.float64)).astype(np.float32)


def _softmax(numbers_BF: np.ndarray) -> np.ndarray:
    weights_BF = np.exp(numbers_BF - numbers_BF.max(axis=1, keepdims=True))
    return np.asarray(weights_BF / weights_BF.sum(axis=1, keepdims=True))


_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda numbers_BF: numbers_BF,
    "sigmoid": lambda numbers_BF: np.exp(-np.logaddexp(0.0, -numbers_BF)),
    "softmax": _softmax,
    "tanh": np.tanh,
    "relu": lambda numbers_BF: np.maximum(numbers_BF, 0.0),
}
