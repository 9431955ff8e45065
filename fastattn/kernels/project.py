"""The output layer: logits exist for one tile, in L1, and are reduced to a log-softmax, the k best, or maxima.

``_project``: a task takes some rows through a range of the vocabulary's panels, a few at a time, and keeps for each row
a running softmax and the k best. Each segment of fixed size has its own sums, which ``_merge`` adds in order, so the
bits depend on neither batch nor threads. The softmax keeps the maximum and the sum of exponentials lane by lane
(online: Milakov and Gimelshein 2018; in base 2, which saves half of their instructions).

``_project_peaks``: each sentence keeps only the maximum of each output. SPLADE's vectors are maxima of logits (Formal
2021), ColBERT's scores sums of maxima (Khattab and Zaharia 2020). A task takes all rows through a run of panels; a
maximum is the same in any order.

``_choose``: each sentence has its own subset of the vocabulary. The words of a shortlist are spread over the
vocabulary, so a task reads weights row by row in place: admitting a sentence costs no memory and no time, and all
threads share one matrix in the CPU's caches. With 1,034 words of 256 int8 each, the mean of an English sentence with a
Firefox model, a row takes 7 us with 64 sentences at once, 6 us with 128. With panels copied for each sentence a row
takes 6 and 12 us, and each admission 85 us; with all 32,000 words 53 us; with the 14,000 words of 64 sentences together
and a mask 23 us. Beams profit more from panels: of four rows a sentence, each takes 4.3 us in place, 2.8 by panels.
"""

from collections import namedtuple

import numpy as np
from numba import prange

from fastattn.kernels.arguments import CHUNK, GROUP, LOWEST, NR, SEGMENT, SUBSET_ROWS, TINY, VOCABULARY_ROWS
from fastattn.kernels.matmul import MOST_ROWS, begin_task, end_task, multiply_tile, step_ahead, with_zeros
from fastattn.kernels.packing import affine_at, rows_from, skip_columns, stage_rows
from fastattn.runtime.jit import inner, kernel, take_part
from fastattn.simd.arguments import LOG2_E, SIZE, Affine, Panels, Rows, StagedRow
from fastattn.simd.memory import address, load, load_index, load_scalar, make_scratch, store, store_index, store_scalar
from fastattn.simd.target import LANES
from fastattn.simd.tile import linear_dots
from fastattn.simd.vector import any_above, exp2, max_lanes, maximum, minimum, splat, sum_lanes, tanh

BEYOND_CAPS = np.float32(3e38)  # a finite logit plus this number is above any cap
STATE = 2 * SIZE  # bytes of a row's running softmax: peaks, and sums of exponentials against them
logits_scratch, zero_scratch = make_scratch(max(MOST_ROWS, 2) * CHUNK * 4), make_scratch(CHUNK * 4)
state_scratch, subset_state_scratch = make_scratch(VOCABULARY_ROWS * STATE), make_scratch(STATE)

# The addresses of a row's ``k`` best values and of their ids.
Best = namedtuple("Best", "values ids k")
# Adjacent ids: the first, and their number.
Run = namedtuple("Run", "first number")
# EditedLogits and BestLists; the numbers of a task's first row and of its list; the address of the rows' running
# softmaxes; whether these are computed.
Selection = namedtuple("Selection", "edits lists first_row first_list states has_sums")
# The sentence of each row of a task; the address of the sentences' maxima, ``distance`` bytes from one to the next.
Peaks = namedtuple("Peaks", "sentences_N address distance")
# The address of ascending ids, the first row of a table; their number, and the table's columns; see OutputSubset.
Words = namedtuple("Words", "address number columns")


