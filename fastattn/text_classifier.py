"""TextClassifier: texts in, labels with their probabilities out."""

import os
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from fastattn.checkpoint import Checkpoint
from fastattn.errors import check_bool, check_count, check_texts
from fastattn.ops import Ops
from fastattn.progress import Progress
from fastattn.text_head import TextHead, activated
from fastattn.weights import read
from fastattn.weights.download import catalog


class TextClassifier:
    """Labels of texts from a checkpoint that classifies, as transformers' text-classification pipeline gives them.

    path, precision, threads   as those of CrossEncoder
    A text of more than ``max_length`` ids is cut. A text's labels depend on it alone: the same bits whatever the other
    texts and the number of threads. One TextClassifier may serve several Python threads at once.
    Raises CheckpointError for a path without a valid checkpoint of an encoder with a head that classifies.
    """

    def __init__(self, path: str | os.PathLike, precision: str = "auto", threads: int | None = None):
        self._head = TextHead(read(catalog.resolve(path)), precision, threads, None, keep=True)

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        precision: str = "auto",
        threads: int | None = None,
        ops: Ops | None = None,
    ) -> "TextClassifier":
        """A TextClassifier of a checkpoint in memory; ``ops`` as for CrossEncoder."""
        made = cls.__new__(cls)
        made._head = TextHead(checkpoint, precision, threads, ops, keep=False)
        return made

    @property
    def precision(self) -> str:
        """The precision of the encoder's matrix products: "float32", "bfloat16" or "int8"; never "auto"."""
        return self._head.encoder.loaded.precision

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of the checkpoint."""
        return self._head.encoder.text.labels

    @property
    def max_length(self) -> int:
        """The most ids of a text, special ones included; longer texts are cut."""
        return self._head.encoder.max_length

    def classify(
        self, texts: str | Iterable[str], *, top_k: int | None = None, show_progress_bar: bool | None = None
    ) -> list[Any]:
        """Each text's labels, most probable first: {"label": str, "score": float} of each; one such list for a str.

        Probabilities sum to 1, unless the checkpoint says that each label is true or not by itself; those of a single
        label are the sigmoid of its number.
        top_k              how many labels; None: all
        show_progress_bar  True: print on stderr how many texts are done, if it is a terminal
        Raises InputError for other values.
        """
        if top_k is not None:
            check_count("top_k", top_k)
        if isinstance(texts, str):
            numbers_BF = self._head.encoder.run_alone(partial(self._head.plan_texts, [texts]))
            return self._named(numbers_BF, top_k)[0]
        listed = check_texts("texts", texts)
        with Progress(show_progress_bar is not None and check_bool("show_progress_bar", show_progress_bar)) as progress:
            numbers_BF = self._head.encoder.scheduler.run(partial(self._head.plan_texts, listed, progress))
        return self._named(numbers_BF, top_k)

    def _named(self, numbers_BF: np.ndarray, top_k: int | None) -> list[list[dict[str, Any]]]:
        likely_BF = activated(self._head.encoder.text.probabilities, numbers_BF)
        order_BF = np.argsort(-likely_BF, axis=1, kind="stable")[:, :top_k]
        return [
            [{"label": self.labels[f], "score": float(likely_F[f])} for f in order_F]
            for likely_F, order_F in zip(likely_BF, order_BF)
        ]
