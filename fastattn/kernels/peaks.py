"""A layer's outputs, of which each sentence keeps the largest alone.

SPLADE's vectors are maxima of logits (Formal 2021), ColBERT's scores sums of maxima (Khattab and Zaharia 2020).

A task takes all rows through a run of the layer's panels, a block of rows and a few panels at a time; the outputs live
for one tile, in L1, and go into the maxima of the sentence whose row it is. The largest of several numbers is the same
in any order, so the bits depend on neither batch nor threads.
"""

from collections import namedtuple

from numba import prange

from fastattn.kernels.constants import GROUP, VOCABULARY_ROWS
from fastattn.kernels.matmul import TileScratch, affine_at, clear_zeros
from fastattn.kernels.multiply import begin_task, end_task
from fastattn.kernels.select import logits_scratch, make_take_group, zeros_scratch
from fastattn.kernels.staging import stage_rows
from fastattn.runtime.jit import inner, kernel, take_part
from fastattn.simd.target import LANES
from fastattn.simd.vector import address, load, maximum, store

# The sentence of each row of a task, and the sentences' maxima: an address, and the distance between them.
Peaks = namedtuple("Peaks", "owners_N address distance")


@inner
def raise_peaks(line, r, first, columns, peaks):
    """Take a row's outputs into its sentence's maxima."""
    place = peaks.address + peaks.owners_N[r] * peaks.distance + first * 4
    for j in range(0, columns, LANES):
        store(maximum(load(line + j * 4), load(place + j * 4)), place + j * 4)


take_peaks = make_take_group(raise_peaks)


@kernel
def _project_peaks(x_ND, owners_N, panels_PSN, arrays, scratch_PB, peaks_BF):
    """peaks_BF [B, whole panels], the least at first; a task is a group of panels."""
    N, D = x_ND.shape
    P = len(panels_PSN)
    for part in prange(0, len(scratch_PB)):
        staged, first_group, end = take_part(scratch_PB, part, (P + GROUP - 1) // GROUP)
        affine, scratch = affine_at(arrays), clear_zeros(TileScratch(logits_scratch(), zeros_scratch()))
        for first in range(0, N, VOCABULARY_ROWS):
            count, x = min(N - first, VOCABULARY_ROWS), address(x_ND) + first * D * 4
            rows = stage_rows(panels_PSN, arrays, x, count, D, staged, min(N, VOCABULARY_ROWS))
            peaks = Peaks(owners_N[first:], address(peaks_BF), peaks_BF.strides[0])
            begin_task(panels_PSN, count)
            for g in range(first_group, end):
                take_peaks(panels_PSN, rows, count, g * GROUP, affine, scratch, peaks)
            end_task(panels_PSN, count)
