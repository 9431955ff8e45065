"""The projection onto subsets of the vocabulary, one for each sentence: logits, log-softmax over them, top-k.

The words of a shortlist are spread over the vocabulary, so weights are read row by row in place: a sentence costs no
memory and no time when it is admitted, and all threads share one matrix in the CPU's caches. With 1,034 words of 256
int8 each, the mean of an English sentence with a Firefox model, a row takes 7 us with 64 sentences at once, 6 with 128.
Panels copied for each sentence, for 85 us at its admission, take 6 and 12; all 32,000 words 53; the 14,000 words of 64
sentences together, with a mask, 23. Beams profit more from panels: four rows a sentence take 4.3 us each here, 2.8
there.
"""

from collections import namedtuple

import numpy as np
from numba import prange

from fastattn.kernels.arguments import CHUNK, SUBSET_ROWS
from fastattn.kernels.matmul import skip_columns
from fastattn.kernels.packing import stage_rows
from fastattn.kernels.project import STATE, best_of, clear_best, clear_state, fold_state, log_sum, make_edit, scan_row
from fastattn.runtime.jit import inner, kernel, take_part
from fastattn.simd.arguments import SIZE, Affine, Rows, StagedRow
from fastattn.simd.tile import linear_dots
from fastattn.simd.vector import address, load_index, make_scratch, store_index

state_scratch = make_scratch(STATE)


# Ascending ids: where they lie, their number, and the columns of the table that they begin; see OutputSubset.
Words = namedtuple("Words", "address number columns")


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
    """Logits of the words for each of ``count`` staged rows; lines: Rows, written."""
    start, size = words.address, words.columns * 4
    affine = Affine(start + size, start + 2 * size, start + 3 * size)
    weight_rows = Rows(address(weights), weights.strides[0])
    for j in range(0, size, SIZE):
        for r in range(count):
            row = StagedRow(rows.address + r * rows.distance, rows.factors + r * 4)
            out = lines.address + r * lines.distance + j
            linear_dots(weights, row, weight_rows, start + j, out, skip_columns(affine, j))


@inner
def scan_line(line, words, state, summed, best):
    """The k best of a row's logits, by id, and the logarithm of the sum of all exponentials."""
    clear_state(state)
    clear_best(best)
    for j in range(0, words.columns, CHUNK):
        scan_row(line + j * 4, min(CHUNK, words.columns - j), j, state, summed, best)
    for at in range(best.ids, best.ids + best.k * 4, 4):
        if load_index(at) >= 0:
            store_index(load_index(words.address + load_index(at) * 4), at)
    peak, total = fold_state(state)
    return log_sum(peak, np.float64(total))


@kernel
def _choose(x_RD, rows_FD, arrays, runs_G4, edits, lists, log_sums_R, summed, scratch_PB, lines_LC):
    """Choose for runs of rows with the same subset; the runs are divided among the parts.

    runs_G4     first row, and its ``OutputSubset.place``
    lists       BestLists [R, k], written
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
            first, words = runs_G4[g, 0], Words(runs_G4[g, 1], runs_G4[g, 3], runs_G4[g, 2])
            count = (runs_G4[g + 1, 0] if g + 1 < G else R) - first
            rows = stage_rows(rows_FD, arrays, address(x_RD) + first * D * 4, count, D, staged, SUBSET_ROWS)
            lines = address(lines_LC) + (part * SUBSET_ROWS if chooses else first) * line_row
            multiply_words(rows_FD, rows, count, words, Rows(lines, line_row))
            for r in range(count):
                line, row = lines + r * line_row, first + r
                edit_words(line, row, words, words.columns, edits)
                if chooses:
                    log_sums_R[row] = scan_line(line, words, state, summed, best_of(lists, row))
