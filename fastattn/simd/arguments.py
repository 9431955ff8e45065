"""What kernels hand to tiles, by name: addresses and distances in bytes, int64 in kernels, LLVM values in emitters."""

from collections import namedtuple

# rows of float32, or of weights; with a distance of 0 one row, repeated
Rows = namedtuple("Rows", "address distance")
# rows, or one, staged by ``stage_rows``, and their factors, which integers alone have
StagedRows = namedtuple("StagedRows", "address distance factors")
StagedRow = namedtuple("StagedRow", "address factor")
# packed weights, and memory to prefetch into L2 meanwhile, ``ahead_step`` bytes a step: if there is one panel
Panels = namedtuple("Panels", "address distance ahead ahead_step")
# what makes outputs of sums, one number a column; factors and corrections for integers only
Affine = namedtuple("Affine", "bias factors corrections")
# what emitters of linear tiles take: StagedRows, Panels, the number of steps, Rows, Affine, Rows; see make_linear_tile
LinearTile = namedtuple("LinearTile", "rows panels steps out affine residual")
# bytes of a row's whole vectors, 4-byte words that are left, and the address of a mask of these
RowWidth = namedtuple("RowWidth", "whole left mask")
# what makes scores of sums: int32 added to sums of integers, of each row of each query; a float32 factor of each row;
# whether integers are multiplied by it, as floats always are
Terms = namedtuple("Terms", "starts scales scaled")
