"""TextClassifier: texts in, labels with their probabilities out."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from fastattn.encoders.text_head import HeadedModel, activated
from fastattn.errors import check_count
from fastattn.system.option_names import TEXTS, explains_options


class TextClassifier(HeadedModel):
    """Labels of texts from a checkpoint that classifies, as transformers' text-classification pipeline gives them.

    path, precision, threads   as those of CrossEncoder
    A text of more than ``max_length`` ids is cut. A text's labels depend on it alone: the same bits whatever the other
    texts and the number of threads. One TextClassifier may serve several Python threads at once.
    Raises CheckpointError for a path without a valid checkpoint of an encoder with a head that classifies.
    """

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of the checkpoint."""
        return self._encoder.text.labels

    @explains_options(TEXTS)
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
        named = self._named(self._run(self._plan_texts, texts, show_progress_bar), top_k)
        return named[0] if isinstance(texts, str) else named

    def _named(self, numbers_BF: np.ndarray, top_k: int | None) -> list[list[dict[str, Any]]]:
        likely_BF = activated(self._encoder.text.probabilities, numbers_BF)
        order_BF = np.argsort(-likely_BF, axis=1, kind="stable")[:, :top_k]
        return [
            [{"label": self.labels[f], "score": float(likely_F[f])} for f in order_F]
            for likely_F, order_F in zip(likely_BF, order_BF)
        ]
