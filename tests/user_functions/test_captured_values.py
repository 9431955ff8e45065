"""What users' functions read beside their parameters, and the numbers and arrays that they compute with."""

import math
from math import inf

import numpy as np
import pytest

from fastattn.simd.target import LANES
from fastattn.user_functions.plan import compile_function
from tests.user_functions.kernels import (
    expected_scores,
    expected_seen,
    modified,
    seen,
    states_of,
)

T, S = 37, 2 * LANES + 21
RNG = np.random.default_rng(5)
SCORES = (RNG.standard_normal((T, S)) * 5).astype(np.float32)
WINDOW, CAP, FLAG = 7, 20.0, True


def test_captured_values_that_change_count_at_the_next_call():
    shift, table = 1.0, np.zeros((2, 5), np.float32)

    def shifted(score, b, h, t, s):
        return score + shift + table[h, s]

    kinds = set()

    def check():
        kinds.add(compile_function(shifted, "score_mod")._numba_type_)
        found, expected = modified(shifted, SCORES[:2, :5], 0, 1), expected_scores(shifted, SCORES[:2, :5], 0, 1)
        np.testing.assert_allclose(found, expected, 1e-6)

    check()
    shift = 2.5
    check()
    table[1, 2] = 4
    check()
    table = np.ones((2, 9), np.float32)
    check()
    assert len(kinds) == 1
    shift = 2  # of another type: compiled anew
    check()
    assert len(kinds) == 2


def test_a_power_that_is_written_out_is_a_whole_number():
    table = np.arange(3, dtype=np.float32)
    found = modified(lambda score, b, h, t, s: score * 0 + table[2**40] + (-3) ** 3 + (2**30 + 1 == 1073741825), SCORES)
    assert (found == 2 - 27 + 1).all()

    def within(b, h, t, s):
        return s < 2**20 + 1

    assert (states_of(within, (2, 2), (4, 4)) == 2).all(), "known of whole tiles"


def test_an_empty_array_has_no_length():
    nothing, none_at_all = np.zeros(0, np.float32), np.zeros((3, 0), np.int64)
    for variant in ("best", "scalar"):
        assert not seen(lambda b, h, t, s: s < len(nothing), 3, 20, variant=variant).any()
        assert not seen(
            lambda b, h, t, s: (s < none_at_all.shape[1]) | (none_at_all[s, t] > 0), 3, 20, variant=variant
        ).any()


def test_powers_of_negative_numbers_are_those_of_python():
    for variant in ("best", "scalar"):
        for exponent in (2, 3, -1, -2.0, 3.0, 0.0):

            def raised(score, b, h, t, s, exponent=exponent):
                return (t - s - 0.5) ** exponent + 1 ** (exponent * (s - t)) + score

            expected = expected_scores(raised, SCORES)
            np.testing.assert_allclose(modified(raised, SCORES, variant=variant), expected, rtol=1e-5, atol=1e-4)
        root = modified(lambda score, b, h, t, s, half=0.5: (t - s) ** half, SCORES, variant=variant)
        np.testing.assert_array_equal(np.isnan(root), np.arange(S) > np.arange(T)[:, None])


def test_closures_made_in_a_loop_keep_their_own_values():
    made = []
    for width in (1, 4, 9):
        made.append(lambda b, h, t, s, width=width: t - s < width)
    made += [around(width) for width in (1, 4, 9)]
    kinds = {compile_function(mask, "mask_mod")._numba_type_ for mask in made}
    assert len(kinds) == 1
    for mask in made:
        np.testing.assert_array_equal(seen(mask, 20, 20), expected_seen(mask, 20, 20))


def around(width):
    return lambda b, h, t, s: t - s < width


def test_lambdas_of_one_line_are_told_apart():
    first, second, third = (lambda b, h, t, s: s < t), (lambda b, h, t, s: s > t), (lambda b, h, t, s: s < t - 1)
    for mask in (first, second, third):
        np.testing.assert_array_equal(seen(mask, 20, 20), expected_seen(mask, 20, 20))


def test_lambdas_of_one_line_whose_constants_are_equal_are_told_apart():
    floats, wholes = (lambda score, b, h, t, s: t + 4e9 - 4e9), (lambda score, b, h, t, s: t + 4000000000 - 4000000000)
    zeros = np.zeros((9, 1), np.float32)
    assert (modified(floats, zeros) == 0).all(), "of 4e9 the next float32 is 256 away"
    np.testing.assert_allclose(modified(wholes, zeros)[:, 0], np.arange(9), rtol=1e-6)


