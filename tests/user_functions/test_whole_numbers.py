"""Whole numbers beyond 32 bits in users' functions, and floats beyond float32's whole numbers."""

import math

import numpy as np
import pytest

import fastattn
from fastattn.errors import InputError
from fastattn.simd.target import LANES
from fastattn.user_functions.plan import compile_function
from tests.user_functions.choice import one_of_masks
from tests.user_functions.kernels import expected_scores, expected_seen, modified, seen

T, S = 9, 2 * LANES + 21
RNG = np.random.default_rng(7)
RUNS = np.arange(S) * 9 // S


def agree(*masks):
    together = one_of_masks(masks)
    assert fastattn.explain_function(together) == "vectorised"
    for b, mask in enumerate(masks):
        expected = expected_seen(mask, T, S)
        for variant in ("best", "scalar"):
            np.testing.assert_array_equal(seen(together, T, S, b, variant=variant), expected)
        assert expected.any() and not expected.all()


def equal_in(ids):
    return lambda b, h, t, s: ids[t] == ids[s]


def test_ids_beyond_32_bits_are_told_apart():
    tables = [2**40 + RUNS, RUNS * 2**32, -(2**62) + RUNS]
    tables += [(2**31 + RUNS).astype(np.uint32), (2**62 + RUNS).astype(np.uint64)]
    for ids in tables:
        mask = equal_in(ids)
        agree(mask)
        blocks = fastattn.BlockMask.from_function(mask, 1, 1, S, S, block=4)
        expected = fastattn.BlockMask.from_mask(ids[:, None] == ids, block=4)
        np.testing.assert_array_equal(blocks.states_BHTS, expected.states_BHTS)
        ids += ids.dtype.type(1)  # read at every call
        ids[0] = ids[-1]
        agree(mask)


def test_whole_numbers_of_64_bits_are_computed_with():
    times = np.cumsum(RNG.integers(1, 10**6, S)) + 1_700_000_000_000
    bucket, order = RNG.integers(-4, 4, S), RNG.integers(0, S, (2, S))
    stamps = (2**31 - 3 + np.arange(S)).astype(np.uint32)
    small, base, least = np.arange(S, dtype=np.int32), np.array([2**40, 5]), -(2**63)

    def in_time(b, h, t, s):
        return abs(times[t] - times[s]) < 3 * 10**6 and times[s] * 3 // 7 % 5 != 1 and stamps[s] > stamps[0]

    def turned(b, h, t, s):
        return (times[order[1, s]] > times[order[0, t]]) ^ (times[t - s] == times[s]) | (max(times[s], t) < 3)

    def chosen(b, h, t, s):
        return np.where(bucket[s], times[s], s) > np.where(bucket[t] > 0, 9, times[t]) or bucket[bucket[s]] == bucket[t]

    def with_others(b, h, t, s):
        far = (small[s] + base[0]) - base[0] == s and small[s] * 1 != base[0] and small[s] < base[0]
        return far and (s * 2 + t < base[1] or times[s] >> 3 & 1 == 1) and (least + s < times[s])

    agree(in_time, turned, chosen, with_others)

    def score(score, b, h, t, s):
        return score + (times[s] - times[t]) / 1000 + bucket[s] * 0.5 + bucket[s] ** 2

    scores = RNG.standard_normal((T, S)).astype(np.float32)
    expected = expected_scores(score, scores)
    for variant in ("best", "scalar"):
        np.testing.assert_allclose(modified(score, scores, variant=variant), expected, rtol=1e-6, atol=1e-5)


def test_what_one_number_of_an_array_of_int64_gives_has_64_bits_too():
    begin = 1_700_000_000_000
    starts = begin + RNG.integers(0, 500, S)
    times, flag = starts + RNG.integers(-200, 200, S), RNG.integers(0, 2, S).astype(bool)
    step, base, last = RNG.integers(1, 500, S).astype(np.int32), begin + 7, int(starts.max()) % 1000

    def together(b, h, t, s):
        later = starts[t] + step[s] > times[s] and base + int(step[s]) < times[s] + 400
        return later or starts[t] % (step[s] + last) * 2 > times[s] - begin

    def chosen(b, h, t, s):
        least = starts[0]
        if flag[s]:
            least = starts[t]
        either = (starts[t] if flag[s] else 0) < times[s] - 100 and (flag[s] and starts[t]) != starts[1]
        return least < times[s] and either or max(step[s], starts[t]) == times[s] or (starts[t] ^ step[s]) < times[s]

    def largest(b, h, t, s):
        most = 0
        least = 0.0
        for i in range(2):
            most = max(most, starts[t + i])
        for i in range(2):
            least = starts[i] - starts[i]
        return most - 150 < times[s] and least < 1

    agree(together, chosen, largest)


def test_an_int32_is_compared_with_all_of_a_larger_number():
    last, first, far = np.full(S, 2**31 - 1, np.int32), np.full(S, -(2**31), np.int32), 2**40
    for n in (far, -far, 2**31, -(2**31) - 1):

        def mask(b, h, t, s, n=n):
            equal = (last[s] == n) | (first[s] == n) | (n != last[s]) & (n != first[s]) & (s < 4)
            return equal | (last[s] >= n) & (n > 0) | (first[s] <= n) & (n < 0)

        agree(mask)


OTHERS = [
    (np.array([1, 2**63], np.uint64), r"numbers from 2\*\*63 on; to tell whether they are equal, pass .view"),
    (np.array([1.0, 2**24 + 1]), r"numbers beyond 2\*\*24, which float32 rounds; pass int64, or float32 if"),
    ([math.nan, -math.inf, -(2.0**24) - 1], "numbers beyond"),
    (1.7e9 + np.arange(9) / 3, "numbers beyond"),
]


def test_numbers_that_would_be_others_are_refused():
    for values, message in OTHERS:
        mask = equal_in(values)
        with pytest.raises(InputError, match=rf"mask_mod: .*whole_numbers.py:\d+: ids has {message}") as raised:
            compile_function(mask, "mask_mod")
        assert "\n" not in str(raised.value)
        with pytest.raises(InputError, match="ids has"):
            fastattn.BlockMask.from_function(mask, 1, 1, 2, 2)


def test_numbers_that_are_but_rounded_or_far_from_all_others_are_not_refused():
    far = np.array([0.1, 2.0**24, -1e9, -1e30, -1e300, math.inf, -math.inf, math.nan, 2.0**40, 16777217.0 * 2**9])
    far[-1] = np.float32(far[-1])
    large = np.full(1000, 12345.678)  # the sum of their squares is beyond that of a single large number
    with np.errstate(over="ignore"):
        narrow = far.astype(np.float32)
    for values, wanted in (
        (far, narrow),
        (large, large.astype(np.float32)),
        (np.float64([1e39]), np.float32([math.inf])),
    ):

        def looked(score, b, h, t, s, values=values):
            return values[s]

        found = modified(looked, np.zeros((1, len(wanted)), np.float32))[0]
        with np.errstate(invalid="ignore"):
            finite = np.abs(wanted) < 1e38
        np.testing.assert_allclose(found[finite], wanted[finite], rtol=3e-7)
        np.testing.assert_array_equal(found[~finite], wanted[~finite])
