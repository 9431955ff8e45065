"""What kernels hand to tiles, by name: addresses and distances in bytes, int64 in kernels, LLVM values in emitters."""

from typing import Any, NamedTuple


class Rows(NamedTuple):
    """Rows of float32, or of weights; with a distance of 0 one row, repeated."""

    address: Any
    distance: Any


class StagedRows(NamedTuple):
    """Rows staged by ``stage_rows`` and their factors, which integers alone have."""

    address: Any
    distance: Any
    factors: Any


class Panels(NamedTuple):
    """Packed weights, and memory to prefetch into L2 meanwhile, ``ahead_step`` bytes a step: if there is one panel."""

    address: Any
    distance: Any
    ahead: Any
    ahead_step: Any


class Affine(NamedTuple):
    """What makes outputs of sums, one number a column; factors and corrections for integers only."""

    bias: Any
    factors: Any
    corrections: Any


class LinearTile(NamedTuple):
    """Arguments of a linear tile's emitters, LLVM values; see make_linear_tile."""

    rows: StagedRows
    panels: Panels
    steps: Any
    out: Rows
    affine: Affine
    residual: Rows


class StagedRow(NamedTuple):
    """Addresses of a row staged by ``stage_rows`` and of its factor, which integers alone have."""

    address: Any
    factor: Any


class RowWidth(NamedTuple):
    """Bytes of a row's whole vectors, 4-byte words that are left, and the address of a mask of these."""

    whole: Any
    left: Any
    mask: Any


class Terms(NamedTuple):
    """What makes scores of sums: addresses, and whether integers are multiplied by the scales; floats always are.

    starts  int32 added to sums of integers, of each row of each query
    scales  a float32 factor of each row
    """

    starts: Any
    scales: Any
    scaled: Any
