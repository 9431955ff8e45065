"""The softmax of rows and rotary positions beyond the table of cases."""

import numpy as np
import pytest

from bench.operations.rows import rotate
from fastattn.ops import cpu as operations
from tests.kernels.cases import check

WIDTHS = (1, 15, 16, 17, 100)


def test_a_row_of_hidden_scores_is_zero():
    for width in WIDTHS:
        x_NS = np.full((3, width), -np.inf, np.float32)
        x_NS[1, -1] = -3e38
        expected = np.zeros_like(x_NS)
        expected[1, -1] = 1
        np.testing.assert_array_equal(operations.softmax(x_NS), expected)


def test_a_row_that_is_no_number_stays_alone():
    for width in WIDTHS:
        for place in (0, -1):
            for bad in (np.nan, np.inf):
                x_NS = np.random.default_rng(width).standard_normal((3, width)).astype(np.float32)
                expected = operations.softmax(x_NS)
                x_NS[1, place] = bad
                expected[1] = np.nan
                np.testing.assert_array_equal(operations.softmax(x_NS), expected)


def test_scores_of_any_size():
    largest = np.finfo(np.float32).max
    x_NS = np.array([[largest, -largest, 0], [largest, largest, -np.inf], [1e-45, 0, -1e-45]], np.float32)
    expected = [[1, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(operations.softmax(x_NS), expected, rtol=1e-7)


def test_the_input_stays_and_so_do_the_bits_of_a_row_among_others():
    x_NS = np.random.default_rng(0).standard_normal((4, 21)).astype(np.float32)
    before, wide_NS = x_NS.copy(), np.pad(x_NS, ((2, 2), (0, 0)))
    alone = operations.softmax(x_NS)
    np.testing.assert_array_equal(x_NS, before)
    np.testing.assert_array_equal(operations.softmax(wide_NS)[2:-2], alone)


def test_agrees_with_reference():
    for rows, heads, width, turned in ((1, 1, 2, 2), (3, 2, 8, 4), (17, 5, 64, 64), (40, 3, 33, 32)):
        for interleaved in (False, True):
            check(rotate(rows, heads, width, turned, interleaved), operations)


def test_position_zero_and_other_columns_stay():
    for interleaved in (False, True):
        angle = np.arange(5)[:, None] * np.array([1.0, 0.1])
        x = np.random.default_rng(0).standard_normal((6, 20)).astype(np.float32)
        before = x.copy()
        tables = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        operations.rotate(x, np.array([0, 1, 2, 3, 4, 0], np.int32), *tables, 5, 2, 6, interleaved)
        np.testing.assert_array_equal(x[[0, 5]], before[[0, 5]])
        turned = np.zeros(20, bool)
        turned[[5, 6, 7, 8, 11, 12, 13, 14]] = True
        np.testing.assert_array_equal(x[:, ~turned], before[:, ~turned])
        assert (x[1:5, turned] != before[1:5, turned]).all()


@pytest.mark.parametrize("interleaved", [False, True])
def test_scores_depend_on_distance_only(interleaved):
    angle = np.arange(50)[:, None] * 10000.0 ** (-np.arange(0, 16, 2) / 16)
    tables = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    one, other = np.random.default_rng(1).standard_normal((2, 1, 16)).astype(np.float32)

    def score(p, q):
        x = np.concatenate([one, other])
        operations.rotate(x, np.array([p, q], np.int32), *tables, 0, 1, 16, interleaved)
        return float(x[0] @ x[1])

    assert score(3, 10) == pytest.approx(score(40, 47), abs=1e-4)
    assert abs(score(3, 10) - score(3, 11)) > 1e-3
