"""Normalizations of rows, a block a row: layer and root-mean-square norm, softmax, unit length."""

import math

import numpy as np
from numba import cuda, float32

from fastattn.ops.cuda import card
from fastattn.ops.cuda.blocks import block_sum
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
