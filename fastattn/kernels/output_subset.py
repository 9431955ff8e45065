"""The projection onto subsets of the vocabulary, one for each sentence: logits, log-softmax over them, top-k.

The words of a shortlist are spread over the vocabulary, so weights are read row by row in place: a sentence costs no
memory and no time when it is admitted, and all threads share one matrix in the CPU's caches. With 1,034 words of 256
int8 each, the mean of an English sentence with a Firefox model, a row takes 7 us with 64 sentences at once, 6 with 128.
Panels copied for each sentence, for 85 us at its admission, take 6 and 12; all 32,000 words 53; the 14,000 words of 64
sentences together, with a mask, 23. Beams profit more from panels: four rows a sentence take 4.3 us each here, 2.8
there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import prange

from fastattn.edits import Edits
from fastattn.kernels.logits import (
    CHUNK,
    NO_TARGETS,
    STATE,
    best_of,
    clear_best,
    clear_state,
    empty_lists,
    fold_state,
    log_sum,
    make_edit,
    prepared,
    scan_row,
)
from fastattn.kernels.matmul import skip_columns
from fastattn.kernels.packing import PackedLinear
from fastattn.kernels.staging import rows_from, scratch_bytes, stage_rows
from fastattn.quantized import QuantizedTensor, Tensor
from fastattn.rounding import bfloat16_bits, quantize
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import make_scratch_parts, take_part
from fastattn.runtime.recording import unrecordable
from fastattn.simd.arithmetic import arithmetic_for
from fastattn.simd.dots import linear_dots
from fastattn.simd.target import LANES
from fastattn.simd.vector import SIZE, address, load_index, make_scratch, store_index
from fastattn.step_rows import SubsetRows

# Rows with the same subset that one task takes: each weight is read from memory once for all of them.
ROWS = 32
state_scratch = make_scratch(STATE)


@dataclass(frozen=True, eq=False)
class RowLinear:
    """Weights of a linear layer by rows, the same numbers as in ``packed``, which has bias and scales.

    rows_FD  float32, uint16 (the bits of bfloat16) or int8; padded with zeros to whole vectors
    """

    packed: PackedLinear
    rows_FD: np.ndarray


@dataclass(frozen=True, eq=False)
class OutputSubset:
    """Some outputs of a linear layer, from which a row chooses.

    ids      int32, ascending
    words    int32 [2 or 4, columns], padded to whole vectors: ids, bits of their biases (-inf in the padding); int8
             only: bits of their factors, corrections
    place    for the kernel: address of the words, number of columns, number of ids
    """

    linear: RowLinear
    ids: np.ndarray
    words: np.ndarray
    place: tuple[int, int, int]


def pack_rows(weight_FD: Tensor, packed: PackedLinear) -> RowLinear:
    """The weights of ``packed`` by rows; not copied if they are stored so and the width is of whole vectors."""
    precision = {"f": "float32", "H": "bfloat16", "b": "int8"}[packed.panels_PSN.dtype.char]
    rows_FD = _ROWS[precision](weight_FD)
    missing = -rows_FD.shape[1] % (LANES * arithmetic_for(precision).group)
    if missing:
        rows_FD = np.pad(rows_FD, ((0, 0), (0, missing)))
    return RowLinear(packed, np.require(rows_FD, requirements=("C", "W")))


def _float32(weight_FD: Tensor) -> np.ndarray:
    return weight_FD.float32() if isinstance(weight_FD, QuantizedTensor) else np.asarray(weight_FD, np.float32)


def _int8(weight_FD: Tensor) -> np.ndarray:
    return (weight_FD if isinstance(weight_FD, QuantizedTensor) else quantize(weight_FD, "a linear layer")).values_FD


_ROWS = {"float32": _float32, "bfloat16": lambda weight_FD: bfloat16_bits(_float32(weight_FD)), "int8": _int8}


def select_outputs(linear: RowLinear, ids: np.ndarray) -> OutputSubset:
    """The outputs ``ids``: int32, ascending, at least one, all in range."""
    packed = linear.packed
    assert len(ids) and 0 <= ids[0] <= ids[-1] < packed.outputs
    count, columns = len(ids), -(-len(ids) // LANES) * LANES
    parts = [packed.bias.view(np.int32)]
    if len(packed.factors):
        parts += [packed.factors.view(np.int32), packed.corrections]
    words = np.empty((1 + len(parts), columns), np.int32)
    words[0, :count], words[0, count:] = ids, ids[0]
    for n, part in enumerate(parts):
        np.take(part, words[0], out=words[n + 1])
    words[1, count:] = np.float32(-np.inf).view(np.int32)
    return OutputSubset(linear, ids, words, (words.ctypes.data, columns, count))


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
    scratch_PB  for ROWS staged rows of each part
    lines_LC    logits: of every row, if only they are wanted, else ROWS lines a part
    """
    R, D = x_RD.shape
    G, line_row, chooses = len(runs_G4), lines_LC.shape[1] * 4, log_sums_R.size > 0
    for part in prange(0, len(scratch_PB)):
        staged, first_run, last_run = take_part(scratch_PB, part, G)
        state = state_scratch()
        for g in range(first_run, last_run):
            first, words, columns, inside = runs_G4[g, 0], runs_G4[g, 1], runs_G4[g, 2], runs_G4[g, 3]
            count = (runs_G4[g + 1, 0] if g + 1 < G else R) - first
            rows = stage_rows(rows_FD, staging, address(x_RD) + first * D * 4, count, D, staged, ROWS)
            lines = address(lines_LC) + (part * ROWS if chooses else first) * line_row
            multiply_words(rows_FD, rows, count, words, columns, (lines, line_row))
            for r in range(count):
                line, row = lines + r * line_row, first + r
                edit_words(line, row, (words, inside), edits)
                if chooses:
                    log_sums_R[row] = scan_line(line, columns, words, state, summed, best_of(lists, row))


