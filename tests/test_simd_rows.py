"""What attention asks of vectors: powers of two, squares transposed, dot products of rows that lie anywhere."""

import numba
import numpy as np
import pytest

from fastattn.simd.rows import dot_rows, transpose_first
from fastattn.simd.target import LANES
from fastattn.simd.vector import exp2, load, store


@numba.njit
def powers(x, out):
    for i in range(0, x.size, LANES):
        store(exp2(load(x.ctypes.data + i * 4)), out.ctypes.data + i * 4)


@numba.njit
def turn(source, rows, columns, out):
    transpose_first(source.ctypes.data, source.shape[1] * 4, rows, columns, out.ctypes.data, LANES * 4)


@numba.njit
def dots(query, rows, index, out):
    store(
        dot_rows(query.ctypes.data, rows.ctypes.data, rows.shape[1] * 4, index.ctypes.data, query.size), out.ctypes.data
    )


def test_exp2():
    x = np.concatenate([np.linspace(-126, 127, 100_000), [0, 1, -1, 0.5]]).astype(np.float32)
    x = np.resize(x, (len(x) + LANES - 1) // LANES * LANES)
    out = np.empty_like(x)
    powers(x, out)
    exact = np.exp2(x.astype(np.float64))
    assert np.abs(out / exact - 1).max() < 2.4e-7
    np.testing.assert_array_equal(out[x == np.round(x)], exact[x == np.round(x)])


def test_exp2_at_its_ends():
    x = np.resize(np.array([-np.inf, -127, -1e30, np.nan], np.float32), max(LANES, 4))
    out = np.empty_like(x)
    powers(x, out)
    assert (out[~np.isnan(x)] == 0).all() and np.isnan(out[np.isnan(x)]).all()
    between = np.resize(np.linspace(-126.99, -126, 16, dtype=np.float32), max(LANES, 16))
    out = np.empty_like(between)
    powers(between, out)
    assert (out >= 0).all() and (out <= 2.0**-126).all()


@pytest.mark.parametrize("rows", {1, LANES - 1, LANES})
@pytest.mark.parametrize("columns", {1, LANES - 1, LANES})
def test_transpose_reads_its_rows_and_columns_only(rows, columns):
    source = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    out = np.full((LANES, LANES), np.nan, np.float32)
    turn(source, rows, columns, out)
    np.testing.assert_array_equal(out[:columns, :rows], source.T)
    assert not out[columns:].any()
    np.testing.assert_array_equal(out[:columns, rows:], np.repeat(source[-1:].T, LANES - rows, axis=1))


@pytest.mark.parametrize("width", [1, LANES - 1, LANES, LANES + 1, 3 * LANES, 53])
def test_dot_of_rows(width):
    rng = np.random.default_rng(width)
    query, rows = rng.integers(-9, 9, width).astype(np.float32), rng.integers(-9, 9, (5, width)).astype(np.float32)
    index = rng.integers(0, 5, LANES).astype(np.int32)
    out = np.empty(LANES, np.float32)
    dots(query, rows, index, out)
    np.testing.assert_array_equal(out, (rows @ query)[index])
