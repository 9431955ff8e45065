"""Pools a sentence's rows to one vector: every mode except the maximum is a weighted sum."""

from collections.abc import Callable, Sequence

import numpy as np

# (T rows, of which the first S are skipped) -> float64 weights of the others
_WEIGHTS: dict[str, Callable[[int, int], np.ndarray]] = {
    "cls": lambda T, S: np.arange(S, T) == S,
    "mean": lambda T, S: np.full(T - S, 1 / (T - S)),
    "mean_sqrt_len": lambda T, S: np.full(T - S, 1 / np.sqrt(T - S)),
    "mean_sqrt_len_tokens": lambda T, S: np.full(T - S, 1 / np.sqrt(T - S)),
    "weightedmean": lambda T, S: np.arange(S + 1, T + 1) / np.arange(S + 1, T + 1).sum(),
    "lasttoken": lambda T, S: np.arange(S, T) == T - 1,
}


def pool(rows_ND: np.ndarray, starts_B1: np.ndarray, modes: Sequence[str], skip: int = 0) -> np.ndarray:
    """pooled_BE of a ragged batch, E = D * len(modes); zeros for a sentence of no more than ``skip`` rows."""
    pooled_BMD = np.zeros((len(starts_B1) - 1, len(modes), rows_ND.shape[1]), rows_ND.dtype)
    for b, m in np.ndindex(pooled_BMD.shape[:2]):
        rows_TD = rows_ND[starts_B1[b] : starts_B1[b + 1]]
        if len(rows_TD) > skip and modes[m] == "max":
            pooled_BMD[b, m] = rows_TD[skip:].max(axis=0)
        elif len(rows_TD) > skip:
            pooled_BMD[b, m] = _WEIGHTS[modes[m]](len(rows_TD), skip).astype(rows_ND.dtype) @ rows_TD[skip:]
    return pooled_BMD.reshape(len(pooled_BMD), len(modes) * rows_ND.shape[1])
