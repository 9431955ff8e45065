"""Vector arithmetic against NumPy in float64; rows transposed, their products and sums, wherever they lie."""

import math

import numpy as np
import pytest
from numba import njit

from fastattn.simd.memory import load, load_first, store, store_first
from fastattn.simd.target import LANES
from fastattn.simd.vector import erf, exp, exp2, max_lanes, splat, sum_lanes, tanh

SPECIAL = [-np.inf, np.inf, np.nan, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38]


@njit(error_model="numpy")
def apply_all(x, exps, erfs, tanhs):
    for i in range(0, x.size, LANES):
        value = load(x.ctypes.data + i * 4)
        store(exp(value), exps.ctypes.data + i * 4)
        store(erf(value), erfs.ctypes.data + i * 4)
        store(tanh(value), tanhs.ctypes.data + i * 4)


@pytest.fixture(scope="module")
def computed():
    x = np.concatenate([np.linspace(-110, 95, 200_001), np.linspace(-6, 6, 100_003), SPECIAL])
    x = np.pad(x, (0, -len(x) % LANES)).astype(np.float32)
    results = np.empty((3, len(x)), np.float32)
    apply_all(x, *results)
    return x.astype(np.float64), *results


def test_exp(computed):
    x, value, _, _ = computed
    with np.errstate(over="ignore"):
        expected = np.exp(x)
    normal = (x > -87) & (x < 88.7)
    assert np.max(np.abs(value[normal] / expected[normal] - 1)) < 2.5e-7
    assert (value[x < -104] == 0).all() and (value[x > 88.73] == np.inf).all()
    assert np.isnan(value[np.isnan(x)]).all()


def test_erf_and_tanh(computed):
    x, _, erfs, tanhs = computed
    known = ~np.isnan(x)
    away = known & (np.abs(x) > 1e-30)
    for values, function in ((erfs, math.erf), (tanhs, math.tanh)):
        expected = np.array([function(v) for v in x[away]])
        assert np.max(np.abs(values[away] / expected - 1)) < 4e-7
        assert np.max(np.abs(values[known & ~away])) < 1e-30
    assert np.isnan(erfs[~known]).all() and np.isnan(tanhs[~known]).all()


@njit(error_model="numpy")
def powers_of_two(x):
    out = np.empty_like(x)
    for i in range(0, x.size, LANES):
        store(exp2(load(x.ctypes.data + i * 4)), out.ctypes.data + i * 4)
    return out


def test_exp2():
    ends, between = [-np.inf, -127, -1e30, np.nan], np.linspace(-126.99, -126, 16)
    x = np.concatenate([ends, between, np.linspace(-126, 127, 100_000), [0, 1, -1, 0.5]]).astype(np.float32)
    out = powers_of_two(np.pad(x, (0, -len(x) % LANES)))[: len(x)]
    assert (out[:3] == 0).all() and np.isnan(out[3])
    assert (out[4:20] >= 0).all() and (out[4:20] <= 2.0**-126).all()
    x, out = x[20:], out[20:]
    exact = np.exp2(x.astype(np.float64))
    assert np.abs(out / exact - 1).max() < 2.4e-7
    np.testing.assert_array_equal(out[x == np.round(x)], exact[x == np.round(x)])


@njit(error_model="numpy")
def copy_first(source, destination, count):
    value = load_first(source.ctypes.data, count, splat(np.float32(7)))
    store_first(value, destination.ctypes.data, count)
    return sum_lanes(value), max_lanes(value)


def test_partial_vectors_touch_nothing_else():
    for count in range(LANES + 1):
        source = np.arange(1, LANES + 1, dtype=np.float32)
        destination = np.full(LANES, -1, np.float32)
        total, largest = copy_first(source, destination, count)
        assert destination.tolist() == [*range(1, count + 1), *[-1] * (LANES - count)]
        assert total == sum(range(1, count + 1)) + 7 * (LANES - count)
        assert largest == max([*source[:count], *[7] * (LANES - count)])
