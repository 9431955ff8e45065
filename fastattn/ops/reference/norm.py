"""Normalizations of rows: layer and root-mean-square norm, softmax, unit length."""

import numpy as np

from fastattn.ops.reference.attention import softmax_in_place


def layer_norm(
    x_ND: np.ndarray,
    weight_D: np.ndarray,
    bias_D: np.ndarray | None,
    epsilon: float,
    residual_ND: np.ndarray | None = None,
) -> np.ndarray:
    if residual_ND is not None:
        x_ND = x_ND + residual_ND
    y_ND = x_ND - x_ND.mean(axis=1, keepdims=True)
    variance_N1 = np.square(y_ND).mean(axis=1, keepdims=True)
    y_ND = y_ND / np.sqrt(variance_N1 + epsilon) * weight_D
    return y_ND if bias_D is None else y_ND + bias_D


def rms_norm(
    x_ND: np.ndarray, weight_D: np.ndarray, epsilon: float, residual_ND: np.ndarray | None = None
) -> np.ndarray:
    if residual_ND is not None:
        x_ND = x_ND + residual_ND
    return x_ND / np.sqrt(np.square(x_ND).mean(axis=1, keepdims=True) + epsilon) * weight_D


def normalize_heads(x_NE: np.ndarray, weight_HK: np.ndarray, epsilon: float, column: int = 0) -> None:
    H, K = weight_HK.shape
    heads_NF = x_NE[:, column : column + H * K]  # a view, through which x is written
    x_NHK = heads_NF.reshape(-1, H, K)
    y_NHK = x_NHK / np.sqrt(np.square(x_NHK).mean(axis=2, keepdims=True) + epsilon) * weight_HK
    heads_NF[...] = y_NHK.reshape(-1, H * K)


def softmax(x_NS: np.ndarray) -> np.ndarray:
    return softmax_in_place(x_NS.copy())


def unit_vectors(x: np.ndarray) -> np.ndarray:
    largest = np.abs(x).max(axis=-1, keepdims=True, initial=0)
    scaled_x = x / np.where(largest == 0, 1, largest)
    return scaled_x / np.maximum(np.sqrt(np.square(scaled_x).sum(axis=-1, keepdims=True)), np.finfo(x.dtype).tiny)
