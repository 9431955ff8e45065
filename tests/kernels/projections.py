"""What products and projections promise on every device beyond the table of cases; ``ops`` takes NumPy arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn.ops import reference
from fastattn.ops.steps import Edits
from fastattn.spec.architecture import ACTIVATIONS

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


PROMISES: tuple[Callable[[Any], None], ...] = (
    best_logits_are_those_of_the_best_log_probabilities,
    log_probabilities_are_of_logits_of_any_size,
    nothing_is_probable_where_every_id_is_ruled_out,
    activations_keep_nan_and_infinity,
)
