"""What products, projections, search and steps of attention promise on every device beyond the table of cases.

``ops`` takes NumPy arrays; so does ``search``, which is its nearest_rows.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from fastattn.arguments.attention import Heads, KeyIndex
from fastattn.arguments.steps import NO_EDITS, Edits
from fastattn.ops import reference
from fastattn.spec.architecture import ACTIVATIONS
from tests.kernels.cases import normal

LOGITS = (
    [1.5] + [-np.inf] * 60, [1e10] + [0.0] * 80, [-1e12] * 70, [2.5e38, 1.0], [2e38, -1e38], [-2.5e38] * 5,
    [1e30, 9e29],
)  # fmt: skip


def best_logits_are_those_of_the_best_log_probabilities(ops: Any) -> None:
    rng = np.random.default_rng(0)
    weight_VD, x_RD = (rng.standard_normal(shape, np.float32) for shape in ((1300, 9), (4, 9)))
    packed, suppressed_RJ = ops.pack_linear(weight_VD), np.arange(8, dtype=np.int32).reshape(4, 2)
    expected = ops.linear(x_RD, packed)
    _, ids = ops.project_top_k(x_RD, packed, 3, Edits(suppressed_RJ))
    values, same = ops.project_top_k(x_RD, packed, 3, Edits(suppressed_RJ), normalized=False)
    np.testing.assert_array_equal(same, ids)
    np.testing.assert_array_equal(values, np.take_along_axis(expected, ids.astype(np.int64), axis=1))


def log_probabilities_are_of_logits_of_any_size(ops: Any) -> None:
    for logits in LOGITS:
        weight_VD, x_RD = np.array(logits, np.float32)[:, None], np.ones((1, 1), np.float32)
        values, ids = ops.project_top_k(x_RD, ops.pack_linear(weight_VD), 2)
        oracle = reference.pack_linear(weight_VD.astype(np.float64))
        expected, _ = reference.project_top_k(x_RD.astype(np.float64), oracle, 2)
        # the sum's logarithm is a float32 as large as the logits
        allowed = max(1e-6, np.spacing(np.abs(weight_VD[np.isfinite(weight_VD)]).max()))
        np.testing.assert_allclose(values, expected.astype(np.float32), rtol=1e-6, atol=allowed)
        assert values.max() <= 0 and ids[0, 0] == np.argmax(logits)


def nothing_is_probable_where_every_id_is_ruled_out(ops: Any) -> None:
    """And of fewer ids than are asked for, those that are left come first."""
    packed, x_RD = ops.pack_linear(np.eye(3, dtype=np.float32)), np.ones((3, 3), np.float32)
    suppressed = Edits(np.array([[0, 1, 2], [0, -1, -1], [2, 0, -1]], np.int32))
    values, ids = ops.project_top_k(x_RD, packed, 4, suppressed)
    assert ids.tolist() == [[-1] * 4, [1, 2, -1, -1], [1, -1, -1, -1]]
    assert np.isneginf(values[0]).all() and np.isneginf(values[1:, 2:]).all() and values[2, 0] == 0
    log_probs = ops.log_probs(x_RD, packed, np.array([1, 1, 2], np.int32), suppressed)
    assert np.isneginf(log_probs).tolist() == [True, False, True] and log_probs[1] == values[1, 0]
    assert np.isneginf(ops.project_all(x_RD, packed, suppressed)[0]).all()


def activations_keep_nan_and_infinity(ops: Any) -> None:
    x_ND, weight_FD = np.array([[np.nan], [np.inf], [1.0], [-90.0]], np.float32), np.ones((3, 1), np.float32)
    for activation in ("none", *ACTIVATIONS):
        expected = reference.linear(x_ND, reference.pack_linear(weight_FD), activation)
        found = ops.linear(x_ND, ops.pack_linear(weight_FD), activation)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=4e-7 * 90, err_msg=activation)  # tanh of -90


def a_step_that_sees_no_key_gives_zeros(ops: Any) -> None:
    query_RE, cache_ME, bias_RHS = normal(1, 2, 44), normal(2, 9, 44), np.full((1, 1, 5), -np.inf, np.float32)
    weights_RHS, seen = np.full((2, 4, 5), 7, np.float32), KeyIndex(np.zeros((2, 5), np.int32), np.array([5, 0]))
    heads = Heads(4, 2, 11, value_column=22)
    out_RF = ops.attention_step(query_RE, cache_ME, cache_ME, seen, heads, bias_NHS=bias_RHS, weights_NHS=weights_RHS)
    assert not out_RF.any() and not weights_RHS.any()


PROMISES: tuple[Callable[[Any], None], ...] = (
    best_logits_are_those_of_the_best_log_probabilities,
    log_probabilities_are_of_logits_of_any_size,
    nothing_is_probable_where_every_id_is_ruled_out,
    activations_keep_nan_and_infinity,
    a_step_that_sees_no_key_gives_zeros,
)


def products_follow_the_oracle(ops: Any, precision: str, shapes: Iterable[tuple[int, int, int]]) -> None:
    for rows, outputs, inputs in shapes:
        rng = np.random.default_rng(rows + outputs + inputs)
        x, weight, bias, factor, residual = (
            rng.standard_normal(shape, np.float32)
            for shape in ((rows, inputs), (outputs, inputs), outputs, (rows, outputs), (rows, outputs))
        )
        packed, oracle = (one.pack_linear(weight, bias, precision) for one in (ops, reference))
        for arguments in (("none",), ("gelu",), ("none", residual), ("swish", residual, factor)):
            expected = reference.linear(x.astype(np.float64), oracle, *arguments)
            np.testing.assert_allclose(ops.linear(x, packed, *arguments), expected, rtol=3e-5, atol=3e-5)


class SubsetRows:
    """A projection onto V words, lists of them by length, and rows that choose from each: of the list i, counts[i]."""

    def __init__(self, ops: Any, precision: str, weight: Any, lengths: Sequence[int], counts: Sequence[int]):
        self.ops, self.weight, (self.words, width) = ops, weight, weight.shape
        rng = np.random.default_rng(width)
        self.bias = rng.standard_normal(self.words, np.float32)
        lists = [np.sort(rng.permutation(self.words)[:length]).astype(np.int32) for length in lengths]
        self.lists = [ids for ids, count in zip(lists, counts, strict=True) for _ in range(count)]  # of each row
        self.x = rng.standard_normal((len(self.lists), width), np.float32)
        self.edits = self._edits(rng)
        self.packed, self.subset = self._build(ops, precision)
        self.oracle, self.oracle_subset = self._build(reference, precision)

    def _build(self, ops: Any, precision: str) -> tuple[Any, list]:
        packed = ops.pack_linear(self.weight, self.bias, precision)
        rows, of = ops.pack_rows(self.weight, packed), {id(ids): ids for ids in self.lists}
        subsets = {key: ops.select_outputs(rows, ids) for key, ids in of.items()}
        return packed, [subsets[id(ids)] for ids in self.lists]

    def _edits(self, rng: np.random.Generator) -> Edits:
        """Ids on the row's list and others, and padding; none is penalized twice."""
        suppressed = rng.integers(0, self.words, (len(self.x), 6)).astype(np.int32)
        penalized = np.stack([rng.permutation(self.words)[:6] for _ in self.x]).astype(np.int32)
        for r, ids in enumerate(self.lists):
            suppressed[r, :2], mine = rng.choice(ids, 2), rng.permutation(ids)[:2]
            penalized[r] = np.r_[mine, np.setdiff1d(penalized[r], mine)[: 6 - len(mine)]]
        suppressed[::2, 5] = penalized[::2, 5] = -1
        amounts, biases = (rng.normal(size=shape).astype(np.float32) for shape in (penalized.shape, self.words // 2))
        biased = rng.permutation(self.words)[: self.words // 2].astype(np.int32)
        return Edits(suppressed, penalized, 1.7, amounts, 0.0, biased, biases)


def choices_agree_with_the_oracle(layer: SubsetRows, atol: float, whole: bool = False) -> None:
    ops, x64, rows = layer.ops, layer.x.astype(np.float64), np.arange(len(layer.x))
    outputs, oracle = (layer.packed, layer.oracle) if whole else (layer.subset, layer.oracle_subset)
    for edits in (NO_EDITS, layer.edits):
        expected = reference.project_all(x64, oracle, edits)
        np.testing.assert_allclose(ops.project_all(layer.x, outputs, edits), expected, rtol=0, atol=atol)
        values, ids = ops.project_top_k(layer.x, outputs, 5, edits)
        expected_values, expected_ids = reference.project_top_k(x64, oracle, 5, edits)
        np.testing.assert_allclose(values, expected_values, rtol=0, atol=atol)
        np.testing.assert_array_equal(ids, np.where(np.isfinite(expected_values), expected_ids, -1))
        targets = np.random.default_rng(layer.x.shape[1]).integers(0, layer.words, len(rows)).astype(np.int32)
        targets[::2] = [ids[-1] for ids in layer.lists[::2]]
        log_probs = ops.log_probs(layer.x, outputs, targets, edits)
        np.testing.assert_allclose(log_probs, expected[rows, targets], rtol=0, atol=atol)
        assert whole or (np.isneginf(log_probs).any() and np.isfinite(log_probs).any())


Search = Callable[..., tuple[np.ndarray, np.ndarray]]
NUMBERS = np.float32, np.float16, np.int8, np.uint8
SEARCHES = [(dtype, form) for dtype in NUMBERS for form in ({}, {"by_length": True})]
SEARCHES += [(dtype, {"bits": True}) for dtype in NUMBERS[2:]]
searches = pytest.mark.parametrize(
    "dtype, form", SEARCHES, ids=lambda value: getattr(value, "__name__", None) or "-".join(value)
)


def found_rows_are_the_nearest(search: Search, queries_QD: np.ndarray, corpus_ND: np.ndarray, form: dict) -> None:
    """Exact sums to the bit; others in another order only where the scores are equal but for rounding."""
    exact, (N, D) = corpus_ND.dtype.kind != "f" and "by_length" not in form, corpus_ND.shape
    wide = [array if array.dtype.kind != "f" else array.astype(np.float64) for array in (queries_QD, corpus_ND)]
    whole_QN, all_ids_QN = reference.nearest_rows(*wide, N, **form)
    whole_QN = np.take_along_axis(whole_QN, np.argsort(all_ids_QN, axis=1), axis=1)
    for k in (1, min(5, N), N):
        found = scores_Qk, ids_Qk = search(queries_QD, corpus_ND, k, **form)
        expected_Qk, expected_ids_Qk = reference.nearest_rows(*wide, k, **form)
        assert (scores_Qk.dtype, ids_Qk.dtype, ids_Qk.shape) == (np.float32, np.int64, (len(queries_QD), k))
        if exact:
            same(found, (expected_Qk, expected_ids_Qk))
            continue
        allowed = 1e-6 * max(1.0, np.abs(expected_Qk).max()) * (1 if D < 50 else 2)
        np.testing.assert_allclose(scores_Qk, expected_Qk, rtol=0, atol=allowed)
        of_ids_Qk = np.take_along_axis(whole_QN, ids_Qk, axis=1)
        np.testing.assert_allclose(of_ids_Qk, expected_Qk, rtol=0, atol=2 * allowed)
        assert all(len(set(ids_k)) == k for ids_k in ids_Qk.tolist())


def same(one: Iterable[np.ndarray], other: Iterable[np.ndarray]) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def equal_scores_are_in_the_order_of_ids(search: Search, queries: int, repeats: int) -> None:
    corpus_ND = np.repeat(np.array([[1, 0], [3, 0], [-0.0, 0], [0.0, 0]], np.float32), repeats, axis=0)
    order = [*range(repeats, 2 * repeats), *range(repeats), *range(2 * repeats, 4 * repeats)]
    for k in (repeats // 2, repeats + 3, 3 * repeats + 7, 4 * repeats):
        _, ids_Qk = search(np.ones((queries, 2), np.float32), corpus_ND, k)
        assert ids_Qk.tolist() == [order[:k]] * queries


def what_is_no_number_displaces_none(search: Search, queries: int) -> None:
    corpus_ND = np.array([[np.nan], [-np.inf], [2], [np.nan], [np.inf], [-3]], np.float32)
    queries_QD = np.ones((queries, 1), np.float32)
    scores_Qk, ids_Qk = search(queries_QD, corpus_ND, 6)
    assert ids_Qk.tolist() == [[4, 2, 5, 1, -1, -1]] * queries
    assert scores_Qk.tolist() == [[np.inf, 2, -3, -np.inf, -np.inf, -np.inf]] * queries
    same((scores_Qk, ids_Qk), reference.nearest_rows(queries_QD, corpus_ND, 6))
    queries_QD[0] = np.nan
    scores_Qk, ids_Qk = search(queries_QD, corpus_ND, 2)
    assert ids_Qk[0].tolist() == [-1, -1] and (ids_Qk[1:] == [4, 2]).all()


def length_of_rows_that_have_none(search: Search) -> None:
    corpus_ND = np.array([[0, 0], [3, 4], [1e30, 0], [1e-30, 0]], np.float32)
    scores_Qk, ids_Qk = search(np.array([[1, 0]], np.float32), corpus_ND, 4, by_length=True)
    assert ids_Qk.tolist() == [[1, 3, 0, -1]]  # the square of 1e30 is beyond float32
    np.testing.assert_allclose(scores_Qk[0], [0.6, 1e-18, 0, -np.inf], rtol=1e-6)
