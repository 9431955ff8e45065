"""Attention of a graph's nodes to their neighbours, node by node (Velickovic 2018)."""

import numpy as np

from fastattn.ops.reference.softmax import softmax


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
    """out_NHV: each node's softmax over its neighbours, and their weighted values; scores are of terms or of dots."""
    out_NHV = np.zeros((len(starts_N1) - 1, *value_MHV.shape[1:]), value_MHV.dtype)
    for n, (first, stop) in enumerate(zip(starts_N1, starts_N1[1:])):
        near = indices_E[first:stop]
        if terms is not None:
            target_NH, source_MH = terms
            sums_SH = target_NH[n] + source_MH[near]
            scores_SH = np.where(sums_SH > 0, sums_SH, factor * sums_SH)
        elif dots is not None:
            query_NHK, key_MHK = dots
            scores_SH = factor * np.einsum("hk,shk->sh", query_NHK[n], key_MHK[near])
        weights_SH = softmax(scores_SH.T).T
        out_NHV[n] = np.einsum("sh,shv->hv", weights_SH, value_MHV[near])
        if weights_EH is not None:
            weights_EH[first:stop] = weights_SH
    return out_NHV
