"""Rounding of weights: float32 matrices to int8 by rows, to 4 bits by groups, and to bfloat16."""

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.quantized import GROUP_INPUTS, Int4Tensor, QuantizedTensor, Tensor, UnreadTensor, as_float32, unread

MAX_INT8 = 127  # -128 is not used: a row's range is symmetric
STEPS = 15  # of 4 bits
# Shares of a group's range; the least squared error decides. For normal weights the share 1.0 alone has 10% more error.
RANGE_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8)
GROUPS_AT_ONCE = 1 << 14  # groups that a call of NumPy rounds: 2 MB of float32


def row_multipliers(weight_FD: np.ndarray, name: str, input_factors_D: np.ndarray | None = None) -> np.ndarray:
    """The multipliers of ``quantize``, float32 [F]: the greatest magnitude of each row / 127."""
    divided_FD = weight_FD if input_factors_D is None else weight_FD / input_factors_D
    greatest_F = np.abs(divided_FD).max(axis=1, initial=0)
    if not np.isfinite(greatest_F).all():
        raise CheckpointError(f"{name} has values that are not finite; int8 cannot hold them")
    return greatest_F / np.float32(MAX_INT8)


def quantize(weight_FD: np.ndarray, name: str, input_factors_D: np.ndarray | None = None) -> QuantizedTensor:
    """Each float32 row as the nearest multiples of the row's multiplier, which is 0 for a row of zeros.

    Columns are first divided by the inputs' factors. Raises CheckpointError where a value is not finite.
    """
    divided_FD = weight_FD if input_factors_D is None else weight_FD / input_factors_D
    multipliers_F = row_multipliers(divided_FD, name)
    # A multiplier too small for float32 is 0 as well; a subnormal one is so coarse that a quotient can exceed 127.
    divisors_F = np.where(multipliers_F > 0, multipliers_F, np.float32(np.inf))
    values_FD = divided_FD / divisors_F[:, None]
    np.rint(values_FD, out=values_FD)
    np.clip(values_FD, -MAX_INT8, MAX_INT8, out=values_FD)
    return QuantizedTensor(values_FD.astype(np.int8), multipliers_F, input_factors_D=input_factors_D)


def round_on_read(tensor: Tensor, form: str, name: str, input_factors_D: np.ndarray | None = None) -> UnreadTensor:
    """The tensor, with rows rounded when they are read: by ``quantize_groups`` for "int4", else ``quantize``."""
    source = unread(tensor)

    def read(first: int, last: int) -> QuantizedTensor | Int4Tensor:
        weight_FD = as_float32(source.read(first, last))
        return quantize_groups(weight_FD, name) if form == "int4" else quantize(weight_FD, name, input_factors_D)

    return UnreadTensor(source.shape, read, form, source.forget, source.by_rows)


