"""One tile of staged rows times one panel or a few: by vectors, or in the CPU's tile registers (AMX).

With tile registers every row of bfloat16 takes them, since they have an order of sums of their own: bits never depend
on how many rows there are. Sums of int8 are exact whoever computes them, so there few rows go by vectors, which take no
longer for one row than it needs.
"""

from fastattn.kernels.constants import GROUP, MR, NR
from fastattn.runtime.jit import inner, inner_overload
from fastattn.simd.amx_tile import MOST_ROWS as AMX_ROWS
from fastattn.simd.amx_tile import configure_tiles, make_amx_linear_tile, release_tiles
from fastattn.simd.arguments import Affine, Panels, Rows
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
    """The Affine of the outputs ``skip`` bytes on."""
    return Affine(affine.bias + skip, affine.factors + skip, affine.corrections + skip)


@inner
def skip_bytes(rows, skip):
    """Rows, from a column ``skip`` bytes on."""
    return Rows(rows.address + skip, rows.distance)


@inner_overload
def begin_task(weights, rows):
    """Configure this thread's tile registers for a task of so many rows, where they are used; ``end_task`` after it."""
    least = _least_rows(weights)

    def configure(weights, rows):
        if rows >= least:
            configure_tiles(min(rows, TILE_ROWS))

    return configure if least else lambda weights, rows: None


@inner_overload
def end_task(weights, rows):
    """Release the tile registers of a task of so many rows."""
    least = _least_rows(weights)

    def release(weights, rows):
        if rows >= least:
            release_tiles()

    return release if least else lambda weights, rows: None


@inner_overload
def step_ahead(weights, rows):
    """Bytes of the next panel that a step asks for, so that it is there when the rows are through with this one.

    Nothing for a single tile, which the hardware's own prefetching serves better.
    """

    def by_vectors(weights, rows):
        steps, tiles = weights.shape[1], (rows + MR - 1) // MR
        return min(LINE, weights.strides[0] // (steps * tiles) + 1) if rows > MR else 0

    def by_tiles(weights, rows):
        tiles = (rows + AMX_ROWS - 1) // AMX_ROWS
        return weights.strides[0] // (weights.shape[1] * tiles) if rows > TILE_ROWS else 0

    return by_tiles if _least_rows(weights) else by_vectors


def _by_vectors(weights, rows, left, panels, count, columns, out, affine, start):
    steps = weights.shape[1]
    if count == GROUP:
        if left < 2:
            tile_1_group(weights, rows, panels, steps, out, affine, start)
            return 1
        for half in range(0, GROUP, 2):
            skip = half * NR * 4
            pair = Panels(panels.address + half * panels.distance, panels.distance, panels.ahead, 0)
            beside = skip_bytes(start, skip)
            tile_2_pair(weights, rows, pair, steps, skip_bytes(out, skip), skip_columns(affine, skip), beside)
        return 2
    if left >= MR and columns <= LANES:
        tile_narrow(weights, rows, panels, steps, out, affine, start)
        return MR
    if left >= MR:
        tile_full(weights, rows, panels, steps, out, affine, start)
        return MR
    if left >= 4:
        tile_4(weights, rows, panels, steps, out, affine, start)
        return 4
    if left >= 2:
        tile_2(weights, rows, panels, steps, out, affine, start)
        return 2
    tile_1(weights, rows, panels, steps, out, affine, start)
    return 1


def _in_registers(weights, rows, left, panels, count, columns, out, affine, start):
    steps = weights.shape[1]
    for q in range(count):
        skip = q * NR * 4
        panel = Panels(panels.address + q * panels.distance, panels.distance, panels.ahead, panels.ahead_step)
        place, beside, column = skip_bytes(out, skip), skip_bytes(start, skip), skip_columns(affine, skip)
        if columns <= LANES:
            amx_tile_narrow(weights, left, rows, panel, steps, place, column, beside)
        else:
            amx_tile(weights, left, rows, panel, steps, place, column, beside)
    return min(left, AMX_ROWS)


by_vectors, in_registers = inner(_by_vectors), inner(_in_registers)


@inner_overload
def multiply_tile(weights, rows, left, panels, count, columns, out, affine, start):
    """One tile of at most ``left`` rows times 1 or GROUP panels, plus bias and residual; how many rows it took.

    Of each row at least ``columns`` results are written. Weights are the array of panels, the rest is what
    ``make_linear_tile`` takes: rows, panels, out, affine and the residual, from which the sums start.
    """
    least = _least_rows(weights)

    def by_either(weights, rows, left, panels, count, columns, out, affine, start):
        if left >= least:
            return in_registers(weights, rows, left, panels, count, columns, out, affine, start)
        return by_vectors(weights, rows, left, panels, count, columns, out, affine, start)

    return (_by_vectors, _in_registers)[least] if least < 2 else by_either
