"""Vectors as int8, uint8 or bits, for indexes that are a quarter or a thirty-second as large.

The numbers are those of sentence-transformers' ``quantize_embeddings``, version 6.2, for the same vectors.
"""

from typing import Any

import numpy as np

from fastattn.errors import InputError, check_known, warn
from fastattn.system.option_names import QUANTIZE, explains_options

# The option ``output_dtype`` has the name that hosted embedding services give it. sentence-transformers' name,
# ``precision``, is that of the matrix products' precision here, and "output" is a file on the command line.
OUTPUT_DTYPES = ("float32", "int8", "uint8", "binary", "ubinary")
# A block stays in a core's cache: a million vectors of 384 numbers take 0.8 s, and memory for the result only. Whole
# arrays instead of blocks took 1.4 s, or 9 s where their memory was new to the process.
BLOCK_NUMBERS = 1 << 16
# Fewer vectors than this say too little about the ranges of further vectors.
ENOUGH_VECTORS = 100


@explains_options(QUANTIZE)
def quantize_vectors(
    vectors: np.ndarray, output_dtype: str, ranges: np.ndarray | None = None, calibration: np.ndarray | None = None
) -> np.ndarray:
    """``vectors`` [N, D] or [D], floating-point, in another type; a new array.

    output_dtype  "float32"
                  "int8", "uint8": each dimension's range in 256 steps, from -128 or from 0; numbers outside are clipped
                  "binary" (int8), "ubinary" (uint8): [N, ceil(D / 8)], a bit for each number, 1 if it is positive, the
                  first number's bit highest; a byte of "binary" is that of "ubinary" less 128
    ranges        for int8 and uint8, [2, D]: the least and the greatest number of each dimension
    calibration   vectors [M, D], whose ranges are used; without both options the ranges of ``vectors`` are used

    Quantize queries and every part of a corpus with the same ranges. A nan becomes the least step, or the bit 0.
    Raises InputError for other values, shapes that do not fit, and ranges that are not finite or of a single vector.
    """
    check_known("output_dtype", output_dtype, OUTPUT_DTYPES)
    rows_ND = _floats("vectors", vectors)
    if output_dtype == "float32":
        with np.errstate(over="ignore"):
            codes = rows_ND.astype(np.float32)
    elif output_dtype.endswith("binary"):
        codes = _bit_codes(np.atleast_2d(rows_ND), output_dtype)
    else:
        if ranges is not None and calibration is not None:
            raise InputError("give ranges or calibration, not both")
        if ranges is not None:
            ranges_2D = checked_ranges(ranges, rows_ND.shape[-1])
        elif calibration is not None:
            ranges_2D = calibrated_ranges(calibration, rows_ND.shape[-1])
        else:
            ranges_2D = _own_ranges(rows_ND, output_dtype)
        codes = _integer_codes(np.atleast_2d(rows_ND), ranges_2D, output_dtype)
    return codes.reshape(*rows_ND.shape[:-1], codes.shape[-1])


def checked_ranges(ranges: Any, width: int) -> np.ndarray:
    """``ranges`` as float32 [2, width]; InputError for anything else."""
    with np.errstate(over="ignore"):
        ranges_2D = _floats("ranges", ranges).astype(np.float32)
    if ranges_2D.shape != (2, width):
        raise InputError(f"ranges of shape (2, {width}) are expected, got {ranges_2D.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        extents_D = ranges_2D[1] - ranges_2D[0]
    if not np.isfinite(extents_D).all():
        raise InputError("ranges that float32 can hold are expected, got numbers that are not finite or too far apart")
    if (extents_D < 0).any():
        raise InputError("ranges are the least numbers, then the greatest: got one that begins above its end")
    return ranges_2D


def calibrated_ranges(calibration: Any, width: int) -> np.ndarray:
    """The ranges of vectors [M, width] as float32 [2, width]; InputError for anything else, and for no vectors."""
    sample_MD = _floats("calibration", calibration)
    if sample_MD.ndim != 2 or sample_MD.shape[1] != width or not len(sample_MD):
        raise InputError(f"calibration of shape (M, {width}) is expected, got {sample_MD.shape}")
    return checked_ranges(np.stack([sample_MD.min(axis=0), sample_MD.max(axis=0)]), width)


def _own_ranges(rows_ND: np.ndarray, output_dtype: str) -> np.ndarray:
    if rows_ND.ndim == 1 or len(rows_ND) == 1:
        raise InputError(f"{output_dtype} of a single vector needs ranges: those of one are empty")
    if not len(rows_ND):
        return np.zeros((2, rows_ND.shape[1]), np.float32)
    if len(rows_ND) < ENOUGH_VECTORS:
        warn(f"{output_dtype} by the ranges of {len(rows_ND)} vectors: ranges of a hundred or more are better")
    return calibrated_ranges(rows_ND, rows_ND.shape[1])


def _integer_codes(rows_ND: np.ndarray, ranges_2D: np.ndarray, output_dtype: str) -> np.ndarray:
    least_D = ranges_2D[0]
    steps_D = (ranges_2D[1] - least_D) / np.float32(255)
    steps_D[steps_D == 0] = 1
    codes_ND = np.empty(rows_ND.shape, np.uint8)
    size = _block_rows(rows_ND)
    block_ND = np.empty((min(size, len(rows_ND)), rows_ND.shape[1]), np.result_type(rows_ND, np.float32))
    for first in range(0, len(rows_ND), size):
        part_ND = rows_ND[first : first + size]
        scaled_ND = block_ND[: len(part_ND)]
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(part_ND, least_D, out=scaled_ND)
            np.divide(scaled_ND, steps_D, out=scaled_ND)
        np.floor(scaled_ND, out=scaled_ND)
        np.fmax(scaled_ND, 0, out=scaled_ND)  # a nan becomes 0
        np.minimum(scaled_ND, 255, out=scaled_ND)
        codes_ND[first : first + size] = scaled_ND
    return codes_ND if output_dtype == "uint8" else _as_int8(codes_ND)


def _bit_codes(rows_ND: np.ndarray, output_dtype: str) -> np.ndarray:
    codes_NB = np.empty((len(rows_ND), -(-rows_ND.shape[1] // 8)), np.uint8)
    size = _block_rows(rows_ND)
    for first in range(0, len(rows_ND), size):
        codes_NB[first : first + size] = np.packbits(rows_ND[first : first + size] > 0, axis=-1)
    return codes_NB if output_dtype == "ubinary" else _as_int8(codes_NB)


def _block_rows(rows_ND: np.ndarray) -> int:
    return max(1, BLOCK_NUMBERS // max(1, rows_ND.shape[1]))


def _as_int8(codes: np.ndarray) -> np.ndarray:
    """uint8 codes less 128, as int8, in the same memory."""
    codes ^= np.uint8(128)
    return codes.view(np.int8)


def _floats(name: str, values: Any) -> np.ndarray:
    """``values`` as an array of floating-point numbers, [N, D] or [D]."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        raise InputError(f"{name} of one width are expected, got lists of different lengths") from None
    if array.dtype.kind != "f" or array.ndim not in (1, 2):
        raise InputError(f"{name} should be floating-point, [N, D] or [D], got {array.dtype} of shape {array.shape}")
    return array
