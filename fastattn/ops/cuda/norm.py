"""Normalizations of rows, a block a row: layer and root-mean-square norm."""

import math
from typing import Any

import numpy as np
from numba import cuda, float32

from fastattn.ops import reference
from fastattn.ops.cuda import card
from fastattn.ops.cuda.card import THREADS
from fastattn.ops.cuda.instructions import block_sum


@card.kernel
def _normalize(x_NE, residual_NE, weight_E, bias_E, epsilon, centred, column, y_NE):
    """A block normalizes a head of a row; the heads, gridDim.y, lie side by side from ``column`` on. y may be x."""
    shared_T = cuda.shared.array(THREADS, float32)
    n, D = cuda.blockIdx.x, len(weight_E) // cuda.gridDim.y
    first, stop = cuda.blockIdx.y * D + cuda.threadIdx.x, (cuda.blockIdx.y + 1) * D
    total = float32(0)
    for d in range(first, stop, THREADS):
        value = x_NE[n, column + d]
        if len(residual_NE) > 0:
            value += residual_NE[n, column + d]
        y_NE[n, column + d] = value  # the same thread reads it below
        total += value
    mean, mean_error = float32(0), float32(0)
    if centred:
        mean = block_sum(total, shared_T) / float32(D)
        total = float32(0)
        for d in range(first, stop, THREADS):
            total += y_NE[n, column + d] - mean
        mean_error = block_sum(total, shared_T) / float32(D)  # the rounding error of the mean
    total = float32(0)
    for d in range(first, stop, THREADS):
        deviation = y_NE[n, column + d] - mean - mean_error
        total += deviation * deviation
    factor = float32(1) / math.sqrt(block_sum(total, shared_T) / float32(D) + epsilon)
    for d in range(first, stop, THREADS):
        value = (y_NE[n, column + d] - mean - mean_error) * factor * weight_E[d]
        if len(bias_E) > 0:
            value += bias_E[d]
        y_NE[n, column + d] = value


def _normalize_rows(x_ND: Any, weight_D: Any, bias_D: Any, epsilon: float, residual_ND: Any, centred: bool) -> Any:
    y_ND, parameters = card.empty(x_ND.shape, np.float32), (card.parameter(weight_D), card.parameter(bias_D))
    arrays = card.upload(x_ND), card.optional(residual_ND, 2), *parameters
    card.launch(_normalize, len(x_ND), *arrays, np.float32(epsilon), centred, 0, y_ND)
    return y_ND


def layer_norm(
    x_ND: np.ndarray,
    weight_D: np.ndarray,
    bias_D: np.ndarray | None,
    epsilon: float,
    residual_ND: np.ndarray | None = None,
) -> np.ndarray:
    return _normalize_rows(x_ND, weight_D, bias_D, epsilon, residual_ND, True)


def rms_norm(
    x_ND: np.ndarray, weight_D: np.ndarray, epsilon: float, residual_ND: np.ndarray | None = None
) -> np.ndarray:
    return _normalize_rows(x_ND, weight_D, None, epsilon, residual_ND, False)


def normalize_heads(x_NE: np.ndarray, weight_HK: np.ndarray, epsilon: float, column: int = 0) -> None:
    x_NE, weight_E = card.upload(x_NE), card.parameter(weight_HK).reshape(weight_HK.size)
    blocks = len(x_NE), len(weight_HK)
    arrays = x_NE, card.no_array(2), weight_E, card.no_array(1)
    card.launch(_normalize, blocks, *arrays, np.float32(epsilon), False, column, x_NE)


def softmax(x_NS: np.ndarray) -> np.ndarray:
    """The reference computes the softmax, as no model's layers call it, and its rows are few."""
    with np.errstate(invalid="ignore"):  # a card gives no warning
        return card.upload(reference.softmax(card.download(x_NS)))
