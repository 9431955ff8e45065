"""This machine's limits, measured next to the benchmarks: peak arithmetic and memory bandwidth.

The peak of a precision is the engine's register tile alone: multiply-adds on operands that stay in L1, without staging,
writing only at the end. The bandwidth is a streaming read of an array far larger than the last-level cache. Both take
the best of several short runs: a limit, not an average.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
from numba import prange, types
from numba.extending import intrinsic

from bench.timing import once
from fastattn.simd import amx
from fastattn.simd.amx import emit_products
from fastattn.simd.arguments import TILE_ROWS, TILE_STEPS
from fastattn.simd.arithmetic import Arithmetic, arithmetic_for
from fastattn.simd.emit import I64, Emitter
from fastattn.simd.target import TARGET
from fastattn.simd.tile import PRECISIONS, emit_sums
from fastattn.spec.rounding import bfloat16_bits

A_BYTES = 16 << 10  # of A, in an L1 of 32 to 48 KiB
WORK = 1.5e10  # operations of one run of one thread; a multiply-add is two
LEAST_BYTES, MOST_BYTES = 256 << 20, 2 << 30


def tile_size(precision: str) -> tuple[int, int, int]:
    """(rows, columns, steps) of the tile that is measured; a step takes a word of each row."""
    rows, columns = (2 * TILE_ROWS,) * 2 if precision in TARGET.tiles else (TARGET.rows, TARGET.columns)
    return rows, columns, A_BYTES // (4 * rows)


@intrinsic
def _sums(typing_context, b_N, a, a_row, b, b_step, c):
    """One tile of sums in the precision of ``b_N``; the others are addresses, and strides in bytes."""
    precision = PRECISIONS[b_N.dtype]
    arithmetic, (_, columns, steps) = arithmetic_for(precision), tile_size(precision)

    def emit_registers(emitter: Emitter, a, a_row, b, b_step, c) -> None:
        amx.configure_rows(emitter, I64(TILE_ROWS))
        operands, blocks = (a, a_row, b, b_step), I64(steps // TILE_STEPS)
        emit_products(emitter, precision, 2, [0, 1], operands, blocks, (c, I64(columns * 4)), (c, I64(0)))
        amx.release(emitter)

    def emit_vectors(emitter: Emitter, a, a_row, b, b_step, c) -> None:
        builder = emitter.builder
        rows = [builder.add(a, builder.mul(a_row, I64(i))) for i in range(TARGET.rows)]
        zero = emitter.integer(0) if arithmetic.integer else emitter.constant(0.0)
        starts = [zero] * (TARGET.rows * TARGET.vectors)
        sums = emit_sums(emitter, arithmetic, rows, [b], b_step, I64(steps), starts, TARGET.vectors)
        for n, value in enumerate(sums):
            emitter.store(builder.bitcast(value, emitter.vector), builder.add(c, I64(n * TARGET.lanes * 4)))

    emit = emit_registers if precision in TARGET.tiles else emit_vectors

    def generate(context, builder, kind, arguments):
        Emitter(builder, TARGET).call_once(f"bench.sums_{arithmetic.name}_{arithmetic.b_bytes}", arguments[1:], emit)
        return context.get_dummy_value()

    return types.void(b_N, *[types.intp] * 5), generate


# Compiled by plain Numba, with a cache folder for this run only: the engine's cache is keyed on its own sources.
@numba.njit(parallel=True, cache=True, error_model="numpy")
def _multiply(a_TRB, b_TN, b_step, c_TRN, repeats):
    for t in prange(a_TRB.shape[0]):
        a, b, c = a_TRB[t].ctypes.data, b_TN[t].ctypes.data, c_TRN[t].ctypes.data
        for _ in range(repeats):
            _sums(b_TN, a, a_TRB.shape[2], b, b_step, c)


@numba.njit(parallel=True, cache=True, error_model="numpy")
def _read(data, totals):
    """Each thread reads four streams at once, which uses more of the memory's bandwidth than one."""
    length = len(data) // (4 * len(totals))
    for t in prange(len(totals)):
        part = data[4 * t * length : 4 * (t + 1) * length]
        first, second, third, fourth = part[:length], part[length:], part[2 * length :], part[3 * length :]
        # exclusive or can be vectorized in any order, unlike a float sum
        total = np.int64(0)
        for i in range(length):
            total ^= first[i] ^ second[i] ^ third[i] ^ fourth[i]
        totals[t] = total


def bare_tile(threads: int, precision: str = "float32", share: float = 1.0) -> tuple[Callable[[], None], float]:
    """(a call that runs the tile on ``threads`` threads, a ``share`` of WORK each; its number of operations)."""
    arithmetic, (rows, columns, steps) = arithmetic_for(precision), tile_size(precision)
    rng = np.random.default_rng(0)
    a = _operands(rng, arithmetic, arithmetic.a_bytes, (threads, rows, steps * arithmetic.group))
    b = _operands(rng, arithmetic, arithmetic.b_bytes, (threads, columns * arithmetic.group))
    c = np.empty((threads, rows, columns), np.float32)
    work = 2.0 * rows * columns * steps * arithmetic.group
    repeats = int(share * WORK / work)
    # every step reads the same vectors of B
    return lambda: _multiply(a.view(np.uint8), b, 0, c, repeats), threads * repeats * work


def _operands(rng: np.random.Generator, arithmetic: Arithmetic, size: int, shape: tuple[int, ...]) -> np.ndarray:
    """Random values of ``size`` bytes, in the tile's form."""
    if arithmetic.integer:
        return rng.integers(-100, 100, shape).astype(f"int{8 * size}")
    values = rng.standard_normal(shape, np.float32)
    return bfloat16_bits(values) if size == 2 else values


def peak_flops(threads: int, precision: str = "float32", share: float = 1.0, runs: int = 12) -> float:
    """Operations per second of ``threads`` threads together; a multiply-add is two. 4-bit weights meet int8's tile."""
    run, work = bare_tile(threads, "int8" if precision == "int4" else precision, share)
    run()
    return work / min(once(run) for _ in range(runs))


def bandwidth(threads: int, share: float = 1.0, runs: int = 5) -> float:
    """Bytes per second that ``threads`` threads together read from memory; ``share`` shrinks the array for tests."""
    data = np.ones(int(share * min(MOST_BYTES, max(LEAST_BYTES, 4 * last_cache_bytes()))) // 8, np.int64)
    totals = np.zeros(threads, np.int64)
    _read(data[: 4 * threads], totals)
    return data.nbytes / min(once(lambda: _read(data, totals)) for _ in range(runs))


def reader(arrays: list[np.ndarray], threads: int) -> Callable[[], None]:
    """A call in which ``threads`` threads together read arrays once, as ``bandwidth`` does; threads x 32 bytes fit."""
    words = [np.ravel(array).view(np.int64) for array in arrays]
    totals = np.zeros(threads, np.int64)

    def read() -> None:
        for part in words:
            _read(part, totals)

    return read


def last_cache_bytes() -> int:
    """The size of the last-level cache; 0 if the system does not report it."""
    sizes = [_bytes(path.read_text()) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max(sizes, default=0)


def _bytes(size: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)\s*", size)
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else 0
