"""The projection onto the vocabulary, fused with log-softmax and top-k: logits live for one tile, in L1.

A task takes some rows through a range of the vocabulary's panels, a few at a time, and keeps for each row a running
softmax and the k best. Each segment of fixed size has its own sums, which are merged in order, so the bits depend on
neither batch nor threads.
"""

import numpy as np
from numba import prange

from fastattn.kernels.constants import CHUNK, GROUP, LOWEST, NR, SEGMENT, VOCABULARY_ROWS
from fastattn.kernels.logits import (
    STATE,
    best_of,
    clear_best,
    clear_state,
    fold_state,
    insert,
    log_sum,
    make_edit,
    scan_row,
    worst,
)
from fastattn.kernels.matmul import affine_at
from fastattn.kernels.multiply import MOST_ROWS, begin_task, end_task, multiply_tile, skip_columns, step_ahead
from fastattn.kernels.staging import rows_from, stage_rows
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import take_part
from fastattn.simd.target import LANES
from fastattn.simd.vector import address, make_scratch, splat, store

logits_scratch, zeros_scratch = make_scratch(max(MOST_ROWS, 2) * CHUNK * 4), make_scratch(CHUNK * 4)
state_scratch = make_scratch(VOCABULARY_ROWS * STATE)


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
    ahead, step = address(weights) + (first + panels) * distance, step_ahead(weights, count)
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
    S, tasks = len(peaks_SR), chunks * ((R + VOCABULARY_ROWS - 1) // VOCABULARY_ROWS)
    for part in prange(0, len(scratch_PB)):
        staged, first_task, last_task = take_part(scratch_PB, part, tasks)
        columns, memory = affine_at(affine), (logits_scratch(), zeros_scratch(), state_scratch())
        for j in range(0, CHUNK, LANES):
            store(splat(np.float32(0)), memory[1] + j * 4)
        for task in range(first_task, last_task):
            chunk, first = task % chunks, task // chunks * VOCABULARY_ROWS
            count, x, places = (
                min(R - first, VOCABULARY_ROWS),
                address(x_RD) + first * D * 4,
                (first, chunk * R + first),
            )
            rows = stage_rows(panels_PSN, affine[3:], x, count, D, staged, min(R, VOCABULARY_ROWS))
            for i in range(count):
                clear_best(best_of(lists, places[1] + i))
            begin_task(panels_PSN, count)
            for segment in range(chunk * S // chunks, (chunk + 1) * S // chunks):
                for i in range(count):
                    clear_state(memory[2] + i * STATE)
                for p in range(segment * SEGMENT, min(P, segment * SEGMENT + SEGMENT), GROUP):
                    take_group(panels_PSN, rows, count, p, columns, edits, lists, places, summed, memory)
                for i in range(count):
                    row = first + i
                    peaks_SR[segment, row], sums_SR[segment, row] = fold_state(memory[2] + i * STATE)
            end_task(panels_PSN, count)


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
