"""Rows of attention whose scores overflow float32, computed in float64.

The kernel multiplies scores and biases by log2(e) in float32. From 2.4e38 on that overflows: a row's total becomes NaN
or, where all its scores became -inf, zero. The kernel counts such rows; one number of each row's output shows which.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fastattn.spec.rounding import as_floats, bfloat16_bits

# Scores beyond this may overflow on the way; scales beyond it, or below its inverse, lose digits as float32.
LARGE = 1e30
# Scales above this are so rare that the greatest scores they may lead to are looked for.
ORDINARY = 1e4
CHUNK = 1 << 20  # scores at a time


def is_ordinary(scale: float, softcap: float) -> bool:
    """Whether float32 holds both, and the scores they lead to but for huge queries and keys."""
    return (softcap == 0 or 1 / LARGE < softcap < LARGE) and (scale == 0 or 1 / LARGE < abs(scale) < ORDINARY)


def is_large(sinks_H: np.ndarray | None) -> bool:
    """Whether float32 cannot hold learned logits times log2(e)."""
    return sinks_H is not None and float(np.abs(sinks_H).max()) > LARGE


def is_extreme(scale: float, softcap: float, query: np.ndarray, key: np.ndarray) -> bool:
    """Whether float32 cannot hold the scale, the scores that it may lead to, the softcap or its inverse."""
    if is_ordinary(scale, softcap):
        return False
    if softcap != 0 and not 1 / LARGE < softcap < LARGE:
        return True
    arrays = [np.abs(as_floats(array)) for array in (query, key)]
    query_most, key_most = (float(np.fmax.reduce(array, axis=None, initial=0)) for array in arrays)
    return not 1 / LARGE < abs(scale) < LARGE or abs(scale) * query_most * key_most * query.shape[-1] > LARGE


@dataclass(frozen=True)
class Scores:
    """What is done to products of queries and keys, as in ``attention``: bias and mask broadcast to (B, H, T, S).

    seen_N2  the first key and the stop of each row, or None: all; ``blocks(b, h, rows, S)`` says more, bool [R, S]
    """

    scale: float
    softcap: float
    bias_BHTS: np.ndarray | None
    seen_N2: np.ndarray | None
    sinks: int
    sinks_H: np.ndarray | None
    mask_BHTS: np.ndarray | None
    blocks: Callable | None

    def mend(
        self,
        b: int,
        rows: slice,
        query_THK: np.ndarray,
        key_SGK: np.ndarray,
        value_SGV: np.ndarray,
        out_THV: np.ndarray,
        weights_HTS: np.ndarray | None,
        logs_HT: np.ndarray | None,
        every: bool,
    ) -> None:
        """Recompute in place the rows of sentence b that overflowed, or ``every`` row; ``rows`` are its own among all.

        Of those that overflowed, rows of a query or with a seen key that is NaN or infinite are left as they are.
        """
        H, S = query_THK.shape[1], len(key_SGK)
        group = H // key_SGK.shape[1]
        suspect_TH = every | ~(np.abs(as_floats(out_THV[..., 0])) > 0)  # 0 or NaN
        for h in map(int, np.nonzero(suspect_TH.any(axis=0))[0]):
            g = h // group
            head = _Head(
                scores=self,
                b=b,
                h=h,
                first=rows.start,
                query_TK=as_floats(query_THK[:, h]),
                key_SK=as_floats(key_SGK[:, g]),
                value_SV=as_floats(value_SGV[:, g]),
                out_TV=out_THV[:, h],
                weights_TS=None if weights_HTS is None else weights_HTS[h, :, :S],
                logs_T=None if logs_HT is None else logs_HT[h],
            )
            suspects = np.nonzero(suspect_TH[:, h])[0]
            for rows_R in np.array_split(suspects, 1 + len(suspects) * S // CHUNK):
                head.mend(rows_R, every)


@dataclass(frozen=True)
class _Head:
    """One head of one sentence, whose rows begin at ``first`` among all."""

    scores: Scores
    b: int
    h: int
    first: int
    query_TK: np.ndarray
    key_SK: np.ndarray
    value_SV: np.ndarray
    out_TV: np.ndarray  # this and the others below are written
    weights_TS: np.ndarray | None
    logs_T: np.ndarray | None

    def mend(self, rows_R: np.ndarray, every: bool) -> None:
        """Recompute those of ``rows_R`` that overflowed, or ``every`` one that sees a key or a sink."""
        out_RV = as_floats(self.out_TV[rows_R])
        wrong_R = np.isnan(out_RV).all(axis=1) | ~out_RV.any(axis=1)
        if self.weights_TS is not None:  # else values of zero look like it
            wrong_R &= np.isnan(self.weights_TS[rows_R]).any(axis=1) | ~self.weights_TS[rows_R].any(axis=1)
        hidden_RS = self._hidden(rows_R)
        kept_R = (wrong_R | every) & (~hidden_RS.all(axis=1) | (self.scores.sinks_H is not None))
        if kept_R.any() and not every:
            kept_R &= np.isfinite(self.query_TK[rows_R]).all(axis=1)
            kept_R &= hidden_RS[:, ~np.isfinite(self.key_SK).all(axis=1)].all(axis=1)
        if not kept_R.any():
            return
        rows_R, hidden_RS = rows_R[kept_R], hidden_RS[kept_R]
        seen_S = ~hidden_RS.all(axis=0)
        weights_RS, logs_R = self._softmax(rows_R, hidden_RS)
        with np.errstate(all="ignore"):
            out_RV = weights_RS[:, seen_S] @ self.value_SV[seen_S].astype(np.float64)
            self.out_TV[rows_R] = out_RV if self.out_TV.dtype != np.uint16 else bfloat16_bits(out_RV.astype(np.float32))
            if self.logs_T is not None:
                self.logs_T[rows_R] = logs_R
        if self.weights_TS is not None:
            self.weights_TS[rows_R] = weights_RS

    def _hidden(self, rows_R: np.ndarray) -> np.ndarray:
        """Which keys each of the rows does not see."""
        scores, S = self.scores, len(self.key_SK)
        hidden_RS = np.zeros((len(rows_R), S), bool)
        if scores.seen_N2 is not None:
            begin_R1, stop_R1 = np.split(scores.seen_N2[self.first + rows_R], 2, axis=1)
            s_S = np.arange(S)
            before_RS = (s_S < begin_R1) & ((s_S >= scores.sinks) | (begin_R1 >= stop_R1))
            hidden_RS |= before_RS | (s_S >= stop_R1)
        if scores.mask_BHTS is not None:
            hidden_RS |= ~_part(scores.mask_BHTS, self.b, self.h, rows_R, S)
        if scores.blocks is not None:
            hidden_RS |= ~scores.blocks(self.b, self.h, rows_R, S)
        if scores.bias_BHTS is not None:
            hidden_RS |= _part(scores.bias_BHTS, self.b, self.h, rows_R, S) == -np.inf
        return hidden_RS

    def _softmax(self, rows_R: np.ndarray, hidden_RS: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(weights [R, S], the logs of their sums [R]) in float64."""
        scores = self.scores
        with np.errstate(all="ignore"):
            scores_RS = self.query_TK[rows_R].astype(np.float64) @ self.key_SK.astype(np.float64).T * scores.scale
            if scores.softcap:
                scores_RS = np.tanh(scores_RS / scores.softcap) * scores.softcap
            if scores.bias_BHTS is not None:
                scores_RS += _part(scores.bias_BHTS, self.b, self.h, rows_R, scores_RS.shape[1])
            scores_RS[hidden_RS] = -np.inf
            top_R1 = scores_RS.max(axis=1, keepdims=True, initial=-np.inf)
            sink = -np.inf if scores.sinks_H is None else float(scores.sinks_H[self.h])
            top_R1 = np.maximum(top_R1, sink)
            top_R1[np.isneginf(top_R1)] = 0
            weights_RS = np.exp(scores_RS - top_R1)
            total_R1 = weights_RS.sum(axis=1, keepdims=True) + np.exp(sink - top_R1)
            return weights_RS / np.where(total_R1 == 0, 1, total_R1), (top_R1 + np.log(total_R1))[:, 0]


def _part(array_BHTS: np.ndarray, b: int, h: int, rows_R: np.ndarray, keys: int) -> np.ndarray:
    """What an array that broadcasts has for some rows and all keys of a sentence, [R, S]."""
    B, H, T, S = array_BHTS.shape
    part_TS = array_BHTS[b if B > 1 else 0, h if H > 1 else 0]
    part_RS = part_TS[rows_R if T > 1 else np.zeros_like(rows_R)]
    return part_RS[:, :keys] if S > 1 else np.broadcast_to(part_RS, (len(rows_R), keys))
