"""Linear layers, and feed-forward layers made of them."""

from functools import partial

import numpy as np

from fastattn.layers.attention_inputs import Rows
from fastattn.layers.norm import Sublayer
from fastattn.layers.parameters import Parameters
from fastattn.spec.architecture import StackSpec


def Linear(parameters: Parameters, name: str, activation: str = "none", precision: str = "") -> partial[np.ndarray]:
    """y = activation(x W' + b) [* multiply_NF] [+ residual_NF]; from the tensors ``name.weight`` and ``name.bias``.

    precision  of the product; "": the parameters'
    """
    return partial(parameters.ops.linear, packed=parameters.packed(name, precision), activation=activation)


class FeedForward(Sublayer):
    """outer(activation(inner(x)) [* inner_linear(x)]), from ``layer.feed_forward.{norm,inner,inner_linear,outer}``."""

    def __init__(self, parameters: Parameters, layer: str, spec: StackSpec):
        name = f"{layer}.feed_forward"
        super().__init__(parameters, name, spec.norms)
        self.inner = Linear(parameters, f"{name}.inner", spec.feed_forward.activation)
        if spec.feed_forward.gated:
            gate = parameters.packed(f"{name}.inner_linear")
            self.inner = partial(parameters.ops.gated, gate=gate, **self.inner.keywords)
        self.outer = Linear(parameters, f"{name}.outer")

    def __call__(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        y_ND = self.outer(self.inner(self.entering(x_ND)), residual_NF=self.residual(x_ND))
        return self.leaving(x_ND, y_ND)
