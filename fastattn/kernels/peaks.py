"""A layer's outputs, of which each sentence keeps the largest alone.

SPLADE makes vectors of such logits (Formal 2021), and ColBERT scores of products of vectors (Khattab and Zaharia 2020).

A task takes all rows through a run of the layer's panels, a block of rows and a few panels at a time; the outputs live
for one tile, in L1, and go into the maxima of the sentence whose row it is. The largest of several numbers is the same
in any order, so the bits depend on neither batch nor threads.
"""

import numpy as np
from numba import prange

from fastattn.kernels.constants import GROUP, NR, VOCABULARY_ROWS
from fastattn.kernels.matmul import affine_at
from fastattn.kernels.multiply import MOST_ROWS, begin_task, end_task, step_ahead
from fastattn.kernels.select import multiply_group
from fastattn.kernels.staging import rows_from, stage_rows
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import take_part
from fastattn.simd.target import LANES
from fastattn.simd.vector import address, load, make_scratch, maximum, splat, store

tile_scratch, zeros_scratch = make_scratch(max(MOST_ROWS, 2) * GROUP * NR * 4), make_scratch(GROUP * NR * 4)


@inner
def take_peaks(weights, rows, count, first, affine, owners, peaks, memory):
    """``count`` rows through GROUP panels from the ``first`` on, or the last ones, into their sentences' maxima.

    owners  the sentence of each of these rows
    peaks   (address of the first sentence's maxima, bytes to the next one's)
    memory  addresses of a tile and of a row of zeros
    """
    distance, steps, panels = weights.strides[0], weights.shape[1], min(GROUP, len(weights) - first)
    columns, r = panels * NR, 0
    # the group of panels goes through one tile where the rows are few, else panel by panel
    group = (first, panels, GROUP if count < 4 and panels == GROUP else 1)
    ahead, step = address(weights) + (first + panels) * distance, step_ahead(weights, count)
    while r < count:
        took = multiply_group(weights, rows_from(rows, r), count - r, group, affine, (ahead, step), memory)
        for i in range(took):
            line, place = memory[0] + i * columns * 4, peaks[0] + owners[r + i] * peaks[1] + first * NR * 4
            for j in range(0, columns, LANES):
                store(maximum(load(line + j * 4), load(place + j * 4)), place + j * 4)
        r += took
        ahead += panels * step * steps


@kernel
def _project_peaks(x_ND, owners_N, panels_PSN, affine, scratch_PB, peaks_BF):
    """peaks_BF [B, whole panels], the least at first; a task is a group of panels."""
    N, D = x_ND.shape
    P, peaks = len(panels_PSN), (address(peaks_BF), peaks_BF.strides[0])
    for part in prange(0, len(scratch_PB)):
        staged, first_group, end = take_part(scratch_PB, part, (P + GROUP - 1) // GROUP)
        columns, memory = affine_at(affine), (tile_scratch(), zeros_scratch())
        for j in range(0, GROUP * NR, LANES):
            store(splat(np.float32(0)), memory[1] + j * 4)
        for first in range(0, N, VOCABULARY_ROWS):
            count, x = min(N - first, VOCABULARY_ROWS), address(x_ND) + first * D * 4
            rows = stage_rows(panels_PSN, affine[3:], x, count, D, staged, min(N, VOCABULARY_ROWS))
            begin_task(panels_PSN, count)
            for g in range(first_group, end):
                take_peaks(panels_PSN, rows, count, g * GROUP, columns, owners_N[first:], peaks, memory)
            end_task(panels_PSN, count)
