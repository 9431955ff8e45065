"""Linear layers."""

import numpy as np

from fastattn.ops.reference.activation import ACTIVATIONS
from fastattn.ops.reference.packing import ReferenceLinear


def linear(
    x_ND: np.ndarray,
    packed: ReferenceLinear,
    activation: str = "none",
    residual_NF: np.ndarray | None = None,
    multiply_NF: np.ndarray | None = None,
) -> np.ndarray:
    """activation(x W' + b) * multiply + residual."""
    y_NF = packed.stage(x_ND) @ packed.weight_FD.T
    if packed.bias_F is not None:
        y_NF += packed.bias_F
    y_NF = ACTIVATIONS[activation](y_NF)
    if multiply_NF is not None:
        y_NF *= multiply_NF
    if residual_NF is not None:
        y_NF += residual_NF
    return y_NF


def gated(x_ND: np.ndarray, packed: ReferenceLinear, gate: ReferenceLinear, activation: str = "none") -> np.ndarray:
    """activation(x W' + b) * (x V' + c)."""
    return linear(x_ND, packed, activation, multiply_NF=linear(x_ND, gate))
