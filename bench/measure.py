"""What this machine can do at most, measured beside the benchmarks: arithmetic and memory bandwidth.

The peak is the engine's own register tile on operands that stay in the first cache; the bandwidth is a streaming read
of an array far larger than the last cache. Both take the best of several short runs: a limit, not an average.
"""

import re
from pathlib import Path

import numba
import numpy as np
from numba import prange

from bench.timing import once
from fastattn.simd.target import TARGET
from fastattn.simd.tile import make_tile

ROWS, COLUMNS = TARGET.rows, TARGET.columns
STEPS = 96  # 96 * (8 + 48) floats of AVX-512's tile take 21 KiB of a first cache of 32 to 48
LEAST_BYTES, MOST_BYTES = 256 << 20, 2 << 30

_tile = make_tile(ROWS, accumulate=True)


# Compiled by plain Numba, whose cache is a folder of this run alone: the engine's own is keyed on its own sources.
@numba.njit(parallel=True, cache=True, error_model="numpy")
def _multiply(a_TRD, b_TDN, c_TRN, repeats):
    for t in prange(a_TRD.shape[0]):
        a, b, c = a_TRD[t].ctypes.data, b_TDN[t].ctypes.data, c_TRN[t].ctypes.data
        for _ in range(repeats):
            _tile(a, STEPS * 4, b, COLUMNS * 4, STEPS, c, COLUMNS * 4)


@numba.njit(parallel=True, cache=True, error_model="numpy")
def _read(data, totals):
    parts = len(totals)
    for t in prange(parts):
        # exclusive or is vectorised whatever the order; a float sum would not be
        total = np.int64(0)
        for value in data[t * len(data) // parts : (t + 1) * len(data) // parts]:
            total ^= value
        totals[t] = total


def peak_flops(threads: int, runs: int = 12) -> float:
    """Float operations a second, a multiply-add being two, of ``threads`` threads together."""
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal(shape, np.float32) / 64 for shape in ((threads, ROWS, STEPS), (threads, STEPS, COLUMNS))
    )
    c = np.zeros((threads, ROWS, COLUMNS), np.float32)
    repeats = 20000
    _multiply(a, b, c, 1)
    best = min(once(lambda: _multiply(a, b, c, repeats)) for _ in range(runs))
    return threads * repeats * 2 * ROWS * COLUMNS * STEPS / best


def bandwidth(threads: int, runs: int = 5) -> float:
    """Bytes a second that ``threads`` threads together read from memory."""
    data = np.ones(min(MOST_BYTES, max(LEAST_BYTES, 4 * last_cache_bytes())) // 8, np.int64)
    totals = np.zeros(threads, np.int64)
    _read(data[:threads], totals)
    return data.nbytes / min(once(lambda: _read(data, totals)) for _ in range(runs))


def last_cache_bytes() -> int:
    """The size of the last cache; 0 where the system does not say."""
    sizes = [_bytes(path.read_text()) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max(sizes, default=0)


def _bytes(size: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)\s*", size)
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else 0
