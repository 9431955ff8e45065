"""Arguments of the attention operations: heads, biases, keys that queries see, callers' arrays."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np


class Heads(NamedTuple):
    """The heads of queries, keys and values in rows that may have other columns too.

    query_heads    head h attends to the keys and values of head h // (query_heads // key_heads) (Ainslie 2023)
    width          of a head of a query and of a key; ``value_width``: of a value, 0: ``width``
    query_column   the column of the first head in a query's row; likewise ``key_column`` and ``value_column``
    scale          multiplies the scores; None: 1 / sqrt(width)
    softcap        a scaled score s becomes softcap * tanh(s / softcap); 0: no cap. The cap comes before bias and mask,
                   so that a hidden key stays hidden, as in Gemma 2 (Gemma Team 2024), FlashAttention and the newer
                   versions of ONNX's Attention
    narrow         whether products may round their operands to bfloat16 where that is faster; sums and the softmax stay
                   in float32
    """

    query_heads: int
    key_heads: int
    width: int
    value_width: int = 0
    query_column: int = 0
    key_column: int = 0
    value_column: int = 0
    scale: float | None = None
    softcap: float = 0.0
    narrow: bool = False


class PositionBias(NamedTuple):
    """Bias of a query at position p and a key at position s, by head: none or one of two arrays in the scores' dtype.

    slopes_H    adds slope (s - p), or with ``from_start`` slope s (ALiBi, Press 2022)
    table_HL    adds table[s - p + L // 2]; L is odd, and no distance is beyond L // 2 (T5, Raffel 2020)
    """

    slopes_H: np.ndarray | None = None
    table_HL: np.ndarray | None = None
    from_start: bool = False


class RaggedBatch(NamedTuple):
    """Sentences one after another; a query sees keys of its own sentence only.

    query_starts_B1  int64: sentence b has query rows query_starts[b] .. query_starts[b + 1]; likewise ``key_starts_B1``
    seen_N2          int64: row n sees keys seen[n, 0] <= s < seen[n, 1] of its sentence (``seen_around``); None: all
    sinks            a row that sees any key also sees the first ``sinks`` keys of its sentence (Xiao 2023)
    """

    query_starts_B1: np.ndarray
    key_starts_B1: np.ndarray
    seen_N2: np.ndarray | None = None
    sinks: int = 0


class KeyIndex(NamedTuple):
    """Lists of row numbers in tables of keys and values: query n sees index[rows[n], s] for firsts[n] <= s < stops[n].

    index_RS   int32; beams share and reorder their history by changing this index, so keys are never copied
    stops_N    int64; so are rows_N (None: row n) and firsts_N (None: 0)
    window     a query sees only the last ``window`` of these keys; 0: all
    """

    index_RS: np.ndarray
    stops_N: np.ndarray
    rows_N: np.ndarray | None = None
    firsts_N: np.ndarray | None = None
    window: int = 0


NONE, SOME, ALL = 0, 1, 2  # how many keys of a block its queries see; SOME if unknown


class StridedArrays(NamedTuple):
    """Queries, keys, values and results: adjacent numbers along the last axis, any strides along the other three.

    Queries, keys and values are of one type: float32, float16 or uint16, the bits of bfloat16; results are of that type
    or float32. Query heads are a multiple of the key heads.
    shape   sentences, query heads, queries of the longest sentence, keys of the longest
    starts  two int64 [B + 1]: where each sentence's queries begin among all queries, and its keys among all keys
    ragged  the arrays have one "sentence", in which the sentences lie one after another at ``starts``
    """

    query_BTHK: np.ndarray
    key_BSGK: np.ndarray
    value_BSGV: np.ndarray
    out_BTHV: np.ndarray  # written
    shape: tuple[int, int, int, int]
    starts: tuple[np.ndarray, np.ndarray]
    ragged: bool = False

    def sentences(self) -> Iterator[tuple[slice, tuple[np.ndarray, ...]]]:
        """By sentence: its rows of all queries; its queries, keys, values and results [positions, heads, width]."""
        for b, (first, stop) in enumerate(zip(self.starts[0][:-1], self.starts[0][1:])):
            rows, keys = slice(int(first), int(stop)), slice(int(self.starts[1][b]), int(self.starts[1][b + 1]))
            if self.ragged:
                query, key, value, out = (array[0] for array in self[:4])
                yield rows, (query[rows], key[keys], value[keys], out[rows])
            else:
                yield rows, tuple(array[b] for array in self[:4])


class KeyMask(NamedTuple):
    """Keys that queries see: a query sees a key that no field hides.

    seen_N2      int64: each query's first key and the stop of its keys; None: all. A query that sees any key also sees
                 the first ``sinks`` keys
    mask_BHTS    bool; axes of length one are broadcast
    states_BHTS  uint8, for each block of ``block`` (queries, keys) how many keys are seen: NONE, SOME or ALL; the first
                 two axes are broadcast
    function     a mask_mod, compiled
    """

    seen_N2: np.ndarray | None = None
    sinks: int = 0
    mask_BHTS: np.ndarray | None = None
    states_BHTS: np.ndarray | None = None
    block: tuple[int, int] = (1, 1)
    function: Any = None


class ScoreTerms(NamedTuple):
    """What changes scores after the scale and cap of ``Heads``, or replaces the products.

    bias_BHTS  float32, added; axes of length one are broadcast; -inf hides a key
    sinks_H    float32, a logit that takes part in each softmax of its head
    function   a score_mod, compiled; it is applied before the bias
    vector_HK  float32: scores are v . tanh(q + k), without the scale
    """

    bias_BHTS: np.ndarray | None = None
    sinks_H: np.ndarray | None = None
    function: Any = None
    vector_HK: np.ndarray | None = None


class SoftmaxOutputs(NamedTuple):
    """Arrays that are written in addition to the result; None: not written.

    weights_BHTS  float32 zeros: the softmax weights
    logs          float32 [B, H, T], or [N, H] of ragged arrays: the logarithm of each softmax's sum
    """

    weights_BHTS: np.ndarray | None = None
    logs: np.ndarray | None = None


def mask_states(mask: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    """uint8: NONE, SOME or ALL for each block of a boolean array, whose last two axes are cut by ``block``."""
    any_seen = all_seen = mask
    for axis, size in zip((-2, -1), block):
        firsts = np.arange(0, mask.shape[axis], size)
        any_seen = np.logical_or.reduceat(any_seen, firsts, axis)
        all_seen = np.logical_and.reduceat(all_seen, firsts, axis)
    return any_seen.astype(np.uint8) + all_seen
