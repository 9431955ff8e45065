"""Layer and root-mean-square normalization."""

import numpy as np


def layer_norm(
    x_ND: np.ndarray,
    weight_D: np.ndarray,
    bias_D: np.ndarray | None,
    epsilon: float,
    residual_ND: np.ndarray | None = None,
) -> np.ndarray:
    """Layer normalization (Ba 2016) of x + residual; the variance is computed in a second pass."""
    if residual_ND is not None:
        x_ND = x_ND + residual_ND
    y_ND = x_ND - x_ND.mean(axis=1, keepdims=True)
    variance_N1 = np.square(y_ND).mean(axis=1, keepdims=True)
    y_ND /= np.sqrt(variance_N1 + epsilon)
    y_ND *= weight_D
    if bias_D is not None:
        y_ND += bias_D
    return y_ND


def rms_norm(
    x_ND: np.ndarray, weight_D: np.ndarray, epsilon: float, residual_ND: np.ndarray | None = None
) -> np.ndarray:
    """Root mean square normalization (Zhang and Sennrich 2019) of x + residual."""
    if residual_ND is not None:
        x_ND = x_ND + residual_ND
    y_ND = x_ND / np.sqrt(np.square(x_ND).mean(axis=1, keepdims=True) + epsilon)
    y_ND *= weight_D
    return y_ND
