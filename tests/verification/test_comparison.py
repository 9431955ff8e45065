"""What is compared, and what counts as past a bound."""

import numpy as np
import pytest

from fastattn.verification.comparison import (
    Bounds,
    Comparison,
    compare_ids,
    compare_rows,
    compare_states,
    name_states,
    worst_of_each,
)

ROWS = np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 1.0]], np.float32)


def test_rows() -> None:
    theirs = ROWS.copy()
    theirs[1] = [0.5, 2.0]
    cosine = pytest.approx(2 / 4.25**0.5)
    for bound, within in ((0.13, True), (0.12, False)):
        expected = Comparison("block 1", within, 0.5, 0.125, cosine, "text 1, token 2")
        assert compare_rows("block 1", ROWS, theirs, bound, "text 1") == expected
    same = Comparison("vector", True, 0.0, 0.0, 1.0, "text 1")
    assert compare_rows("vector", ROWS[:1], ROWS[:1], 0.0, "text 1") == same


def test_rows_of_zeros_and_what_is_no_number() -> None:
    zeros = np.zeros((1, 2), np.float32)
    assert compare_rows("vector", zeros, zeros, 0.0, "").cosine == 1.0
    assert compare_rows("vector", ROWS[:1], zeros, 0.1, "").cosine == 0.0
    for damaged in (np.nan, np.inf):
        broken = ROWS.copy()
        broken[2, 1] = damaged
        assert not compare_rows("block 1", broken, ROWS, 1e30, "").within
        assert not compare_rows("block 1", ROWS, broken, 1e30, "").within
    assert compare_rows("block 1", ROWS, ROWS[:2], 1.0, "text 2") == Comparison(
        "block 1", False, remark="text 2: shape (3, 2) here, (2, 2) there"
    )


def test_states_have_names() -> None:
    assert list(name_states([ROWS, 2 * ROWS, 3 * ROWS], 4 * ROWS)) == ["embedding", "block 1", "block 2", "output"]
    assert list(name_states([ROWS, 2 * ROWS, 3 * ROWS], 3 * ROWS, "a ")) == ["a embedding", "a block 1", "a output"]


def test_layers_that_one_side_alone_has_are_told() -> None:
    ours = name_states([ROWS[:, :1], ROWS, ROWS + 1], ROWS)
    theirs = name_states([ROWS, 2 * ROWS, ROWS, ROWS], ROWS)
    found = list(compare_states(ours, theirs, 0.1, "text 1", "there"))
    within = {"embedding": True, "block 1": False, "block 2": False, "output": True}
    assert {line.name: line.within for line in found} == within
    assert found[0].remark == "not compared: 2 numbers a row in there"
    shorter = list(compare_states(ours, name_states([ROWS], ROWS), 0.1, "text 1", "there"))
    assert [line.remark for line in shorter[1:3]] == ["not compared: there does not show it"] * 2
    (*_, longer) = compare_states(name_states([ROWS], ROWS), theirs, 0.1, "text 1", "there")
    assert (longer.name, longer.remark) == ("block 2", "not compared: only there shows it")


def test_ids() -> None:
    tokens = ["a", "b", "c"].__getitem__
    assert compare_ids([[0, 1], [2] * 1200], [[0, 1], [2] * 1200], tokens).remark == "the same: 2, 1,200 ids"
    found = compare_ids([[0], [0, 1, 2]], [[0], [0, 2]], tokens)
    assert not found.within
    assert found.remark == "text 2: 3 ids here, 2 there; the first that differs, 2: 'b' (1) here and 'c' (2) there"
    ended = compare_ids([[0, 1]], [[0]], tokens)
    assert ended.remark == "text 1: 2 ids here, 1 there; the first that differs, 2: 'b' (1) here and none there"


def test_of_several_texts_the_worst_is_kept() -> None:
    lines = [
        [Comparison("a", relative=0.1, largest=9.0), Comparison("b", largest=0.5)],
        [Comparison("b", False, remark="shapes"), Comparison("c", remark="not compared")],
        [Comparison("a", relative=0.2, largest=1.0), Comparison("b", largest=0.7), Comparison("c", largest=0.0)],
        [Comparison("a", False, relative=float("nan")), Comparison("a", False, relative=3.0)],
    ]
    worst = worst_of_each(comparison for comparisons in lines for comparison in comparisons)
    assert [line.name for line in worst] == ["a", "b", "c"]
    assert np.isnan(worst[0].relative or 0.0) and worst[1].remark == "shapes" and worst[2].largest == 0.0


def test_bounds() -> None:
    exact, rounded = Bounds.of_precision("float32", None), Bounds.of_precision("int8", None)
    assert exact.rows == 1e-4 < rounded.rows and exact.log_probs < rounded.log_probs
    assert Bounds.of_precision("int8", 0.5) == Bounds(0.5, 0.5)


def test_no_cosine_is_above_one() -> None:
    """Rounding alone may make it so."""
    for row_D in np.random.default_rng(0).standard_normal((200, 1, 3)).astype(np.float32):
        assert compare_rows("vector", row_D, np.float32(3) * row_D, 9.0, "").cosine <= 1.0
