"""Attention in float64, for rows whose scores overflow float32.

Kernels multiply scores and biases by log2(e) in float32, which overflows from 2.4e38 on. A row's total then becomes NaN
or, where all its scores became -inf, zero. Kernels count such rows; ``recompute_in_float64`` finds them.
"""

from typing import NamedTuple

import numpy as np

from fastattn.arguments.attention import NONE, Heads, KeyMask, ScoreTerms, SoftmaxOutputs, StridedArrays
from fastattn.spec.rounding import as_floats, bfloat16_bits

# Scores beyond LARGE may overflow before the softmax; scales beyond LARGE or below 1 / LARGE lose digits in float32.
LARGE = 1e30
# Scales above ORDINARY_SCALE are so rare that it costs little to bound their scores by the largest queries and keys.
ORDINARY_SCALE = 1e4
CHUNK = 1 << 20  # scores that are computed at a time


def is_ordinary(scale: float, softcap: float) -> bool:
    """Whether float32 holds the scale, the softcap and, unless queries and keys are huge, the scores."""
    return (softcap == 0 or 1 / LARGE < softcap < LARGE) and (scale == 0 or 1 / LARGE < abs(scale) < ORDINARY_SCALE)


def is_extreme(scale: float, softcap: float, query: np.ndarray, key: np.ndarray) -> bool:
    """Whether float32 cannot hold the scale, a score that it may lead to, the softcap or the softcap's inverse."""
    if is_ordinary(scale, softcap):
        return False
    if softcap != 0 and not 1 / LARGE < softcap < LARGE:
        return True
    arrays = [np.abs(as_floats(array)) for array in (query, key)]
    query_peak, key_peak = (float(np.fmax.reduce(array, axis=None, initial=0)) for array in arrays)
    return not 1 / LARGE < abs(scale) < LARGE or abs(scale) * query_peak * key_peak * query.shape[-1] > LARGE


