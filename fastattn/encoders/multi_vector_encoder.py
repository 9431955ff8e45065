"""MultiVectorEncoder: texts in, a vector a token out, by which queries and documents are compared (ColBERT)."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastattn.encoders.base import EncoderBase, plan_batches
from fastattn.encoders.vector_head import DenseLayers, check_dense, find_prompt
from fastattn.errors import CheckpointError, InputError, described
from fastattn.scheduling.request import Plan
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import MAX_EXPANSION, MultiVectorText
from fastattn.system.option_names import TEXTS, explains_options
from fastattn.system.progress import Progress
from fastattn.vectors.search import unit_length

# Rows of documents that are scored at once, copied to lie end to end.
SCORED_ROWS = 1 << 14


class MultiVectorEncoder(EncoderBase):
    """A vector of each token of a text, as sentence-transformers and PyLate compute them (Khattab and Zaharia 2020).

    The checkpoint says how queries and documents differ: what stands before them, how long they are, which token fills
    queries up, which tokens are skipped.
    Raises CheckpointError for a path without a valid checkpoint that is made for a vector a token.
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
        self._dense = DenseLayers(self._text, self._spec.width, self._loaded)
        tokenizer, settings, limit = self._tokenizer, self._settings, self._spec.max_positions
        tokenizer.keep_whole(settings.markers)
        unknown, indices = tokenizer.unknown_id, (tokenizer.index(word) for word in settings.skipped)
        self._skipped_ids = np.array([i for i in indices if i is not None and i != unknown], np.int32)
        self._expansion_id = tokenizer.index(settings.expansion_token) if settings.expansion else None
        if settings.expansion and self._expansion_id is None:
            raise CheckpointError(f"the tokenizer has no {described(settings.expansion_token)}, which fills queries up")
        if settings.expansion > MAX_EXPANSION:
            raise CheckpointError(
                f"queries should be filled up to at most {MAX_EXPANSION} ids, not {settings.expansion}"
            )
        specials = tokenizer.max_length - tokenizer.room
        for name, length in (("query_length", self.query_length), ("document_length", self.document_length)):
            if length < specials + 1 or (limit and length > limit):
                raise CheckpointError(f"{name} {length} does not fit {specials} special tokens and {limit} positions")

    @property
    def dimension(self) -> int:
        """The width of a vector."""
        return self._dense.width

    @property
    def query_length(self) -> int:
        """The most ids of a query, including the special ones and those of the prompt; longer queries are cut."""
        settings = self._settings
        if settings.expansion and settings.expansion_cuts:
            return settings.expansion
        return max(settings.query_length or self.max_length, settings.expansion)

    @property
    def document_length(self) -> int:
        """The most ids of a document, counted as for ``query_length``."""
        return self._settings.document_length or self.max_length

    def encode_query(self, texts: str | Iterable[str], **options: Any) -> Any:
        """``encode`` with ``task="query"``: a list of float32 [T, dimension]; one array for a str."""
        return self.encode(texts, task="query", **options)

    def encode_document(self, texts: str | Iterable[str], **options: Any) -> Any:
        """``encode`` with ``task="document"``, usually without the vectors of skipped tokens."""
        return self.encode(texts, task="document", **options)

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

        task                 "query" or "document"; None: a document without a prompt, cut at the encoder's max_length
        prompt_name, prompt  put before every text, chosen as for ``Encoder.encode``
        Raises InputError for other values.
        """
        chosen_prompt = find_prompt(self._text, prompt_name, prompt, task)
        return self._run(partial(self._plan, chosen_prompt, task), texts, show_progress_bar)

    def score(self, queries: Any, documents: Sequence[np.ndarray]) -> np.ndarray:
        """float32 scores of documents for a query: [len(documents)]; [len(queries), len(documents)] for several.

        A score is the sum, over the query's vectors, of the greatest product with a vector of the document (MaxSim),
        or the mean where the checkpoint says so; -inf for a document without vectors.
        queries, documents  as ``encode_query`` and ``encode_document`` return them
        """
        is_single = isinstance(queries, np.ndarray) and queries.ndim == 2
        queries_Q = _checked_vectors("queries", [queries] if is_single else queries, self.dimension)
        documents_D = _checked_vectors("documents", documents, self.dimension)
        scores_QD = np.empty((len(queries_Q), len(documents_D)), np.float32)
        ops = self._loaded.ops
        with ops.use_threads(self._loaded.threads):
            packed_Q = [ops.pack_linear(query_TE) if len(query_TE) else None for query_TE in queries_Q]
            for first, end in _blocks([len(document_SE) for document_SE in documents_D]):
                starts_D1 = np.zeros(end - first + 1, np.int64)
                np.cumsum([len(document_SE) for document_SE in documents_D[first:end]], out=starts_D1[1:])
                rows_NE = np.concatenate(documents_D[first:end])
                for q, packed in enumerate(packed_Q):
                    scores_QD[q, first:end] = 0
                    if packed is not None:
                        peaks_DT = ops.project_peaks(rows_NE, starts_D1, packed, -np.inf)
                        scores_QD[q, first:end] = peaks_DT.sum(axis=1)
        if self._settings.mean:
            scores_QD /= np.array([[max(len(query_TE), 1)] for query_TE in queries_Q], np.float32)
        return scores_QD[0] if is_single else scores_QD

    def _plan(self, prompt: str, task: str | None, texts: list[str], progress: Progress | None) -> Plan:
        settings, threads = self._settings, self._loaded.threads
        max_length = {"query": self.query_length, "document": self.document_length}.get(task or "", self.max_length)
        ids_B = self._tokenizer.encode([prompt + text for text in texts], threads, max_length)
        visible_B = None
        if settings.expansion and not settings.expansion_seen:
            sign = -1 if settings.expansion_left else 1
            visible_B = [sign * len(ids) for ids in ids_B]
        if task == "query" and self._expansion_id is not None:
            fillings_B = [np.full(max(0, settings.expansion - len(ids)), self._expansion_id, np.int32) for ids in ids_B]
            pairs = zip(fillings_B, ids_B) if settings.expansion_left else zip(ids_B, fillings_B)
            ids_B = [np.concatenate(pair) for pair in pairs]
        skips_tokens = (task or "document") in settings.skipped_in and len(self._skipped_ids) > 0

        def maker_for(numbers: list[int]) -> Any:
            masks = [~np.isin(ids_B[b], self._skipped_ids) for b in numbers] if skips_tokens else None
            return partial(self._vectors, masks)

        return (yield from plan_batches(ids_B, maker_for, threads, progress, visible_B=visible_B))

    def _vectors(self, masks: list[np.ndarray] | None, rows_ND: np.ndarray, starts_B1: np.ndarray) -> list[np.ndarray]:
        """The vectors [T, E] of each sentence's tokens; with masks, of those tokens alone whose mask is True."""
        ops, first = self._loaded.ops, int(starts_B1[0])
        vectors_NE = self._dense(ops.take_rows(rows_ND, np.arange(first, int(starts_B1[-1]))))
        if self._text.normalize:
            vectors_NE = unit_length(vectors_NE)
        views_B = [vectors_NE[start:end] for start, end in zip(starts_B1 - first, starts_B1[1:] - first)]
        return [view_TE.copy() if masks is None else view_TE[masks[b]] for b, view_TE in enumerate(views_B)]


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
    arrays = []
    for number, x_TE in enumerate(vectors):
        if not isinstance(x_TE, np.ndarray) or x_TE.ndim != 2 or x_TE.shape[1] != width or x_TE.dtype.kind != "f":
            found = f"{x_TE.dtype} {list(x_TE.shape)}" if isinstance(x_TE, np.ndarray) else type(x_TE).__name__
            raise InputError(f"{name} must be float arrays [tokens, {width}], number {number} is {found}")
        arrays.append(np.ascontiguousarray(x_TE, np.float32))
    return arrays
