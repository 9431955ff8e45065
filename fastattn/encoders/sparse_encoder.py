"""SparseEncoder: texts in, sparse vectors over the vocabulary out."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from fastattn.encoders.loaded_encoder import plan_each
from fastattn.encoders.prompts import find_prompt
from fastattn.encoders.sparse_head import SparseHead
from fastattn.encoders.text_model import TextModel, check_predicts
from fastattn.errors import InputError, check_count, described
from fastattn.scheduling.request import Plan
from fastattn.spec.architecture import StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText, SparseText
from fastattn.system.option_names import TEXTS, explains_options
from fastattn.system.progress import Progress
from fastattn.vectors.sparse import SparseVectors, checked_vectors, join_rows, sparse_similarity

FORMATS = ("csr", "scipy")


class SparseEncoder(TextModel):
    """Sparse vectors of texts from a masked language model, as sentence-transformers computes them: SPLADE.

    path, precision, threads   as those of Encoder; the projection onto the vocabulary is in that precision too
    A vector has a number for each token of the vocabulary, most of them zero; what a text's tokens have before the
    greatest is taken is never stored. A text of more than ``max_length`` ids is cut. A vector depends on its own text
    alone: the same bits whatever the other texts and the number of threads. One SparseEncoder may serve several Python
    threads at once.
    Raises CheckpointError for a path without a valid checkpoint of an encoder that predicts tokens.
    """

    def _checked(self, checkpoint: Checkpoint, text: EncoderText, stack: StackSpec) -> Checkpoint:
        return check_predicts(checkpoint, text, stack, "a masked language model for sparse vectors")

    def _prepare(self) -> None:
        text = self._encoder.text
        self._made = text.sparse or SparseText()
        self._similarity = "dot" if text.sparse is None else text.similarity
        self._sparse = SparseHead(self._head, self._made)

    @property
    def dimension(self) -> int:
        """The width of a vector: the size of the vocabulary."""
        return self._head.spec.outputs

    @explains_options(TEXTS)
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        task: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        max_active_dims: int | None = None,
        format: str = "csr",
        show_progress_bar: bool | None = None,
    ) -> Any:
        """Sparse vectors of ``texts``, in their order: SparseVectors [len(texts), dimension], of one row for a str.

        task, prompt_name, prompt   put before every text, as ``Encoder.encode`` has them
        max_active_dims    how many of its greatest numbers each vector keeps; None: as the checkpoint says, else all
        format             "csr": SparseVectors; "scipy": a ``scipy.sparse.csr_matrix``
        show_progress_bar  True: print on stderr how many texts are done, if it is a terminal
        Raises InputError for other values.
        """
        before = find_prompt(self._encoder.text, prompt_name, prompt, task)
        most = self._made.most if max_active_dims is None else check_count("max_active_dims", max_active_dims)
        if format not in FORMATS:
            raise InputError(f"unknown format {described(format)}; known: {', '.join(FORMATS)}")
        rows = self._run(partial(self._plan, before, most), texts, show_progress_bar)
        vectors = join_rows(rows, self.dimension)
        return vectors.to_scipy() if format == "scipy" else vectors

    def encode_query(self, texts: str | Iterable[str], **how: Any) -> Any:
        """``encode`` with ``task="query"``: texts that are searched with."""
        return self.encode(texts, task="query", **how)

    def encode_document(self, texts: str | Iterable[str], **how: Any) -> Any:
        """``encode`` with ``task="document"``: texts that are searched for."""
        return self.encode(texts, task="document", **how)

    def decode(self, vectors: Any, top_k: int | None = None) -> list[list[tuple[str, float]]]:
        """(token, number) of each vector's numbers, the greatest first, ``top_k`` of them at most.

        vectors  as ``encode`` returns them
        """
        most = None if top_k is None else check_count("top_k", top_k)
        checked: SparseVectors = checked_vectors(vectors, self.dimension)
        decoded = []
        for number in range(len(checked)):
            columns, numbers = checked.row(number)
            order = np.argsort(-numbers, kind="stable")[:most]
            token = self._encoder.tokenizer.token
            decoded.append([(token(int(columns[i])) or "", float(numbers[i])) for i in order])
        return decoded

    def similarity(self, a: Any, b: Any) -> np.ndarray:
        """similarity_AB float32 of vectors as ``encode`` returns them, by the checkpoint's function.

        The dot product unless the checkpoint says otherwise: cosine, or a negative distance.
        """
        return sparse_similarity(a, b, self._similarity)

    def _plan(self, before: str, most: int | None, texts: list[str], progress: Progress | None) -> Plan:
        threads = self._encoder.loaded.threads
        ids_B = self._encoder.tokenizer.encode([before + text for text in texts], threads)
        make = partial(self._sparse.rows, most=most)
        return (yield from plan_each(ids_B, lambda _: make, threads, progress))
