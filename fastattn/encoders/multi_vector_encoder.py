"""MultiVectorEncoder: texts in, a vector a token out; queries and documents are compared token by token: ColBERT."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastattn.encoders.base import EncoderBase, plan_batches
from fastattn.encoders.vector_head import DenseLayers, check_dense, find_prompt
from fastattn.errors import CheckpointError, InputError, described
from fastattn.scheduling.request import Plan
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import MOST_FILLED, MultiVectorText
from fastattn.system.option_names import TEXTS, explains_options
from fastattn.system.progress import Progress
from fastattn.vectors.search import unit_length

# Rows of documents that are scored at once, copied to lie end to end.
SCORED_ROWS = 1 << 14


class MultiVectorEncoder(EncoderBase):
    """A vector of each token of a text, as sentence-transformers and PyLate compute them (Khattab and Zaharia 2020).

    The checkpoint says how queries and documents differ: what stands before them, how long they are, what fills queries
    up, which tokens are skipped.
    Raises CheckpointError for a path without a valid checkpoint that is made for this.
    """

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        checkpoint = super()._check(checkpoint)
        if self._text.multi_vector is None:
            raise CheckpointError(
                "a checkpoint made for a vector a token is expected: sentence-transformers' MultiVectorEncoder, "
                "PyLate's or the original ColBERT's; this one's files do not say that it is"
            )
        check_dense(self._text, self._spec.width)
        return checkpoint.without_head()

    def _prepare(self) -> None:
        super()._prepare()
        self._settings: MultiVectorText = self._text.multi_vector or MultiVectorText()
        self._dense = DenseLayers(self._text, self._spec.width, self._loaded.ops)
        tokenizer, settings, limit = self._tokenizer, self._settings, self._spec.max_positions
        tokenizer.keep_whole(settings.markers)
        indices = (tokenizer.index(word) for word in settings.skipped)
        unknown = tokenizer.unknown
        self._skipped = np.array([i for i in indices if i is not None and i != unknown], np.int32)
        self._filling = tokenizer.index(settings.expansion_token) if settings.expansion else None
        if settings.expansion and self._filling is None:
            raise CheckpointError(f"the tokenizer has no {described(settings.expansion_token)}, which fills queries up")
        if settings.expansion > MOST_FILLED:
            raise CheckpointError(f"queries should be filled up to at most {MOST_FILLED} ids, not {settings.expansion}")
        special = tokenizer.max_length - tokenizer.room
        for name, length in (("query_length", self.query_length), ("document_length", self.document_length)):
            if length < special + 1 or (limit and length > limit):
                raise CheckpointError(f"{name} {length} does not fit {special} special tokens and {limit} positions")

    @property
    def dimension(self) -> int:
        """The width of a vector."""
        return self._dense.width

    @property
    def query_length(self) -> int:
        """The most ids of a query, special ones and the prompt's included; longer queries are cut."""
        settings = self._settings
        if settings.expansion and settings.expansion_cuts:
            return settings.expansion
        return max(settings.query_length or self.max_length, settings.expansion)

    @property
    def document_length(self) -> int:
        """The most ids of a document, counted as for ``query_length``."""
        return self._settings.document_length or self.max_length

    def encode_query(self, texts: str | Iterable[str], **how: Any) -> Any:
        """The vectors of queries: a list of float32 [T, dimension]; one array for a str. ``how`` as for ``encode``."""
        return self.encode(texts, task="query", **how)

    def encode_document(self, texts: str | Iterable[str], **how: Any) -> Any:
        """The vectors of documents, except those of skipped tokens, as ``encode_query`` returns them."""
        return self.encode(texts, task="document", **how)

    @explains_options(TEXTS)
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        task: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        show_progress_bar: bool | None = None,
    ) -> Any:
        """The vectors of ``texts``: a list of float32 [T, dimension] in their order; one array for a str.

        task                 "query" or "document"; None: a document without a prompt, as long as the encoder takes
        prompt_name, prompt  put before every text, as ``Encoder.encode`` has them
        Raises InputError for other values.
        """
        before = find_prompt(self._text, prompt_name, prompt, task)
        return self._run(partial(self._plan, before, task), texts, show_progress_bar)

    def score(self, queries: Any, documents: Sequence[np.ndarray]) -> np.ndarray:
        """float32 scores of documents for a query: [len(documents)]; [len(queries), len(documents)] for several.

        A score is the sum, over the query's vectors, of the greatest product with a vector of the document (MaxSim),
        or the mean where the checkpoint says so; -inf for a document without vectors.
        queries, documents  as ``encode_query`` and ``encode_document`` return them
        """
        single = isinstance(queries, np.ndarray) and queries.ndim == 2
        checked = _checked_vectors("queries", [queries] if single else queries, self.dimension)
        rows = _checked_vectors("documents", documents, self.dimension)
        scores_QD = np.empty((len(checked), len(rows)), np.float32)
        ops = self._loaded.ops
        with ops.use_threads(self._loaded.threads):
            packed = [ops.pack_linear(query_TE) if len(query_TE) else None for query_TE in checked]
            for first, end in _blocks([len(document_SE) for document_SE in rows]):
                starts_B1 = np.zeros(end - first + 1, np.int64)
                np.cumsum([len(document_SE) for document_SE in rows[first:end]], out=starts_B1[1:])
                rows_NE = np.concatenate(rows[first:end])
                for q, query in enumerate(packed):
                    scores_QD[q, first:end] = 0
                    if query is not None:
                        peaks_DT = ops.project_peaks(rows_NE, starts_B1, query, -np.inf)
                        scores_QD[q, first:end] = peaks_DT.sum(axis=1)
        if self._settings.mean:
            scores_QD /= np.array([[max(len(query_TE), 1)] for query_TE in checked], np.float32)
        return scores_QD[0] if single else scores_QD

    def _plan(self, before: str, task: str | None, texts: list[str], progress: Progress | None) -> Plan:
        settings, threads = self._settings, self._loaded.threads
        max_length = {"query": self.query_length, "document": self.document_length}.get(task or "", self.max_length)
        ids_B = self._tokenizer.encode([before + text for text in texts], threads, max_length)
        seen_B = None
        if settings.expansion and not settings.expansion_seen:
            sign = -1 if settings.expansion_left else 1
            seen_B = [sign * len(ids) for ids in ids_B]
        if task == "query" and self._filling is not None:
            fillings_B = [np.full(max(0, settings.expansion - len(ids)), self._filling, np.int32) for ids in ids_B]
            pairs = zip(fillings_B, ids_B) if settings.expansion_left else zip(ids_B, fillings_B)
            ids_B = [np.concatenate(pair) for pair in pairs]
        skips = (task or "document") in settings.skipped_in

        def make_for(numbers: list[int]) -> Any:
            masks = [~np.isin(ids_B[b], self._skipped) for b in numbers] if skips and len(self._skipped) else None
            return partial(self._vectors, masks)

        return (yield from plan_batches(ids_B, make_for, threads, progress, seen_B=seen_B))

    def _vectors(self, masks: list[np.ndarray] | None, rows_ND: np.ndarray, starts_B1: np.ndarray) -> list[np.ndarray]:
        """The vectors [T, E] of each sentence; with masks of the tokens where its mask is True."""
        ops, first = self._loaded.ops, int(starts_B1[0])
        vectors_NE = self._dense(ops.take_rows(rows_ND, np.arange(first, int(starts_B1[-1]))))
        if self._text.normalize:
            vectors_NE = unit_length(vectors_NE)
        parts = [vectors_NE[start:end] for start, end in zip(starts_B1 - first, starts_B1[1:] - first)]
        return [part.copy() if masks is None else part[masks[b]] for b, part in enumerate(parts)]


