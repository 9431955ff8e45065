"""Caps of logits: before all edits, in every operation that projects onto the vocabulary."""

import numpy as np

from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.ops.steps import NO_EDITS, Edits

V, D, CAP = 301, 24, 5.0  # the last panel and the last vector have columns without an output
PENALIZED, SUPPRESSED = np.array([[3, 7], [300, -1], [5, 6]], np.int32), np.array([[9, -1], [4, 8], [300, 2]], np.int32)
EDITS = Edits(SUPPRESSED, PENALIZED, 1.7, cap=CAP)


def _drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x_RD, weight_VD = rng.normal(size=(3, D)).astype(np.float32), rng.normal(size=(V, D)).astype(np.float32)
    return x_RD, weight_VD, rng.normal(size=V).astype(np.float32)


def _by_hand(edits: Edits, ids: np.ndarray) -> np.ndarray:
    """log_probs_RV, written out in float64; -inf but for the ids."""
    x_RD, weight_VD, bias_V = (array.astype(np.float64) for array in _drawn())
    logits_RV = CAP * np.tanh((x_RD @ weight_VD.T + bias_V) / CAP)
    for r, logits_V in enumerate(logits_RV):
        for j in () if edits.penalized_RJ is None else edits.penalized_RJ[r][edits.penalized_RJ[r] >= 0]:
            logits_V[j] *= edits.penalty if logits_V[j] < 0 else 1 / edits.penalty
        if edits.suppressed_RJ is not None:
            logits_V[edits.suppressed_RJ[r][edits.suppressed_RJ[r] >= 0]] = -np.inf
        logits_V[np.setdiff1d(np.arange(V), ids)] = -np.inf
    return logits_RV - np.log(np.exp(logits_RV).sum(axis=1, keepdims=True))


def test_a_cap_comes_before_penalties_and_suppressed_ids() -> None:
    for subset in (False, True):
        for edits in (EDITS, NO_EDITS._replace(cap=CAP)):
            for ops in (operations, reference):
                x_RD, weight_VD, bias_V = _drawn()
                packed, ids = ops.pack_linear(weight_VD, bias_V), np.arange(V, dtype=np.int32)
                outputs = packed
                if subset:
                    ids = ids[ids % 7 > 1]
                    outputs = [ops.select_outputs(ops.pack_rows(weight_VD, packed), ids)] * len(x_RD)
                expected_RV, kept = _by_hand(edits, ids), ids[-1]
                np.testing.assert_allclose(ops.project_all(x_RD, outputs, edits), expected_RV, atol=1e-5)
                targets_R = np.full(len(x_RD), kept, np.int32)
                np.testing.assert_allclose(
                    ops.log_probs(x_RD, outputs, targets_R, edits), expected_RV[:, kept], atol=1e-5
                )
                values_R9, ids_R9 = ops.project_top_k(x_RD, outputs, 9, edits)
                np.testing.assert_allclose(values_R9, -np.sort(-expected_RV, axis=1)[:, :9], atol=1e-5)
                np.testing.assert_allclose(
                    np.take_along_axis(expected_RV, ids_R9.astype(int), axis=1), values_R9, atol=1e-5
                )


def test_not_a_number_stays_one() -> None:
    x_RD, weight_VD, bias_V = _drawn()
    x_RD[1, 3] = np.nan
    values_R1, _ = operations.project_top_k(x_RD, operations.pack_linear(weight_VD, bias_V), 1, EDITS)
    assert np.isnan(values_R1[1, 0]) and np.isfinite(values_R1[[0, 2]]).all()
