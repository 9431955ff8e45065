"""Graph attention networks: a layer over a graph's neighbours, and two-level attention over several kinds of edges."""

from collections.abc import Sequence
from typing import Literal, overload

import numpy as np

from fastattn.errors import InputError, check_bool
from fastattn.mechanisms.arrays import check_float32, linear
from fastattn.mechanisms.scores import Graph
from fastattn.mechanisms.seen import Neighbours
from fastattn.ops import backend


@overload
def graph_attention(
    features: np.ndarray,
    weight: np.ndarray,
    vector: np.ndarray,
    neighbours: Neighbours,
    *,
    average: bool = ...,
    slope: float = ...,
    return_weights: Literal[False] = ...,
    device: str = ...,
) -> np.ndarray: ...


@overload
def graph_attention(
    features: np.ndarray,
    weight: np.ndarray,
    vector: np.ndarray,
    neighbours: Neighbours,
    *,
    average: bool = ...,
    slope: float = ...,
    return_weights: Literal[True],
    device: str = ...,
) -> tuple[np.ndarray, np.ndarray]: ...


def graph_attention(
    features: np.ndarray,
    weight: np.ndarray,
    vector: np.ndarray,
    neighbours: Neighbours,
    *,
    average: bool = False,
    slope: float = 0.2,
    return_weights: bool = False,
    device: str = "cpu",
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """A graph attention layer without its activation (Velickovic 2018, equations 1 to 6): float32 (N, H V).

    In each head, node i becomes the sum over its neighbours j of softmax(LeakyReLU(a . [W h_i; W h_j])) W h_j. A
    neighbour that is listed twice counts twice.
    features  h (N, F);  weight  W of each head (H, V, F);  vector  a (H, 2 V)
    average   average the heads, (N, V), instead of concatenating them
    slope     of the LeakyReLU below zero
    return_weights  also return the weight of each of ``neighbours.indices``, (E, H)
    """
    features = check_float32("features", features, "(N, F)")
    weight = check_float32("weight", weight, "(H, V, F)")
    (N, F), (H, V) = features.shape, weight.shape[:2]
    if weight.shape[2] != F or 0 in weight.shape:
        raise InputError(f"weight: expected a last axis of {F}, the features' width, got shape {weight.shape}")
    if not isinstance(neighbours, Neighbours):
        raise InputError(f"neighbours: expected a Neighbours, got {type(neighbours).__name__}")
    starts_N1, indices_E = neighbours.checked_arrays(N, N)
    ops = backend(device)
    projected_NHV = linear(ops, features, weight.reshape(H * V, F)).reshape(N, H, V)
    target_BNH, source_BNH, leaky_slope = Graph(vector, slope).terms(ops, projected_NHV[None], projected_NHV[None])
    terms = np.ascontiguousarray(target_BNH[0]), np.ascontiguousarray(source_BNH[0])
    weights_EH = np.empty((len(indices_E), H), np.float32) if check_bool("return_weights", return_weights) else None
    graph_arrays = projected_NHV, starts_N1, indices_E
    out_NHV = ops.graph_attention(*graph_arrays, terms=terms, factor=leaky_slope, weights_EH=weights_EH)
    out = out_NHV.mean(axis=1) if check_bool("average", average) else out_NHV.reshape(N, H * V)
    return out if weights_EH is None else (out, weights_EH)


def semantic_attention(
    features: np.ndarray, weight: np.ndarray, bias: np.ndarray, vector: np.ndarray, *, device: str = "cpu"
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each node's features by P meta-paths, weighted by importance (Wang 2019, equations 7 to 9).

    A meta-path's score is the mean over nodes of q . tanh(W z + b); the weights are the softmax over meta-paths.
    features  z (P, N, D);  weight  W (Q, D);  bias  b (Q,);  vector  q (Q,)
    Returns (N, D) and the weights, (P,).
    """
    features, weight = check_float32("features", features, "(P, N, D)"), check_float32("weight", weight, "(Q, D)")
    bias, vector = check_float32("bias", bias, "(Q,)"), check_float32("vector", vector, "(Q,)")
    P, N, D = features.shape
    Q = len(weight)
    if weight.shape[1] != D or 0 in (P, N, D, Q):
        raise InputError(f"weight: expected a last axis of {D}, the features' width, got shape {weight.shape}")
    if bias.shape != (Q,) or vector.shape != (Q,):
        got = f"{len(bias)} and {len(vector)}"
        raise InputError(f"bias and vector: expected {Q} numbers, a row of weight each, got {got}")
    ops = backend(device)
    hidden_NQ = linear(ops, features.reshape(P * N, D), weight, bias, "tanh")
    scores_P = linear(ops, hidden_NQ, vector[None]).reshape(P, N).mean(axis=1, dtype=np.float64)
    weights_P = np.exp(scores_P - scores_P.max())
    weights_P = (weights_P / weights_P.sum()).astype(np.float32)
    return np.einsum("p,pnd->nd", weights_P, features), weights_P


def heterogeneous_attention(
    features: np.ndarray,
    weight: np.ndarray,
    vectors: np.ndarray,
    metapaths: Sequence[Neighbours],
    semantic_weight: np.ndarray,
    semantic_bias: np.ndarray,
    semantic_vector: np.ndarray,
    *,
    device: str = "cpu",
) -> tuple[np.ndarray, np.ndarray]:
    """Two-level attention over a graph's meta-paths (HAN, Wang 2019, section 4): (N, H V), and the paths' weights (P,).

    Each meta-path has neighbours and vectors of its own. ``graph_attention`` and the ELU make features for each of
    them, and ``semantic_attention`` combines these features.
    features  h (N, F);  weight  (H, V, F), which all meta-paths share;  vectors  (P, H, 2 V)
    """
    vectors = check_float32("vectors", vectors, "(P, H, 2 V)")
    if not isinstance(metapaths, Sequence):
        raise InputError(f"metapaths: expected a list of Neighbours, got {type(metapaths).__name__}")
    if len(vectors) != len(metapaths) or not len(vectors):
        expected, got = f"one for each of {len(metapaths)} meta-paths, at least one", len(vectors)
        raise InputError(f"vectors: expected {expected}, got {got}")
    pairs = zip(vectors, metapaths)
    outputs = [graph_attention(features, weight, vector, metapath, device=device) for vector, metapath in pairs]
    features = np.stack([_elu(output) for output in outputs])
    return semantic_attention(features, semantic_weight, semantic_bias, semantic_vector, device=device)


def _elu(x: np.ndarray) -> np.ndarray:
    """x, or e**x - 1 below zero (Clevert 2016), as 2 t / (1 - t) for t = tanh(x / 2), which is precise near zero."""
    t = np.tanh(np.minimum(x, 0) * np.float32(0.5))
    return np.maximum(x, 0) + 2 * t / (1 - t)
