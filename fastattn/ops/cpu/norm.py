"""Normalizations of rows: layer and root-mean-square norm, of rows plus a residual; softmax; unit length."""

import numpy as np

from fastattn.ops.cpu.absent import NO_FLOATS
from fastattn.runtime import arena
from fastattn.runtime.handle import kernel_named

_normalise, _normalize_heads = kernel_named("norm", "_normalise"), kernel_named("norm", "_normalize_heads")


def _normalize_rows(x_ND, residual_ND, weight_D, bias_D, epsilon, centred):
    y_ND = arena.empty(x_ND.shape)
    residual_ND = NO_FLOATS[2] if residual_ND is None else residual_ND
    bias_D = NO_FLOATS[1] if bias_D is None else bias_D
    _normalise(x_ND, residual_ND, weight_D, bias_D, float(epsilon), centred, y_ND)
    return y_ND


def layer_norm(
    x_ND: np.ndarray,
    weight_D: np.ndarray,
    bias_D: np.ndarray | None,
    epsilon: float,
    residual_ND: np.ndarray | None = None,
) -> np.ndarray:
    return _normalize_rows(x_ND, residual_ND, weight_D, bias_D, epsilon, True)


def rms_norm(
    x_ND: np.ndarray, weight_D: np.ndarray, epsilon: float, residual_ND: np.ndarray | None = None
) -> np.ndarray:
    return _normalize_rows(x_ND, residual_ND, weight_D, None, epsilon, False)


def normalize_heads(x_NE: np.ndarray, weight_HK: np.ndarray, epsilon: float, column: int = 0) -> None:
    _normalize_heads(x_NE, weight_HK, float(epsilon), column)


_softmax = kernel_named("norm", "_softmax")


def softmax(x_NS: np.ndarray) -> np.ndarray:
    y_NS = np.empty_like(x_NS)
    _softmax(x_NS, y_NS)
    return y_NS


_direct_all = kernel_named("norm", "_direct_all")


def unit_vectors(x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    shape = -1 if x.size else 0, x.shape[-1]
    _direct_all(x.reshape(shape), y.reshape(shape))
    return y
