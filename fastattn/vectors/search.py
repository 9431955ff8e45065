"""Semantic search: of a corpus of vectors, the nearest to each query."""

from typing import Any, NamedTuple

import numpy as np

from fastattn.errors import InputError, check_count, conversion, described
from fastattn.ops import backend, on_threads
from fastattn.ops.protocol import Ops
from fastattn.system.option_names import explains_options
from fastattn.vectors.similarity import unit_length

SCORE_FUNCTIONS = ("cosine", "dot", "hamming")
DTYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.int8), np.dtype(np.uint8))
MOST_NUMBERS = 1 << 15  # of a vector of integers: sums of more products may exceed int32
_LEFT_OUT = "left out: the corpus is read where it lies, and scores are not stored"
# What sentence-transformers, torch and faiss call the options.
OTHER_NAMES = {"corpus_chunk_size": _LEFT_OUT, "query_chunk_size": _LEFT_OUT, "k": "top_k"}
MOST_ROWS = (1 << 32) - 1


class SearchResult(NamedTuple):
    """What ``semantic_search`` found, the best first.

    scores  float32 [Q, k], or [k] for a single query; greater is more similar
    ids     int64 of the same shape: row numbers of the corpus; -1, and a score of -inf, where no more rows have a score
            that is a number
    """

    scores: np.ndarray
    ids: np.ndarray


@explains_options(OTHER_NAMES)
def semantic_search(
    query: Any,
    corpus: np.ndarray,
    top_k: int = 10,
    score_function: str = "cosine",
    *,
    threads: int | None = None,
    device: str = "cpu",
) -> SearchResult:
    """The ``top_k`` rows of ``corpus`` that are most similar to each query: (scores, ids).

    query    [Q, D], or [D] for one, of the corpus's dtype; of any float type if that is of floats
    corpus   a NumPy array [N, D] of float32, float16, int8 or uint8, perhaps ``np.load(path, mmap_mode="r")``. It is
             read once for all queries, where it lies: it is not copied, and the scores [Q, N] are not stored
    top_k    N at most: a smaller corpus gives N columns
    score_function  "cosine", for rows of lengths up to 1e19; "dot"; or "hamming", minus the number of bits that
             differ, for rows of packed bits ("binary", int8, and "ubinary", uint8, of sentence-transformers)
    threads  the most to use; None: those of ``use_threads``, else all that the process may use
    device   "cpu", which searches
    A row whose score is NaN is not found: where fewer than ``top_k`` are left, ids of -1 with scores of -inf fill the
    columns. Equal scores are in the order of row numbers. A query's result has the same bits whatever the other queries
    and the number of threads. Products of integers are added exactly. InputError for arguments that do not fit.
    """
    if score_function not in SCORE_FUNCTIONS:
        known = ", ".join(SCORE_FUNCTIONS)
        raise InputError(f"unknown score_function {described(score_function)}; known: {known}")
    corpus_ND = _checked_corpus(corpus, score_function)
    queries_QD, single = _checked_queries(query, corpus_ND)
    k = min(check_count("top_k", top_k), len(corpus_ND))
    ops = backend(device)
    with on_threads(ops, threads):
        scores_Qk, ids_Qk = _search(ops, queries_QD, corpus_ND, k, score_function)
    return SearchResult(scores_Qk[0], ids_Qk[0]) if single else SearchResult(scores_Qk, ids_Qk)


def _search(
    ops: Ops, queries_QD: np.ndarray, corpus_ND: np.ndarray, k: int, score_function: str
) -> tuple[np.ndarray, np.ndarray]:
    if not len(queries_QD) or not k:
        return np.zeros((len(queries_QD), k), np.float32), np.zeros((len(queries_QD), k), np.int64)
    if score_function != "cosine":
        return ops.nearest_rows(queries_QD, corpus_ND, k, bits=score_function == "hamming")
    if queries_QD.dtype == np.float32:
        with np.errstate(invalid="ignore"):  # of an infinite query, which is similar to nothing
            units_QD = unit_length(queries_QD)
        return ops.nearest_rows(units_QD, corpus_ND, k, by_length=True)
    scores_Qk, ids_Qk = ops.nearest_rows(queries_QD, corpus_ND, k, by_length=True)
    lengths_Q1 = np.sqrt(np.square(queries_QD.astype(np.int64)).sum(axis=1, keepdims=True)).astype(np.float32)
    return scores_Qk / np.maximum(lengths_Q1, np.float32(1)), ids_Qk


def _checked_corpus(corpus: Any, score_function: str) -> np.ndarray:
    if not isinstance(corpus, np.ndarray):
        raise InputError(
            f"corpus should be a NumPy array, which is searched where it lies; got {type(corpus).__name__}; write "
            f"{conversion('corpus', corpus)}"
        )
    if corpus.ndim != 2 or not corpus.shape[1]:
        raise InputError(f"corpus should be vectors [rows, numbers], got shape {corpus.shape}")
    if corpus.dtype not in DTYPES:
        way = conversion("corpus", corpus)
        raise InputError(f"corpus should be float32, float16, int8 or uint8, got {corpus.dtype}; write {way}")
    if corpus.shape[1] > 1 and corpus.strides[1] != corpus.itemsize:
        raise InputError("the numbers of a row of corpus should be adjacent: np.ascontiguousarray copies it so")
    if len(corpus) > MOST_ROWS:
        raise InputError(f"corpus should have at most {MOST_ROWS:,} rows, got {len(corpus):,}")
    floats = corpus.dtype.kind == "f"
    if score_function == "hamming" and floats:
        raise InputError(f"hamming compares bits: corpus should be int8 or uint8, got {corpus.dtype}")
    if not floats and corpus.shape[1] > MOST_NUMBERS:
        raise InputError(
            f"vectors of {corpus.dtype} should have at most {MOST_NUMBERS:,} numbers, got {corpus.shape[1]:,}"
        )
    return corpus


def _checked_queries(query: Any, corpus_ND: np.ndarray) -> tuple[np.ndarray, bool]:
    """(queries_QD of the corpus's dtype, float32 for float16, whether there was one vector alone)."""
    try:
        array = np.asarray(query)
    except ValueError:  # lists of different lengths
        raise InputError("query should be a vector or vectors of one width, got lists of different lengths") from None
    D, wanted = corpus_ND.shape[1], np.dtype(np.float32) if corpus_ND.dtype == np.float16 else corpus_ND.dtype
    if array.ndim not in (1, 2) or array.shape[-1] != D:
        raise InputError(f"query should be of the corpus's width, [{D}] or [queries, {D}]; got shape {array.shape}")
    if array.dtype != wanted and (wanted.kind, array.dtype.kind) != ("f", "f"):
        raise InputError(f"query should be {wanted} for a corpus of {corpus_ND.dtype}; got {array.dtype}")
    with np.errstate(over="ignore"):
        return np.atleast_2d(array).astype(wanted, copy=False), array.ndim == 1
