"""Norms of rows, and sublayers, which have one before or after them."""

from collections.abc import Callable
from functools import partial

import numpy as np

from fastattn.layers.parameters import Parameters
from fastattn.spec.architecture import NormSpec


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

    With a norm of its output, ``name.output_norm``, x + output_norm(f(norm(x))).
    Called with x_ND and what its rows may attend to: ``fastattn.layers.attention_inputs``.
    """

    def __init__(self, parameters: Parameters, name: str, spec: NormSpec, first: bool = False):
        """``first``: of the first sublayer of a stack."""
        self.ops, self.pre_norm = parameters.ops, spec.before
        self.norm = Norm(parameters, f"{name}.norm", spec) if spec.first or not first else None
        self.output_norm = Norm(parameters, f"{name}.output_norm", spec) if spec.output else None

    def entering(self, x_ND: np.ndarray) -> np.ndarray:
        """The input of f."""
        return self.norm(x_ND) if self.pre_norm and self.norm is not None else x_ND

    def residual(self, x_ND: np.ndarray) -> np.ndarray | None:
        """The residual that the last linear layer of f adds to its product."""
        return x_ND if self.output_norm is None else None

    def leaving(self, x_ND: np.ndarray, y_ND: np.ndarray) -> np.ndarray:
        """The sublayer's result, from x and what the last linear layer has made."""
        if self.output_norm is not None:
            return self.ops.add_rows(x_ND, self.output_norm(y_ND))
        return y_ND if self.pre_norm or self.norm is None else self.norm(y_ND)
