"""The projection onto few words, each row's own: their logits, log-softmax over them, and top-k.

A sentence's words lie all over the vocabulary, so the weights are read by rows, where they are: a sentence then costs
no memory and nothing when it comes, and all threads share the one matrix in the cache. Of 1,034 words of 256 int8 each,
the mean of an English sentence with a Firefox model, 64 sentences at once: 7 us a row, with 128 at once 6; from panels
of each sentence's own, copied when it came for 85 us, 6 and 12; all 32,000 words 53, those of 64 sentences' lists
together, 14,000, with a mask, 23. Beams profit from the panels more: four rows a sentence take 4.3 us each here, 2.8
there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import prange

from fastattn.kernels.packing import PackedLinear
from fastattn.kernels.select import CHUNK, LOWEST, fold_lanes, log_softmax, log_sum, prepare_edits, scan_row
from fastattn.kernels.staging import scratch_bytes, stage_rows, staged_row
from fastattn.rounding import bfloat16_bits, quantize
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import make_scratch_parts, take_part
from fastattn.simd.arithmetic import arithmetic_for
from fastattn.simd.dots import linear_dots
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    SIZE,
    load,
    load_index,
    load_scalar,
    make_scratch,
    splat,
    store,
    store_scalar,
)
from fastattn.spec import QuantizedTensor, Tensor

# Rows with the same words that one task takes: each vector of words is read from memory once for all of them.
ROWS = 32
state_scratch = make_scratch(2 * SIZE)
_NO_TARGETS = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class RowLinear:
    """Weights of a linear layer by rows, in a precision: the same numbers as the packed ones, which have the rest.

    rows_FD  float32, uint16 (the bits of bfloat16) or int8; zeros behind a width that is not of whole vectors
    """

    packed: PackedLinear
    rows_FD: np.ndarray


@dataclass(frozen=True, eq=False)
class Picked:
    """Some outputs of a linear layer, from which a row chooses.

    ids      int32, rising
    words    int32 [2 or 4, columns], whole vectors: the ids, the bits of their biases, -inf behind ``ids``; int8 only:
             the bits of their factors, their corrections
    place    as the kernel takes it: where the words are, columns of them, and how many are ids
    """

    linear: RowLinear
    ids: np.ndarray
    words: np.ndarray
    place: tuple[int, int, int]


def pack_rows(weight_FD: Tensor, packed: PackedLinear) -> RowLinear:
    """The weights that ``packed`` was made of, by rows; where they are so stored and the width fits, as they are."""
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


def pick(linear: RowLinear, ids: np.ndarray) -> Picked:
    """The outputs ``ids``: int32, rising, at least one, all inside."""
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
    return Picked(linear, ids, words, (words.ctypes.data, columns, count))


@inner
def find(token, words, count):
    """Where the id is among the rising ones at an address, or -1."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if load_index(words + middle * 4) < token:
            low = middle + 1
        else:
            high = middle
    return low if low < count and load_index(words + low * 4) == token else -1


@inner
def edit_line(line, row, words, count, edits):
    """What the options do to a row's logits."""
    suppressed_RJ, penalised_RJ, penalty = edits
    for j in range(penalised_RJ.shape[1]):
        at = find(penalised_RJ[row, j], words, count)
        if at >= 0:
            logit = load_scalar(line + at * 4)
            store_scalar(logit * penalty if logit < 0 else logit / penalty, line + at * 4)
    for j in range(suppressed_RJ.shape[1]):
        at = find(suppressed_RJ[row, j], words, count)
        if at >= 0:
            store_scalar(np.float32(-np.inf), line + at * 4)


@inner
def scan_line(line, columns, words, state, summed, values, ids, start, k):
    """The k best of a row's logits, by id, and the logarithm of the sum of all exponentials."""
    sums = state + SIZE
    store(splat(LOWEST), state)
    store(splat(np.float32(0)), sums)
    for j in range(0, columns, CHUNK):
        scan_row(line + j * 4, min(CHUNK, columns - j), j, state, sums, summed, values, ids, start, k)
    for at in range(start, start + k):
        if ids[at] >= 0:
            ids[at] = load_index(words + ids[at] * 4)
    peak, total = fold_lanes(load(state), load(sums))
    return log_sum(peak, np.float64(total))


