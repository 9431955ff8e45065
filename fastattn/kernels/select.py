"""The projection onto the vocabulary, fused with log-softmax and top-k: logits live for one tile, in L1.

A task takes some rows through a range of the vocabulary's panels, a few at a time, and keeps for each row a running
softmax and the k best. Each segment of fixed size has its own sums, which are merged in order, so the bits depend on
neither batch nor threads.
"""

import numpy as np
from numba import prange

from fastattn.edits import Edits
from fastattn.kernels.logits import (
    CHUNK,
    LOWEST,
    STATE,
    best_of,
    clear_best,
    clear_state,
    empty_lists,
    fold_state,
    insert,
    log_sum,
    make_edit,
    prepared,
    scan_row,
    worst,
)
from fastattn.kernels.matmul import GROUP, MR, affine_at, multiply_tile, skip_columns, step_ahead
from fastattn.kernels.packing import NR, PackedLinear
from fastattn.kernels.staging import rows_from, scratch_bytes, stage_rows
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import make_scratch_parts, take_part
from fastattn.runtime.threads import current_threads
from fastattn.simd.target import LANES
from fastattn.simd.vector import address, make_scratch, splat, store

# Rows that one task takes through the vocabulary: weights come from memory, so as many rows share them as fit L2.
ROW_BLOCK = 128
# Panels with their own sum of exponentials: 1,024 columns or a little more, so that the order of all sums is the same
# for any number of threads.
SEGMENT = max(1, 1024 // CHUNK) * GROUP
logits_scratch, zeros_scratch = make_scratch(max(MR, 2) * CHUNK * 4), make_scratch(CHUNK * 4)
state_scratch = make_scratch(ROW_BLOCK * STATE)


@inner
def find_in_run(token, run):
    """The index of an id in a range (first, number), or -1."""
    first, count = run
    return token - first if first <= token < first + count else -1


edit_run = make_edit(find_in_run)


@inner
def multiply_group(weights, rows, left, group, affine, ahead, scratch):
    """Logits of at most ``left`` rows, CHUNK columns or those of the last panels, to scratch; how many rows it took.

    group    (first panel, how many, how many go through one tile)
    ahead    (address, bytes a step) of what is asked for meanwhile
    scratch  (address of a tile, address of a row of zeros)
    """
    first, panels, width = group
    place, step = ahead
    distance, columns, took = weights.strides[0], panels * NR, 0
    for q in range(0, panels, width):
        panel = (address(weights) + (first + q) * distance, distance, place, step)
        out, panel_affine = (scratch[0] + q * NR * 4, columns * 4), skip_columns(affine, (first + q) * NR * 4)
        took = multiply_tile(weights, rows, left, panel, width, columns, out, panel_affine, (scratch[1], 0))
        place += step * weights.shape[1]
    return took


@inner
def take_group(weights, rows, count, first, affine, edits, lists, places, summed, memory):
    """``count`` rows through GROUP panels from the ``first`` on, or the last ones: see ``_project``.

    places  the number of the first row, and of its list
    memory  addresses of a tile, of a row of zeros, and of the rows' states
    """
    tile, zeros, states = memory
    distance, steps, panels = weights.strides[0], weights.shape[1], min(GROUP, len(weights) - first)
    start, columns, r = first * NR, panels * NR, 0
    # the group of panels goes through one tile where the rows are few, else panel by panel
    group = (first, panels, GROUP if count < 4 and panels == GROUP else 1)
    ahead, step = address(weights) + (first + panels) * distance, step_ahead(distance, steps, count)
    while r < count:
        took = multiply_group(weights, rows_from(rows, r), count - r, group, affine, (ahead, step), (tile, zeros))
        for i in range(r, r + took):
            line, row = tile + (i - r) * columns * 4, places[0] + i
            edit_run(line, row, (start, columns), edits)
            scan_row(line, columns, start, states + i * STATE, summed, best_of(lists, places[1] + i))
        r += took
        ahead += panels * step * steps


@kernel
def _project(x_RD, panels_PSN, affine, edits, sums, lists, summed, scratch_PB):
    """The tasks, a row block times a run of segments each, cut into runs, one a part; see choose_from_all.

    sums   (peaks, sums), float32 [segments, R] each, written
    lists  (values, ids) [runs of segments, R, k], written
    """
    R, D = x_RD.shape
    P, chunks = len(panels_PSN), len(lists[0])
    peaks_SR, sums_SR = sums
    S, tasks = len(peaks_SR), chunks * ((R + ROW_BLOCK - 1) // ROW_BLOCK)
    for part in prange(0, len(scratch_PB)):
        staged, first_task, last_task = take_part(scratch_PB, part, tasks)
        columns, memory = affine_at(affine), (logits_scratch(), zeros_scratch(), state_scratch())
        for j in range(0, CHUNK, LANES):
            store(splat(np.float32(0)), memory[1] + j * 4)
        for task in range(first_task, last_task):
            chunk, first = task % chunks, task // chunks * ROW_BLOCK
            count, x, places = min(R - first, ROW_BLOCK), address(x_RD) + first * D * 4, (first, chunk * R + first)
            rows = stage_rows(panels_PSN, affine[3:], x, count, D, staged, min(R, ROW_BLOCK))
            for i in range(count):
                clear_best(best_of(lists, places[1] + i))
            for segment in range(chunk * S // chunks, (chunk + 1) * S // chunks):
                for i in range(count):
                    clear_state(memory[2] + i * STATE)
                for p in range(segment * SEGMENT, min(P, segment * SEGMENT + SEGMENT), GROUP):
                    take_group(panels_PSN, rows, count, p, columns, edits, lists, places, summed, memory)
                for i in range(count):
                    row = first + i
                    peaks_SR[segment, row], sums_SR[segment, row] = fold_state(memory[2] + i * STATE)


@kernel
def _merge(sums, lists, best_lists, log_sums_R):
    """Merge the segments' softmax and the tasks' k best of each row."""
    peaks_SR, sums_SR = sums
    values_CRk, ids_CRk = lists
    S, R = peaks_SR.shape
    for r in prange(0, R):
        peak = LOWEST
        for s in range(S):
            peak = max(peak, peaks_SR[s, r])
        total = np.float64(0)
        for s in range(S):
            total += np.float64(sums_SR[s, r]) * np.exp(np.float64(peaks_SR[s, r]) - np.float64(peak))
        best = best_of(best_lists, r)
        clear_best(best)
        for chunk in range(len(values_CRk)):
            for at in range(best[2]):
                if values_CRk[chunk, r, at] > worst(best):
                    insert(values_CRk[chunk, r, at], ids_CRk[chunk, r, at], best)
        log_sums_R[r] = log_sum(peak, total)


def choose_from_all(
    x_RD: np.ndarray, packed: PackedLinear, k: int, edits: Edits, targets_R: np.ndarray, summed: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(values_Rk, ids_Rk, logits_R, log_sums_R): the k best logits, the targets' logits, log-sum-exp of all.

    targets_R  int32, or empty; log_sums_R are valid only if ``summed``.
    """
    R = x_RD.shape[0]
    S = -(-packed.panels_PSN.shape[0] // SEGMENT)
    # The k best do not depend on the number of lists that they are merged from: as many as keep all threads busy.
    chunks = min(S, current_threads()) if R <= ROW_BLOCK * 4 else 1
    sums = np.empty((S, R), np.float32), np.empty((S, R), np.float32)
    lists, best_lists = empty_lists(chunks, R, k), empty_lists(R, k)
    given, log_sums_R = prepared(edits, R, targets_R), np.empty(R, np.float32)
    if R:
        size = scratch_bytes(packed.panels_PSN, packed.inputs, min(R, ROW_BLOCK))
        scratch_PB = make_scratch_parts(chunks * -(-R // ROW_BLOCK), size)
        _project(x_RD, packed.panels_PSN, packed.affine, given, sums, lists, summed, scratch_PB)
        _merge(sums, lists, best_lists, log_sums_R)
    return *best_lists, given[-1], log_sums_R