def recompute_in_float64(
    arrays: StridedArrays, heads: Heads, key_mask: KeyMask, terms: ScoreTerms, outputs: SoftmaxOutputs, all_rows: bool
) -> None:
    """Compute again, in place, the rows that overflowed in ``strided_attention`` with the same arguments.

    all_rows  recompute all rows that see a key or a sink
    Without ``all_rows``, a row stays as it is if its query, or a key that it sees, is NaN or infinite.
    """
    for b, (rows, sentence) in enumerate(arrays.sentences()):
        (query_THK, key_SGK, value_SGV, out_THV), S = sentence, len(sentence[1])
        suspect_TH = all_rows | ~(np.abs(as_floats(out_THV[..., 0])) > 0)  # 0 or NaN
        weights, logs = outputs
        for h in map(int, np.nonzero(suspect_TH.any(axis=0))[0]):
            g = h // (heads.query_heads // heads.key_heads)
            head = _Head(
                heads=heads,
                key_mask=key_mask,
                terms=terms,
                sentence_head=(b, h),
                first=rows.start,
                query_TK=as_floats(query_THK[:, h]),
                key_SK=as_floats(key_SGK[:, g]),
                value_SV=as_floats(value_SGV[:, g]),
                out_TV=out_THV[:, h],
                weights_TS=None if weights is None else weights[b, h, :, :S],
                logs_T=None if logs is None else logs[rows, h] if arrays.ragged else logs[b, h],
            )
            suspects = np.nonzero(suspect_TH[:, h])[0]
            for rows_R in np.array_split(suspects, 1 + len(suspects) * S // CHUNK):
                head.recompute(rows_R, all_rows)


class _Head(NamedTuple):
    """A head of a sentence: ``sentence_head`` is (b, h), ``first`` the row of its first query among all queries."""

    heads: Heads
    key_mask: KeyMask
    terms: ScoreTerms
    sentence_head: tuple[int, int]
    first: int
    query_TK: np.ndarray
    key_SK: np.ndarray
    value_SV: np.ndarray
    out_TV: np.ndarray  # written, like weights_TS and logs_T
    weights_TS: np.ndarray | None
    logs_T: np.ndarray | None

    def recompute(self, rows_R: np.ndarray, all_rows: bool) -> None:
        """Recompute the rows among ``rows_R`` that overflowed; with ``all_rows``, all that see a key or a sink."""
        hidden_RS = self._hidden(rows_R)
        recomputed_R = ~hidden_RS.all(axis=1) | (self.terms.sinks_H is not None)
        if not all_rows:
            out_RV = as_floats(self.out_TV[rows_R])
            recomputed_R &= np.isnan(out_RV).all(axis=1) | ~out_RV.any(axis=1)
            if self.weights_TS is not None:  # zero values make a row of zeros too, but its weights are not zero
                recomputed_R &= np.isnan(self.weights_TS[rows_R]).any(axis=1) | ~self.weights_TS[rows_R].any(axis=1)
            recomputed_R &= np.isfinite(self.query_TK[rows_R]).all(axis=1)
            recomputed_R &= hidden_RS[:, ~np.isfinite(self.key_SK).all(axis=1)].all(axis=1)
        if not recomputed_R.any():
            return
        rows_R, hidden_RS = rows_R[recomputed_R], hidden_RS[recomputed_R]
        is_seen_S = ~hidden_RS.all(axis=0)
        weights_RS, logs_R = self._softmax(rows_R, hidden_RS)
        with np.errstate(all="ignore"):
            out_RV = weights_RS[:, is_seen_S] @ self.value_SV[is_seen_S].astype(np.float64)
            self.out_TV[rows_R] = out_RV if self.out_TV.dtype != np.uint16 else bfloat16_bits(out_RV.astype(np.float32))
            if self.logs_T is not None:
                self.logs_T[rows_R] = logs_R
        if self.weights_TS is not None:
            self.weights_TS[rows_R] = weights_RS

    def _hidden(self, rows_R: np.ndarray) -> np.ndarray:
        """bool [R, S]: the keys that a row does not see."""
        key_mask, S = self.key_mask, len(self.key_SK)
        hidden_RS, s_S = np.zeros((len(rows_R), S), bool), np.arange(S)
        if key_mask.seen_N2 is not None:
            begin_R1, stop_R1 = np.split(key_mask.seen_N2[self.first + rows_R], 2, axis=1)
            before_RS = (s_S < begin_R1) & ((s_S >= key_mask.sinks) | (begin_R1 >= stop_R1))
            hidden_RS |= before_RS | (s_S >= stop_R1)
        if key_mask.mask_BHTS is not None:
            hidden_RS |= ~self._rows_of(key_mask.mask_BHTS, rows_R)
        if key_mask.states_BHTS is not None:
            states_TS = _of_head(key_mask.states_BHTS, self.sentence_head)
            hidden_RS |= states_TS[rows_R // key_mask.block[0]][:, s_S // key_mask.block[1]] == NONE
        if key_mask.function is not None:
            hidden_RS |= ~np.asarray(key_mask.function(*self.sentence_head, rows_R[:, None], s_S)).astype(bool)
        if self.terms.bias_BHTS is not None:
            hidden_RS |= self._rows_of(self.terms.bias_BHTS, rows_R) == -np.inf
        return hidden_RS

    def _softmax(self, rows_R: np.ndarray, hidden_RS: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(weights [R, S], the logs of the softmaxes' sums [R]) in float64."""
        terms = self.terms
        with np.errstate(all="ignore"):
            scores_RS = self._products(rows_R)
            if terms.function is not None:
                scores_RS = terms.function(scores_RS, *self.sentence_head, rows_R[:, None], np.arange(len(self.key_SK)))
            if terms.bias_BHTS is not None:
                scores_RS = scores_RS + self._rows_of(terms.bias_BHTS, rows_R)
            scores_RS[hidden_RS] = -np.inf
            top_R1 = scores_RS.max(axis=1, keepdims=True, initial=-np.inf)
            sink = -np.inf if terms.sinks_H is None else float(terms.sinks_H[self.sentence_head[1]])
            top_R1 = np.maximum(top_R1, sink)
            top_R1[np.isneginf(top_R1)] = 0
            weights_RS = np.exp(scores_RS - top_R1)
            total_R1 = weights_RS.sum(axis=1, keepdims=True) + np.exp(sink - top_R1)
            return weights_RS / np.where(total_R1 == 0, 1, total_R1), (top_R1 + np.log(total_R1))[:, 0]

    def _products(self, rows_R: np.ndarray) -> np.ndarray:
        """The scaled and capped products of queries and keys, or additive attention's sums, [R, S]."""
        query_RK, key_SK = self.query_TK[rows_R].astype(np.float64), self.key_SK.astype(np.float64)
        (_, h), heads = self.sentence_head, self.heads
        if self.terms.vector_HK is not None:
            scores_RS = np.tanh(query_RK[:, None] + key_SK) @ self.terms.vector_HK[h].astype(np.float64)
        else:
            scores_RS = query_RK @ key_SK.T * (heads.width**-0.5 if heads.scale is None else heads.scale)
        return np.tanh(scores_RS / heads.softcap) * heads.softcap if heads.softcap else scores_RS

    def _rows_of(self, array_BHTS: np.ndarray, rows_R: np.ndarray) -> np.ndarray:
        """The values [R, S] of a broadcast array at these rows and all keys of the head."""
        _, _, T, S = array_BHTS.shape
        rows_RS = _of_head(array_BHTS, self.sentence_head)[rows_R if T > 1 else np.zeros_like(rows_R)]
        keys = len(self.key_SK)
        return rows_RS[:, :keys] if S > 1 else np.broadcast_to(rows_RS, (len(rows_R), keys))


def _of_head(array_BHTS: np.ndarray, sentence_head: tuple[int, int]) -> np.ndarray:
    b, h = sentence_head
    return array_BHTS[b if len(array_BHTS) > 1 else 0, h if array_BHTS.shape[1] > 1 else 0]
