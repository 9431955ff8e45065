"""The output layer: logits live for one tile, in L1, and a log-softmax, the k best or maxima are kept of them.

A task takes some rows through a range of the vocabulary's panels, a few at a time, and keeps for each row a running
softmax and the k best. Each segment of fixed size has its own sums, which are merged in order, so the bits depend on
neither batch nor threads. The softmax keeps the maximum and the sum of exponentials lane by lane (online: Milakov and
Gimelshein 2018; in base 2, which saves half of their instructions).

Or each sentence keeps the largest outputs alone: SPLADE's vectors are maxima of logits (Formal 2021), ColBERT's scores
sums of maxima (Khattab and Zaharia 2020). There a task takes all rows through a run of panels; the largest of several
numbers is the same in any order.
"""

from collections import namedtuple

import numpy as np
from numba import prange

from fastattn.kernels.arguments import CHUNK, GROUP, LOWEST, NR, SEGMENT, TINY, VOCABULARY_ROWS
from fastattn.kernels.matmul import (
    MOST_ROWS,
    TileScratch,
    affine_at,
    begin_task,
    clear_zeros,
    end_task,
    multiply_tile,
    skip_columns,
    step_ahead,
)
from fastattn.kernels.packing import rows_from, stage_rows
from fastattn.runtime.jit import inner, kernel, take_part
from fastattn.simd.arguments import LOG2_E, SIZE, Panels, Rows
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    address,
    any_above,
    exp2,
    load,
    load_index,
    load_scalar,
    make_scratch,
    max_lanes,
    maximum,
    minimum,
    splat,
    store,
    store_index,
    store_scalar,
    sum_lanes,
    tanh,
)

FAR = np.float32(3e38)  # more than a logit's distance from its cap
STATE = 2 * SIZE  # bytes of a row's running softmax: peaks, and sums of exponentials against them


@inner
def cap_logits(line, columns, cap):
    """cap tanh(z / cap) of logits in whole vectors; -inf stays, which is that of columns without an output."""
    size, inverse, far = splat(cap), splat(np.float32(1) / cap), splat(FAR)
    for j in range(0, columns, LANES):
        logit = load(line + j * 4)
        store(minimum(logit + far, size * tanh(logit * inverse)), line + j * 4)  # in this order NaN stays


def make_edit(find):
    """Make the helper ``edit(line, row, outputs, columns, edits)``, which edits a row's logits at an address.

    find     (id, outputs) -> its index among the outputs in the line, or negative
    columns  of the line
    edits    EditedLogits
    """

    @inner
    def edit(line, row, outputs, columns, edits):
        suppressed_RJ, penalized_RJ, penalty, amounts_RJ, cap, targets_R, logits_R = edits
        if cap != 0:
            cap_logits(line, columns, cap)
        for j in range(penalized_RJ.shape[1]):
            at = find(penalized_RJ[row, j], outputs)
            if at >= 0:
                logit = load_scalar(line + at * 4)
                logit = logit * penalty if logit < 0 else logit / penalty
                store_scalar(logit - amounts_RJ[row, j], line + at * 4)
        for j in range(suppressed_RJ.shape[1]):
            at = find(suppressed_RJ[row, j], outputs)
            if at >= 0:
                store_scalar(np.float32(-np.inf), line + at * 4)
        if targets_R.size > 0:
            at = find(targets_R[row], outputs)
            if at >= 0:
                logits_R[row] = load_scalar(line + at * 4)

    return edit


# A row's ``k`` best: addresses of values and ids.
Best = namedtuple("Best", "values ids k")


@inner
def best_of(lists, number):
    """The Best in BestLists of the row with that number."""
    k = lists.values.shape[-1]
    return Best(address(lists.values) + number * k * 4, address(lists.ids) + number * k * 4, k)


@inner
def clear_best(best):
    """Empty a row's k best: -inf and -1."""
    values, ids, k = best
    for j in range(k):
        store_scalar(np.float32(-np.inf), values + j * 4)
        store_index(-1, ids + j * 4)


@inner
def worst(best):
    """The last of the k best, 1 at least."""
    return load_scalar(best.values + (best.k - 1) * 4)


@inner
def insert(value, token, best):
    """Insert into the k best a value that belongs there; equal values go behind, so ties keep the lower id."""
    values, ids, k = best
    j = k - 1
    while j > 0 and load_scalar(values + (j - 1) * 4) < value:
        store_scalar(load_scalar(values + (j - 1) * 4), values + j * 4)
        store_index(load_index(ids + (j - 1) * 4), ids + j * 4)
        j -= 1
    store_scalar(value, values + j * 4)
    store_index(token, ids + j * 4)


@inner
def log_sum(peak, total):
    """peak + ln(total), total a float64."""
    # not of 0, whose logarithm from -inf is NaN, where every logit is ruled out
    return np.float32(np.float64(peak) + np.log(TINY if total == 0 else total))


@inner
def clear_state(state):
    store(splat(LOWEST), state)
    store(splat(np.float32(0)), state + SIZE)


@inner
def fold_state(state):
    """(peak, sum) of a row: its lanes reduced to one."""
    peak, sums = load(state), load(state + SIZE)
    highest = max_lanes(peak)
    return highest, sum_lanes(sums * exp2((peak - splat(highest)) * splat(np.float32(LOG2_E))))


@inner
def add_exponentials(logits, columns, highest, state):
    """Add ``columns`` logits to a row's running softmax, lane by lane; ``highest`` holds their maxima."""
    # The difference first: it is exactly 0 at the peak, however large the logits are.
    scale, peak, total = splat(np.float32(LOG2_E)), load(state), load(state + SIZE)
    if any_above(highest, peak):
        higher = maximum(highest, peak)
        total = total * exp2((peak - higher) * scale)
        peak = higher
        store(peak, state)
    for j in range(0, columns, LANES):
        total = total + exp2((load(logits + j * 4) - peak) * scale)
    store(total, state + SIZE)


@inner
def scan_row(logits, columns, first_id, state, summed, best):
    """Take ``columns`` logits, whole vectors, into one row's k best and, where ``summed``, its running softmax."""
    highest = load(logits)
    for j in range(LANES, columns, LANES):
        highest = maximum(load(logits + j * 4), highest)
    if summed:
        add_exponentials(logits, columns, highest, state)
    if best.k > 0 and any_above(highest, splat(worst(best))):
        for j in range(0, columns, LANES):
            if any_above(load(logits + j * 4), splat(worst(best))):
                for i in range(j, j + LANES):
                    one = load_scalar(logits + i * 4)
                    if one > worst(best):
                        insert(one, first_id + i, best)


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
                left, mine = count - r, width * NR
                took = multiply_tile(weights, rows_from(rows, r), left, some, width, mine, out, column, zeros)
                place += step * steps
            for i in range(took):
                finish(scratch.tile + i * columns * 4, r + i, first * NR, columns, kept)
            r += took
            ahead += panels * step * steps

    return take_group


@inner
def choose_logits(line, r, first, columns, kept):
    """Take a row's logits into its softmax and its k best."""
    edit_run(line, kept.first_row + r, Run(first, columns), columns, kept.edits)
    best = best_of(kept.lists, kept.first_list + r)
    scan_row(line, columns, first, kept.states + r * STATE, kept.summed, best)


take_group = make_take_group(choose_logits)


@kernel
def _project(x_RD, panels_PSN, arrays, edits, peaks_SR, sums_SR, lists, summed, scratch_PB):
    """The tasks, a row block times a run of segments each, cut into runs, one a part; see choose of ops/cpu/project.py.

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
