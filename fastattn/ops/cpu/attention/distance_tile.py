"""The rows of disentangled attention's distances (He 2021); see ``kernels/attention/distance_tile.py``."""

from typing import NamedTuple

import numpy as np

from fastattn.kernels.attention.constants import COLUMNS, DISTANCE_KEYS, KEYS, LONG, ROWS, STRIP, WIDE
from fastattn.ops.heads import Heads
from fastattn.simd.constants import LOG2_E
from fastattn.simd.target import LANES


class PackedDistances(NamedTuple):
    """Rows of distances for ``attention``, packed like keys.

    tables_XHP  [1 or 2, H, floats of a head]: p by s - t, then r by t - s, times the scale and log2(e)
    layout      int64: whether there is p, whether there is r, the width of a head, its bound and its reach
    """

    tables_XHP: np.ndarray
    layout: np.ndarray


def pack_distances(key_LE: np.ndarray | None, query_LE: np.ndarray | None, heads: Heads) -> PackedDistances:
    """The rows of disentangled attention (He 2021, section 3.1) for ``attention``.

    key_LE    [L, H K], L odd: row L // 2 + s - t is the key of position s seen from t, whose products with the query of
              t are added to its products with keys. Farther positions share the first row and the last; None: none
    query_LE  the same of queries, whose products with the key of s are added
    """
    both = (key_LE, 1.0), (None if query_LE is None else query_LE[::-1], _scale(heads) * LOG2_E)
    given = [(x_LE, factor) for x_LE, factor in both if x_LE is not None]
    farthest = len(given[0][0]) // 2
    reach = farthest + 2 * (LANES - 1)
    panels = -(-(2 * reach + 1) // COLUMNS)
    index_L = np.clip(np.arange(panels * COLUMNS) - reach, -farthest, farthest) + farthest
    tables_XHP = np.empty((len(given), heads.query_heads, panels * heads.width * COLUMNS), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # weights may be anything: they are data
        for table_HP, (x_LE, factor) in zip(tables_XHP, given, strict=True):
            panels_PCHK = x_LE[index_L].reshape(panels, COLUMNS, heads.query_heads, heads.width)
            packed_HPKC = table_HP.reshape(heads.query_heads, panels, heads.width, COLUMNS)
            np.multiply(panels_PCHK.transpose(2, 0, 3, 1), np.float32(factor), out=packed_HPKC)
    layout = (key_LE is not None, query_LE is not None, heads.width, reach - (LANES - 1), reach)
    return PackedDistances(tables_XHP, np.array(layout, np.int64))


def _scale(heads: Heads) -> float:
    return heads.width**-0.5 if heads.scale is None else heads.scale


def scratch_floats(width: int) -> int:
    """The scratch of a thread: a tile's scores by distance, a strip, a chunk's scores by distance, a tile's keys."""
    return ROWS * WIDE + STRIP * KEYS + DISTANCE_KEYS * LONG + ROWS * width
