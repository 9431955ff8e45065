"""Rounding of rows to the precisions of products."""

import numpy as np

from fastattn.spec.rounding import bfloat16_bits, quantize


def round_to_bfloat16(x: np.ndarray) -> np.ndarray:
    """The nearest bfloat16, ties to even, in the dtype of x; NaN stays NaN."""
    return (bfloat16_bits(x).astype(np.uint32) << 16).view(np.float32).astype(x.dtype)


def quantize_rows(
    x_ND: np.ndarray, input_scale: float | None = None, input_factors_D: np.ndarray | None = None
) -> np.ndarray:
    """Rows rounded to steps of 1/127 of their largest magnitude, or of 1 / input_scale, in the dtype of x.

    With factors, the rows times the factors are rounded.
    """
    if input_factors_D is not None:
        return quantize_rows(x_ND.astype(np.float32) * input_factors_D).astype(x_ND.dtype) / input_factors_D
    if input_scale is not None:
        scale = np.float32(input_scale)
        return np.clip(np.rint(x_ND.astype(np.float32) * scale), -127, 127).astype(x_ND.dtype) * (1 / scale)
    quantized = quantize(x_ND.astype(np.float32), "a row")
    return quantized.values_FD * quantized.multipliers_F[:, None].astype(x_ND.dtype)