def make_edit(find):
    """Make the helper ``edit(line, row, outputs, columns, edits)``, which edits a row's logits at an address.

    find     (id, outputs) -> the id's index among the outputs in the line, or a negative number
    columns  the number of columns of the line
    edits    EditedLogits
    """

    @inner
    def edit(line, row, outputs, columns, edits):
        suppressed_RJ, penalized_RJ, penalty, amounts_RJ, cap, biased_J, biases_J, targets_R, logits_R = edits
        if cap != 0:  # cap tanh(z / cap); columns without an output have -inf, which stays
            scale, inverse, beyond = splat(cap), splat(np.float32(1) / cap), splat(BEYOND_CAPS)
            for j in range(0, columns, LANES):
                value = load(line + j * 4)
                store(minimum(value + beyond, scale * tanh(value * inverse)), line + j * 4)  # in this order NaN stays
        for j in range(biased_J.size):
            index = find(biased_J[j], outputs)
            if index >= 0:
                store_scalar(load_scalar(line + index * 4) + biases_J[j], line + index * 4)
        for j in range(penalized_RJ.shape[1]):
            index = find(penalized_RJ[row, j], outputs)
            if index >= 0:
                logit = load_scalar(line + index * 4)
                logit = logit * penalty if logit < 0 else logit / penalty
                store_scalar(logit - amounts_RJ[row, j], line + index * 4)
        for j in range(suppressed_RJ.shape[1]):
            index = find(suppressed_RJ[row, j], outputs)
            if index >= 0:
                store_scalar(np.float32(-np.inf), line + index * 4)
        if targets_R.size > 0:
            index = find(targets_R[row], outputs)
            if index >= 0:
                logits_R[row] = load_scalar(line + index * 4)

    return edit


@inner
def best_of(lists, number):
    """The Best of row ``number`` of BestLists."""
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
    """The last value of the k best; k is at least 1."""
    return load_scalar(best.values + (best.k - 1) * 4)


@inner
def insert(value, token, best):
    """Insert a value above the worst into the k best, behind equal values, so that the lower id wins a tie."""
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
    # the total is 0 where every logit is suppressed: a log-sum of -inf would make log-probabilities NaN
    return np.float32(np.float64(peak) + np.log(TINY if total == 0 else total))


@inner
def clear_state(state):
    """Begin a row's running softmax."""
    store(splat(LOWEST), state)
    store(splat(np.float32(0)), state + SIZE)


@inner
def fold_state(state):
    """(peak, sum) of a row's running softmax, over all lanes."""
    peak, sums = load(state), load(state + SIZE)
    highest = max_lanes(peak)
    return highest, sum_lanes(sums * exp2((peak - splat(highest)) * splat(np.float32(LOG2_E))))


@inner
def add_exponentials(logits, columns, highest, state):
    """Add ``columns`` logits to a row's running softmax, lane by lane; ``highest`` holds their maxima."""
    # Scaling comes after the difference, which is so exactly 0 at the peak, however large the logits are.
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
def scan_row(logits, columns, first_id, state, has_sums, best):
    """Take ``columns`` logits, whole vectors, into one row's k best and, where ``has_sums``, its running softmax."""
    highest = load(logits)
    for j in range(LANES, columns, LANES):
        highest = maximum(load(logits + j * 4), highest)
    if has_sums:
        add_exponentials(logits, columns, highest, state)
    if best.k > 0 and any_above(highest, splat(worst(best))):
        for j in range(0, columns, LANES):
            if any_above(load(logits + j * 4), splat(worst(best))):
                for i in range(j, j + LANES):
                    logit = load_scalar(logits + i * 4)
                    if logit > worst(best):
                        insert(logit, first_id + i, best)


@inner
def find_in_run(token, run):
    """The index of an id in a Run, or -1."""
    return token - run.first if run.first <= token < run.first + run.number else -1


edit_run = make_edit(find_in_run)


