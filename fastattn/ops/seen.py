"""Which keys the queries of attention see: those of their sentence, or those that a list has for them."""

from typing import NamedTuple

import numpy as np


class RaggedBatch(NamedTuple):
    """Sentences one after another, each of whose queries sees keys of its own sentence.

    query_starts_B1  int64: sentence b has query rows query_starts[b] .. query_starts[b + 1]; likewise ``key_starts_B1``
    seen_N2          int64: row n sees keys seen[n, 0] <= s < seen[n, 1] of its sentence, see seen_around; None: all
    sinks            a row that sees any key also sees the earlier ones below this (Xiao 2023)
    """

    query_starts_B1: np.ndarray
    key_starts_B1: np.ndarray
    seen_N2: np.ndarray | None = None
    sinks: int = 0


class KeyIndex(NamedTuple):
    """Lists of row numbers in tables of keys and values: query n sees index[rows[n], s] for firsts[n] <= s < stops[n].

    index_RS   int32; beams share and reorder their history through it, and keys are never copied
    stops_N    int64, as are ``rows_N``, None: n, and ``firsts_N``, None: 0
    """

    index_RS: np.ndarray
    stops_N: np.ndarray
    rows_N: np.ndarray | None = None
    firsts_N: np.ndarray | None = None
