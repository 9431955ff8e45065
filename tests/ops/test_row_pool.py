"""The pool of the cache's rows: none is handed out twice, growing keeps them, and they lie where kernels read fast."""

import numpy as np
import pytest

from fastattn.ops import cpu as operations
from fastattn.ops.row_pool import RowPool
from fastattn.simd.arguments import LINE

ROWS = 64


@pytest.mark.parametrize("dtype", [np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 48, 1024])
def test_rows_start_at_a_line_and_lie_an_odd_number_of_lines_apart(width, dtype):
    pool = RowPool(operations, [width] * 2, np.dtype(dtype), ROWS)
    for _ in range(2):
        for values_ME in pool.layers:
            assert values_ME.shape[0] == pool.rows and values_ME.shape[1] >= width
            assert values_ME.flags.c_contiguous and values_ME.ctypes.data % LINE == 0
            assert values_ME.strides[0] % (2 * LINE) == LINE
        pool.take(pool.rows + 1)