def quantize_groups(weight_FD: np.ndarray, name: str) -> Int4Tensor:
    """Each group of 32 float32 as the nearest of 16 evenly spaced numbers, which may not reach the group's ends.

    Raises CheckpointError where a value is not finite, or beyond float16's range.
    """
    F, D = weight_FD.shape
    groups_NI = weight_FD.reshape(-1, GROUP_INPUTS)
    values_NJ = np.empty((len(groups_NI), GROUP_INPUTS // 2), np.uint8)
    scales_N, minima_N = np.empty((2, len(groups_NI)), np.float16)
    for first in range(0, len(groups_NI), GROUPS_AT_ONCE):
        groups = slice(first, first + GROUPS_AT_ONCE)
        values_NI, scales_N[groups], minima_N[groups] = _round_groups(groups_NI[groups])
        values_NJ[groups] = values_NI[:, : GROUP_INPUTS // 2] | values_NI[:, GROUP_INPUTS // 2 :] << 4
    if not (np.isfinite(scales_N).all() and np.isfinite(minima_N).all()):
        raise CheckpointError(f"{name} has values that are not finite, or beyond +-65504; int4 cannot hold them")
    shape = F, D // GROUP_INPUTS
    return Int4Tensor(values_NJ.reshape(F, D // 2), scales_N.reshape(shape), minima_N.reshape(shape))


@np.errstate(over="ignore", invalid="ignore")
def round_groups(weight_FD: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(int8 values [F, D], float16 scales [F, D / 32]): each group as the nearest multiples of its greatest / 127.

    Restores GGUF's Q8_0 exactly. Raises CheckpointError where a value is not finite, or too great.
    """
    groups_NI = weight_FD.reshape(-1, GROUP_INPUTS)
    values_NI, scales_N = np.empty(groups_NI.shape, np.int8), np.empty(len(groups_NI), np.float16)
    for first in range(0, len(groups_NI), GROUPS_AT_ONCE):
        groups = slice(first, first + GROUPS_AT_ONCE)
        scales_N[groups] = np.abs(groups_NI[groups]).max(axis=1) / np.float32(MAX_INT8)
        divisors_N = np.where(scales_N[groups] > 0, scales_N[groups].astype(np.float32), np.float32(np.inf))
        values_NI[groups] = np.clip(np.rint(groups_NI[groups] / divisors_N[:, None]), -MAX_INT8, MAX_INT8)
    if not np.isfinite(scales_N).all():
        raise CheckpointError(f"{name} has values that are not finite, or too great for int8 in groups")
    return values_NI.reshape(weight_FD.shape), scales_N.reshape(len(weight_FD), -1)


@np.errstate(over="ignore", invalid="ignore")
def _round_groups(groups_NI: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(uint8 values [N, 32], float16 scales and minima [N]) of the least squared error."""
    least_N, most_N = groups_NI.min(axis=1), groups_NI.max(axis=1)
    least_error_N = np.full(len(groups_NI), np.inf, np.float32)
    values_NI = np.zeros(groups_NI.shape, np.uint8)
    scales_N = ((most_N - least_N) / np.float32(STEPS)).astype(np.float16)
    minima_N = least_N.astype(np.float16)
    for share in RANGE_SHARES:
        cut_N = (most_N - least_N) * np.float32((1 - share) / 2)
        scale_N = ((most_N - least_N - 2 * cut_N) / np.float32(STEPS)).astype(np.float16)
        minimum_N = (least_N + cut_N).astype(np.float16)
        # Numbers are computed from the rounded scale and minimum.
        step_N1, low_N1 = scale_N.astype(np.float32)[:, None], minimum_N.astype(np.float32)[:, None]
        numbers_NI = np.rint((groups_NI - low_N1) / np.where(step_N1 > 0, step_N1, np.float32(np.inf)))
        np.clip(numbers_NI, 0, STEPS, out=numbers_NI)
        error_N = np.square(numbers_NI * step_N1 + low_N1 - groups_NI).sum(axis=1)
        is_better_N = error_N < least_error_N
        least_error_N[is_better_N], values_NI[is_better_N] = error_N[is_better_N], numbers_NI[is_better_N]
        scales_N[is_better_N], minima_N[is_better_N] = scale_N[is_better_N], minimum_N[is_better_N]
    return values_NI, scales_N, minima_N


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """uint16 of the same shape: float32 rounded to the nearest bfloat16, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded_bits = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded_bits).astype(np.uint16)


def float16_bits(values: np.ndarray) -> np.ndarray:
    """int16 of the same shape: float32 rounded to the nearest float16, infinity beyond its range."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).view(np.int16)


def as_floats(values: np.ndarray) -> np.ndarray:
    """float32 from uint16, the bits of bfloat16, or int16, the bits of float16; arrays of other types themselves."""
    if values.dtype == np.int16:
        return values.view(np.float16).astype(np.float32)
    return (values.astype(np.uint32) << 16).view(np.float32) if values.dtype == np.uint16 else values
