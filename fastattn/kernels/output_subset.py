"""The projection onto subsets of the vocabulary, one for each sentence: logits, log-softmax over them, top-k.

The words of a shortlist are spread over the vocabulary, so weights are read row by row in place: a sentence costs no
memory and no time when it is admitted, and all threads share one matrix in the CPU's caches. With 1,034 words of 256
int8 each, the mean of an English sentence with a Firefox model, a row takes 7 us with 64 sentences at once, 6 with 128.
Panels copied for each sentence, for 85 us at its admission, take 6 and 12; all 32,000 words 53; the 14,000 words of 64
sentences together, with a mask, 23. Beams profit more from panels: four rows a sentence take 4.3 us each here, 2.8
there.
"""

import numpy as np
from numba import prange

from fastattn.kernels.constants import CHUNK, SUBSET_ROWS
from fastattn.kernels.logits import STATE, best_of, clear_best, clear_state, fold_state, log_sum, make_edit, scan_row
from fastattn.kernels.multiply import skip_columns
from fastattn.kernels.staging import rows_from, stage_rows
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import take_part
from fastattn.simd.constants import SIZE
from fastattn.simd.dots import linear_dots
from fastattn.simd.vector import address, load_index, make_scratch, store_index

state_scratch = make_scratch(STATE)


@inner
def find_word(token, words):
    """The index of an id among ascending ones, (address, number), or -1."""
    start, count = words
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if load_index(start + middle * 4) < token:
            low = middle + 1
        else:
            high = middle
    return low if low < count and load_index(start + low * 4) == token else -1


edit_words = make_edit(find_word)


@inner
def multiply_words(weights, rows, count, words, columns, lines):
    """Logits of the words for each of ``count`` staged rows; lines: (address, row) of where they are written."""
    affine = (words + columns * 4, words + columns * 8, words + columns * 12)
    for j in range(0, columns * 4, SIZE):
        for r in range(count):
            a, _, factor = rows_from(rows, r)
            out = lines[0] + r * lines[1] + j
            linear_dots(
                weights, (a, factor), (address(weights), weights.strides[0]), words + j, out, skip_columns(affine, j)
            )


@inner
def scan_line(line, columns, words, state, summed, best):
    """The k best of a row's logits, by id, and the logarithm of the sum of all exponentials."""
    clear_state(state)
    clear_best(best)
    for j in range(0, columns, CHUNK):
        scan_row(line + j * 4, min(CHUNK, columns - j), j, state, summed, best)
    _, ids, k = best
    for at in range(ids, ids + k * 4, 4):
        if load_index(at) >= 0:
            store_index(load_index(words + load_index(at) * 4), at)
    peak, total = fold_state(state)
    return log_sum(peak, np.float64(total))


@kernel
def _choose(x_RD, rows_FD, staging, runs_G4, edits, lists, log_sums_R, summed, scratch_PB, lines_LC):
    """Choose for runs of rows with the same subset; the runs are divided among the parts.

    runs_G4     first row, and its ``OutputSubset.place``
    lists       (values, ids) [R, k], written
    log_sums_R  written; empty: only logits are wanted
    scratch_PB  for SUBSET_ROWS staged rows of each part
    lines_LC    logits: of every row, if only they are wanted, else SUBSET_ROWS lines a part
    """
    R, D = x_RD.shape
    G, line_row, chooses = len(runs_G4), lines_LC.shape[1] * 4, log_sums_R.size > 0
    for part in prange(0, len(scratch_PB)):
        staged, first_run, last_run = take_part(scratch_PB, part, G)
        state = state_scratch()
        for g in range(first_run, last_run):
            first, words, columns, inside = runs_G4[g, 0], runs_G4[g, 1], runs_G4[g, 2], runs_G4[g, 3]
            count = (runs_G4[g + 1, 0] if g + 1 < G else R) - first
            rows = stage_rows(rows_FD, staging, address(x_RD) + first * D * 4, count, D, staged, SUBSET_ROWS)
            lines = address(lines_LC) + (part * SUBSET_ROWS if chooses else first) * line_row
            multiply_words(rows_FD, rows, count, words, columns, (lines, line_row))
            for r in range(count):
                line, row = lines + r * line_row, first + r
                edit_words(line, row, (words, inside), edits)
                if chooses:
                    log_sums_R[row] = scan_line(line, columns, words, state, summed, best_of(lists, row))
