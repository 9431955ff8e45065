"""Norms of rows, and their place in a block."""

import numpy as np

from fastattn.layers.parameters import Parameters
from fastattn.spec import NormSpec


class LayerNorm:
    """Layer normalization of x + residual, from ``name.weight`` and perhaps ``name.bias``."""

    def __init__(self, parameters: Parameters, name: str, epsilon: float):
        self.ops, self.epsilon = parameters.ops, epsilon
        self.weight_D, self.bias_D = parameters.tensor(name + ".weight"), parameters.optional(name + ".bias")

    def __call__(self, x_ND: np.ndarray, residual_ND: np.ndarray | None = None) -> np.ndarray:
        return self.ops.layer_norm(x_ND, self.weight_D, self.bias_D, self.epsilon, residual_ND)


class RMSNorm:
    """Root mean square normalization of x + residual, from ``name.weight``."""

    def __init__(self, parameters: Parameters, name: str, epsilon: float):
        self.ops, self.epsilon = parameters.ops, epsilon
        self.weight_D = parameters.tensor(name + ".weight")

    def __call__(self, x_ND: np.ndarray, residual_ND: np.ndarray | None = None) -> np.ndarray:
        return self.ops.rms_norm(x_ND, self.weight_D, self.epsilon, residual_ND)


NORMS: dict[str, type[LayerNorm] | type[RMSNorm]] = {"layer": LayerNorm, "rms": RMSNorm}


def Norm(parameters: Parameters, name: str, spec: NormSpec) -> LayerNorm | RMSNorm:
    """The spec's norm with the tensors of ``name``."""
    return NORMS[spec.kind](parameters, name, spec.epsilon)


class Sublayer:
    """A part of a block, with its norm ``name.norm``: x + f(norm(x)) if norms come before, else norm(x + f(x)).

    Called with x_ND and what its rows may attend to: ``fastattn.layers.rows``.
    """

    def __init__(self, parameters: Parameters, name: str, spec: NormSpec):
        self.ops, self.pre_norm = parameters.ops, spec.before
        self.norm = Norm(parameters, f"{name}.norm", spec)
