"""Linear weights, unpacked here, and the rounding of rows for them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fastattn.ops.reference.staging import quantize_rows, round_to_bfloat16
from fastattn.spec.quantized import QuantizedTensor, Tensor
from fastattn.spec.rounding import quantize


class ReferenceLinear:
    """The weights of a linear layer, as plain arrays, and the rounding of rows for them."""

    def __init__(self, weight_FD: np.ndarray, bias_F: np.ndarray | None, stage: Callable = lambda x_ND: x_ND):
        self.weight_FD = weight_FD
        self.bias_F = bias_F
        self.stage = stage
        self.outputs, self.inputs = weight_FD.shape


def pack_linear(weight_FD: Tensor, bias_F: np.ndarray | None = None, precision: str = "float32") -> ReferenceLinear:
    """The weights for ``linear`` and ``project_top_k``, rounded to ``precision``."""
    inputs: dict[str, Any] = {}
    if precision == "int8" and not isinstance(weight_FD, QuantizedTensor):
        weight_FD = quantize(weight_FD, "a linear layer")
    if isinstance(weight_FD, QuantizedTensor):
        inputs = {"input_scale": weight_FD.input_scale, "input_factors_D": weight_FD.input_factors_D}
        weight_FD = weight_FD.float32()
    if precision == "bfloat16":
        return ReferenceLinear(round_to_bfloat16(weight_FD), bias_F, round_to_bfloat16)
    if precision == "int8":
        return ReferenceLinear(weight_FD, bias_F, partial(quantize_rows, **inputs))
    return ReferenceLinear(weight_FD, bias_F)


def packed_layout(precision: str) -> None:
    """None: packed layers are not kept in files."""


def packed_shapes(outputs: int, inputs: int, precision: str, balanced: bool) -> dict[str, tuple[int, ...]]:
    """The shapes of a packed layer's arrays in a file: there are none."""
    return {}


def packed_of(outputs: int, inputs: int, arrays: dict[str, np.ndarray]) -> ReferenceLinear:
    """A packed layer of the arrays of a file: there is none."""
    raise NotImplementedError
