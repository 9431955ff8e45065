"""The output layer: log-probabilities of rows over the vocabulary, or over a subset for each row."""

from collections.abc import Sequence

import numpy as np

from fastattn.kernels.constants import LOWEST, TINY
from fastattn.ops.cpu.logits import NO_TARGETS, prepared
from fastattn.ops.cpu.matmul import linear
from fastattn.ops.cpu.output_subset import OutputSubset, choose_from_subsets, logits_of_subsets
from fastattn.ops.cpu.packing import PackedLinear
from fastattn.ops.cpu.select import choose_from_all
from fastattn.ops.edits import NO_EDITS, Edits
from fastattn.ops.step_rows import SubsetRows

# All outputs of a layer, or a subset for each row: the softmax is over them alone. Logits equal those of the whole
# projection: bit by bit in int8, else up to the order of a sum. Fastest if rows with the same subset are adjacent.
Outputs = PackedLinear | Sequence[OutputSubset]


def choose(
    x_RD: np.ndarray, outputs: Outputs | SubsetRows, k: int, edits: Edits, targets_R: np.ndarray, summed: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(values_Rk, ids_Rk, logits_R, log_sums_R) of ``choose_from_all``."""
    if isinstance(outputs, PackedLinear):
        return choose_from_all(x_RD, outputs, k, edits, targets_R, summed)
    return choose_from_subsets(x_RD, outputs, k, edits, targets_R, summed)


def project_top_k(
    x_RD: np.ndarray, outputs: Outputs, k: int, edits: Edits = NO_EDITS, normalized: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The k best log-probabilities float32 [R, k] and their ids int32 [R, k], best first, ties to the lower id.

    normalized  False: logits instead of log-probabilities, which saves an exponential for each.
    If fewer than k ids are left, the others are -inf and -1.
    """
    values_Rk, ids_Rk, _, log_sums_R = choose(x_RD, outputs, k, edits, NO_TARGETS, normalized)
    if normalized:
        values_Rk -= log_sums_R[:, None]
    return values_Rk, ids_Rk


def log_probs(x_ND: np.ndarray, outputs: Outputs, targets_N: np.ndarray, edits: Edits = NO_EDITS) -> np.ndarray:
    """The log-probability of one target id (int32, inside the vocabulary) a row; float32 [N].

    -inf for a target outside the row's subset.
    """
    _, _, logits_N, log_sums_N = choose(x_ND, outputs, 0, edits, targets_N)
    return logits_N - log_sums_N


def project_all(x_RD: np.ndarray, outputs: Outputs, edits: Edits = NO_EDITS) -> np.ndarray:
    """All log-probabilities, float32 [R, V], to sample from: the only operation that stores them.

    -inf outside a row's subset.
    """
    if isinstance(outputs, PackedLinear):
        return _all_of(x_RD, outputs, edits)
    lines_RC, (first, *_) = logits_of_subsets(x_RD, outputs, edits), outputs
    log_probs_RV = np.full((len(x_RD), first.linear.packed.outputs), -np.inf, np.float32)
    for r, subset in enumerate(outputs):
        logits = lines_RC[r, : len(subset.ids)]
        log_softmax(logits)
        log_probs_RV[r, subset.ids] = logits
    return log_probs_RV


def _all_of(x_RD: np.ndarray, packed: PackedLinear, edits: Edits) -> np.ndarray:
    logits_RV = linear(x_RD, packed)
    suppressed_RJ, penalized_RJ, penalty, _, _ = prepared(edits, len(x_RD), NO_TARGETS)
    for r, logits_V in enumerate(logits_RV):  # one by one, so that a row's bits depend on no other
        penalized = penalized_RJ[r][penalized_RJ[r] >= 0]
        before = logits_V[penalized]
        logits_V[penalized] = np.where(before < 0, before * penalty, before / penalty)
        logits_V[suppressed_RJ[r][suppressed_RJ[r] >= 0]] = -np.inf
        log_softmax(logits_V)
    return logits_RV


def log_softmax(logits: np.ndarray) -> None:
    """The log-softmax of one row, in place."""
    logits -= max(logits.max(), LOWEST)  # not -inf, should all be ruled out
    logits -= np.log(max(np.exp(logits).sum(dtype=np.float64), TINY)).astype(np.float32)
