"""Users' functions in kernels: in lanes and one by one, against plain Python in float64."""

import math
import sys
from collections.abc import Callable
from math import exp
from pathlib import Path

import numpy as np
import pytest
from numba import njit

import fastattn
from fastattn.simd.target import LANES
from fastattn.user_functions.plan import _MOST_PLANS, _plans_of, compile_function
from tests.children import run_child
from tests.user_functions.choice import one_of_masks, one_of_scores
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
SLOPES = np.array([0.5, 0.25])  # float64, of which a copy is passed
DOCUMENT = np.repeat(np.arange(9), [3, 9, 1, 30, 17, 2, 2, 40, 40])
DOCUMENTS = np.stack([DOCUMENT, DOCUMENT[::-1]]).astype(np.int16)
PREFIX = (5, 40)
BIAS = RNG.standard_normal((2, 301)).astype(np.float32)
SQUARE = RNG.random((150, 150)) < 0.5
WINDOW, CAP, FLAG = 7, 20.0, True
BITS, NO_AXES, WHOLE_NO_AXES = 2**45 + 0b1101001, np.array(2.5), np.array(3, np.uint8)


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
    alibi, early, earlier, heads_differ, sums, numbers, powers, divisions, choices, whole_bits, among, rounded,
    infinite, helped, compiled,
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
    return (
        t - 2**40 < s + 2**41
        and s - 2**61 < 0
        and s < 2**63 - 1
        and t - s > -(2**63)
        and s != 2**33
        and -(2**50) < t - s
    )


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
    monkeypatch.setitem(globals(), "helper", lambda position, by: position + by)
    expected = expected_scores(compiled, SCORES, 1, 1)
    np.testing.assert_allclose(modified(compiled, SCORES, 1, 1), expected, rtol=1e-6, atol=1e-4)
    monkeypatch.undo()
    expected = expected_scores(compiled, SCORES, 1, 1)
    np.testing.assert_allclose(modified(compiled, SCORES, 1, 1), expected, rtol=1e-6, atol=1e-4)


def test_a_known_function_that_is_another_now(monkeypatch):
    for known in (math.exp, math.sqrt):
        monkeypatch.setitem(globals(), "CHANGING", known)
        found = modified(changing, np.full((1, 1), 4, np.float32))
        np.testing.assert_allclose(found, known(4), rtol=1e-6)


CHANGING: Callable = math.exp


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
    assert 1 <= len(_plans_of(code, code.co_filename, "mask_mod")) <= _MOST_PLANS < len(inside)


def test_no_function_is_none_at_all():
    for none in (0, ()):
        rows = SCORES.copy()
        assert np.array_equal(
            modified(none, rows), SCORES * np.float32(math.log2(math.e)) / np.float32(math.log2(math.e))
        )
        assert seen(none, 3, S).all()
        assert (states_of(none, (2, 2), (4, 4)) == 2).all()


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


def test_a_thread_with_64_kb_compiles_a_long_function(tmp_path: Path) -> None:
    with (tmp_path / "long_sums.py").open("w") as file:
        for name, terms in (("some", 100), ("many", 900)):
            added = "".join(f" + {n}.0 * t" for n in range(terms))
            file.write(f"def {name}(score, b, h, t, s):\n    return score{added}\n")
    told = run_child(SMALL, str(tmp_path)).splitlines()
    assert told[0] == "vectorised" and told[1].endswith("is too deeply nested")
