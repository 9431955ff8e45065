"""Linear layers."""

import numpy as np

from fastattn.reference.activation import ACTIVATIONS
from fastattn.reference.packing import PackedLinear


def linear(
    x_ND: np.ndarray,
    packed: PackedLinear,
    activation: str = "none",
    residual_NF: np.ndarray | None = None,
    multiply_NF: np.ndarray | None = None,
    gate: PackedLinear | None = None,
) -> np.ndarray:
    """activation(x W' + b) * multiply + residual; gate: multiply is x V' + c."""
    y_NF = ACTIVATIONS[activation](_product(x_ND, packed))
    if gate is not None:
        multiply_NF = _product(x_ND, gate)
    if multiply_NF is not None:
        y_NF *= multiply_NF
    if residual_NF is not None:
        y_NF += residual_NF
    return y_NF


def _product(x_ND: np.ndarray, packed: PackedLinear) -> np.ndarray:
    y_NF = packed.stage(x_ND) @ packed.weight_FD.T
    if packed.bias_F is not None:
        y_NF += packed.bias_F
    return y_NF
