"""Linear layers, and feed-forward layers made of them."""

from functools import partial

import numpy as np

from fastattn.layers.norm import Sublayer
from fastattn.layers.parameters import Parameters
from fastattn.layers.rows import Rows
from fastattn.spec import StackSpec


def Linear(parameters: Parameters, name: str, activation: str = "none") -> partial[np.ndarray]:
    """y = activation(x W' + b) [* multiply_NF] [+ residual_NF]; from the tensors ``name.weight`` and ``name.bias``."""
    return partial(parameters.ops.linear, packed=parameters.packed(name), activation=activation)


class FeedForward(Sublayer):
    """outer(activation(inner(x)) [* inner_linear(x)]), from ``layer.feed_forward.{norm,inner,inner_linear,outer}``."""

    def __init__(self, parameters: Parameters, layer: str, spec: StackSpec):
        name = f"{layer}.feed_forward"
        super().__init__(parameters, name, spec.norms)
        self.inner = Linear(parameters, f"{name}.inner", spec.feed_forward.activation)
        self.gate = Linear(parameters, f"{name}.inner_linear") if spec.feed_forward.gated else None
        self.outer = Linear(parameters, f"{name}.outer")

    def __call__(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        inside_ND = self.entering(x_ND)
        gate_NF = None if self.gate is None else self.gate(inside_ND)
        y_ND = self.outer(self.inner(inside_ND, multiply_NF=gate_NF), residual_NF=self.residual(x_ND))
        return self.leaving(x_ND, y_ND)
