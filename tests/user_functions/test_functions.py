"""Users' functions in kernels: in lanes and one by one, against plain Python in float64."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from math import exp, inf

import numpy as np
import pytest
from numba import njit

import fastattn
from fastattn.errors import InputError
from fastattn.simd.target import LANES
from fastattn.user_functions.plan import _MAX_PLANS, _plans_of, compile_function
from tests.children import run_child
from tests.user_functions.kernels import (
    expected_scores,
    expected_seen,
    in_both,
    modified,
    one_of_masks,
    one_of_scores,
    seen,
    states_of,
)

T, S = 37, 2 * LANES + 21
RNG = np.random.default_rng(5)
SCORES = (RNG.standard_normal((T, S)) * 5).astype(np.float32)
SLOPES = np.array([0.5, 0.25])  # float64, of which a copy is passed
DOCUMENT = np.repeat(np.arange(9), [3, 9, 1, 30, 17, 2, 2, 40, 40])
DOCUMENTS = np.stack([DOCUMENT, DOCUMENT[::-1]]).astype(np.int16)
PREFIX = (5, 40)
BIAS = RNG.standard_normal((2, 301)).astype(np.float32)
SQUARE = RNG.random((150, 150)) < 0.5
WINDOW, CAP, FLAG = 7, 20.0, True
BITS, NO_AXES, WHOLE_NO_AXES = 2**45 + 0b1101001, np.array(2.5), np.array(3, np.uint8)
NONE, NONE_OF_ROWS = np.zeros(0, np.float32), np.zeros((3, 0), np.int64)
TWO, MINUS_ONE, FLOAT_THREE, FLOAT_ZERO = 2, -1, 3.0, 0.0


def alibi(score, b, h, t, s):
    return score + SLOPES[h] * (s - t)


def early(score, b, h, t, s):
    """With a docstring, returns in some paths of an if, and variables that one path alone has."""
    distance = t - s
    if distance < 0:
        distance = -distance
        far = distance > 10
        if far:
            return 0.0
    elif distance == 3:
        return score / 2
    changed: float = score
    changed += distance
    return changed


def earlier(score, b, h, t, s):
    if t < s:
        return -1.5
    if (t - s) % 3 == 0:
        factor = 2.0
    else:
        factor = 3
    return score * factor


def heads_differ(score, b, h, t, s):
    if h == 0:
        return score
    return score if FLAG and not (t == s) else score**2


def sums(score, b, h, t, s):
    total = score
    for i in range(h + 2):
        total += BIAS[h, i] * i
    return total


def numbers(score, b, h, t, s):
    logs = np.log(s + 1) - math.log2(t + 1)
    ends = max(score, 0.0, t - s) + min(score, s) + abs(score) + abs(s - t)
    return logs + ends + math.floor(score) + int(score * 3) + float(s) + math.sqrt(s) + exp(-abs(score))


def powers(score, b, h, t, s):
    return score + (s + 1) ** -0.5 + t**2 + 2 ** (-8 * (h + 1) / 2) + 1.5**h + score**3.0 + (s + 1.0) ** -2


def powers_of_negatives(score, b, h, t, s):
    x = (t - s - 0.5) / 8
    return x**TWO + x**3 + x**MINUS_ONE + x**-2.0 + x**FLOAT_THREE + x**FLOAT_ZERO + 1 ** (TWO * (s - t)) + (-3) ** 3


def divisions(score, b, h, t, s):
    return score + (s - t) // 3 + (s - t) % 5 + s / 4 + (t * 7) // (s + 1) + (score // 2.0) + score % 1.5


def choices(score, b, h, t, s):
    """`and` and `or` give one of their operands."""
    found = (score > 0 and score) or t - s or -0.5
    return found + (s and score) + (t or h or True) + (0.0 or s % 3 and t)


def whole_bits(score, b, h, t, s):
    last = (BITS >> s % 50) & 1
    return score + last + (1 << s % 40) + (t << 2) - (-s >> 1) + (s << t % 8) + ((BITS << 4) >> t) + np.left_shift(s, 2)


def among(score, b, h, t, s):
    if h not in (0, 2) and s in {t, 3, 5}:
        return score * 2
    return 0.5 if t in [7] or 1 < s in (1, 2) else score


def rounded(score, b, h, t, s):
    return round(score) + np.round(score * 3) + np.rint(-score) + math.trunc(score) + round((s - t) / 2) + round(h)


def infinite(score, b, h, t, s):
    hidden = -float("inf") if s > t + 9 else float("-inf") if s == 3 else -math.inf if s == 5 else -np.inf
    return np.where((s <= t) | (s > t + 20), float(score), hidden) if h else min(score, np.float32("inf"), float("1e3"))


def helped(score, b, h, t, s):
    once = helper(score, t) + helper(score, t, 4) + helper(by=s, position=score, offset=h) + helper(score, 1, offset=5)
    return once + twice(score) + twice(score, by=t) + twice(score, off=1.5, by=2)


def twice(x, by=3, *, off=WINDOW):
    return helper(x, by, off) - helper(x, by) + helper(x, off, by)


@njit
def compiled(score, b, h, t, s):
    return alibi(score, b, h, t, s) * 2 + alibi(score=score, b=b, h=h, t=t, s=s) + helper(s, by=t)


def helper(position, by, offset=3):
    return position * offset - by


def counting(score, b, h, t, s):
    n = 0
    while n * n < t + s:
        n += 1
        if n == 11:
            break
    return score + n


def loop_with_return(score, b, h, t, s):
    for i in range(s, -1, -2):
        if i == t:
            return score
    return score * 2


VECTORISED = {
    "soft_cap": lambda score, b, h, t, s: CAP * np.tanh(score / CAP),
    "soft_cap_of_math": lambda score, b, h, t, s: CAP * math.tanh(score / CAP),
    "relative": lambda score, b, h, t, s: score + BIAS[h, s - t + 150],
    "relative_back": lambda score, b, h, t, s: score + BIAS[h][t - s + 150],
    "buckets": lambda score, b, h, t, s: score + BIAS[h, min(max(t - s, 0), 20) + abs(t - s) // 3],
    "ternary": lambda score, b, h, t, s: score * 2 if s > t and h == 1 else -score - 1,
    "clipped": lambda score, b, h, t, s: np.clip(score, -1.5, t) + np.clip(t - s, -3, 10),
    "of_no_axes": lambda score, b, h, t, s: score * NO_AXES + NO_AXES[()] - WHOLE_NO_AXES * s,
    "constant": lambda score, b, h, t, s: 3,
}
DEFINED = (
    alibi, early, earlier, heads_differ, sums, numbers, powers, powers_of_negatives, divisions, choices, whole_bits,
    among, rounded, infinite, helped, compiled,
)  # fmt: skip
VECTORISED |= {function.__name__: function for function in DEFINED}
SCALAR = {"waves": lambda score, b, h, t, s: score + math.sin(s * 0.5) * np.cos(t)}
SCALAR |= {function.__name__: function for function in (counting, loop_with_return)}


def test_scores_in_both_variants_are_those_of_python():
    together = one_of_scores([*VECTORISED.values()])
    assert fastattn.explain_function(together) == "vectorised"
    for b, name in enumerate(VECTORISED):
        for h, first in ((0, 0), (1, 3)):
            found, alone = (modified(together, SCORES, b, h, first, variant) for variant in ("best", "scalar"))
            np.testing.assert_array_equal(found, alone, err_msg=name)
            are_of_python(found, VECTORISED[name], h, first)


def test_scores_that_lanes_have_not_are_those_of_python():
    for function in SCALAR.values():
        assert fastattn.explain_function(function).startswith(f"scalar: {__file__}:")
        for h, first in ((0, 0), (1, 3)):
            are_of_python(modified(function, SCORES, 1, h, first), function, h, first)


def are_of_python(found, function, h, first):
    expected = expected_scores(function, SCORES, 1, h, first)
    largest = np.abs(expected[np.isfinite(expected)]).max()
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6 * largest, err_msg=function.__name__)


def causal(b, h, t, s):
    return s <= t


def far(b, h, t, s):
    near = t - 2**40 < s + 2**41 and s - 2**61 < 0 and s < 2**63 - 1 and t - s > -(2**63)
    return near and s != 2**33 and -(2**50) < t - s


def beyond(b, h, t, s):
    """Scalars of more than 32 bits beside whole numbers in lanes."""
    wide = sys.maxsize
    return min(s * 2, wide) - t < 9 and max(-wide, s * 1) < wide and (abs(s - t) < wide) & (s // 2 != 2**33)


MASKS = {
    "window": lambda b, h, t, s: (t - s <= WINDOW) & (s <= t),
    "window_of_words": lambda b, h, t, s: t - WINDOW <= s <= t and not s == 3,
    "documents": lambda b, h, t, s: DOCUMENT[t] == DOCUMENT[s],
    "documents_of_batch": lambda b, h, t, s: DOCUMENTS[b, t] == DOCUMENTS[b, s],
    "prefix": lambda b, h, t, s: (s < PREFIX[b]) | (s <= t),
    "prefix_of_words": lambda b, h, t, s: s < PREFIX[b] or s <= t,
    "blocks": lambda b, h, t, s: t // 8 == s // 8,
    "dilated": lambda b, h, t, s: (t - s) % 4 == 0,
    "table": lambda b, h, t, s: SQUARE[t, s],
    "tables_turned": lambda b, h, t, s: SQUARE[s, t] & ~SQUARE[t, s] ^ SQUARE[t - s, s - 1],
    "mirrored": lambda b, h, t, s: (3 <= t - s) & (20 > t - s) | (t - s == -2) | (t - s != t - s),
    "distances": lambda b, h, t, s: abs(t - s) < 5 if max(t, s) > 10 else -s > -4,
    "nothing_and_everything": lambda b, h, t, s: h == 0,
    "below_a_power": lambda b, h, t, s: s < 2**20 + 1 and 2**30 + 1 == 1073741825,
    "of_nothing": lambda b, h, t, s: s < len(NONE) or s < NONE_OF_ROWS.shape[1],
    "causal": causal,
    "far": far,
    "beyond": beyond,
    "everything": fastattn.and_masks(),
    "nothing": fastattn.or_masks(),
    "future": lambda b, h, t, s: s > t,
}
MASKS["in_order"] = fastattn.and_masks(*(MASKS[name] for name in ("window", "documents", "prefix")))
MASKS["either"] = fastattn.or_masks(fastattn.and_masks(causal, MASKS["documents"]), MASKS["dilated"])


def test_masks_in_both_variants_are_those_of_python():
    together = one_of_masks([*MASKS.values()])
    assert fastattn.explain_function(together) == "vectorised"
    for b, (name, mask) in enumerate(MASKS.items()):
        for h, first in ((0, 0), (1, 3)):
            expected = expected_seen(mask, T, S, 1, h, first)
            if name in ("everything", "nothing"):  # of no masks at all
                assert (expected == (name == "everything")).all()
            for variant in ("best", "scalar"):
                found = seen(together, T, S, b, h, first, variant)
                np.testing.assert_array_equal(found, expected, err_msg=name)
                for count in (0, 1, LANES - 1, LANES) if b == 0 else ():
                    np.testing.assert_array_equal(seen(together, T, count, b, h, first, variant), expected[:, :count])


KNOWN_TILES = "causal window window_of_words prefix prefix_of_words blocks distances nothing_and_everything".split()
KNOWN_TILES.append("below_a_power")
TILES = (*KNOWN_TILES, "in_order", "either", "far", "beyond", "mirrored", "dilated", "tables_turned", "nothing")


@pytest.mark.parametrize("name", TILES)
def test_the_state_of_a_tile_is_true_or_unknown(name):
    mask = MASKS[name]
    for rows, columns in ((1, 1), (4, 4), (6, 16)):
        n, m = 36 // rows, 48 // columns
        found = states_of(mask, (n, m), (rows, columns), 1, 1)
        tiles = expected_seen(mask, n * rows, m * columns, 1, 1).reshape(n, rows, m, columns)
        exact = np.where(tiles.all((1, 3)), 2, np.where(tiles.any((1, 3)), 1, 0))
        assert ((found == exact) | (found == 1)).all()
        if name in KNOWN_TILES:
            assert (found != 1).sum() >= 0.9 * (exact != 1).sum() > 0
        if name == "in_order":
            assert (found == 0).any(), "where the window ends, whatever the documents"


def test_a_tile_is_told_as_its_lanes_are_where_numbers_leave_32_bits():
    wide = 2**40

    def mask(b, h, t, s):
        return np.where(s > 100, s, wide) > 2**35

    tiles = seen(mask, 4, 2 * LANES).reshape(1, 4, 2, LANES)
    states = states_of(mask, (1, 2), (4, LANES))
    assert ((states == 1) | (states == np.where(tiles.all((1, 3)), 2, 0))).all()


def test_a_function_called_that_is_another_now(monkeypatch):
    for other in (lambda position, by: position + by, helper):
        monkeypatch.setitem(globals(), "helper", other)
        expected = expected_scores(compiled, SCORES, 1, 1)
        np.testing.assert_allclose(modified(compiled, SCORES, 1, 1), expected, rtol=1e-6, atol=1e-4)

    for known in (math.exp, math.sqrt):
        monkeypatch.setitem(globals(), "CHANGING", known)
        np.testing.assert_allclose(modified(changing, np.full((1, 1), 4, np.float32)), known(4), rtol=1e-6)


CHANGING = math.exp


def changing(score, b, h, t, s):
    return CHANGING(score)


def test_of_one_code_few_plans_are_kept():
    def calling(called):
        return lambda b, h, t, s: s < called(t)

    inside = [
        lambda t: t, lambda t: t + 1, lambda t: t + 2, lambda t: t + 3, lambda t: t * 4, lambda t: t * 5,
        lambda t: t * 6, lambda t: t // 7, lambda t: t // 8, lambda t: t % 9, lambda t: 10 - t,
    ]  # fmt: skip
    kinds = [compile_function(calling(called), "mask_mod")._numba_type_ for called in inside * 2]
    assert kinds == kinds[: len(inside)] * 2 and len(set(kinds)) == len(inside)
    code = calling(None).__code__
    assert 1 <= len(_plans_of(code, code.co_filename, "mask_mod")) <= _MAX_PLANS < len(inside)


@pytest.mark.parametrize("none", [0, ()])
def test_no_function_is_none_at_all(none):
    log2_e = np.float32(math.log2(math.e))
    assert np.array_equal(modified(none, SCORES), SCORES * log2_e / log2_e)
    assert seen(none, 3, S).all() and (states_of(none, (2, 2), (4, 4)) == 2).all()


SMALL = """
import sys, threading
import fastattn
sys.path.insert(0, sys.argv[1])
import long_sums

