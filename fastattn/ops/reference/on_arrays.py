"""Operations on callers' arrays: attention in float64, over graphs and over windows; search."""

from typing import Any

import numpy as np

from fastattn.arguments.attention import Heads, KeyMask, ScoreTerms, SoftmaxOutputs, StridedArrays, mask_states
from fastattn.ops.float64_attention import recompute_in_float64
from fastattn.ops.reference.attention import softmax_in_place
from fastattn.ops.reference.norm import softmax


def reads_float16() -> bool:
    return False


def compile_function(function: Any, kind: str) -> Any:
    """A function that takes arrays and broadcasts them."""
    return np.vectorize(function, otypes=[bool if kind == "mask_mod" else np.float64])


def strided_attention(
    arrays: StridedArrays, heads: Heads, key_mask: KeyMask, terms: ScoreTerms, outputs: SoftmaxOutputs
) -> int:
    """Attention in float64; 0: no row overflows."""
    arrays.out_BTHV[...] = 0
    if outputs.logs is not None:
        outputs.logs[...] = -np.inf
    recompute_in_float64(arrays, heads, key_mask, terms, outputs, all_rows=True)
    return 0


def block_states(function: Any, shape: tuple[int, int, int, int], block: tuple[int, int]) -> np.ndarray:
    return mask_states(np.broadcast_to(function(*np.ogrid[tuple(map(slice, shape))]), shape), block)


def best_keys(
    query_BTHK: np.ndarray,
    key_BSGK: np.ndarray,
    *,
    seen_BT2: np.ndarray,
    factor: float = 1.0,
    vector_HK: np.ndarray | None = None,
    bias_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    key_BSHK = np.repeat(key_BSGK, query_BTHK.shape[2] // key_BSGK.shape[2], axis=2)
    if vector_HK is None:
        scores_BHTS = np.einsum("bthk,bshk->bhts", query_BTHK, key_BSHK) * factor
    else:
        sums_BTSHK = np.tanh(query_BTHK[:, :, None] + key_BSHK[:, None])
        scores_BHTS = np.einsum("btshk,hk->bhts", sums_BTSHK, vector_HK)
    if bias_BHTS is not None:
        scores_BHTS = scores_BHTS + bias_BHTS
    s_S, seen_BT2 = np.arange(key_BSGK.shape[1]), seen_BT2[:, None]
    hidden = (s_S < seen_BT2[..., :1]) | (s_S >= seen_BT2[..., 1:]) | np.isnan(scores_BHTS)
    scores_BHTS = np.where(hidden, -np.inf, scores_BHTS)
    if not len(s_S):
        return np.full(scores_BHTS.shape[:3], -1, np.int64)
    return np.where(np.isneginf(scores_BHTS).all(axis=3), -1, scores_BHTS.argmax(axis=3))


def graph_attention(
    value_MHV: np.ndarray,
    starts_N1: np.ndarray,
    indices_E: np.ndarray,
    *,
    terms: tuple[np.ndarray, np.ndarray] | None = None,
    dots: tuple[np.ndarray, np.ndarray] | None = None,
    factor: float,
    weights_EH: np.ndarray | None = None,
) -> np.ndarray:
    out_NHV = np.zeros((len(starts_N1) - 1, *value_MHV.shape[1:]), value_MHV.dtype)
    for n, (first, stop) in enumerate(zip(starts_N1, starts_N1[1:])):
        neighbours_S = indices_E[first:stop]
        if terms is not None:
            target_NH, source_MH = terms
            sums_SH = target_NH[n] + source_MH[neighbours_S]
            scores_SH = np.where(sums_SH > 0, sums_SH, factor * sums_SH)
        elif dots is not None:
            query_NHK, key_MHK = dots
            scores_SH = factor * np.einsum("hk,shk->sh", query_NHK[n], key_MHK[neighbours_S])
        weights_SH = softmax(scores_SH.T).T
        out_NHV[n] = np.einsum("sh,shv->hv", weights_SH, value_MHV[neighbours_S])
        if weights_EH is not None:
            weights_EH[first:stop] = weights_SH
    return out_NHV


def local_attention(
    query_BTHK: np.ndarray,
    key_BSGK: np.ndarray,
    value_BSGV: np.ndarray,
    centre_BTH: np.ndarray,
    windows_BTH2: np.ndarray,
    *,
    scale: float,
    decay: float,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    group, s_S = query_BTHK.shape[2] // key_BSGK.shape[2], np.arange(key_BSGK.shape[1])
    key_BSHK, value_BSHV = (np.repeat(x, group, axis=2) for x in (key_BSGK, value_BSGV))
    scores_BTHS = scale * np.einsum("bthk,bshk->bths", query_BTHK, key_BSHK)
    scores_BTHS[(s_S < windows_BTH2[..., :1]) | (s_S >= windows_BTH2[..., 1:])] = -np.inf
    weights_BTHS = softmax_in_place(scores_BTHS) * np.exp(-np.square(s_S - centre_BTH[..., None]) * decay)
    if weights_BHTS is not None:
        weights_BHTS[...] = weights_BTHS.transpose(0, 2, 1, 3)
    return np.einsum("bths,bshv->bthv", weights_BTHS, value_BSHV).astype(query_BTHK.dtype)


def nearest_rows(
    queries_QD: np.ndarray, corpus_ND: np.ndarray, k: int, by_length: bool = False, bits: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    if bits:
        differing_QND = queries_QD.view(np.uint8)[:, None] ^ corpus_ND.view(np.uint8)[None]
        scores_QN = -np.unpackbits(differing_QND, axis=2).sum(axis=2, dtype=np.int64)
    else:
        dtype = np.int64 if corpus_ND.dtype.kind in "iu" else corpus_ND.dtype
        scores_QN = queries_QD.astype(dtype) @ corpus_ND.astype(dtype).T
    if by_length:
        lengths_N = np.sqrt(np.square(corpus_ND.astype(scores_QN.dtype)).sum(axis=1))
        scores_QN = scores_QN / np.maximum(lengths_N, lengths_N.dtype.type(1e-12))
    ids_Qk = np.argsort(-scores_QN, axis=1, kind="stable")[:, :k]  # NaN comes last
    scores_Qk = np.take_along_axis(scores_QN, ids_Qk, axis=1)
    absent_Qk = np.isnan(scores_Qk)
    scores_Qk = np.where(absent_Qk, -np.inf, scores_Qk).astype(np.result_type(np.float32, corpus_ND.dtype))
    return scores_Qk, np.where(absent_Qk, -1, ids_Qk)
