"""The softmax of rows beyond the table of cases: what is hidden, what is no number, extreme scores."""

import numpy as np
import pytest

from fastattn.ops import cpu as operations

WIDTHS = (1, 15, 16, 17, 100)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_of_hidden_scores_is_zero(width):
    x_NS = np.full((3, width), -np.inf, np.float32)
    x_NS[1, -1] = -3e38
    expected = np.zeros_like(x_NS)
    expected[1, -1] = 1
    np.testing.assert_array_equal(operations.softmax(x_NS), expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_that_is_no_number_stays_alone(width, place, bad):
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