@pytest.mark.parametrize("variant", ["best", "scalar"])
def test_a_float_beyond_float32_is_its_largest(variant):
    large, low = 1e39, np.float64(-1e300)
    found = modified(
        lambda score, b, h, t, s: min(score, large) + max(score, low) - score, np.ones((1, 3)), variant=variant
    )
    assert (found == 1).all()
    ends = modified(
        lambda score, b, h, t, s: (large < inf) + 2 * (low > -inf) + 0 * score, np.ones((1, 3)), variant=variant
    )
    assert (ends == 3).all()


def test_a_whole_number_to_a_power_that_is_a_float_is_a_float():
    for variant in ("best", "scalar"):

        def raised(score, b, h, t, s):
            return (s + 2000) ** 6.0 + (t + 2000) ** 6.0

        zeros = np.zeros((2, 9), np.float32)
        np.testing.assert_allclose(modified(raised, zeros, variant=variant), expected_scores(raised, zeros), rtol=1e-6)


def test_many_threads_and_values_of_their_own():
    from concurrent.futures import ThreadPoolExecutor

    def of(width):
        return np.array_equal(seen(around(width), 30, 30), expected_seen(around(width), 30, 30))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(of, range(40)))


def test_what_is_not_finite_goes_through():
    for variant in ("best", "scalar"):

        def changed(score, b, h, t, s):
            return score * 2 + 1 if score > 0 else max(score, -1e30) + inf * 0 * s

        row = np.array([[np.nan, inf, -inf, 1, 2e38, -2e38, 0]], np.float32)
        found = modified(changed, row, variant=variant)
        assert np.isnan(found[0, [0, 2, 5, 6]]).all() and (found[0, [1, 4]] == inf).all() and found[0, 3] == 3
        largest = modified(
            lambda score, b, h, t, s: np.maximum(score, 0.0) + np.minimum(0.0, score), row, variant=variant
        )
        np.testing.assert_allclose(largest, row)


@pytest.mark.parametrize("variant", ["best", "scalar"])
def test_indices_outside_read_the_nearest_element(variant):
    table = np.arange(1, 8, dtype=np.float32)
    for stride in (1, -1, 3, 1000, -(2**20)):

        def looked(score, b, h, t, s, stride=stride):
            return table[s * stride - 40] + table[t - s] * 10 + table[s - t - 3] * 100

        def element(index):
            index = index + 7 if index < 0 else index
            return float(table[min(max(index, 0), 6)])

        found = modified(looked, SCORES * 0, variant=variant)
        t, s = np.ogrid[:T, :S]
        expected = np.vectorize(element)(s * stride - 40) + np.vectorize(element)(t - s) * 10
        expected = expected + np.vectorize(element)(s - t - 3) * 100
        np.testing.assert_allclose(found, expected, rtol=1e-6)


LAYOUTS = {
    "whole": lambda array: array,
    "strided": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "reversed": lambda array: np.asfortranarray(array[::-1]),
    "other bytes": lambda array: array.astype(array.dtype.newbyteorder()),
    "read-only": lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
    "empty": lambda array: array[:, :0],
    "list": lambda array: array.tolist(),
}


def looked_up(array):
    return lambda score, b, h, t, s: array[h, s] + 1.0 * array[t % 5][s] + array[s % 5, t]


def test_arrays_of_every_kind():
    t, s = np.ogrid[:T, :S]
    for dtype in ("float16", "float32", "float64", "int8", "uint16", "int32", "uint32", "int64", "bool"):
        for name, laid_out in LAYOUTS.items():
            array = laid_out((RNG.random((5, max(S, T) + 3)) * 2).astype(dtype))
            if name == "empty":
                expected = 0
            else:
                whole = np.array(array, np.float64)
                expected = whole[2, s] + whole[t % 5, s] + whole[s % 5, t]
            for variant in ("best", "scalar"):
                found = modified(looked_up(array), SCORES * 0, 0, 2, variant=variant)
                np.testing.assert_allclose(found, expected, 1e-6, err_msg=f"{dtype}, {name}")


def test_whole_numbers_wrap_in_lanes_and_nothing_traps():
    big = 2**31 - 1

    def wrapped(score, b, h, t, s):
        return (s + t) * 0 + (s - s % 1) * 0 + float(s * big + s)  # 2**31 s

    found = modified(wrapped, SCORES[:1] * 0)
    expected = (np.arange(S, dtype=np.int64) << 31).astype(np.int32).astype(np.float32)
    np.testing.assert_array_equal(found[0], expected)
    alone = modified(wrapped, SCORES[:1] * 0, variant="scalar")
    np.testing.assert_allclose(alone[0], np.arange(S) * 2.0**31, rtol=2e-7)

    zero, least = 0, -(2**63)

    def divided(score, b, h, t, s):
        return s // zero + s % zero + (s - 2**31) // (t - t - 1) % 7 + (t + least) // -1 % 3 + int(score / zero) % 5

    for variant in ("best", "scalar"):
        assert np.isfinite(modified(divided, SCORES, variant=variant)).all()


