"""Norms of rows, and their place in a block."""

from collections.abc import Callable
from functools import partial

import numpy as np

from fastattn.layers.parameters import Parameters
from fastattn.spec import NormSpec


def _layer_norm(parameters: Parameters, name: str, epsilon: float) -> partial[np.ndarray]:
    weight_D, bias_D = parameters.tensor(f"{name}.weight"), parameters.optional(f"{name}.bias")
    return partial(parameters.ops.layer_norm, weight_D=weight_D, bias_D=bias_D, epsilon=epsilon)


def _rms_norm(parameters: Parameters, name: str, epsilon: float) -> partial[np.ndarray]:
    return partial(parameters.ops.rms_norm, weight_D=parameters.tensor(f"{name}.weight"), epsilon=epsilon)


NORMS: dict[str, Callable[[Parameters, str, float], partial[np.ndarray]]] = {"layer": _layer_norm, "rms": _rms_norm}


def Norm(parameters: Parameters, name: str, spec: NormSpec) -> partial[np.ndarray]:
    """The spec's norm of x [+ residual_ND], with the tensors ``name.weight`` and perhaps ``name.bias``."""
    return NORMS[spec.kind](parameters, name, spec.epsilon)


class Sublayer:
    """A part of a block, with its norm ``name.norm``: x + f(norm(x)) if norms come before, else norm(x + f(x)).

    Called with x_ND and what its rows may attend to: ``fastattn.layers.rows``.
    """

    def __init__(self, parameters: Parameters, name: str, spec: NormSpec):
        self.ops, self.pre_norm = parameters.ops, spec.before
        self.norm = Norm(parameters, f"{name}.norm", spec)
