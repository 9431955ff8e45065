"""Normalizations of rows, a block a row: layer and root-mean-square norm, softmax, unit length."""

import math

import numpy as np
from numba import cuda, float32

from fastattn.ops.cuda import card
from fastattn.ops.cuda.blocks import block_max, block_sum
from fastattn.ops.cuda.card import THREADS


@card.kernel
def _normalize(x_ND, residual_ND, weight_D, bias_D, epsilon, centred, y_ND):
    shared_T = cuda.shared.array(THREADS, float32)
    n, t = cuda.blockIdx.x, cuda.threadIdx.x
    D = x_ND.shape[1]
    total = float32(0)
    for d in range(t, D, THREADS):
        value = x_ND[n, d]
        if len(residual_ND) > 0:
            value += residual_ND[n, d]
        y_ND[n, d] = value  # read below by the thread that wrote it
        total += value
    mean, rest = float32(0), float32(0)
    if centred:
        mean = block_sum(total, shared_T) / float32(D)
        total = float32(0)
        for d in range(t, D, THREADS):
            total += y_ND[n, d] - mean
        rest = block_sum(total, shared_T) / float32(D)  # what rounding left in the mean
    total = float32(0)
    for d in range(t, D, THREADS):
        deviation = y_ND[n, d] - mean - rest
        total += deviation * deviation
    factor = float32(1) / math.sqrt(block_sum(total, shared_T) / float32(D) + epsilon)
    for d in range(t, D, THREADS):
        value = (y_ND[n, d] - mean - rest) * factor * weight_D[d]
        if len(bias_D) > 0:
            value += bias_D[d]
        y_ND[n, d] = value


def _run(x_ND, residual_ND, weight_D, bias_D, epsilon, centred):
    x_ND, residual_ND = card.upload(x_ND), card.optional(residual_ND, 2)
    y_ND = card.empty(x_ND.shape, np.float32)
    bias_D = card.optional(None, 1) if bias_D is None else card.parameter(bias_D)
    card.launch(
        _normalize, len(x_ND), x_ND, residual_ND, card.parameter(weight_D), bias_D, np.float32(epsilon), centred, y_ND
    )
    return y_ND


def layer_norm(
    x_ND: np.ndarray,
    weight_D: np.ndarray,
    bias_D: np.ndarray | None,
    epsilon: float,
    residual_ND: np.ndarray | None = None,
) -> np.ndarray:
    """Layer normalization (Ba 2016) of x + residual, the variance in a second pass; float32 [N, D]."""
    return _run(x_ND, residual_ND, weight_D, bias_D, epsilon, True)


def rms_norm(
    x_ND: np.ndarray, weight_D: np.ndarray, epsilon: float, residual_ND: np.ndarray | None = None
) -> np.ndarray:
    """Root mean square normalization (Zhang and Sennrich 2019) of x + residual; float32 [N, D]."""
    return _run(x_ND, residual_ND, weight_D, None, epsilon, False)


@card.kernel
def _normalize_heads(x_NE, weight_HK, epsilon):
    """In place; a block a head of a row."""
    shared_T = cuda.shared.array(THREADS, float32)
    n, h, t = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    K = weight_HK.shape[1]
    total = float32(0)
    for k in range(t, K, THREADS):
        total += x_NE[n, h * K + k] * x_NE[n, h * K + k]
    factor = float32(1) / math.sqrt(block_sum(total, shared_T) / float32(K) + epsilon)
    for k in range(t, K, THREADS):
        x_NE[n, h * K + k] *= factor * weight_HK[h, k]


def normalize_heads(x_NE: np.ndarray, weight_HK: np.ndarray, epsilon: float) -> None:
    """Root mean square normalization, in place, of each of a row's first H heads of width K; float32."""
    blocks = len(x_NE), len(weight_HK)
    card.launch(_normalize_heads, blocks, card.upload(x_NE), card.parameter(weight_HK), np.float32(epsilon))


@card.kernel
def _softmax(x_NS, y_NS):
    shared_T = cuda.shared.array(THREADS, float32)
    n, t = cuda.blockIdx.x, cuda.threadIdx.x
    S = x_NS.shape[1]
    top = float32(-math.inf)
    for s in range(t, S, THREADS):
        if x_NS[n, s] > top:
            top = x_NS[n, s]
    top = block_max(top, shared_T)
    if top == -math.inf:  # nothing is seen, and its exponentials are 0
        top = float32(0)
    total = float32(0)
    for s in range(t, S, THREADS):
        value = math.exp(x_NS[n, s] - top)
        y_NS[n, s] = value
        total += value
    total = block_sum(total, shared_T)
    if total == 0:
        total = float32(1)
    for s in range(t, S, THREADS):
        y_NS[n, s] /= total


def softmax(x_NS: np.ndarray) -> np.ndarray:
    """e**x divided by its sum along the row (Bridle 1990); -inf yields 0, a row of nothing else zeros."""
    y_NS = card.empty(x_NS.shape, np.float32)
    card.launch(_softmax, len(x_NS), card.upload(x_NS), y_NS)
    return y_NS


@card.kernel
def _direct(x_ND, y_ND):
    """Relative to the greatest number first, so that no square leaves float32's range."""
    shared_T = cuda.shared.array(THREADS, float32)
    n, t = cuda.blockIdx.x, cuda.threadIdx.x
    D = x_ND.shape[1]
    peak = float32(0)
    for d in range(t, D, THREADS):
        if abs(x_ND[n, d]) > peak:
            peak = abs(x_ND[n, d])
    peak = block_max(peak, shared_T)
    if peak == 0:
        peak = float32(1)
    total = float32(0)
    for d in range(t, D, THREADS):
        value = x_ND[n, d] / peak
        y_ND[n, d] = value
        total += value * value
    length = math.sqrt(block_sum(total, shared_T))
    if length == 0:
        length = float32(1)
    for d in range(t, D, THREADS):
        y_ND[n, d] /= length


def unit_vectors(x: np.ndarray) -> np.ndarray:
    """Vectors along the last axis divided by their length; zeros stay. NaN for one that has NaN or infinity."""
    x_ND = x.reshape(-1 if x.size else 0, x.shape[-1])
    y_ND = card.empty(x_ND.shape, np.float32)
    card.launch(_direct, len(x_ND), card.upload(x_ND), y_ND)
    return card.download(y_ND).reshape(x.shape)
