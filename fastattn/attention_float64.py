"""Rows of attention whose scores overflow float32, computed in float64.

The kernel multiplies scores and biases by log2(e) in float32. From 2.4e38 on that overflows: a row's total becomes NaN
or, where all its scores became -inf, zero. The kernel counts such rows; one number of each row's output shows which.
"""

from dataclasses import dataclass

import numpy as np

# Scores beyond this may overflow on the way; scales beyond it, or below its inverse, lose digits as float32.
LARGE = 1e30
# Scales above this are so rare that the greatest scores they may lead to are looked for.
ORDINARY = 1e4
CHUNK = 1 << 20  # scores at a time


def is_extreme(scale: float, softcap: float, query: np.ndarray, key: np.ndarray) -> bool:
    """Whether float32 cannot hold the scale, the scores that it may lead to, the softcap or its inverse."""
    if softcap != 0 and not 1 / LARGE < softcap < LARGE:
        return True
    if scale == 0 or 1 / LARGE < abs(scale) < ORDINARY:
        return False
    query_most, key_most = (float(np.fmax.reduce(np.abs(array), axis=None, initial=0)) for array in (query, key))
    return not 1 / LARGE < abs(scale) < LARGE or abs(scale) * query_most * key_most * query.shape[-1] > LARGE


def mend_rows(
    out_BTHK: np.ndarray,
    weights_BHTS: np.ndarray | None,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    lengths_B: np.ndarray,
    offset_B: np.ndarray | None,
    scale: float,
    softcap: float,
    bias_BHTS: np.ndarray | None,
    every: bool = False,
) -> None:
    """Recompute in place the rows that overflowed, or ``every`` row; arguments as in ``attention``.

    offset_B None: not causal. Rows with NaN or infinite inputs, but for a bias of -inf, are left as they are.
    """
    B, T, H, _ = query.shape
    S, group = key.shape[1], H // key.shape[2]
    suspect_BTH = every | ~(np.abs(out_BTHK[..., 0]) > 0)  # 0 or NaN
    for b, h in zip(*np.nonzero(suspect_BTH.any(axis=1))):
        head = _Head(
            query[b, :, h],
            key[b, : lengths_B[b], h // group],
            value[b, : lengths_B[b], h // group],
            None if offset_B is None else int(offset_B[b]),
            scale,
            softcap,
            None if bias_BHTS is None else np.broadcast_to(bias_BHTS, (B, H, T, S))[b, h, :, : lengths_B[b]],
        )
        weights_TS = None if weights_BHTS is None else weights_BHTS[b, h, :, : lengths_B[b]]
        rows = np.nonzero(suspect_BTH[b, :, h])[0]
        for rows_R in np.array_split(rows, 1 + len(rows) * S // CHUNK):
            head.mend(rows_R, out_BTHK[b, :, h], weights_TS, every)


@dataclass(frozen=True)
class _Head:
    """Inputs of one head of one sentence; keys, values and bias without padding."""

    query_TK: np.ndarray
    key_SK: np.ndarray
    value_SK: np.ndarray
    offset: int | None
    scale: float
    softcap: float
    bias_TS: np.ndarray | None

    def mend(self, rows_R: np.ndarray, out_TK: np.ndarray, weights_TS: np.ndarray | None, every: bool) -> None:
        """Recompute those of ``rows_R`` that overflowed, or ``every`` one that sees a key."""
        out_RK = out_TK[rows_R]
        wrong_R = np.isnan(out_RK).all(axis=1) | ~out_RK.any(axis=1)
        if weights_TS is not None:  # else values of zero look like it
            wrong_R &= np.isnan(weights_TS[rows_R]).any(axis=1) | ~weights_TS[rows_R].any(axis=1)
        wrong_R = (wrong_R | every) & np.isfinite(self.query_TK[rows_R]).all(axis=1)
        rows_R = rows_R[wrong_R & ~self._hidden(rows_R).all(axis=1)]
        if len(rows_R) and np.isfinite(self.key_SK).all():
            weights_RS = self._weights(rows_R)
            with np.errstate(all="ignore"):
                out_TK[rows_R] = weights_RS @ self.value_SK.astype(np.float64)
            if weights_TS is not None:
                weights_TS[rows_R] = weights_RS

    def _hidden(self, rows_R: np.ndarray) -> np.ndarray:
        """Which keys each of the rows does not see."""
        hidden_RS = np.zeros((len(rows_R), len(self.key_SK)), bool)
        if self.offset is not None:
            hidden_RS |= np.arange(len(self.key_SK)) > rows_R[:, None] + self.offset
        return hidden_RS if self.bias_TS is None else hidden_RS | (self.bias_TS[rows_R] == -np.inf)

    def _weights(self, rows_R: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            scores_RS = self.query_TK[rows_R].astype(np.float64) @ self.key_SK.astype(np.float64).T * self.scale
            if self.softcap:
                scores_RS = np.tanh(scores_RS / self.softcap) * self.softcap
            if self.bias_TS is not None:
                scores_RS += self.bias_TS[rows_R]
            scores_RS[self._hidden(rows_R)] = -np.inf
            weights_RS = np.exp(scores_RS - scores_RS.max(axis=1, keepdims=True))
            return weights_RS / weights_RS.sum(axis=1, keepdims=True)