@kernel
def _choose(
    x_RD, rows_FD, staging, runs_G4, edits, targets_R, summed, k, scratch_PB, lines_LC,
    values, ids, logits_R, log_sums_R,
):  # fmt: skip
    """The runs of rows that choose from the same words, shared by parts.

    runs_G4   first row, and its ``Picked.place``
    lines_LC  logits: of every row, which are then all that is done, or, where k is not negative, ROWS lines a part
    """
    R, D = x_RD.shape
    G, line_row = len(runs_G4), lines_LC.shape[1] * 4
    x, a_row, weights, row_bytes = x_RD.ctypes.data, staged_row(rows_FD, D), rows_FD.ctypes.data, rows_FD.strides[0]
    for part in prange(0, len(scratch_PB)):
        staged, first_run, last_run = take_part(scratch_PB, part, G)
        row_factors = staged + ROWS * a_row
        state = state_scratch()
        for g in range(first_run, last_run):
            first, end = runs_G4[g, 0], runs_G4[g + 1, 0] if g + 1 < G else R
            words, columns, count = runs_G4[g, 1], runs_G4[g, 2], runs_G4[g, 3]
            biases, column_factors, corrections = words + columns * 4, words + columns * 8, words + columns * 12
            a = stage_rows(rows_FD, staging, x + first * D * 4, end - first, D, staged, row_factors)
            lines = lines_LC.ctypes.data + (part * ROWS if k >= 0 else first) * line_row
            for j in range(0, columns * 4, LANES * 4):
                for r in range(end - first):
                    linear_dots(
                        rows_FD, a + r * a_row, row_factors + r * 4, weights, row_bytes, words + j,
                        lines + r * line_row + j, biases + j, column_factors + j, corrections + j,
                    )  # fmt: skip
            for r in range(end - first):
                line, row = lines + r * line_row, first + r
                edit_line(line, row, words, count, edits)
                if targets_R.size > 0:
                    at = find(targets_R[row], words, count)
                    logits_R[row] = load_scalar(line + at * 4) if at >= 0 else np.float32(-np.inf)
                if k >= 0:
                    log_sums_R[row] = scan_line(line, columns, words, state, summed, values, ids, row * k, k)


def _run(
    x_RD: np.ndarray, picked_R: Sequence[Picked], k: int, edits: tuple, targets_R: np.ndarray, summed: bool = True
):
    """(values_Rk, ids_Rk, logits_R, log_sums_R, lines_LC) of the kernel."""
    R, linear = len(x_RD), picked_R[0].linear
    missing = linear.rows_FD.shape[1] - x_RD.shape[1]
    if missing:
        x_RD = np.pad(x_RD, ((0, 0), (0, missing)))
    starts = [r for r in range(R) if r == 0 or r % ROWS == 0 or picked_R[r] is not picked_R[r - 1]]
    runs_G4 = np.array([(r, *picked_R[r].place) for r in starts], np.int64)
    columns = int(np.max(runs_G4[:, 2]))
    scratch_PB = make_scratch_parts(len(starts), scratch_bytes(linear.rows_FD, x_RD.shape[1], ROWS))
    values, ids = np.full(R * max(k, 0), -np.inf, np.float32), np.full(R * max(k, 0), -1, np.int32)
    logits_R, log_sums_R = np.empty(R, np.float32), np.empty(R, np.float32)
    lines_LC = np.empty((len(scratch_PB) * ROWS if k >= 0 else R, columns), np.float32)
    _choose(
        x_RD, linear.rows_FD, linear.packed.staging, runs_G4, edits, targets_R, summed, k, scratch_PB,
        lines_LC, values, ids, logits_R, log_sums_R,
    )  # fmt: skip
    return values.reshape(R, max(k, 0)), ids.reshape(R, max(k, 0)), logits_R, log_sums_R, lines_LC


def picked_top_k(
    x_RD: np.ndarray, picked_R: Sequence[Picked], k: int,
    suppressed_RJ: np.ndarray | None = None, penalised_RJ: np.ndarray | None = None, penalty: float = 1.0,
    normalised: bool = True,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """``project_top_k`` of rows that choose from the outputs picked for each; rows of one sentence share a Picked.

    The softmax is over them alone. Logits are those of the whole projection: in int8 to the bit, else but for the
    order of a sum.
    """
    edits = prepare_edits(len(x_RD), suppressed_RJ, penalised_RJ, penalty)
    values_Rk, ids_Rk, _, log_sums_R, _ = _run(x_RD, picked_R, k, edits, _NO_TARGETS, normalised)
    if normalised:
        values_Rk -= log_sums_R[:, None]
    return values_Rk, ids_Rk


def picked_log_probs(
    x_RD: np.ndarray, picked_R: Sequence[Picked], targets_R: np.ndarray,
    suppressed_RJ: np.ndarray | None = None, penalised_RJ: np.ndarray | None = None, penalty: float = 1.0,
) -> np.ndarray:  # fmt: skip
    """``log_probs`` among the outputs picked for each row; -inf for another target."""
    edits = prepare_edits(len(x_RD), suppressed_RJ, penalised_RJ, penalty)
    _, _, logits_R, log_sums_R, _ = _run(x_RD, picked_R, 0, edits, targets_R)
    return logits_R - log_sums_R


def picked_all(
    x_RD: np.ndarray, picked_R: Sequence[Picked],
    suppressed_RJ: np.ndarray | None = None, penalised_RJ: np.ndarray | None = None, penalty: float = 1.0,
) -> np.ndarray:  # fmt: skip
    """``project_all`` of rows that choose from the outputs picked for each; -inf for all others."""
    edits = prepare_edits(len(x_RD), suppressed_RJ, penalised_RJ, penalty)
    lines_RC = _run(x_RD, picked_R, -1, edits, _NO_TARGETS)[-1]
    log_probs_RV = np.full((len(x_RD), picked_R[0].linear.packed.outputs), -np.inf, np.float32)
    for r, picked in enumerate(picked_R):
        logits = lines_RC[r, : len(picked.ids)]
        log_softmax(logits)
        log_probs_RV[r, picked.ids] = logits
    return log_probs_RV
