"""Similarities of vectors, and semantic search: the vectors of a corpus that are nearest to each query."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastattn.errors import InputError, check_count, check_known, conversion
from fastattn.ops import backend, on_threads
from fastattn.ops.protocol import Ops
from fastattn.system.option_names import explains_options

_LEAST_NORM = 1e-12


def unit_length(x_ND: np.ndarray) -> np.ndarray:
    """The rows divided by their length; zero rows stay zero."""
    with np.errstate(over="ignore"):
        lengths_N1 = np.sqrt(np.square(x_ND).sum(axis=1, keepdims=True))
    if np.isinf(lengths_N1).any():  # the squares overflow, but not after a division by the row's greatest number
        greatest_N1 = np.abs(x_ND).max(axis=1, keepdims=True)
        large_N1 = np.isinf(lengths_N1) & np.isfinite(greatest_N1)
        x_ND = x_ND / np.where(large_N1, greatest_N1, x_ND.dtype.type(1))
        lengths_N1 = np.where(large_N1, np.sqrt(np.square(x_ND).sum(axis=1, keepdims=True)), lengths_N1)
    return x_ND / np.maximum(lengths_N1, x_ND.dtype.type(_LEAST_NORM))


def _without_overflow(products: Callable, a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    """``products`` of the rows; in float64 where float32 overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        result = products(a_ND, b_ND)
        return result if np.isfinite(result).all() else products(a_ND.astype(np.float64), b_ND.astype(np.float64))


def _products(a_AD: np.ndarray, b_BD: np.ndarray) -> np.ndarray:
    return a_AD @ b_BD.T


def _pairwise_products(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    return np.einsum("nd,nd->n", a_ND, b_ND)


def _euclidean(a_AD: np.ndarray, b_BD: np.ndarray) -> np.ndarray:
    # In float64, since |a|^2 + |b|^2 - 2 ab cancels where a and b are close.
    a_AD, b_BD = a_AD.astype(np.float64), b_BD.astype(np.float64)
    squared_AB = np.square(a_AD).sum(axis=1)[:, None] + np.square(b_BD).sum(axis=1) - 2 * (a_AD @ b_BD.T)
    return -np.sqrt(np.maximum(squared_AB, 0))


def _manhattan(a_AD: np.ndarray, b_BD: np.ndarray) -> np.ndarray:
    return -np.stack([np.abs(a_D - b_BD).sum(axis=1) for a_D in a_AD])


SIMILARITIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda a_AD, b_BD: _products(unit_length(a_AD), unit_length(b_BD)),
    "dot": partial(_without_overflow, _products),
    "euclidean": _euclidean,
    "manhattan": _manhattan,
}


def _pairwise_euclidean(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    differences_ND = np.subtract(a_ND, b_ND, dtype=np.float64)
    return -np.sqrt(_pairwise_products(differences_ND, differences_ND))


PAIRWISE_SIMILARITIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda a_ND, b_ND: _pairwise_products(unit_length(a_ND), unit_length(b_ND)),
    "dot": partial(_without_overflow, _pairwise_products),
    "euclidean": _pairwise_euclidean,
    "manhattan": lambda a_ND, b_ND: -np.abs(a_ND - b_ND).sum(axis=1),
}


def similarity(a: np.ndarray, b: np.ndarray, function: str = "cosine") -> np.ndarray:
    """similarity_AB float32 of vectors a [A, D] or [D] and b [B, D] or [D]; distances get a minus sign.

    function  "cosine", "dot", "euclidean" or "manhattan". InputError for other names and for shapes that do not fit.
    """
    a_AD, b_BD = _checked_vectors(a, b, function)
    if not len(a_AD) or not len(b_BD):
        return np.zeros((len(a_AD), len(b_BD)), np.float32)
    with np.errstate(over="ignore"):  # what is beyond float32 is infinite
        return SIMILARITIES[function](a_AD, b_BD).astype(np.float32, copy=False)


def similarity_pairwise(a: np.ndarray, b: np.ndarray, function: str = "cosine") -> np.ndarray:
    """similarity_N float32 of each vector of a [N, D] or [D] with the same row of b, as ``similarity``."""
    a_ND, b_ND = _checked_vectors(a, b, function)
    if len(a_ND) != len(b_ND):
        raise InputError(f"pairs of vectors are expected, got shapes {np.shape(a)} and {np.shape(b)}")
    with np.errstate(over="ignore"):
        return PAIRWISE_SIMILARITIES[function](a_ND, b_ND).astype(np.float32, copy=False)


def _checked_vectors(a: Any, b: Any, function: str) -> tuple[np.ndarray, np.ndarray]:
    """a_AD, b_BD; InputError for vectors of different widths and an unknown function."""
    if function not in SIMILARITIES:
        raise InputError(f"unknown similarity {function!r}; known: {', '.join(SIMILARITIES)}")
    a_AD, b_BD = _float_rows(a), _float_rows(b)
    if a_AD.ndim != 2 or b_BD.ndim != 2 or a_AD.shape[1] != b_BD.shape[1]:
        raise InputError(f"vectors of one width are expected, got shapes {np.shape(a)} and {np.shape(b)}")
    return a_AD, b_BD