def make_take_group(finish):
    """Make the helper ``take_group(weights, rows, count, first, affine, scratch, results)``.

    It multiplies ``count`` rows by the GROUP panels from panel ``first`` on, or by those that remain, and calls
    ``finish(line, r, first id, columns, results)`` for each row r with the address ``line`` of its logits.
    """

    @inner
    def take_group(weights, rows, count, first, affine, scratch, results):
        distance, steps, panels = weights.strides[0], weights.shape[1], min(GROUP, len(weights) - first)
        columns, r = panels * NR, 0
        # few rows take the group of panels in one tile, others panel by panel
        width = GROUP if count < 4 and panels == GROUP else 1
        start, step = address(weights) + first * distance, step_ahead(weights, count)
        ahead = start + panels * distance
        while r < count:
            panel_ahead, height = ahead, 0
            for q in range(0, panels, width):
                group, skip = Panels(start + q * distance, distance, panel_ahead, step), q * NR * 4
                out, zeros = Rows(scratch.tile + skip, columns * 4), Rows(scratch.zeros, 0)
                column = skip_columns(affine, first * NR * 4 + skip)
                height = multiply_tile(
                    weights, rows_from(rows, r), count - r, group, width, width * NR, out, column, zeros
                )
                panel_ahead += step * steps
            for i in range(height):
                finish(scratch.tile + i * columns * 4, r + i, first * NR, columns, results)
            r += height
            ahead += panels * step * steps

    return take_group


@inner
def choose_logits(line, r, first, columns, selection):
    """Edit a row's logits and take them into its running softmax and its k best."""
    edit_run(line, selection.first_row + r, Run(first, columns), columns, selection.edits)
    best = best_of(selection.lists, selection.first_list + r)
    scan_row(line, columns, first, selection.states + r * STATE, selection.has_sums, best)


take_group = make_take_group(choose_logits)