threading.stack_size(1 << 16)

def explain():
    for function in (long_sums.some, long_sums.many):
        try:
            print(fastattn.explain_function(function))
        except fastattn.FastattnError as error:
            print(error)

thread = threading.Thread(target=explain)
thread.start()
thread.join()
assert threading.stack_size() == 1 << 16
"""


def test_a_thread_with_64_kb_compiles_a_long_function(tmp_path):
    with (tmp_path / "long_sums.py").open("w") as file:
        for name, terms in (("some", 100), ("many", 900)):
            added = "".join(f" + {n}.0 * t" for n in range(terms))
            file.write(f"def {name}(score, b, h, t, s):\n    return score{added}\n")
    told = run_child(SMALL, str(tmp_path)).splitlines()
    assert told[0] == "vectorised" and told[1].endswith("is too deeply nested")


def test_captured_values_that_change_count_at_the_next_call():
    shift, table, kinds = 1.0, np.zeros((2, 5), np.float32), set()

    def shifted(score, b, h, t, s):
        return score + shift + table[h, s]

    def check():
        kinds.add(compile_function(shifted, "score_mod")._numba_type_)
        found, expected = modified(shifted, SCORES[:2, :5], 0, 1), expected_scores(shifted, SCORES[:2, :5], 0, 1)
        np.testing.assert_allclose(found, expected, 1e-6)
        return len(kinds)

    assert check() == 1
    shift = 2.5
    assert check() == 1
    table[1, 2] = 4
    assert check() == 1
    table = np.ones((2, 9), np.float32)
    assert check() == 1
    shift = 2  # of another type: compiled anew
    assert check() == 2


def test_powers_that_are_floats():
    for root in in_both(lambda score, b, h, t, s, half=0.5: (t - s) ** half, SCORES):
        np.testing.assert_array_equal(np.isnan(root), np.arange(S) > np.arange(T)[:, None])

    def raised(score, b, h, t, s):
        return (s + 2000) ** 6.0 + (t + 2000) ** 6.0

    zeros = np.zeros((2, 9), np.float32)
    for found in in_both(raised, zeros):
        np.testing.assert_allclose(found, expected_scores(raised, zeros), rtol=1e-6)


def test_closures_made_in_a_loop_keep_their_own_values():
    made = [around(width) for width in (1, 4, 9)]
    for width in (1, 4, 9):
        made.append(lambda b, h, t, s, width=width: t - s < width)
    assert len({compile_function(mask, "mask_mod")._numba_type_ for mask in made}) == 1
    for mask in made:
        np.testing.assert_array_equal(seen(mask, 20, 20), expected_seen(mask, 20, 20))
    with ThreadPoolExecutor(8) as pool:  # and in many threads
        found = pool.map(lambda width: seen(around(width), 30, 30), range(40))
        assert all(np.array_equal(one, expected_seen(around(width), 30, 30)) for width, one in enumerate(found))


def around(width):
    return lambda b, h, t, s: t - s < width


def test_lambdas_of_one_line_are_told_apart():
    first, second, third = (lambda b, h, t, s: s < t), (lambda b, h, t, s: s > t), (lambda b, h, t, s: s < t - 1)
    for mask in (first, second, third):
        np.testing.assert_array_equal(seen(mask, 20, 20), expected_seen(mask, 20, 20))
    floats, wholes = (lambda score, b, h, t, s: t + 4e9 - 4e9), (lambda score, b, h, t, s: t + 4000000000 - 4000000000)
    zeros = np.zeros((9, 1), np.float32)
    assert (modified(floats, zeros) == 0).all(), "of 4e9 the next float32 is 256 away"
    np.testing.assert_allclose(modified(wholes, zeros)[:, 0], np.arange(9), rtol=1e-6)


def test_a_float_beyond_float32_is_its_largest():
    large, low, ones = 1e39, np.float64(-1e300), np.ones((1, 3))
    for found in in_both(lambda score, b, h, t, s: min(score, large) + max(score, low) - score, ones):
        assert (found == 1).all()
    for found in in_both(lambda score, b, h, t, s: (large < inf) + 2 * (low > -inf) + 0 * score, ones):
        assert (found == 3).all()


def test_what_is_not_finite_goes_through():
    def changed(score, b, h, t, s):
        return score * 2 + 1 if score > 0 else max(score, -1e30) + inf * 0 * s

    row = np.array([[np.nan, inf, -inf, 1, 2e38, -2e38, 0]], np.float32)
    for found in in_both(changed, row):
        assert np.isnan(found[0, [0, 2, 5, 6]]).all() and (found[0, [1, 4]] == inf).all() and found[0, 3] == 3
    for found in in_both(lambda score, b, h, t, s: np.maximum(score, 0.0) + np.minimum(0.0, score), row):
        np.testing.assert_allclose(found, row)
    row = np.array([[math.nan, 0, inf, -0.0]], np.float32)
    for either, both in zip(
        in_both(lambda score, b, h, t, s: score or 1.0, row), in_both(lambda score, b, h, t, s: score and 2.0, row)
    ):
        np.testing.assert_array_equal([either[0], both[0]], [[math.nan, 1, inf, 1], [2, 0, 2, 0]])


@pytest.mark.parametrize("stride", [1, -1, 3, 1000, -(2**20)])
def test_indices_outside_read_the_nearest_element(stride):
    table = np.arange(1, 8, dtype=np.float32)

    def looked(score, b, h, t, s):
        return table[s * stride - 40] + table[t - s] * 10 + table[s - t - 3] * 100

    def nearest(index):
        return table[np.clip(np.where(index < 0, index + 7, index), 0, 6)]

    t, s = np.ogrid[:T, :S]
    expected = nearest(s * stride - 40) + nearest(t - s) * 10 + nearest(s - t - 3) * 100
    for found in in_both(looked, SCORES * 0):
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


@pytest.mark.parametrize("name", LAYOUTS)
def test_arrays_of_every_kind(name):
    t, s = np.ogrid[:T, :S]
    for dtype in ("float16", "float32", "float64", "int8", "uint16", "int32", "uint32", "int64", "bool"):
        array = LAYOUTS[name]((RNG.random((5, max(S, T) + 3)) * 2).astype(dtype))
        whole = np.zeros((5, max(S, T))) if name == "empty" else np.array(array, np.float64)
        for found in in_both(looked_up(array), SCORES * 0, 0, 2):
            np.testing.assert_allclose(found, whole[2, s] + whole[t % 5, s] + whole[s % 5, t], 1e-6, err_msg=dtype)


def test_whole_numbers_wrap_in_lanes_and_nothing_traps():
    big, zero, least = 2**31 - 1, 0, -(2**63)

    def wrapped(score, b, h, t, s):
        return (s + t) * 0 + (s - s % 1) * 0 + float(s * big + s)  # 2**31 s

    found, alone = in_both(wrapped, SCORES[:1] * 0)
    np.testing.assert_array_equal(found[0], (np.arange(S, dtype=np.int64) << 31).astype(np.int32).astype(np.float32))
    np.testing.assert_allclose(alone[0], np.arange(S) * 2.0**31, rtol=2e-7)

    def divided(score, b, h, t, s):
        return s // zero + s % zero + (s - 2**31) // (t - t - 1) % 7 + (t + least) // -1 % 3 + int(score / zero) % 5

    assert np.isfinite(in_both(divided, SCORES)).all()
    wide, amounts = 2**40, np.array([63, 64, 10**12, -1, -(2**60)])

    def shifted(score, b, h, t, s):
        return (wide << amounts[s]) + (wide >> amounts[s]) + (-1 >> amounts[s]) + (-wide >> 2**50)

    np.testing.assert_array_equal(in_both(shifted, np.zeros((1, 5), np.float32)), [[[-2] * 5]] * 2)


def test_quotients_and_remainders_of_whole_numbers_are_python_s():
    pairs = np.array([(x, y) for x in range(-9, 10) for y in (-4, -2, -1, 1, 2, 3)])
    x, y = pairs.T.copy()
    functions = (lambda score, b, h, t, s: x[s] // y[s]), (lambda score, b, h, t, s: x[s] % y[s])
    for function, expected in zip(functions, (x // y, x % y)):
        for (found,) in in_both(function, np.zeros((1, len(x)), np.float32)):
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_remainders_of_floats_are_numpy_s():
    ends = np.array([0, 1, -1, 5, -5, inf, -inf, math.nan, 3e38, 1e-45, -1e-40, 2**24, 0.1], np.float32)
    y = np.exp(RNG.uniform(-7, 7, 4000)).astype(np.float32) * RNG.choice(np.float32([-1, 1]), 4000)
    near = RNG.integers(-(10**5), 10**5, 4000).astype(np.float32) * y  # of multiples, rounded
    xs = [near, np.nextafter(near, np.float32(inf)), np.nextafter(near, np.float32(-inf)), near * np.float32(1e9)]
    x, y = np.concatenate([*xs, np.repeat(ends, len(ends))]), np.concatenate([*[y] * len(xs), np.tile(ends, len(ends))])
    with np.errstate(all="ignore"):
        wanted = x % y, x // y
    functions = (lambda score, b, h, t, s: x[s] % y[s]), (lambda score, b, h, t, s: x[s] // y[s])
    for function, expected in zip(functions, wanted):
        far = (np.abs(expected) > 1e38) | (np.abs(expected) < 1e-36)  # scores are scaled by log2(e)
        for (found,) in in_both(function, np.zeros((1, len(x)), np.float32)):
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
            np.testing.assert_array_equal(np.sign(found), np.where(far, np.sign(found), np.sign(expected)))
            np.testing.assert_allclose(found[~far], expected[~far], rtol=3e-7)
            assert (found[expected == inf] == inf).all() and (found[expected == -inf] == -inf).all()


def test_elementary_functions_are_as_good_as_float32_lets_them_be():
    x = np.concatenate([np.geomspace(1e-45, 3e38, 4001), np.linspace(0.5, 2, 999), [0, inf, 1, 2]]).astype(np.float32)
    exponent, exact = np.linspace(-20, 20, 801).astype(np.float32), x.astype(np.float64)

    def at(function, count=0):
        return modified(function, np.zeros((1, count or len(x)), np.float32))[0]

    with np.errstate(divide="ignore"):
        for function, log in ((lambda score, b, h, t, s: math.log(x[s]), np.log), (log2_of(x), np.log2)):
            np.testing.assert_allclose(at(function), log(exact), rtol=4e-7, atol=2e-7)
    for n in (*range(-126, 128, 9), 127):
        assert at(lambda score, b, h, t, s, n=n: 2 ** (n + 0 * s), 1) == np.float32(2.0**n)
    found = at(lambda score, b, h, t, s: np.power(3.7, exponent[s]), 801)
    np.testing.assert_allclose(found, 3.7 ** exponent.astype(np.float64), rtol=1e-5)
    negative = at(lambda score, b, h, t, s: np.log(-x[s]))
    assert np.isnan(negative[x > 0]).all() and (negative[x == 0] == -inf).all()


def log2_of(x):
    return lambda score, b, h, t, s: np.log2(x[s])


RUNS = np.arange(S) * 9 // S


def agree(*masks):
    together = one_of_masks(masks)
    assert fastattn.explain_function(together) == "vectorised"
    for b, mask in enumerate(masks):
        expected = expected_seen(mask, 9, S)
        for variant in ("best", "scalar"):
            np.testing.assert_array_equal(seen(together, 9, S, b, variant=variant), expected)
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

    scores = RNG.standard_normal((9, S)).astype(np.float32)
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


@pytest.mark.parametrize("n", [2**40, -(2**40), 2**31, -(2**31) - 1])
def test_an_int32_is_compared_with_all_of_a_larger_number(n):
    last, first = np.full(S, 2**31 - 1, np.int32), np.full(S, -(2**31), np.int32)

    def mask(b, h, t, s):
        equal = (last[s] == n) | (first[s] == n) | (n != last[s]) & (n != first[s]) & (s < 4)
        return equal | (last[s] >= n) & (n > 0) | (first[s] <= n) & (n < 0)

    agree(mask)


OTHERS = [
    (np.array([1, 2**63], np.uint64), r"numbers from 2\*\*63 on; to tell whether they are equal, pass .view"),
    (np.array([1.0, 2**24 + 1]), r"numbers beyond 2\*\*24, which float32 rounds; pass int64, or float32 if"),
    ([math.nan, -math.inf, -(2.0**24) - 1], "numbers beyond"),
    (1.7e9 + np.arange(9) / 3, "numbers beyond"),
]


@pytest.mark.parametrize(("values", "message"), OTHERS)
def test_numbers_that_would_be_others_are_refused(values, message):
    mask = equal_in(values)
    for call in (compile_function, lambda mask, _: fastattn.BlockMask.from_function(mask, 1, 1, 2, 2)):
        with pytest.raises(InputError, match=rf"^mask_mod: .*test_functions.py:\d+: ids has {message}.*$"):
            call(mask, "mask_mod")


def test_numbers_that_are_but_rounded_or_far_from_all_others_are_not_refused():
    far = np.array([0.1, 2.0**24, -1e9, -1e30, -1e300, inf, -inf, math.nan, 2.0**40, np.float32(16777217.0 * 2**9)])
    large = np.full(1000, 12345.678)  # the sum of their squares is beyond that of a single large number
    for values in (far, large, np.float64([1e39])):
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = values.astype(np.float32)
            finite = np.abs(wanted) < 1e38
        found = modified(looked_at(values), np.zeros((1, len(wanted)), np.float32))[0]
        np.testing.assert_allclose(found[finite], wanted[finite], rtol=3e-7)
        np.testing.assert_array_equal(found[~finite], wanted[~finite])


def looked_at(values):
    return lambda score, b, h, t, s: values[s]
