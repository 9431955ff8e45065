"""Linear layers: plain weights, rows in the precision of the weights, activation functions, products."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from fastattn.spec.quantized import GROUP_INPUTS, Int4Tensor, QuantizedTensor, Tensor, as_float32, unread
from fastattn.spec.rounding import MAX_INT8, bfloat16_bits, quantize, quantize_groups, round_groups


def round_to_bfloat16(x: np.ndarray) -> np.ndarray:
    """The nearest bfloat16, ties to even, in the dtype of x; NaN stays NaN."""
    return (bfloat16_bits(x).astype(np.uint32) << 16).view(np.float32).astype(x.dtype)


def quantize_rows(
    x_ND: np.ndarray, input_scale: float | None = None, input_factors_D: np.ndarray | None = None
) -> np.ndarray:
    """Rows rounded to steps of 1/127 of their largest magnitude, or of 1 / input_scale, in the dtype of x.

    With ``input_factors_D``, rows are multiplied by the factors, rounded, and divided by the factors.
    """
    if input_factors_D is not None:
        return quantize_rows(x_ND.astype(np.float32) * input_factors_D).astype(x_ND.dtype) / input_factors_D
    if input_scale is not None:
        scale = np.float32(input_scale)
        return np.clip(np.rint(x_ND.astype(np.float32) * scale), -127, 127).astype(x_ND.dtype) * (1 / scale)
    quantized = quantize(x_ND.astype(np.float32), "a row")
    return quantized.values_FD * quantized.multipliers_F[:, None].astype(x_ND.dtype)


def quantize_row_groups(x_ND: np.ndarray) -> np.ndarray:
    """Rows whose groups of 32 numbers are rounded to steps of 1/127 of their largest magnitude, in the dtype of x."""
    N, D = x_ND.shape
    groups_NGI = x_ND.astype(np.float32).reshape(N, D // GROUP_INPUTS, GROUP_INPUTS)
    peaks_NG1 = np.abs(groups_NGI).max(axis=2, keepdims=True, initial=0)
    factors_NG1 = np.divide(np.float32(MAX_INT8), peaks_NG1, out=np.zeros_like(peaks_NG1), where=peaks_NG1 > 0)
    steps_NG1 = (peaks_NG1 / np.float32(MAX_INT8)).astype(x_ND.dtype)
    return (np.rint(groups_NGI * factors_NG1) * steps_NG1).reshape(x_ND.shape)


class ReferenceLinear:
    """The weights of a linear layer as plain arrays; ``stage`` rounds rows to the precision of the product."""

    def __init__(self, weight_FD: np.ndarray, bias_F: np.ndarray | None, stage: Callable = lambda x_ND: x_ND):
        self.weight_FD, self.bias_F, self.stage = weight_FD, bias_F, stage
        self.outputs, self.inputs = weight_FD.shape


def pack_linear(weight_FD: Tensor, bias_F: np.ndarray | None = None, precision: str = "float32") -> ReferenceLinear:
    weight_FD = unread(weight_FD).whole()
    plain_FD = weight_FD if isinstance(weight_FD, np.ndarray) else weight_FD.float32()
    if precision == "int4":
        if not isinstance(weight_FD, Int4Tensor):
            weight_FD = quantize_groups(as_float32(plain_FD), "a linear layer")
        return ReferenceLinear(weight_FD.half().float32(), bias_F, quantize_row_groups)
    if precision == "int8_groups":
        values_FD, scales_FG = round_groups(as_float32(plain_FD), "a linear layer")
        scales_FD = np.repeat(scales_FG.astype(np.float32), GROUP_INPUTS, axis=1)
        return ReferenceLinear(values_FD * scales_FD, bias_F, quantize_row_groups)
    if precision == "int8":
        if not isinstance(weight_FD, QuantizedTensor):
            weight_FD = quantize(plain_FD, "a linear layer")
        stage = partial(quantize_rows, input_scale=weight_FD.input_scale, input_factors_D=weight_FD.input_factors_D)
        return ReferenceLinear(weight_FD.float32(), bias_F, stage)
    if precision == "bfloat16":
        return ReferenceLinear(round_to_bfloat16(plain_FD), bias_F, round_to_bfloat16)
    return ReferenceLinear(plain_FD, bias_F)


def packed_layout(precision: str) -> None:
    """None: packed layers are not kept in files."""


def packed_shapes(outputs: int, inputs: int, precision: str, balanced: bool) -> dict[str, tuple[int, ...]]:
    """Empty: packed layers are not kept in files."""
    return {}


def packed_of(outputs: int, inputs: int, arrays: dict[str, np.ndarray]) -> ReferenceLinear:
    """Not implemented: packed layers are not kept in files."""
    raise NotImplementedError


_exact_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function: math.erf for float64; for float32 Abramowitz and Stegun 7.1.26, 1.5e-7 absolute.

    math.erf costs about 100 ns an element, which would make the naive side of the benchmark look slower than it is.
    """
    if x.dtype != np.float32:
        return np.asarray(_exact_erf(x)).astype(x.dtype)
    magnitude = np.abs(x)
    t = 1 / (1 + np.float32(0.3275911) * magnitude)
    polynomial = t * np.float32(1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        polynomial += np.float32(coefficient)
        polynomial *= t
    np.square(magnitude, out=magnitude)
    np.negative(magnitude, out=magnitude)
    polynomial *= np.exp(magnitude, out=magnitude)
    return np.copysign(1 - polynomial, x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    exponential = np.exp(-np.abs(x))  # exp(-|x|) cannot overflow
    return np.where(x < 0, exponential, 1) / (1 + exponential)


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x * x.dtype.type(math.sqrt(0.5)))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))),
    "gelu_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "swish": lambda x: x * sigmoid(x),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "relu_squared": lambda x: np.square(np.maximum(x, 0)),
    "mish": lambda x: x * np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
}


def linear(
    x_ND: np.ndarray,
    packed: ReferenceLinear,
    activation: str = "none",
    residual_NF: np.ndarray | None = None,
    multiply_NF: np.ndarray | None = None,
) -> np.ndarray:
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
    return linear(x_ND, packed, activation, multiply_NF=linear(x_ND, gate))