def _float_rows(x: Any) -> np.ndarray:
    """``x`` as float32 rows; float64 where a number is beyond float32."""
    try:
        array = np.asarray(x)
    except ValueError:  # lists of different lengths
        raise InputError("vectors of one width are expected, got lists of different lengths") from None
    if array.dtype.kind not in "iuf":
        raise InputError(f"vectors are expected, got {type(x).__name__} of {array.dtype}")
    with np.errstate(over="ignore"):
        rows = array.astype(np.float32, copy=False)
    if array.dtype.kind == "f" and array.dtype != np.float32 and (np.isinf(rows) & np.isfinite(array)).any():
        rows = array.astype(np.float64, copy=False)
    return np.atleast_2d(rows)


SCORE_FUNCTIONS = ("cosine", "dot", "hamming")
DTYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.int8), np.dtype(np.uint8))
MOST_NUMBERS = 1 << 15  # of a vector of integers: sums of more products may exceed int32
_NO_CHUNKS = "left out: the corpus is read where it lies, and scores are not stored"
# Options of sentence-transformers, torch and faiss -> the option here, or why there is none.
OTHER_NAMES = {"corpus_chunk_size": _NO_CHUNKS, "query_chunk_size": _NO_CHUNKS, "k": "top_k"}
MOST_ROWS = (1 << 32) - 1  # of a corpus


class SearchResult(NamedTuple):
    """The result of ``semantic_search``, the best rows first.

    scores  float32 [Q, k], or [k] for a single query; greater is more similar
    ids     int64 of the same shape: row numbers of the corpus; -1, with a score of -inf, where fewer rows than k have a
            score that is not NaN
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

    query    [Q, D], or [D] for a single query, of the corpus's dtype; any float dtype for a corpus of floats
    corpus   a NumPy array [N, D] of float32, float16, int8 or uint8, perhaps ``np.load(path, mmap_mode="r")``. The
             search reads it once for all queries and does not copy it; the scores [Q, N] are not stored
    top_k    at most N rows are returned, even if ``top_k`` is greater
    score_function  "cosine", for rows of lengths up to 1e19; "dot"; or "hamming", minus the number of bits that
             differ, for rows of packed bits ("binary", int8, and "ubinary", uint8, of sentence-transformers)
    threads  the most threads; None: those of ``use_threads``, else all that the process may use
    device   where the search runs: "cpu", "cuda" or "auto"
    The result leaves out rows whose score is NaN. Equal scores are in the order of row numbers. A query's result has
    the same bits whatever the other queries and the number of threads. Products of integers are added exactly.
    InputError for arguments that do not fit.
    """
    check_known("score_function", score_function, SCORE_FUNCTIONS)
    corpus_ND = _checked_corpus(corpus, score_function)
    queries_QD, is_single = _checked_queries(query, corpus_ND)
    k = min(check_count("top_k", top_k), len(corpus_ND))
    ops = backend(device)
    with on_threads(ops, threads):
        scores_Qk, ids_Qk = _search(ops, queries_QD, corpus_ND, k, score_function)
    return SearchResult(scores_Qk[0], ids_Qk[0]) if is_single else SearchResult(scores_Qk, ids_Qk)


def _search(
    ops: Ops, queries_QD: np.ndarray, corpus_ND: np.ndarray, k: int, score_function: str
) -> tuple[np.ndarray, np.ndarray]:
    if not len(queries_QD) or not k:
        return np.zeros((len(queries_QD), k), np.float32), np.zeros((len(queries_QD), k), np.int64)
    if score_function != "cosine":
        return ops.nearest_rows(queries_QD, corpus_ND, k, bits=score_function == "hamming")
    if queries_QD.dtype == np.float32:
        with np.errstate(invalid="ignore"):  # an infinite query becomes NaN, which is similar to nothing
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
        code = conversion("corpus", corpus)
        raise InputError(f"corpus should be float32, float16, int8 or uint8, got {corpus.dtype}; write {code}")
    if corpus.shape[1] > 1 and corpus.strides[1] != corpus.itemsize:
        raise InputError("the numbers of a row of corpus should be adjacent: np.ascontiguousarray copies it so")
    if len(corpus) > MOST_ROWS:
        raise InputError(f"corpus should have at most {MOST_ROWS:,} rows, got {len(corpus):,}")
    has_floats, width = corpus.dtype.kind == "f", corpus.shape[1]
    if score_function == "hamming" and has_floats:
        raise InputError(f"hamming compares bits: corpus should be int8 or uint8, got {corpus.dtype}")
    if not has_floats and width > MOST_NUMBERS:
        raise InputError(f"vectors of {corpus.dtype} should have at most {MOST_NUMBERS:,} numbers, got {width:,}")
    return corpus


def _checked_queries(query: Any, corpus_ND: np.ndarray) -> tuple[np.ndarray, bool]:
    """(queries_QD of the corpus's dtype, float32 for float16; whether ``query`` is a single vector)."""
    try:
        array = np.asarray(query)
    except ValueError:  # lists of different lengths
        raise InputError("query should be a vector or vectors of one width, got lists of different lengths") from None
    D, dtype = corpus_ND.shape[1], np.dtype(np.float32) if corpus_ND.dtype == np.float16 else corpus_ND.dtype
    if array.ndim not in (1, 2) or array.shape[-1] != D:
        raise InputError(f"query should be of the corpus's width, [{D}] or [queries, {D}]; got shape {array.shape}")
    if array.dtype != dtype and (dtype.kind, array.dtype.kind) != ("f", "f"):
        raise InputError(f"query should be {dtype} for a corpus of {corpus_ND.dtype}; got {array.dtype}")
    with np.errstate(over="ignore"):
        return np.atleast_2d(array).astype(dtype, copy=False), array.ndim == 1
