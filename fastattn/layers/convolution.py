"""A convolution beside an encoder's first block."""

import numpy as np

from fastattn.layers.linear import Linear
from fastattn.layers.norm import Norm
from fastattn.layers.parameters import Parameters
from fastattn.layers.rows import WholeRows
from fastattn.spec import Convolution, StackSpec


class Convolved:
    """norm(x + activation(convolution of the embedded rows)), from ``stack.convolution`` and ``.convolution_norm``.

    Rows beyond a sequence's ends are zeros.
    """

    def __init__(self, parameters: Parameters, stack: str, spec: StackSpec, convolution: Convolution):
        self.ops, self.side = parameters.ops, convolution.width // 2
        self.linear = Linear(parameters, f"{stack}.convolution", convolution.activation)
        self.norm = Norm(parameters, f"{stack}.convolution_norm", spec.norms)

    def __call__(self, x_ND: np.ndarray, embedded_ND: np.ndarray, rows: WholeRows) -> np.ndarray:
        near_NE = self.ops.neighbours(embedded_ND, rows.starts_B1, self.side, self.side)
        return self.norm(self.linear(near_NE, residual_NF=x_ND))
