"""Rounding of weights: float32 matrices to int8 by rows, and to bfloat16."""

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.quantized import QuantizedTensor

LARGEST = 127  # -128 is not used: a row's range is symmetric


def row_multipliers(weight_FD: np.ndarray, name: str, input_factors_D: np.ndarray | None = None) -> np.ndarray:
    """The multipliers of ``quantize``, float32 [F]: the greatest magnitude of each row / 127."""
    greatest_F = np.abs(_less_factors(weight_FD, input_factors_D)).max(axis=1, initial=0)
    if not np.isfinite(greatest_F).all():
        raise CheckpointError(f"{name} has values that are not finite; int8 cannot hold them")
    return greatest_F / np.float32(LARGEST)


def quantize(weight_FD: np.ndarray, name: str, input_factors_D: np.ndarray | None = None) -> QuantizedTensor:
    """Each float32 row as the nearest multiples of its multiplier, which is 0 for a row of zeros.

    With factors of the inputs, the columns are divided by them first. CheckpointError where a value is not finite.
    """
    less_FD = _less_factors(weight_FD, input_factors_D)
    multipliers_F = row_multipliers(less_FD, name)
    # A multiplier too small for float32 is 0 as well, and a subnormal one so coarse that 127 is exceeded.
    divisors_F = np.where(multipliers_F > 0, multipliers_F, np.float32(np.inf))
    values_FD = less_FD / divisors_F[:, None]
    np.rint(values_FD, out=values_FD)
    np.clip(values_FD, -LARGEST, LARGEST, out=values_FD)
    return QuantizedTensor(values_FD.astype(np.int8), multipliers_F, input_factors_D=input_factors_D)


def _less_factors(weight_FD: np.ndarray, input_factors_D: np.ndarray | None) -> np.ndarray:
    return weight_FD if input_factors_D is None else weight_FD / input_factors_D


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """uint16 of the same shape: float32 rounded to the nearest bfloat16, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def float16_bits(values: np.ndarray) -> np.ndarray:
    """int16 of the same shape: float32 rounded to the nearest float16, infinity beyond its range."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).view(np.int16)


def as_floats(values: np.ndarray) -> np.ndarray:
    """uint16, the bits of bfloat16, and int16, those of float16, as float32; anything else as it is."""
    if values.dtype == np.int16:
        return values.view(np.float16).astype(np.float32)
    return (values.astype(np.uint32) << 16).view(np.float32) if values.dtype == np.uint16 else values