def test_remainders_of_floats_are_numpy_s():
    ends = np.array([0, 1, -1, 5, -5, inf, -inf, math.nan, 3e38, 1e-45, -1e-40, 2**24, 0.1], np.float32)
    y = np.exp(RNG.uniform(-7, 7, 4000)).astype(np.float32) * RNG.choice(np.float32([-1, 1]), 4000)
    near = RNG.integers(-(10**5), 10**5, 4000).astype(np.float32) * y  # of multiples, rounded
    xs = [near, np.nextafter(near, np.float32(inf)), np.nextafter(near, np.float32(-inf)), near * np.float32(1e9)]
    x = np.concatenate([*xs, np.repeat(ends, len(ends))])
    y = np.concatenate([*[y] * len(xs), np.tile(ends, len(ends))])
    with np.errstate(all="ignore"):
        wanted = x % y, x // y
    functions = (lambda score, b, h, t, s: x[s] % y[s]), (lambda score, b, h, t, s: x[s] // y[s])
    for function, expected in zip(functions, wanted):
        for variant in ("best", "scalar"):
            found = modified(function, np.zeros((1, len(x)), np.float32), variant=variant)[0]
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
            ends_of_floats = (np.abs(expected) > 1e38) | (np.abs(expected) < 1e-36)  # scores are scaled by log2(e)
            np.testing.assert_array_equal(np.sign(found), np.where(ends_of_floats, np.sign(found), np.sign(expected)))
            np.testing.assert_allclose(found[~ends_of_floats], expected[~ends_of_floats], rtol=3e-7)
            huge = expected == inf
            assert (found[huge] == inf).all() and (found[expected == -inf] == -inf).all()


def test_python_s_or_and_and_of_what_is_no_number():
    row = np.array([[math.nan, 0, inf, -0.0]], np.float32)
    for variant in ("best", "scalar"):
        either = modified(lambda score, b, h, t, s: score or 1.0, row, variant=variant)
        np.testing.assert_array_equal(either, [[math.nan, 1, inf, 1]])
        both = modified(lambda score, b, h, t, s: score and 2.0, row, variant=variant)
        np.testing.assert_array_equal(both, [[2, 0, 2, 0]])


def test_shifts_beyond_the_width_or_by_less_than_nothing_raise_nothing():
    wide, amounts = 2**40, np.array([63, 64, 10**12, -1, -(2**60)])

    def shifted(score, b, h, t, s):
        return (wide << amounts[s]) + (wide >> amounts[s]) + (-1 >> amounts[s]) + (-wide >> 2**50)

    for variant in ("best", "scalar"):
        np.testing.assert_array_equal(modified(shifted, np.zeros((1, 5), np.float32), variant=variant), [[-2] * 5])


def test_elementary_functions_are_as_good_as_float32_lets_them_be():
    x = np.concatenate([np.geomspace(1e-45, 3e38, 4001), np.linspace(0.5, 2, 999), [0, inf, 1, 2]]).astype(np.float32)

    def at(function):
        return modified(function, np.zeros((1, len(x)), np.float32))[0]

    natural, double = at(lambda score, b, h, t, s: math.log(x[s])), at(lambda score, b, h, t, s: np.log2(x[s]))
    with np.errstate(divide="ignore"):
        for found, exact in ((natural, np.log(x.astype(np.float64))), (double, np.log2(x.astype(np.float64)))):
            np.testing.assert_allclose(found, exact, rtol=4e-7, atol=2e-7)
    for n in (*range(-126, 128, 9), 127):
        assert modified(lambda score, b, h, t, s, n=n: 2 ** (n + 0 * s), np.zeros((1, 1), np.float32)) == np.float32(
            2.0**n
        )
    exponent = np.linspace(-20, 20, 801).astype(np.float32)
    found = modified(lambda score, b, h, t, s: np.power(3.7, exponent[s]), np.zeros((1, 801), np.float32))[0]
    np.testing.assert_allclose(found, 3.7 ** exponent.astype(np.float64), rtol=1e-5)
    negative = at(lambda score, b, h, t, s: np.log(-x[s]))
    assert np.isnan(negative[x > 0]).all() and (negative[x == 0] == -inf).all()
