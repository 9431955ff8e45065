"""One tile of staged rows times one panel or a few: by vectors, or in the CPU's tile registers (AMX).

With tile registers every row of bfloat16 takes them, since they have an order of sums of their own: bits never depend
on how many rows there are. Sums of int8 are exact whoever computes them, so there few rows go by vectors, which take no
longer for one row than it needs.
"""

from fastattn.kernels.constants import GROUP, MR, NR
from fastattn.runtime.jit import inner, inner_by_type
from fastattn.simd.amx_tile import MOST_ROWS as AMX_ROWS
from fastattn.simd.amx_tile import configure_tiles, make_amx_linear_tile, release_tiles
from fastattn.simd.constants import LINE, TILE_ROWS
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.tile import PRECISIONS, make_linear_tile

MOST_ROWS = AMX_ROWS if TARGET.tiles else MR  # that one tile takes
# In int8 a row by vectors takes 24 cycles for 16 steps of a panel at best, a register of rows 48, however many it has.
LEAST_AMX_ROWS = 8

tile_full, tile_4, tile_2, tile_1 = (make_linear_tile(rows) for rows in (MR, 4, 2, 1))
tile_2_pair, tile_1_group = make_linear_tile(2, groups=2), make_linear_tile(1, groups=GROUP)
# A layer's last panel may hold less than half of its columns.
tile_narrow = make_linear_tile(MR, vectors=1)
amx_tile, amx_tile_narrow = make_amx_linear_tile(), make_amx_linear_tile(vectors=1)


def _least_rows(weights) -> int:
    """From how many rows on tile registers take products with an array of weights, of a Numba type; 0: never."""
    precision = PRECISIONS[weights.dtype]
    if precision not in TARGET.tiles:
        return 0
    return LEAST_AMX_ROWS if precision == "int8" else 1


@inner
def skip_columns(affine, skip):
    """The affine (bias, factors, corrections) of the outputs ``skip`` bytes on, as addresses."""
    bias, factors, corrections = affine
    return bias + skip, factors + skip, corrections + skip


def begin_task(weights, rows):
    """Configure this thread's tile registers for a task of so many rows, where they are used; ``end_task`` after it."""
    raise NotImplementedError("compiled code only")


@inner_by_type(begin_task)
def _begin_task(weights, rows):
    least = _least_rows(weights)

    def configure(weights, rows):
        if rows >= least:
            configure_tiles(min(rows, TILE_ROWS))

    return configure if least else lambda weights, rows: None


def end_task(weights, rows):
    """Release the tile registers of a task of so many rows."""
    raise NotImplementedError("compiled code only")


@inner_by_type(end_task)
def _end_task(weights, rows):
    least = _least_rows(weights)

    def release(weights, rows):
        if rows >= least:
            release_tiles()

    return release if least else lambda weights, rows: None


def step_ahead(weights, rows):
    """Bytes of the next panel that a step asks for, so that it is there when the rows are through with this one.

    Nothing for a single tile, which the hardware's own prefetching serves better.
    """
    raise NotImplementedError("compiled code only")


@inner_by_type(step_ahead)
def _step_ahead(weights, rows):
    def by_vectors(weights, rows):
        steps, tiles = weights.shape[1], (rows + MR - 1) // MR
        return min(LINE, weights.strides[0] // (steps * tiles) + 1) if rows > MR else 0

    def by_tiles(weights, rows):
        tiles = (rows + AMX_ROWS - 1) // AMX_ROWS
        return weights.strides[0] // (weights.shape[1] * tiles) if rows > TILE_ROWS else 0

    return by_tiles if _least_rows(weights) else by_vectors


@inner
def multiply_by_vectors(weights, rows, left, panel, count, columns, out, affine, start):
    steps = weights.shape[1]
    if count == GROUP:
        if left < 2:
            tile_1_group(weights, rows, panel, steps, out, affine, start)
            return 1
        at, distance, ahead, _ = panel
        for half in range(0, GROUP, 2):
            skip, pair = half * NR * 4, (at + half * distance, distance, ahead, 0)
            beside = (start[0] + skip, start[1])
            tile_2_pair(weights, rows, pair, steps, (out[0] + skip, out[1]), skip_columns(affine, skip), beside)
        return 2
    if left >= MR and columns <= LANES:
        tile_narrow(weights, rows, panel, steps, out, affine, start)
        return MR
    if left >= MR:
        tile_full(weights, rows, panel, steps, out, affine, start)
        return MR
    if left >= 4:
        tile_4(weights, rows, panel, steps, out, affine, start)
        return 4
    if left >= 2:
        tile_2(weights, rows, panel, steps, out, affine, start)
        return 2
    tile_1(weights, rows, panel, steps, out, affine, start)
    return 1


@inner
def multiply_in_registers(weights, rows, left, panel, count, columns, out, affine, start):
    at, distance, ahead, step = panel
    for q in range(count):
        skip, one = q * NR * 4, (at + q * distance, distance, ahead, step)
        place, beside = (out[0] + skip, out[1]), (start[0] + skip, start[1])
        if columns <= LANES:
            amx_tile_narrow(weights, left, rows, one, weights.shape[1], place, skip_columns(affine, skip), beside)
        else:
            amx_tile(weights, left, rows, one, weights.shape[1], place, skip_columns(affine, skip), beside)
    return min(left, AMX_ROWS)


def multiply_tile(weights, rows, left, panel, count, columns, out, affine, start):
    """One tile of at most ``left`` rows times 1 or GROUP panels, plus bias and residual; how many rows it took.

    Of each row at least ``columns`` results are written. Weights are the array of panels, the rest is what
    ``make_linear_tile`` takes: rows, a panel, out, affine and the residual, from which the sums start.
    """
    raise NotImplementedError("compiled code only")


@inner_by_type(multiply_tile)
def _multiply_tile(weights, rows, left, panel, count, columns, out, affine, start):
    least = _least_rows(weights)

    def by_either(weights, rows, left, panel, count, columns, out, affine, start):
        if left >= least:
            return multiply_in_registers(weights, rows, left, panel, count, columns, out, affine, start)
        return multiply_by_vectors(weights, rows, left, panel, count, columns, out, affine, start)

    def in_registers(weights, rows, left, panel, count, columns, out, affine, start):
        return multiply_in_registers(weights, rows, left, panel, count, columns, out, affine, start)

    def by_vectors(weights, rows, left, panel, count, columns, out, affine, start):
        return multiply_by_vectors(weights, rows, left, panel, count, columns, out, affine, start)

    return (by_vectors, in_registers)[least] if least < 2 else by_either
