"""What attention asks of rows: squares transposed, products and sums of rows that lie anywhere."""

import numba
import numpy as np
import pytest

from fastattn.kernels.attention.arguments import TOGETHER
from fastattn.kernels.attention.step import VECTORS
from fastattn.kernels.attention.tiles import FEW, VALUE_VECTORS
from fastattn.simd.rows import make_add_rows, make_dot_rows, transpose_first
from fastattn.simd.target import LANES
from fastattn.spec.rounding import as_floats, bfloat16_bits


@numba.njit
def turn(source, rows, columns, out):
    transpose_first(source.ctypes.data, source.shape[1] * 4, rows, columns, out.ctypes.data, LANES * 4)


def make_dots(queries):
    dot_rows = make_dot_rows(queries)

    @numba.njit
    def dots(query, rows, index, out):
        dot_rows(
            rows, query.ctypes.data, query.shape[1] * 4, rows.ctypes.data, rows.shape[1] * rows.itemsize,
            index.ctypes.data, rows.shape[1], out.ctypes.data, out.shape[1] * 4,
        )  # fmt: skip

    return dots


def make_adds(sums, vectors):
    add_rows = make_add_rows(sums, vectors)

    @numba.njit
    def adds(weight, rows, index, out):
        add_rows(
            rows, weight.ctypes.data, weight.shape[1] * 4, rows.ctypes.data, rows.shape[1] * rows.itemsize,
            index.ctypes.data, index.size, rows.shape[1], out.ctypes.data, out.shape[1] * 4,
        )  # fmt: skip

    return adds


# As kernels have them, and one between; each is compiled.
DOTS = {queries: make_dots(queries) for queries in (1, TOGETHER)}
ADDS = {pair: make_adds(*pair) for pair in {(1, 4), (2, 2), (TOGETHER, VECTORS), (FEW, VALUE_VECTORS)}}


def test_transpose_reads_its_rows_and_columns_only():
    for columns in (1, LANES - 1, LANES):
        for rows in (1, LANES - 1, LANES):
            source = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
            out = np.full((LANES, LANES), np.nan, np.float32)
            turn(source, rows, columns, out)
            np.testing.assert_array_equal(out[:columns, :rows], source.T)
            assert not out[columns:].any()
            np.testing.assert_array_equal(out[:columns, rows:], np.repeat(source[-1:].T, LANES - rows, axis=1))


WIDTHS = [1, LANES - 1, LANES, LANES + 1, 3 * LANES, 53, 9 * LANES + 3]


@pytest.mark.parametrize("queries", DOTS)
def test_dots_of_rows(queries):
    for width in WIDTHS:
        rng = np.random.default_rng(width)
        query = rng.standard_normal((queries, width + 2)).astype(np.float32)
        rows, index = rng.standard_normal((5, width)).astype(np.float32), rng.integers(0, 5, LANES).astype(np.int32)
        out, alone = np.full((queries, LANES), 7, np.float32), np.empty((1, LANES), np.float32)
        DOTS[queries](query, rows, index, out)
        keys = LANES // queries
        np.testing.assert_allclose(out[:, :keys], query[:, :width] @ rows[index[:keys]].T, atol=1e-5)
        assert (out[:, keys:] == 7).all()
        for q in range(queries):
            DOTS[1](query[q : q + 1], rows, index, alone)
            np.testing.assert_array_equal(alone[0, :keys], out[q, :keys])
        bits = bfloat16_bits(rows)
        DOTS[queries](query, bits, index, out)
        np.testing.assert_allclose(out[:, :keys], query[:, :width] @ as_floats(bits)[index[:keys]].T, atol=1e-5)


@pytest.mark.parametrize("sums, vectors", ADDS)
def test_sums_of_rows(sums, vectors):
    for width in WIDTHS:
        rng = np.random.default_rng(width)
        padded = -(-width // LANES) * LANES
        weight = rng.standard_normal((sums, 9)).astype(np.float32)
        rows, index = rng.standard_normal((5, width)).astype(np.float32), rng.integers(0, 5, 7).astype(np.int32)
        start = rng.standard_normal((sums, padded + 3)).astype(np.float32)
        out = start.copy()
        ADDS[sums, vectors](weight, rows, index, out)
        np.testing.assert_allclose(out[:, :width], start[:, :width] + weight[:, :7] @ rows[index], atol=1e-5)
        np.testing.assert_array_equal(out[:, width:], start[:, width:])  # a row's last, partial vector counts as zeros
        for q in range(sums):
            alone = start[q : q + 1].copy()
            ADDS[1, 4](weight[q : q + 1], rows, index, alone)
            np.testing.assert_array_equal(alone[0], out[q])
