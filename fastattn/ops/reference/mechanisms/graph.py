"""Graph attention, node by node (Velickovic 2018), and over kinds of edges (Wang 2019)."""

from collections.abc import Sequence

import numpy as np


def graph_attention(
    features_NF: np.ndarray,
    weight_HVF: np.ndarray,
    vector_HA: np.ndarray,
    starts: np.ndarray,
    indices: np.ndarray,
    slope: float = 0.2,
) -> np.ndarray:
    """(N, H, V), heads neither concatenated nor averaged yet."""
    N, (H, V, F) = len(features_NF), weight_HVF.shape
    projected_NHV = (features_NF @ weight_HVF.reshape(H * V, F).T).reshape(N, H, V)
    out_NHV = np.zeros_like(projected_NHV)
    for n in range(N):
        near = indices[starts[n] : starts[n + 1]]
        for h in range(H if len(near) else 0):
            both_E = [np.concatenate([projected_NHV[n, h], projected_NHV[m, h]]) for m in near]
            sums_E = np.array([vector_HA[h] @ both for both in both_E])
            scores_E = np.where(sums_E > 0, sums_E, slope * sums_E)
            powers_E = np.exp(scores_E - scores_E.max())
            out_NHV[n, h] = powers_E / powers_E.sum() @ projected_NHV[near, h]
    return out_NHV


def edges_at_once(
    features_NF: np.ndarray,
    weight_HVF: np.ndarray,
    vector_HA: np.ndarray,
    starts: np.ndarray,
    indices: np.ndarray,
    slope: float = 0.2,
) -> np.ndarray:
    """The same with arrays of all edges, as NumPy is fastest; every node has a neighbour."""
    N, (H, V, F) = len(features_NF), weight_HVF.shape
    projected_NHV = (features_NF @ weight_HVF.reshape(H * V, F).T).reshape(N, H, V)
    target_NH, source_NH = (projected_NHV * vector_HA[:, :V]).sum(2), (projected_NHV * vector_HA[:, V:]).sum(2)
    nodes_E, firsts_N = np.repeat(np.arange(N), np.diff(starts)), starts[:-1]
    sums_EH = target_NH[nodes_E] + source_NH[indices]
    scores_EH = np.where(sums_EH > 0, sums_EH, slope * sums_EH)
    powers_EH = np.exp(scores_EH - np.maximum.reduceat(scores_EH, firsts_N)[nodes_E])
    weights_EH = powers_EH / np.add.reduceat(powers_EH, firsts_N)[nodes_E]
    return np.add.reduceat(weights_EH[..., None] * projected_NHV[indices], firsts_N)


def semantic_attention(
    features_PND: np.ndarray, weight_QD: np.ndarray, bias_Q: np.ndarray, vector_Q: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    scores_P = (np.tanh(features_PND @ weight_QD.T + bias_Q) @ vector_Q).mean(axis=1)
    powers_P = np.exp(scores_P - scores_P.max())
    weights_P = powers_P / powers_P.sum()
    return (weights_P[:, None, None] * features_PND).sum(axis=0), weights_P


def heterogeneous_attention(
    features_NF: np.ndarray,
    weight_HVF: np.ndarray,
    vectors_PHA: np.ndarray,
    metapaths: Sequence[tuple[np.ndarray, np.ndarray]],
    *semantic: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    found = []
    for vector_HA, (starts, indices) in zip(vectors_PHA, metapaths):
        out_NHV = graph_attention(features_NF, weight_HVF, vector_HA, starts, indices)
        out_ND = out_NHV.reshape(len(out_NHV), -1)
        found.append(np.where(out_ND > 0, out_ND, np.exp(np.minimum(out_ND, 0)) - 1))
    return semantic_attention(np.stack(found), *semantic)