@kernel
def _project(x_RD, panels_PSN, arrays, edits, peaks_SR, sums_SR, lists, has_sums, scratch_PB):
    """Each part computes a run of tasks, each a row block times a run of segments; see choose in ops/cpu/project.py.

    peaks_SR  written: the segments' greatest logits; sums_SR: the sums of exponentials relative to these
    lists     BestLists [runs of segments, R, k], written
    """
    R, D = x_RD.shape
    P, runs = len(panels_PSN), len(lists.values)
    S, tasks = len(peaks_SR), runs * ((R + VOCABULARY_ROWS - 1) // VOCABULARY_ROWS)
    for part in prange(0, len(scratch_PB)):
        staged, first_task, last_task = take_part(scratch_PB, part, tasks)
        scratch, states = with_zeros(logits_scratch(), zero_scratch()), state_scratch()
        affine = affine_at(arrays)
        for task in range(first_task, last_task):
            run, first = task % runs, task // runs * VOCABULARY_ROWS
            count, x = min(R - first, VOCABULARY_ROWS), address(x_RD) + first * D * 4
            selection = Selection(edits, lists, first, run * R + first, states, has_sums)
            rows = stage_rows(panels_PSN, arrays, x, count, D, staged, min(R, VOCABULARY_ROWS))
            for i in range(count):
                clear_best(best_of(lists, selection.first_list + i))
            begin_task(panels_PSN, count)
            for segment in range(run * S // runs, (run + 1) * S // runs):
                for i in range(count):
                    clear_state(states + i * STATE)
                for p in range(segment * SEGMENT, min(P, segment * SEGMENT + SEGMENT), GROUP):
                    take_group(panels_PSN, rows, count, p, affine, scratch, selection)
                for i in range(count):
                    row = first + i
                    peaks_SR[segment, row], sums_SR[segment, row] = fold_state(states + i * STATE)
            end_task(panels_PSN, count)


@kernel
def _merge(peaks_SR, sums_SR, lists, best_lists, log_sums_R):
    """Merge the segments' softmax and the k best of the runs of segments, for each row."""
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
        for run in range(len(lists.values)):
            for j in range(best.k):
                if lists.values[run, r, j] > worst(best):
                    insert(lists.values[run, r, j], lists.ids[run, r, j], best)
        log_sums_R[r] = log_sum(peak, total)


@inner
def raise_peaks(line, r, first, columns, peaks):
    """Take a row's outputs into its sentence's maxima."""
    maxima = peaks.address + peaks.sentences_N[r] * peaks.distance + first * 4
    for j in range(0, columns, LANES):
        store(maximum(load(line + j * 4), load(maxima + j * 4)), maxima + j * 4)


take_peaks = make_take_group(raise_peaks)


@kernel
def _project_peaks(x_ND, sentences_N, panels_PSN, arrays, scratch_PB, peaks_BF):
    """Raise peaks_BF [B, whole panels], which has the least value at first; a task is a group of panels."""
    N, D = x_ND.shape
    P = len(panels_PSN)
    for part in prange(0, len(scratch_PB)):
        staged, first_group, end = take_part(scratch_PB, part, (P + GROUP - 1) // GROUP)
        affine, scratch = affine_at(arrays), with_zeros(logits_scratch(), zero_scratch())
        for first in range(0, N, VOCABULARY_ROWS):
            count, x = min(N - first, VOCABULARY_ROWS), address(x_ND) + first * D * 4
            rows = stage_rows(panels_PSN, arrays, x, count, D, staged, min(N, VOCABULARY_ROWS))
            peaks = Peaks(sentences_N[first:], address(peaks_BF), peaks_BF.strides[0])
            begin_task(panels_PSN, count)
            for g in range(first_group, end):
                take_peaks(panels_PSN, rows, count, g * GROUP, affine, scratch, peaks)
            end_task(panels_PSN, count)


@inner
def find_word(token, words):
    """The index of an id among Words, or -1."""
    low, high = 0, words.number
    while low < high:
        middle = (low + high) // 2
        if load_index(words.address + middle * 4) < token:
            low = middle + 1
        else:
            high = middle
    return low if low < words.number and load_index(words.address + low * 4) == token else -1


edit_words = make_edit(find_word)


@inner
def multiply_words(weights, rows, count, words, lines):
    """Write the logits of the words for ``count`` staged rows to ``lines``, which are Rows."""
    start, size = words.address, words.columns * 4
    affine = Affine(start + size, start + 2 * size, start + 3 * size)
    weight_rows = Rows(address(weights), weights.strides[0])
    for j in range(0, size, SIZE):
        for r in range(count):
            row = StagedRow(rows.address + r * rows.distance, rows.factors + r * 4)
            out = lines.address + r * lines.distance + j
            linear_dots(weights, row, weight_rows, start + j, out, skip_columns(affine, j))


@inner
def scan_line(line, words, state, has_sums, best):
    """Write the k best of a row's logits, by id; returns the logarithm of the sum of all exponentials."""
    clear_state(state)
    clear_best(best)
    for j in range(0, words.columns, CHUNK):
        scan_row(line + j * 4, min(CHUNK, words.columns - j), j, state, has_sums, best)
    for place in range(best.ids, best.ids + best.k * 4, 4):
        if load_index(place) >= 0:
            store_index(load_index(words.address + load_index(place) * 4), place)
    peak, total = fold_state(state)
    return log_sum(peak, np.float64(total))


@kernel
def _choose(x_RD, rows_FD, arrays, runs_G4, edits, lists, log_sums_R, has_sums, scratch_PB, lines_LC):
    """Choose for runs of rows with the same subset; the runs are divided among the parts.

    runs_G4     the first row of each run, then ``place`` of its OutputSubset
    lists       BestLists [R, k], written
    log_sums_R  written; empty: only the logits are written
    scratch_PB  each part's SUBSET_ROWS staged rows
    lines_LC    written: logits, a line for each row if only logits are written, else SUBSET_ROWS lines for each part
    """
    R, D = x_RD.shape
    G, line_row, chooses = len(runs_G4), lines_LC.shape[1] * 4, log_sums_R.size > 0
    for part in prange(0, len(scratch_PB)):
        staged, first_run, last_run = take_part(scratch_PB, part, G)
        state = subset_state_scratch()
        for g in range(first_run, last_run):
            first, words = runs_G4[g, 0], Words(runs_G4[g, 1], runs_G4[g, 3], runs_G4[g, 2])
            count = (runs_G4[g + 1, 0] if g + 1 < G else R) - first
            rows = stage_rows(rows_FD, arrays, address(x_RD) + first * D * 4, count, D, staged, SUBSET_ROWS)
            lines = address(lines_LC) + (part * SUBSET_ROWS if chooses else first) * line_row
            multiply_words(rows_FD, rows, count, words, Rows(lines, line_row))
            for r in range(count):
                line, row = lines + r * line_row, first + r
                edit_words(line, row, words, words.columns, edits)
                if chooses:
                    log_sums_R[row] = scan_line(line, words, state, has_sums, best_of(lists, row))
