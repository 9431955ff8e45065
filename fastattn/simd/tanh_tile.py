"""Tiles of additive attention's scores: sums of v tanh(a + b) over the inner dimension, as LLVM vector IR.

In a product's place, so a tile has the shape of one: rows of queries by packed keys. tanh(a + b) is 1 - 2 / (1 + A B)
where A = e**2a and B = e**2b, which are computed once a query and once a key. A division takes as long as several
multiply-adds, so two terms share one:

    v / p + w / q = (v q + w p) / (p q)

Each p is at least 1, and cut at 2**60, where 2 / p no longer changes a float32: p q does not overflow.
"""

from llvmlite import ir
from numba import types

from fastattn.simd.elementary import tanh
from fastattn.simd.emit import I64, Emitter
from fastattn.simd.vector import make_routine

SHARED = 2  # terms of a division
RUN = 16  # terms that are summed up by themselves: in one long sum more digits are lost
MOST = 2.0**60


def _emit_shared(emitter: Emitter, factors: list, numbers: list):
    """The sum of factors[n] / numbers[n], with one division."""
    tops, bottoms = factors, numbers
    while len(bottoms) > 1:
        pairs = range(0, len(bottoms), 2)
        crossed = [emitter.multiply(tops[n], bottoms[n + 1]) for n in pairs]
        tops = [emitter.fma(tops[n + 1], bottoms[n], crossed[n // 2]) for n in pairs]
        bottoms = [emitter.multiply(bottoms[n], bottoms[n + 1]) for n in pairs]
    return emitter.divide(tops[0], bottoms[0])


def _emit_tile(emitter: Emitter, rows: int, vectors: int, exponential: bool, arguments) -> None:
    """Emit one tile. arguments: those of make_tanh_tile's intrinsic as i64 values."""
    builder, lanes = emitter.builder, emitter.target.lanes
    query, query_row, panel, panel_row, steps, factors, out, out_row = arguments
    one, most = emitter.constant(1.0), emitter.constant(MOST)
    starts = emitter.row_addresses(query, query_row, rows)
    size = builder.mul(steps, I64(4))

    def add(offset, sums, count: int):
        """Add ``count`` steps, from the one whose floats are ``offset`` bytes from a row's start on."""
        at = [builder.add(offset, I64(4 * n)) for n in range(count)]
        lines = [builder.add(panel, builder.mul(builder.lshr(place, I64(2)), panel_row)) for place in at]
        weights = [emitter.splat(emitter.load_scalar(builder.add(factors, place))) for place in at]
        new: list[ir.Value] = []
        keys = [[emitter.load(builder.add(line, I64(j * lanes * 4))) for line in lines] for j in range(vectors)]
        for start in starts:
            values = [emitter.splat(emitter.load_scalar(builder.add(start, place))) for place in at]
            for operands in keys:
                total = sums[len(new)]
                if exponential:
                    numbers = [emitter.fma(a, b, one) for a, b in zip(values, operands)]
                    numbers = [emitter.minimum(most, number) for number in numbers]  # in this order NaN passes
                    total = emitter.add(total, _emit_shared(emitter, weights, numbers))
                else:
                    for weight, a, b in zip(weights, values, operands):
                        total = emitter.fma(weight, tanh(emitter, emitter.add(a, b)), total)
                new.append(total)
        return new

    shared = SHARED if exponential else 1
    tail = builder.urem(steps, I64(shared))
    whole = builder.sub(size, builder.mul(tail, I64(4)))
    if exponential:
        first = emitter.splat(emitter.load_scalar(builder.add(factors, size)))
    else:
        first = emitter.constant(0.0)

    def add_run(start, sums):
        left = builder.sub(whole, start)
        size = builder.select(builder.icmp_signed("<", left, I64(4 * RUN)), left, I64(4 * RUN))
        nothing = [emitter.constant(0.0)] * len(sums)
        run = emitter.loop(
            size, 4 * shared, nothing, lambda offset, sums: add(builder.add(start, offset), sums, shared)
        )
        return [emitter.add(total, part) for total, part in zip(sums, run)]

    sums = emitter.loop(whole, 4 * RUN, [first] * (rows * vectors), add_run)
    if shared > 1:
        rest = builder.mul(tail, I64(4))
        sums = emitter.loop(rest, 4, sums, lambda offset, sums: add(builder.add(whole, offset), sums, 1))
    for n, value in enumerate(sums):
        place = builder.add(out, builder.add(builder.mul(out_row, I64(n // vectors)), I64(n % vectors * lanes * 4)))
        emitter.store(value if exponential else emitter.multiply(value, emitter.constant(-0.5)), place)


def make_tanh_tile(rows: int, vectors: int, exponential: bool):
    """The intrinsic ``tile(query, query_row, panel, panel_row, steps, factors, out, out_row)``, addresses and bytes.

    out[i, j] = sum over p of v[p] tanh(query[i, p] + panel[p, j]), or, where ``exponential``, of
    v[p] (1 - 2 / (1 + query[i, p] panel[p, j])), for ``rows`` rows and ``vectors`` vectors of columns.

    steps    the length of the sums.
    factors  steps + 1 floats: -2 v, then the sum of v.
    """

    def emit(emitter, *values):
        _emit_tile(emitter, rows, vectors, exponential, values)

    name = f"tanh_tile_{rows}_{vectors}_{'exponential' if exponential else 'plain'}"
    return make_routine(name, (types.intp,) * 8, emit)