def _blocks(lengths: list[int]) -> Iterable[tuple[int, int]]:
    """(first, end) of runs of documents with at most SCORED_ROWS rows together, or of a longer document alone."""
    first, rows = 0, 0
    for number, length in enumerate(lengths):
        if rows and rows + length > SCORED_ROWS:
            yield first, number
            first, rows = number, 0
        rows += length
    if first < len(lengths):
        yield first, len(lengths)


def _checked_vectors(name: str, vectors: Any, width: int) -> list[np.ndarray]:
    """float32 arrays [T, width]; InputError for anything else."""
    if isinstance(vectors, np.ndarray) and vectors.ndim != 3:
        raise InputError(f"{name} must be a list of arrays [tokens, {width}], got an array {list(vectors.shape)}")
    checked = []
    for number, x_TE in enumerate(vectors):
        if not isinstance(x_TE, np.ndarray) or x_TE.ndim != 2 or x_TE.shape[1] != width or x_TE.dtype.kind != "f":
            kind = f"{x_TE.dtype} {list(x_TE.shape)}" if isinstance(x_TE, np.ndarray) else type(x_TE).__name__
            raise InputError(f"{name} must be float arrays [tokens, {width}], number {number} is {kind}")
        checked.append(np.ascontiguousarray(x_TE, np.float32))
    return checked
