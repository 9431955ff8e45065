"""The pool of the cache's rows: none is handed out twice, growing keeps them, and they lie where kernels read fast."""

import numpy as np
import pytest

from fastattn.ops import cpu as operations
from fastattn.ops import reference
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


@pytest.mark.parametrize("ops", [operations, reference], ids=["kernels", "reference"])
def test_growing_keeps_what_rows_hold(ops):
    rng, width = np.random.default_rng(0), 24
    pool = RowPool(ops, [width] * 2, np.dtype(np.float32), ROWS)
    held = {}
    for count in (ROWS - 1, 3, 5 * ROWS, 1):
        rows_N = pool.take(count)
        assert not set(rows_N) & set(held) and len(set(rows_N)) == count
        for layer in range(2):
            values_NE = rng.standard_normal((count, 3 * width)).astype(np.float32)[:, width : 2 * width]
            pool.layers[layer][rows_N, :width] = values_NE
            for row, values_E in zip(rows_N, values_NE, strict=True):
                held.setdefault(row, []).append(values_E)
    for row, layers in held.items():
        for layer, values_E in enumerate(layers):
            np.testing.assert_array_equal(pool.layers[layer][row, :width], values_E)


def test_rows_given_back_are_handed_out_again():
    pool = RowPool(operations, [8], np.dtype(np.float32), ROWS)
    rows_N = pool.take(ROWS)
    pool.give_back(rows_N[::2])
    assert set(pool.take(ROWS // 2)) == set(rows_N[::2]) and pool.rows == ROWS


@pytest.mark.parametrize("ops", [operations, reference], ids=["kernels", "reference"])
def test_shrinking_moves_kept_rows_to_the_front_and_hands_out_the_others(ops):
    pool = RowPool(ops, [8], np.dtype(np.float32), ROWS)
    rows_N, values_NE = pool.take(10), np.random.default_rng(1).standard_normal((10, 8)).astype(np.float32)
    pool.layers[0][rows_N, :8] = values_NE
    pool.keep_only(rows_N[[7, 1, 4]], 16)
    np.testing.assert_array_equal(pool.layers[0][:3, :8], values_NE[[7, 1, 4]])
    assert (pool.rows, pool.free) == (16, 13) and sorted(pool.take(13)) == [*range(3, 16)]
