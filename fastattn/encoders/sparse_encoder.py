"""SparseEncoder: texts in, sparse vectors over the vocabulary out."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fastattn.encoders.base import EncoderBase, plan_batches
from fastattn.encoders.vector_head import find_prompt
from fastattn.errors import CheckpointError, check_count, check_known
from fastattn.models.encoder import Head, check_finite
from fastattn.scheduling.request import Plan
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import SPARSE_ACTIVATIONS, SPARSE_POOLINGS, SparseText
from fastattn.system.option_names import TEXTS, explains_options
from fastattn.system.progress import Progress
from fastattn.vectors.sparse import SparseVectors, checked_vectors, join_rows, sparse_similarity

FORMATS = ("csr", "scipy")
# Numbers of dense vectors in memory at once, 16 MB: zeros are dropped before the next texts' vectors are made.
MOST_NUMBERS = 1 << 22
# Rows of a text whose numbers for the vocabulary are in memory at once if a vector is the sum over rows.
SUM_ROWS = 32


class SparseEncoder(EncoderBase):
    """Sparse vectors of texts from a masked language model, as sentence-transformers computes them: SPLADE.

    precision  of the matrix products, the projection onto the vocabulary included
    A vector has a number for each token of the vocabulary, most of them zero: the greatest of the numbers of the text's
    rows for that token, or their sum where the checkpoint says so. The numbers of single rows are not stored.
    Raises CheckpointError for a path without a valid checkpoint of an encoder that predicts tokens.
    """

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        checkpoint = super()._check(checkpoint)
        self._expect_predictions(checkpoint, "a masked language model for sparse vectors")
        return checkpoint

    def _prepare(self) -> None:
        super()._prepare()
        text = self._text
        self._settings = text.sparse or SparseText()
        self._similarity = "dot" if text.sparse is None else text.similarity
        self._sparse_head = SparseHead(self._head, self._settings)

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

        task, prompt_name, prompt   put before every text, chosen as for ``Encoder.encode``
        max_active_dims  how many of its greatest numbers each vector keeps; None: as the checkpoint says, else all
        format           "csr": SparseVectors; "scipy": a ``scipy.sparse.csr_matrix``
        Raises InputError for other values.
        """
        chosen_prompt = find_prompt(self._text, prompt_name, prompt, task)
        max_active = self._settings.most if max_active_dims is None else check_count("max_active_dims", max_active_dims)
        check_known("format", format, FORMATS)
        rows = self._run(partial(self._plan, chosen_prompt, max_active), texts, show_progress_bar)
        vectors = join_rows([rows] if isinstance(texts, str) else rows, self.dimension)
        return vectors.to_scipy() if format == "scipy" else vectors

    def encode_query(self, texts: str | Iterable[str], **options: Any) -> Any:
        """``encode`` with ``task="query"``, for the texts of queries."""
        return self.encode(texts, task="query", **options)

    def encode_document(self, texts: str | Iterable[str], **options: Any) -> Any:
        """``encode`` with ``task="document"``, for the texts among which a query searches."""
        return self.encode(texts, task="document", **options)

    def decode(self, vectors: Any, top_k: int | None = None) -> list[list[tuple[str, float]]]:
        """(token, number) of each vector's numbers, the greatest first, at most ``top_k`` of them.

        vectors  as ``encode`` returns them
        """
        k = None if top_k is None else check_count("top_k", top_k)
        sparse_vectors: SparseVectors = checked_vectors(vectors, self.dimension)
        token_of, token_lists = self._tokenizer.token, []
        for row in range(len(sparse_vectors)):
            columns, numbers = sparse_vectors.row(row)
            order = np.argsort(-numbers, kind="stable")[:k]
            token_lists.append([(token_of(int(columns[i])) or "", float(numbers[i])) for i in order])
        return token_lists

    def similarity(self, a: Any, b: Any) -> np.ndarray:
        """similarity_AB float32 of vectors as ``encode`` returns them, by the checkpoint's function.

        The dot product unless the checkpoint says otherwise: cosine, or a negative distance.
        """
        return sparse_similarity(a, b, self._similarity)

    def _plan(self, prompt: str, max_active: int | None, texts: list[str], progress: Progress | None) -> Plan:
        threads = self._loaded.threads
        ids_B = self._tokenizer.encode([prompt + text for text in texts], threads)
        make_vectors = partial(self._sparse_head.sparse_vectors, most=max_active)
        return (yield from plan_batches(ids_B, lambda _: make_vectors, threads, progress))


class SparseHead:
    """Makes sparse vectors from a Head's numbers for each token; CheckpointError for unknown settings."""

    def __init__(self, head: Head, settings: SparseText):
        for name, choices in (("pooling", SPARSE_POOLINGS), ("activation", SPARSE_ACTIVATIONS)):
            if (value := getattr(settings, name)) not in choices:
                raise CheckpointError(f"unknown {name} {value!r} of sparse vectors; known: {', '.join(choices)}")
        self._head, self._settings = head, settings

    def sparse_vectors(
        self, rows_ND: np.ndarray, starts_B1: np.ndarray, most: int | None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """(columns int32 in ascending order, numbers float32 above 0) of each sentence.

        most  how many of a sentence's greatest numbers are kept, of equal numbers those of lower columns; None: all
        Raises CheckpointError where the weights give NaN or infinity.
        """
        pool = self._max_pool if self._settings.pooling == "max" else self._sum_pool
        step = max(1, MOST_NUMBERS // self._head.spec.outputs)
        vectors = []
        for first in range(0, len(starts_B1) - 1, step):
            for columns, numbers in pool(rows_ND, starts_B1[first : first + step + 1]):
                check_finite(numbers, self._head.find_fault)
                if most is not None and len(columns) > most:
                    greatest = np.sort(np.argsort(-numbers, kind="stable")[:most])
                    columns, numbers = columns[greatest], numbers[greatest]
                vectors.append((columns.astype(np.int32), numbers))
        return vectors

    def _max_pool(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for peaks_V in self._head.peaks(rows_ND, starts_B1):  # the activation is monotone, so it may follow the maximum
            columns = np.flatnonzero(peaks_V)
            yield columns, self._activate(peaks_V[columns])

    def _sum_pool(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start, end in zip(starts_B1, starts_B1[1:]):
            total_V = np.zeros(self._head.spec.outputs, np.float32)
            for first in range(start, end, SUM_ROWS):
                numbers_TV = self._head(rows_ND, np.array([first, min(first + SUM_ROWS, end)]))
                total_V += self._activate(np.maximum(numbers_TV, 0)).sum(axis=0)
            columns = np.flatnonzero(total_V)
            yield columns, total_V[columns]

    def _activate(self, numbers: np.ndarray) -> np.ndarray:
        logarithms = np.log1p(numbers)  # "relu" means log(1 + max(0, x)); the numbers are at least 0 already
        return np.asarray(logarithms if self._settings.activation == "relu" else np.log1p(logarithms))
