"""The projection onto the vocabulary, fused with log-softmax and top-k: logits live for one tile, in L1.

A task takes some rows through a range of the vocabulary's panels, a few at a time, and keeps for each row a running
softmax and the k best. Each segment of fixed size has its own sums, which are merged in order, so the bits depend on
neither batch nor threads.
"""

from collections import namedtuple

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
from fastattn.kernels.matmul import TileScratch, affine_at, clear_zeros
from fastattn.kernels.multiply import MOST_ROWS, begin_task, end_task, multiply_tile, skip_columns, step_ahead
from fastattn.kernels.staging import rows_from, stage_rows
from fastattn.runtime.jit import inner, kernel, take_part
from fastattn.simd.arguments import Panels, Rows
from fastattn.simd.vector import address, make_scratch

logits_scratch, zeros_scratch = make_scratch(max(MOST_ROWS, 2) * CHUNK * 4), make_scratch(CHUNK * 4)
state_scratch = make_scratch(VOCABULARY_ROWS * STATE)


# Ids in a row.
Run = namedtuple("Run", "first number")
# What is kept of the logits of a task's rows, from ``first_row`` on, in lists from ``first_list`` on.
Chosen = namedtuple("Chosen", "edits lists first_row first_list states summed")


@inner
def find_in_run(token, run):
    """The index of an id in a Run, or -1."""
    return token - run.first if run.first <= token < run.first + run.number else -1


edit_run = make_edit(find_in_run)


def make_take_group(finish):
    """Make the helper ``take_group(weights, rows, count, first, affine, scratch, kept)``.

    It takes ``count`` rows through GROUP panels from the ``first`` on, or the last ones, and hands the logits of each
    to ``finish(line, r, first id, columns, kept)``: at the address ``line``, of row r.
    """

    @inner
    def take_group(weights, rows, count, first, affine, scratch, kept):
        distance, steps, panels = weights.strides[0], weights.shape[1], min(GROUP, len(weights) - first)
        columns, r = panels * NR, 0
        # the group of panels goes through one tile where the rows are few, else panel by panel
        width = GROUP if count < 4 and panels == GROUP else 1
        start, step = address(weights) + first * distance, step_ahead(weights, count)
        ahead = start + panels * distance
        while r < count:
            place, took = ahead, 0
            for q in range(0, panels, width):
                some, skip = Panels(start + q * distance, distance, place, step), q * NR * 4
                out, zeros = Rows(scratch.tile + skip, columns * 4), Rows(scratch.zeros, 0)
                column = skip_columns(affine, first * NR * 4 + skip)
                took = multiply_tile(weights, rows_from(rows, r), count - r, some, width, columns, out, column, zeros)
                place += step * steps
            for i in range(took):
                finish(scratch.tile + i * columns * 4, r + i, first * NR, columns, kept)
            r += took
            ahead += panels * step * steps

    return take_group


@inner
def choose_logits(line, r, first, columns, kept):
    """Take a row's logits into its softmax and its k best."""
    edit_run(line, kept.first_row + r, Run(first, columns), kept.edits)
    best = best_of(kept.lists, kept.first_list + r)
    scan_row(line, columns, first, kept.states + r * STATE, kept.summed, best)


take_group = make_take_group(choose_logits)


@kernel
def _project(x_RD, panels_PSN, arrays, edits, peaks_SR, sums_SR, lists, summed, scratch_PB):
    """The tasks, a row block times a run of segments each, cut into runs, one a part; see choose_from_all.

    peaks_SR  written: of segments the greatest logits; sums_SR the sums of exponentials relative to these
    lists     BestLists [runs of segments, R, k], written
    """
    R, D = x_RD.shape
    P, chunks = len(panels_PSN), len(lists.values)
    S, tasks = len(peaks_SR), chunks * ((R + VOCABULARY_ROWS - 1) // VOCABULARY_ROWS)
    for part in prange(0, len(scratch_PB)):
        staged, first_task, last_task = take_part(scratch_PB, part, tasks)
        scratch, states = clear_zeros(TileScratch(logits_scratch(), zeros_scratch())), state_scratch()
        affine = affine_at(arrays)
        for task in range(first_task, last_task):
            chunk, first = task % chunks, task // chunks * VOCABULARY_ROWS
            count, x = min(R - first, VOCABULARY_ROWS), address(x_RD) + first * D * 4
            chosen = Chosen(edits, lists, first, chunk * R + first, states, summed)
            rows = stage_rows(panels_PSN, arrays, x, count, D, staged, min(R, VOCABULARY_ROWS))
            for i in range(count):
                clear_best(best_of(lists, chosen.first_list + i))
            begin_task(panels_PSN, count)
            for segment in range(chunk * S // chunks, (chunk + 1) * S // chunks):
                for i in range(count):
                    clear_state(states + i * STATE)
                for p in range(segment * SEGMENT, min(P, segment * SEGMENT + SEGMENT), GROUP):
                    take_group(panels_PSN, rows, count, p, affine, scratch, chosen)
                for i in range(count):
                    row = first + i
                    peaks_SR[segment, row], sums_SR[segment, row] = fold_state(states + i * STATE)
            end_task(panels_PSN, count)


@kernel
def _merge(peaks_SR, sums_SR, lists, best_lists, log_sums_R):
    """Merge the segments' softmax and the tasks' k best of each row."""
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
        for chunk in range(len(lists.values)):
            for at in range(best.k):
                if lists.values[chunk, r, at] > worst(best):
                    insert(lists.values[chunk, r, at], lists.ids[chunk, r, at], best)
        log_sums_R[r] = log_sum(peak, total)
