"""The output layer: log-probabilities or maxima of rows over the vocabulary, or over a subset for each row."""

from collections.abc import Sequence

import numpy as np

from fastattn.arguments.steps import NO_EDITS, Edits
from fastattn.ops.reference.matmul import ReferenceLinear, linear
from fastattn.spec.quantized import Tensor


class ReferenceSubset:
    """A subset of a linear layer's outputs, from which a row chooses; ids int32, ascending."""

    entry = 0, 0, 0  # an address for kernels, which the reference lacks

    def __init__(self, linear: ReferenceLinear, ids: np.ndarray):
        self.linear, self.ids = linear, ids


def pack_rows(weight_FD: Tensor, packed: ReferenceLinear) -> ReferenceLinear:
    return packed


def select_outputs(linear: ReferenceLinear, ids: np.ndarray) -> ReferenceSubset:
    return ReferenceSubset(linear, ids)


Outputs = ReferenceLinear | Sequence[ReferenceSubset]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-softmax over the last axis, in place; a row that is -inf throughout stays so."""
    top = logits.max(axis=-1, keepdims=True)
    top[np.isneginf(top)] = 0
    logits -= top
    total = np.exp(logits).sum(axis=-1, keepdims=True)
    total[total == 0] = 1
    logits -= np.log(total)
    return logits


def project_all(x_RD: np.ndarray, outputs: Outputs, edits: Edits = NO_EDITS) -> np.ndarray:
    return log_softmax(_logits(x_RD, outputs, edits))


def _logits(x_RD: np.ndarray, outputs: Outputs, edits: Edits) -> np.ndarray:
    if isinstance(outputs, ReferenceLinear):
        return edit_logits(linear(x_RD, outputs), (), edits)
    return edit_logits(linear(x_RD, next(iter(outputs)).linear), outputs, edits)


def edit_logits(logits_RV: np.ndarray, subsets_R: Sequence[ReferenceSubset], edits: Edits) -> np.ndarray:
    """The logits, changed in place by the edits; where there are subsets, -inf outside a row's subset."""
    if edits.cap:
        cap = logits_RV.dtype.type(edits.cap)
        np.multiply(cap, np.tanh(logits_RV / cap), out=logits_RV)
    logits_RV[:, edits.biased_J] += edits.biases_J
    if edits.penalized_RJ is not None:
        rows, ids = _unpadded(edits.penalized_RJ)
        penalized = logits_RV[rows, ids]
        factor = logits_RV.dtype.type(edits.penalty)
        logits_RV[rows, ids] = np.where(penalized < 0, penalized * factor, penalized / factor)
        if edits.amounts_RJ is not None:
            logits_RV[rows, ids] -= edits.amounts_RJ[edits.penalized_RJ >= 0]
    if edits.suppressed_RJ is not None:
        logits_RV[_unpadded(edits.suppressed_RJ)] = -np.inf
    for logits_V, subset in zip(logits_RV, subsets_R):
        outside_V = np.ones(len(logits_V), bool)
        outside_V[subset.ids] = False
        logits_V[outside_V] = -np.inf
    return logits_RV


def _unpadded(ids_RJ: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows, ids) of the entries that are not padding."""
    rows, columns = np.nonzero(ids_RJ >= 0)
    return rows, ids_RJ[rows, columns]


def project_top_k(
    x_RD: np.ndarray, outputs: Outputs, k: int, edits: Edits = NO_EDITS, normalized: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    scores_RV = _logits(x_RD, outputs, edits)
    if normalized:
        scores_RV = log_softmax(scores_RV)
    ids_Rk = np.empty((len(scores_RV), k), np.int32)
    for r, row_V in enumerate(scores_RV):
        # argpartition alone would break ties arbitrarily.
        kth_best = np.partition(row_V, len(row_V) - k)[len(row_V) - k]
        candidates = np.flatnonzero(row_V >= kth_best)
        ids_Rk[r] = candidates[np.argsort(-row_V[candidates], kind="stable")[:k]]
    return np.take_along_axis(scores_RV, ids_Rk.astype(np.int64), axis=1), ids_Rk


def log_probs(x_ND: np.ndarray, outputs: Outputs, targets_N: np.ndarray, edits: Edits = NO_EDITS) -> np.ndarray:
    log_probs_NV = project_all(x_ND, outputs, edits)
    return log_probs_NV[np.arange(len(log_probs_NV)), targets_N]


def project_peaks(x_ND: np.ndarray, starts_B1: np.ndarray, packed: ReferenceLinear, least: float = 0.0) -> np.ndarray:
    outputs_NF = linear(x_ND, packed)
    spans = [outputs_NF[first:end] for first, end in zip(starts_B1, starts_B1[1:])]
    peaks = [rows_TF.max(axis=0, initial=least) for rows_TF in spans]
    return np.array(peaks, x_ND.dtype).reshape(len(spans), packed.outputs)
