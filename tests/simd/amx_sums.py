"""Sums of bfloat16 as Intel's tile registers have them, in NumPy.

The operation section of TDPBF16PS, Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: no number
too small to be normal goes in or comes out, and products are added with one rounding, to the nearest, ties to even.
"""

import numpy as np

TINY = np.finfo(np.float32).tiny


def flushed(values: np.ndarray) -> np.ndarray:
    """Float32 with zeros of the same sign in place of numbers too small to be normal."""
    return np.where(np.abs(values) < TINY, np.copysign(np.float32(0), values), values).astype(np.float32)


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a b + c, rounded once: a product of two bfloat16 is exact in float64, and of its sum nothing is lost."""
    with np.errstate(all="ignore"):
        exact = flushed(a).astype(np.float64) * flushed(b).astype(np.float64) + flushed(c).astype(np.float64)
        return flushed(exact.astype(np.float32))


def widened(halves: np.ndarray) -> np.ndarray:
    return (halves.astype(np.uint32) << 16).view(np.float32)


def block_sums(a_MK: np.ndarray, b_KN: np.ndarray, sums_MN: np.ndarray) -> np.ndarray:
    """One instruction, on float32 that holds bfloat16: even and odd products apart, then both, then the sum."""
    even, odd = (np.zeros_like(sums_MN) for _ in range(2))
    for k in range(0, a_MK.shape[1], 2):
        even = fused(a_MK[:, k, None], b_KN[None, k], even)
        odd = fused(a_MK[:, k + 1, None], b_KN[None, k + 1], odd)
    with np.errstate(all="ignore"):
        return flushed(flushed(sums_MN) + flushed(even + odd))
