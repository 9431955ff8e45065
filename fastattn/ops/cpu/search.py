"""Search: the rows of a corpus that are most similar to each query; see ``kernels/search.py``."""

import numpy as np

from fastattn.kernels.arguments import EMPTY, LAST_ID, LEAST_ROWS, MOST_ROWS, Corpus
from fastattn.runtime.arena import make_scratch_parts
from fastattn.runtime.handle import kernel_named
from fastattn.simd.arguments import QUERIES, ROWS, ROWS_OF_ONE, SIZE, WHOLE_BYTES, RowWidth

_search = kernel_named("search", "_search")

BLOCK_BYTES = 32 << 10  # rows that fit L1 with a tile's queries; with rows in L2, 512 queries take a quarter longer


def _stage(queries_QD: np.ndarray, corpus_itemsize: int, bits: bool) -> tuple[np.ndarray, np.ndarray]:
    """(staged_QW, starts_QR): queries padded to whole vectors and tiles, and the start values of integer sums."""
    Q, D = queries_QD.shape
    count, rows = (1, ROWS_OF_ONE) if Q == 1 else (-(-Q // QUERIES) * QUERIES, ROWS)
    is_integer = queries_QD.dtype != np.float32 and not bits
    step = SIZE // corpus_itemsize
    staged_QW = np.zeros(
        (count, -(-D // step) * step), np.int16 if is_integer and not WHOLE_BYTES else queries_QD.dtype
    )
    staged_QW[:Q, :D] = queries_QD
    starts_Q = np.zeros(count, np.int32)
    if is_integer and WHOLE_BYTES:
        starts_Q = staged_QW.sum(axis=1, dtype=np.int32) * np.int32(-128 if queries_QD.dtype == np.int8 else 128)
    is_float16 = queries_QD.itemsize > corpus_itemsize  # of the corpus; the kernel is compiled for ``dtype``
    dtype = np.uint32 if bits else np.uint16 if is_float16 else queries_QD.dtype
    return staged_QW.view(dtype), np.repeat(starts_Q, rows).reshape(count, rows)


def _copy_end(corpus_ND: np.ndarray, padding: int) -> tuple[np.ndarray, int]:
    """(a copy of the last rows in memory, with ``padding`` zero bytes behind; the address of those rows in the corpus).

    The copy has the rows that end within ``padding`` bytes of the corpus's last address, often a single row.
    """
    stride = abs(corpus_ND.strides[0])
    ascending_ND = corpus_ND if corpus_ND.strides[0] >= 0 else corpus_ND[::-1]
    rows = min(len(corpus_ND), 1 + max(padding - 1, 0) // stride if stride else 1)
    bytes_RB = np.ascontiguousarray(ascending_ND[len(corpus_ND) - rows :]).view(np.uint8)
    end_W = np.zeros((rows - 1) * stride + bytes_RB.shape[1] + padding, np.uint8)
    for r, bytes_B in enumerate(bytes_RB):
        end_W[r * stride : r * stride + len(bytes_B)] = bytes_B
    return end_W, ascending_ND.ctypes.data + (len(corpus_ND) - rows) * stride


def nearest_rows(
    queries_QD: np.ndarray, corpus_ND: np.ndarray, k: int, by_length: bool = False, bits: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    Q, N, row_bytes = len(queries_QD), len(corpus_ND), queries_QD.shape[1] * corpus_ND.itemsize
    staged_QW, starts_QR = _stage(queries_QD, corpus_ND.itemsize, bits)
    tail_bytes = row_bytes % SIZE
    mask_W = np.where(np.arange(SIZE) < tail_bytes, 255, 0).astype(np.uint8)
    end_W, end_address = _copy_end(corpus_ND, -row_bytes % 4)
    corpus = Corpus(corpus_ND.ctypes.data, N, corpus_ND.strides[0], end_address, end_W.ctypes.data)
    width = RowWidth(row_bytes - tail_bytes, -(-tail_bytes // 4), mask_W.ctypes.data)
    block = min(MOST_ROWS, max(LEAST_ROWS, BLOCK_BYTES // row_bytes // LEAST_ROWS * LEAST_ROWS))
    scratch_PB = make_scratch_parts(-(-N // block), starts_QR.nbytes)
    heaps_PQk = np.full((len(scratch_PB), Q, k), EMPTY, np.int64)
    _search(staged_QW, starts_QR, corpus, width, by_length, block, heaps_PQk, scratch_PB)
    items_Qk = np.sort(heaps_PQk.transpose(1, 0, 2).reshape(Q, -1), axis=1)[:, : -k - 1 : -1]
    absent_Qk, keys_Qk = items_Qk == EMPTY, (items_Qk >> 32).astype(np.int32)
    is_float = by_length or queries_QD.dtype == np.float32
    scores_Qk = np.where(keys_Qk < 0, keys_Qk ^ 0x7FFFFFFF, keys_Qk).view(np.float32) if is_float else keys_Qk
    scores_Qk = np.where(absent_Qk, -np.inf, scores_Qk).astype(np.float32)
    return scores_Qk, np.where(absent_Qk, -1, LAST_ID - (items_Qk & LAST_ID))
