"""A convolution beside an encoder's first block."""

from collections.abc import Callable, Sequence

import numpy as np

from fastattn.layers.attention_inputs import Rows, WholeRows
from fastattn.layers.linear import Linear
from fastattn.layers.norm import Norm
from fastattn.layers.parameters import Parameters
from fastattn.spec.architecture import Convolution, StackSpec


class Convolved:
    """norm(block(x) + activation(convolution of x)), from ``stack.convolution`` and ``stack.convolution_norm``.

    block  its sublayers
    Rows beyond a sequence's ends are zeros.
    """

    def __init__(
        self,
        parameters: Parameters,
        stack: str,
        spec: StackSpec,
        convolution: Convolution,
        block: Sequence[Callable[[np.ndarray, Rows], np.ndarray]],
    ):
        self.ops, self.side, self.block = parameters.ops, convolution.width // 2, block
        self.linear = Linear(parameters, f"{stack}.convolution", convolution.activation)
        self.norm = Norm(parameters, f"{stack}.convolution_norm", spec.norms)

    def __call__(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        assert isinstance(rows, WholeRows)
        y_ND = x_ND
        for sublayer in self.block:
            y_ND = sublayer(y_ND, rows)
        near_NE = self.ops.neighbours(x_ND, rows.starts_B1, self.side, self.side)
        return self.norm(self.linear(near_NE, residual_NF=y_ND))
