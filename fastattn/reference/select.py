"""The projection onto the vocabulary, with log-softmax and top-k."""

import numpy as np

from fastattn.reference.matmul import linear
from fastattn.reference.packing import PackedLinear


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-softmax over the last axis, in place; a row of nothing but -inf stays so."""
    top = logits.max(axis=-1, keepdims=True)
    top[np.isneginf(top)] = 0
    logits -= top
    total = np.exp(logits).sum(axis=-1, keepdims=True)
    total[total == 0] = 1
    logits -= np.log(total)
    return logits


def project_all(
    x_RD: np.ndarray,
    packed: PackedLinear,
    suppressed_RJ: np.ndarray | None = None,
    penalised_RJ: np.ndarray | None = None,
    penalty: float = 1.0,
) -> np.ndarray:
    """Log-softmax of x W' + b over all outputs: log_probs_RV.

    penalised_RJ   ids, each once a row and padded with -1, whose logits are divided by ``penalty`` where they are
                   positive and multiplied by it where negative (Keskar 2019, section 4.1).
    suppressed_RJ  ids, padded with -1, whose logits count as -inf before the softmax.
    """
    return log_softmax(edited_logits(x_RD, packed, suppressed_RJ, penalised_RJ, penalty))


def edited_logits(
    x_RD: np.ndarray,
    packed: PackedLinear,
    suppressed_RJ: np.ndarray | None,
    penalised_RJ: np.ndarray | None,
    penalty: float,
) -> np.ndarray:
    logits_RV = linear(x_RD, packed)
    if penalised_RJ is not None:
        rows, ids = _listed(penalised_RJ)
        before = logits_RV[rows, ids]
        factor = logits_RV.dtype.type(penalty)
        logits_RV[rows, ids] = np.where(before < 0, before * factor, before / factor)
    if suppressed_RJ is not None:
        logits_RV[_listed(suppressed_RJ)] = -np.inf
    return logits_RV


def _listed(ids_RJ: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows, ids) of what is not padding."""
    rows, columns = np.nonzero(ids_RJ >= 0)
    return rows, ids_RJ[rows, columns]


def project_top_k(
    x_RD: np.ndarray,
    packed: PackedLinear,
    k: int,
    suppressed_RJ: np.ndarray | None = None,
    penalised_RJ: np.ndarray | None = None,
    penalty: float = 1.0,
    normalised: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """The k most probable of ``project_all``: (log_probs_Rk, ids_Rk int32), best first, ties to the lower id.

    Not ``normalised``: their logits in place of log-probabilities.
    """
    logits_RV = edited_logits(x_RD, packed, suppressed_RJ, penalised_RJ, penalty)
    return best(log_softmax(logits_RV) if normalised else logits_RV, k)


def best(log_probs_RV: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    ids_Rk = np.empty((len(log_probs_RV), k), np.int32)
    for r, row_V in enumerate(log_probs_RV):
        # argpartition alone would break ties by chance.
        least = np.partition(row_V, len(row_V) - k)[len(row_V) - k]
        candidates = np.flatnonzero(row_V >= least)
        ids_Rk[r] = candidates[np.argsort(-row_V[candidates], kind="stable")[:k]]
    return np.take_along_axis(log_probs_RV, ids_Rk.astype(np.int64), axis=1), ids_Rk


def log_probs(
    x_ND: np.ndarray,
    packed: PackedLinear,
    targets_N: np.ndarray,
    suppressed_NJ: np.ndarray | None = None,
    penalised_NJ: np.ndarray | None = None,
    penalty: float = 1.0,
) -> np.ndarray:
    """``project_all`` at one target id a row."""
    log_probs_NV = project_all(x_ND, packed, suppressed_NJ, penalised_NJ, penalty)
    return log_probs_NV[np.arange(len(log_probs_NV)), targets_N]
