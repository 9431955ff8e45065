"""The formulas of ``fastattn.mechanisms`` in plain NumPy, a line of code for a line of the papers.

They compute in the dtype of the inputs: float64 is the oracle of the tests, float32 the naive side of the benchmark.
Arrays have all axes: queries (B, T, H, K), keys (B, S, H, K), values (B, S, H, V), scores and weights (B, H, T, S).
"""

import math
from collections.abc import Sequence

import numpy as np

from fastattn.ops.reference.attention import softmax_in_place

# Scores (B, H, T, S) of queries and keys


def dot(query_BTHK: np.ndarray, key_BSHK: np.ndarray) -> np.ndarray:
    return query_BTHK.transpose(0, 2, 1, 3) @ key_BSHK.transpose(0, 2, 3, 1)


def scaled_dot(
    query_BTHK: np.ndarray,
    key_BSHK: np.ndarray,
    scale: float | None = None,
    softcap: float = 0.0,
    bias_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    scores = dot(query_BTHK, key_BSHK) * (query_BTHK.shape[3] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    return scores if bias_BHTS is None else scores + bias_BHTS


def content(query_BTHK: np.ndarray, key_BSHK: np.ndarray, sharpness: float = 1.0) -> np.ndarray:
    """Cosines times ``sharpness``; 0 for a vector of zeros."""
    query_length, key_length = (np.linalg.norm(x, axis=3).transpose(0, 2, 1) for x in (query_BTHK, key_BSHK))
    lengths = query_length[..., :, None] * key_length[..., None, :]
    return sharpness * dot(query_BTHK, key_BSHK) / np.where(lengths == 0, 1, lengths)


def general(query_BTHQ: np.ndarray, key_BSHK: np.ndarray, weight_HQK: np.ndarray) -> np.ndarray:
    return np.einsum("bthq,hqk,bshk->bhts", query_BTHQ, weight_HQK, key_BSHK, optimize=True)


def location(query_BTHK: np.ndarray, weight_HLK: np.ndarray, keys: int) -> np.ndarray:
    return np.einsum("bthk,hlk->bhtl", query_BTHK, weight_HLK[:, :keys], optimize=True)


def additive(
    query_BTHQ: np.ndarray,
    key_BSHK: np.ndarray,
    query_weight_HDQ: np.ndarray,
    key_weight_HDK: np.ndarray,
    vector_HD: np.ndarray,
    bias_HD: np.ndarray | None = None,
) -> np.ndarray:
    query_BHTD = query_BTHQ.transpose(0, 2, 1, 3) @ query_weight_HDQ.swapaxes(1, 2)
    key_BHSD = key_BSHK.transpose(0, 2, 1, 3) @ key_weight_HDK.swapaxes(1, 2)
    if bias_HD is not None:
        query_BHTD = query_BHTD + bias_HD[:, None]
    sums_BHTSD = query_BHTD[:, :, :, None] + key_BHSD[:, :, None]
    return (np.tanh(sums_BHTSD) @ vector_HD[:, None, :, None])[..., 0]


def graph(query_BTHK: np.ndarray, key_BSHK: np.ndarray, vector_HA: np.ndarray, slope: float = 0.2) -> np.ndarray:
    """LeakyReLU(a . [q; k]), where a is ``vector_HA`` of a head, twice as long as a query."""
    K = query_BTHK.shape[3]
    target_BHT = np.einsum("bthk,hk->bht", query_BTHK, vector_HA[:, :K])
    source_BHS = np.einsum("bshk,hk->bhs", key_BSHK, vector_HA[:, K:])
    sums_BHTS = target_BHT[..., None] + source_BHS[:, :, None]
    return np.where(sums_BHTS > 0, sums_BHTS, slope * sums_BHTS)


# Masks that broadcast to (B, H, T, S): True where a query sees a key


def padded(lengths_B: np.ndarray, keys: int) -> np.ndarray:
    return (np.arange(keys) < np.asarray(lengths_B)[:, None])[:, None, None]


def causal(queries: int, keys: int, offset_B: Sequence[int] = (0,)) -> np.ndarray:
    positions_BT1 = np.arange(queries)[:, None] + np.asarray(offset_B)[:, None, None]
    return (np.arange(keys) <= positions_BT1)[:, None]


def restricted(queries: int, keys: int, size: int) -> np.ndarray:
    first_T1 = np.arange(queries)[:, None] - size // 2
    return (np.arange(keys) >= first_T1) & (np.arange(keys) < first_T1 + size)


def local_monotonic(queries: int, keys: int, distance: int) -> np.ndarray:
    return np.abs(np.arange(keys) - np.arange(queries)[:, None]) <= distance


def sentences(query_starts: Sequence[int], key_starts: Sequence[int]) -> np.ndarray:
    query_T, key_S = (np.repeat(np.arange(len(starts) - 1), np.diff(starts)) for starts in (query_starts, key_starts))
    return query_T[:, None] == key_S


def neighbours(starts: Sequence[int], indices: Sequence[int], keys: int) -> np.ndarray:
    mask_TS = np.zeros((len(starts) - 1, keys), bool)
    for t, (first, stop) in enumerate(zip(starts[:-1], starts[1:])):
        mask_TS[t, indices[first:stop]] = True
    return mask_TS


def predicted_positions(query_BTHK: np.ndarray, weight_HDK: np.ndarray, vector_HD: np.ndarray, keys_B: np.ndarray):
    """p_BTH = S sigmoid(v . tanh(W q)) (Luong 2015, equation 9)."""
    hidden_BTHD = np.tanh(np.einsum("bthk,hdk->bthd", query_BTHK, weight_HDK, optimize=True))
    return np.asarray(keys_B, query_BTHK.dtype)[:, None, None] / (1 + np.exp(-(hidden_BTHD * vector_HD).sum(axis=3)))


def local_predictive(positions_BTH: np.ndarray, keys: int, distance: float) -> np.ndarray:
    return np.abs(np.arange(keys) - positions_BTH.transpose(0, 2, 1)[..., None]) <= distance


def gaussian(positions_BTH: np.ndarray, keys: int, distance: float) -> np.ndarray:
    """The second factor of equation 10 (Luong 2015)."""
    distance_BHTS = np.arange(keys).astype(positions_BTH.dtype) - positions_BTH.transpose(0, 2, 1)[..., None]
    return np.exp(-(distance_BHTS**2) / (2 * (distance / 2) ** 2))


# From scores (B, H, T, S) to a result


def weights(scores_BHTS: np.ndarray, mask: np.ndarray | bool = True) -> np.ndarray:
    """The softmax over the keys at which ``mask`` is True; zeros for a query without any."""
    return softmax_in_place(np.where(mask, scores_BHTS, -np.inf))


def soft(weights_BHTS: np.ndarray, value_BSHV: np.ndarray) -> np.ndarray:
    return (weights_BHTS @ value_BSHV.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)


def hard(weights_BHTS: np.ndarray, value_BSHV: np.ndarray) -> np.ndarray:
    """The value of the most probable key."""
    one_hot = np.arange(weights_BHTS.shape[3]) == weights_BHTS.argmax(axis=-1)[..., None]
    return soft((one_hot & (weights_BHTS > 0)).astype(value_BSHV.dtype), value_BSHV)


def saliency(weights_BHTS: np.ndarray, grid: tuple[int, ...]) -> np.ndarray:
    B, _, T, _ = weights_BHTS.shape
    return weights_BHTS.mean(axis=1).reshape(B, T, *grid)


# Positions in float64, number by number as the papers write them


def sinusoids(positions: int, width: int, interleaved: bool = True, base: float = 10000.0) -> np.ndarray:
    table_PD = np.empty((positions, width))
    for p in range(positions):
        for i in range(width // 2):
            angle = p / base ** (2 * i / width)
            sine, cosine = (2 * i, 2 * i + 1) if interleaved else (i, width // 2 + i)
            table_PD[p, sine], table_PD[p, cosine] = math.sin(angle), math.cos(angle)
    return table_PD


def rotary(x_BTHK: np.ndarray, positions_T: np.ndarray, width: int, interleaved: bool, base: float = 10000.0):
    """x with its pairs of columns turned as complex numbers (Su 2021, equation 12)."""
    turned_BTHK = x_BTHK.copy()
    for i in range(width // 2):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, width // 2 + i)
        turn_T1 = np.exp(1j * positions_T * base ** (-2 * i / width))[:, None]
        pair_BTH = (x_BTHK[..., a] + 1j * x_BTHK[..., b]) * turn_T1
        turned_BTHK[..., a], turned_BTHK[..., b] = pair_BTH.real, pair_BTH.imag
    return turned_BTHK


def alibi_slopes(heads: int) -> list[float]:
    """The authors' slopes: heads beyond a power of two take every second slope of twice as many heads."""
    if math.log2(heads).is_integer():
        return [2 ** (-8 * (h + 1) / heads) for h in range(heads)]
    power = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(power) + alibi_slopes(2 * power)[::2][: heads - power]


def t5_bucket(distance: int, buckets: int, max_distance: int, bidirectional: bool) -> int:
    """The bucket of a key ``distance`` positions after the query (Raffel 2020, section 2.1)."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    beyond_exact = math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact)
    return first + min(exact + int(beyond_exact), buckets - 1)


# A Neural Turing Machine's addressing (Graves 2014, section 3.3); weights are (B, H, N)


def content_weights(key_BHM: np.ndarray, memory_BNM: np.ndarray, strength_BH: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(key_BHM, axis=2)[..., None] * np.linalg.norm(memory_BNM, axis=2)[:, None]
    cosine_BHN = key_BHM @ memory_BNM.swapaxes(1, 2) / np.where(lengths == 0, 1, lengths)
    return softmax_in_place(strength_BH[..., None] * cosine_BHN)


def interpolate(weights_BHN: np.ndarray, previous_BHN: np.ndarray, gate_BH: np.ndarray) -> np.ndarray:
    return gate_BH[..., None] * weights_BHN + (1 - gate_BH[..., None]) * previous_BHN


def shift(weights_BHN: np.ndarray, shifts_BHJ: np.ndarray) -> np.ndarray:
    """The circular convolution of weights and shifts, whose middle is the shift by 0."""
    N, half = weights_BHN.shape[2], shifts_BHJ.shape[2] // 2
    shifted_BHN = np.zeros_like(weights_BHN)
    for i in range(N):
        for offset in range(-half, half + 1):
            shifted_BHN[..., i] += weights_BHN[..., (i - offset) % N] * shifts_BHJ[..., offset + half]
    return shifted_BHN


def sharpen(weights_BHN: np.ndarray, exponent_BH: np.ndarray) -> np.ndarray:
    powers_BHN = weights_BHN ** exponent_BH[..., None]
    return powers_BHN / powers_BHN.sum(axis=-1, keepdims=True)


def address(
    key_BHM: np.ndarray,
    memory_BNM: np.ndarray,
    previous_BHN: np.ndarray,
    strength_BH: np.ndarray,
    gate_BH: np.ndarray,
    shifts_BHJ: np.ndarray,
    exponent_BH: np.ndarray,
) -> np.ndarray:
    content_BHN = content_weights(key_BHM, memory_BNM, strength_BH)
    return sharpen(shift(interpolate(content_BHN, previous_BHN, gate_BH), shifts_BHJ), exponent_BH)


# Graph attention (Velickovic 2018), and over several kinds of edges (Wang 2019)


def graph_attention(
    features_NF: np.ndarray,
    weight_HVF: np.ndarray,
    vector_HA: np.ndarray,
    starts: np.ndarray,
    indices: np.ndarray,
    slope: float = 0.2,
) -> np.ndarray:
    """out_NHV, node by node; heads are neither concatenated nor averaged."""
    N, (H, V, F) = len(features_NF), weight_HVF.shape
    projected_NHV = (features_NF @ weight_HVF.reshape(H * V, F).T).reshape(N, H, V)
    out_NHV = np.zeros_like(projected_NHV)
    for n in range(N):
        neighbour_ids = indices[starts[n] : starts[n + 1]]
        for h in range(H if len(neighbour_ids) else 0):
            pairs_E = [np.concatenate([projected_NHV[n, h], projected_NHV[m, h]]) for m in neighbour_ids]
            sums_E = np.array([vector_HA[h] @ pair for pair in pairs_E])
            scores_E = np.where(sums_E > 0, sums_E, slope * sums_E)
            out_NHV[n, h] = softmax_in_place(scores_E) @ projected_NHV[neighbour_ids, h]
    return out_NHV


def graph_attention_by_edges(
    features_NF: np.ndarray,
    weight_HVF: np.ndarray,
    vector_HA: np.ndarray,
    starts: np.ndarray,
    indices: np.ndarray,
    slope: float = 0.2,
) -> np.ndarray:
    """``graph_attention`` with arrays of all edges, the fastest in NumPy; every node needs a neighbour."""
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
    """(out_ND, weights_P): features of each kind of edges, weighted by a softmax of their mean scores."""
    scores_P = (np.tanh(features_PND @ weight_QD.T + bias_Q) @ vector_Q).mean(axis=1)
    weights_P = softmax_in_place(scores_P)
    return (weights_P[:, None, None] * features_PND).sum(axis=0), weights_P


def heterogeneous_attention(
    features_NF: np.ndarray,
    weight_HVF: np.ndarray,
    vectors_PHA: np.ndarray,
    metapaths: Sequence[tuple[np.ndarray, np.ndarray]],
    *semantic_weights: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Graph attention over each metapath's edges, an ELU, then ``semantic_attention`` over the metapaths."""
    features = []
    for vector_HA, (starts, indices) in zip(vectors_PHA, metapaths):
        out_NHV = graph_attention(features_NF, weight_HVF, vector_HA, starts, indices)
        out_ND = out_NHV.reshape(len(out_NHV), -1)
        features.append(np.where(out_ND > 0, out_ND, np.exp(np.minimum(out_ND, 0)) - 1))
    return semantic_attention(np.stack(features), *semantic_weights)