def choose_from_subsets(
    x_RD: np.ndarray,
    subsets_R: Sequence[OutputSubset] | SubsetRows,
    k: int,
    edits: Edits,
    targets_R: np.ndarray,
    summed: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``choose_from_all``, each row from its own subset of the outputs; rows of one sentence share an OutputSubset."""
    lists, log_sums_R = empty_lists(len(x_RD), k), np.empty(len(x_RD), np.float32)
    given = prepared(edits, len(x_RD), targets_R)
    _run(x_RD, subsets_R, given, lists, log_sums_R, summed)
    return *lists, given[-1], log_sums_R


def logits_of_subsets(x_RD: np.ndarray, subsets_R: Sequence[OutputSubset], edits: Edits) -> np.ndarray:
    """A line of logits a row, those of ``subsets_R[r].ids`` in the first columns."""
    given = prepared(edits, len(x_RD), NO_TARGETS)
    return _run(x_RD, subsets_R, given, empty_lists(len(x_RD), 0), np.empty(0, np.float32), False)


def _run(x_RD, subsets_R, edits, lists, log_sums_R, summed):
    """The kernel; the lines of logits."""
    R = len(x_RD)
    if isinstance(subsets_R, SubsetRows):
        linear, runs_G4, columns = subsets_R.linear, subsets_R.rows_R4, subsets_R.columns
    else:
        linear = subsets_R[0].linear
        starts = [r for r in range(R) if r == 0 or r % ROWS == 0 or subsets_R[r] is not subsets_R[r - 1]]
        runs_G4 = np.array([(r, *subsets_R[r].place) for r in starts], np.int64)
        columns = int(np.max(runs_G4[:, 2]))
    missing = linear.rows_FD.shape[1] - x_RD.shape[1]
    if missing:
        unrecordable()
        x_RD = np.pad(x_RD, ((0, 0), (0, missing)))
    scratch_PB = make_scratch_parts(len(runs_G4), scratch_bytes(linear.rows_FD, x_RD.shape[1], ROWS))
    lines_LC = np.empty((len(scratch_PB) * ROWS if len(log_sums_R) else R, columns), np.float32)
    staging = linear.packed.staging
    _choose(x_RD, linear.rows_FD, staging, runs_G4, edits, lists, log_sums_R, summed, scratch_PB, lines_LC)
    return lines_LC
