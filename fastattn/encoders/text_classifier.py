"""TextClassifier: texts in, labels with their probabilities out; and the base of models with a head."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastattn.encoders.base import EncoderBase, ResultMaker, plan_batches, progress_bar
from fastattn.errors import CheckpointError, InputError, check_count, check_several, described
from fastattn.scheduling.request import Plan
from fastattn.spec.checkpoint import Checkpoint
from fastattn.system.option_names import TEXTS, explains_options
from fastattn.system.progress import Progress


class HeadedModel(EncoderBase):
    """An encoder whose head gives each text or pair one number for each label; plans return them as numbers_BF."""

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        checkpoint = super()._check(checkpoint)
        if self._expect_head(checkpoint, "a classifier").rows == "each":
            raise CheckpointError("a classifier of texts is expected, the checkpoint's head is for each token")
        return checkpoint

    def _prepare(self) -> None:
        super()._prepare()
        self._has_types = self._text.token_types and self._spec.token_types > 1

    def _plan_texts(self, texts: Sequence[str], progress: Progress | None = None) -> Plan:
        ids_B = self._tokenizer.encode(texts, self._loaded.threads)
        return (yield from self._plan(ids_B, None, progress, "texts"))

    def _plan_pairs(self, pairs: Sequence[tuple[str, str]], progress: Progress | None = None) -> Plan:
        ids_B, types_B = self._tokenizer.encode_pairs(pairs, self._loaded.threads)
        return (yield from self._plan(ids_B, types_B if self._has_types else None, progress, "pairs"))

    @explains_options(TEXTS)
    def count_pair_tokens(self, pairs: Iterable[Sequence[str]] | Sequence[str]) -> list[int]:
        """How many ids each pair has, special ones and a prompt's included; encoding cuts them to ``max_length``."""
        return self._pair_lengths(checked_pairs(pairs)[0])

    def _pair_lengths(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        return self._tokenizer.pair_lengths(pairs, self._loaded.threads)

    def _plan(
        self, ids_B: Sequence[np.ndarray], types_B: Sequence[np.ndarray] | None, progress: Progress | None, noun: str
    ) -> Plan:
        def maker_for(indices: list[int]) -> ResultMaker:
            if padding < 0:
                return self._head
            return partial(self._head_before_padding, [_unpadded_length(ids_B[b], padding) for b in indices])

        width, padding, threads = self._head.spec.outputs, self._head.spec.padding, self._loaded.threads
        return (yield from plan_batches(ids_B, maker_for, threads, progress, width=width, types_B=types_B, noun=noun))

    def _head_before_padding(self, lengths_B: list[int], rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        """The head's numbers from each sentence's first ``lengths_B`` rows, whose attention may see the padding."""
        rows_R = np.concatenate([np.arange(start, start + length) for start, length in zip(starts_B1, lengths_B)])
        rows_RD = self._loaded.ops.take_rows(rows_ND, rows_R)
        return self._head(rows_RD, np.concatenate([[0], np.cumsum(lengths_B)]))


class TextClassifier(HeadedModel):
    """Labels of texts from a checkpoint that classifies, as transformers' text-classification pipeline gives them.

    Raises CheckpointError for a path without a valid checkpoint of an encoder with a head that classifies.
    """

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of the checkpoint."""
        return self._text.labels

    @explains_options(TEXTS)
    def classify(
        self,
        texts: str | Iterable[str] | Iterable[tuple[str, str]],
        *,
        top_k: int | None = None,
        show_progress_bar: bool | None = None,
    ) -> list[Any]:
        """Each text's labels, most probable first, as {"label": str, "score": float}; for a str, its list alone.

        The two texts of a pair, such as a premise and a hypothesis, are read together.
        Probabilities sum to 1, unless the checkpoint says that each label is true or not by itself. A single label's
        probability is the sigmoid of its number.
        top_k  how many labels; None: all
        Raises InputError for other values.
        """
        if top_k is not None:
            check_count("top_k", top_k)
        if isinstance(texts, str):
            return self._results(self._run(self._plan_texts, texts)[None], top_k)[0]
        inputs: list[Any] = list(check_several("texts", texts, "a str or several"))
        if not inputs or isinstance(inputs[0], str):
            return self._results(self._run(self._plan_texts, inputs, show_progress_bar), top_k)
        pairs, _ = checked_pairs(inputs)
        with progress_bar(show_progress_bar) as progress:
            return self._results(self._scheduler.run(partial(self._plan_pairs, pairs, progress)), top_k)

    def _results(self, numbers_BF: np.ndarray, top_k: int | None) -> list[list[dict[str, Any]]]:
        probabilities_BF = apply_activation(self._text.probabilities, numbers_BF)
        order_BF = np.argsort(-probabilities_BF, axis=1, kind="stable")[:, :top_k]
        return [
            [{"label": self.labels[f], "score": float(probabilities_F[f])} for f in order_F]
            for probabilities_F, order_F in zip(probabilities_BF, order_BF)
        ]


def _unpadded_length(ids: np.ndarray, padding: int) -> int:
    """The number of ids up to the last one that is no padding; 1 where all ids are padding."""
    indices = np.flatnonzero(ids != padding)
    return int(indices[-1]) + 1 if len(indices) else min(len(ids), 1)


def apply_activation(name: str, numbers_BF: np.ndarray) -> np.ndarray:
    """The numbers after the activation ``name``, from text_spec.PROBABILITIES or SCORES, as float32.

    The activation is computed in float64, so that a number's bits do not depend on its index in the array.
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


def checked_pairs(pairs: Iterable[Sequence[str]] | Sequence[str]) -> tuple[list[tuple[str, str]], bool]:
    """(the pairs as a list, whether ``pairs`` is a single pair); InputError for anything that is no pair of str."""
    rows = list(pairs) if isinstance(pairs, np.ndarray) and pairs.ndim == 2 else pairs
    pair_list: list[Any] = list(check_several("pairs", rows, "a pair of str or several"))
    is_single = bool(pair_list) and isinstance(pair_list[0], str)
    if is_single:
        pair_list = [pair_list]
    valid_pairs = []
    for number, pair in enumerate(pair_list):
        if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2:
            raise InputError(f"a pair must be two str, number {number} is {described(pair)}")
        for text in pair:
            if not isinstance(text, str):
                raise InputError(f"a pair must be two str, number {number} holds a {type(text).__name__}")
        valid_pairs.append((str(pair[0]), str(pair[1])))
    return valid_pairs, is_single
