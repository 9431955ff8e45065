"""The output layer: best tokens, log-probabilities or maxima of rows over the vocabulary, or over a subset of it."""

from collections.abc import Sequence

import numpy as np

from fastattn.arguments.steps import NO_EDITS, Edits, SubsetRows
from fastattn.kernels.arguments import (
    GROUP,
    LOWEST,
    SEGMENT,
    SUBSET_ROWS,
    TINY,
    VOCABULARY_ROWS,
    BestLists,
    EditedLogits,
)
from fastattn.ops.cpu.absent import NO_FLOATS, NO_INTS
from fastattn.ops.cpu.matmul import PackedLinear, as_int8, linear, scratch_bytes
from fastattn.runtime.arena import empty, make_scratch_parts
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.recording import unrecordable
from fastattn.runtime.threads import current_threads
from fastattn.simd.arguments import format_for
from fastattn.simd.target import LANES
from fastattn.spec.quantized import Tensor, as_float32
from fastattn.spec.rounding import bfloat16_bits
from fastattn.system.records import dataclass


def edited_logits(edits: Edits, rows: int, targets_R: np.ndarray) -> EditedLogits:
    """Edits and targets (int32, or empty) as kernels take them."""
    no_ids_RJ = np.empty((rows, 0), np.int32)
    suppressed_RJ = no_ids_RJ if edits.suppressed_RJ is None else edits.suppressed_RJ
    penalized_RJ = no_ids_RJ if edits.penalized_RJ is None else edits.penalized_RJ
    amounts_RJ = np.zeros(penalized_RJ.shape, np.float32) if edits.amounts_RJ is None else edits.amounts_RJ
    logits_R = np.full(len(targets_R), -np.inf, np.float32)
    numbers = np.float32(edits.penalty), amounts_RJ, np.float32(edits.cap)
    return EditedLogits(suppressed_RJ, penalized_RJ, *numbers, edits.biased_J, edits.biases_J, targets_R, logits_R)


def empty_lists(*shape: int) -> BestLists:
    """Lists of the k best [..., k], of arbitrary values; a kernel clears them."""
    return BestLists(empty(shape), empty(shape, np.int32))


_choose = kernel_named("project", "_choose")
_MINUS_INFINITY = np.float32(-np.inf).view(np.int32)


@dataclass(frozen=True, eq=False)
class RowLinear:
    """Weights of a linear layer by rows, the same numbers as in ``packed``, which has their bias and scales.

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
    entry    of a step's table of subsets: the address of ``words``, their columns, the number of ids
    """

    linear: RowLinear
    ids: np.ndarray
    words: np.ndarray
    entry: tuple[int, int, int]


def pack_rows(weight_FD: Tensor, packed: PackedLinear) -> RowLinear:
    precision = {"f": "float32", "H": "bfloat16", "b": "int8"}[packed.panels_PSN.dtype.char]
    rows_FD = as_int8(weight_FD).values_FD if precision == "int8" else as_float32(weight_FD)
    if precision == "bfloat16":
        rows_FD = bfloat16_bits(rows_FD)
    padding = -rows_FD.shape[1] % (LANES * format_for(precision).group)
    if padding:
        rows_FD = np.pad(rows_FD, ((0, 0), (0, padding)))
    return RowLinear(packed, np.require(rows_FD, requirements=("C", "W")))


def select_outputs(linear: RowLinear, ids: np.ndarray) -> OutputSubset:
    packed = linear.packed
    count, columns = len(ids), -(-len(ids) // LANES) * LANES
    arrays = [packed.bias.view(np.int32)]
    if len(packed.factors):
        arrays += [packed.factors.view(np.int32), packed.corrections]
    words = np.empty((1 + len(arrays), columns), np.int32)
    words[0, :count] = ids
    assert 0 <= words[0, 0] <= words[0, count - 1] < packed.outputs
    words[0, count:] = words[0, 0]
    columns_C = words[0].astype(np.intp)
    for n, array in enumerate(arrays):
        array.take(columns_C, out=words[n + 1], mode="clip")  # other modes copy the result once more
    words[1, count:] = _MINUS_INFINITY
    return OutputSubset(linear, ids, words, (words.ctypes.data, columns, count))


def _choose_from_subsets(x_RD, subsets_R, edits, lists, log_sums_R, needs_sums):
    """Choose for each row from its own subset of the outputs; rows of one sentence share an OutputSubset.

    Return lines_LC, logits in scratch memory of the kernel. With an empty ``log_sums_R`` the kernel chooses nothing,
    and line r has the logits of ``subsets_R[r].ids`` in its first columns.
    """
    R = len(x_RD)
    if isinstance(subsets_R, SubsetRows):
        linear, runs_G4, columns = subsets_R
    else:
        linear = subsets_R[0].linear
        starts = [r for r in range(R) if r == 0 or r % SUBSET_ROWS == 0 or subsets_R[r] is not subsets_R[r - 1]]
        runs_G4 = np.array([(r, *subsets_R[r].entry) for r in starts], np.int64)
        columns = int(np.max(runs_G4[:, 2]))
    padding = linear.rows_FD.shape[1] - x_RD.shape[1]
    if padding:
        unrecordable()
        x_RD = np.pad(x_RD, ((0, 0), (0, padding)))
    scratch_PB = make_scratch_parts(len(runs_G4), scratch_bytes(linear.rows_FD, x_RD.shape[1], SUBSET_ROWS))
    lines_LC = empty((len(scratch_PB) * SUBSET_ROWS if len(log_sums_R) else R, columns))
    arrays = linear.packed.kernel_arrays
    _choose(x_RD, linear.rows_FD, arrays, runs_G4, edits, lists, log_sums_R, needs_sums, scratch_PB, lines_LC)
    return lines_LC


_project, _merge = kernel_named("project", "_project"), kernel_named("project", "_merge")

# All outputs of a layer, or a subset for each row; the softmax is over these alone. A subset's logits equal those of
# all outputs: bit by bit in int8, else up to the order of a sum. Rows with the same subset are fastest if adjacent.
Outputs = PackedLinear | Sequence[OutputSubset]


def choose(
    x_RD: np.ndarray, outputs: Outputs | SubsetRows, k: int, edits: Edits, targets_R: np.ndarray, needs_sums: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(values_Rk, ids_Rk, logits_R, log_sums_R): the k best logits, the targets' logits, log-sum-exp of all.

    targets_R  int32, or empty; log_sums_R are valid only if ``needs_sums``.
    """
    R = len(x_RD)
    best, log_sums_R, kernel_edits = empty_lists(R, k), empty(R), edited_logits(edits, R, targets_R)
    if not isinstance(outputs, PackedLinear):
        _choose_from_subsets(x_RD, outputs, kernel_edits, best, log_sums_R, needs_sums)
    elif R:
        S = -(-len(outputs.panels_PSN) // SEGMENT)
        # The k best do not depend on how many lists are merged: there are as many as keep all threads busy.
        chunks = min(S, current_threads()) if R <= VOCABULARY_ROWS * 4 else 1
        peaks_SR, sums_SR, lists = empty((S, R)), empty((S, R)), empty_lists(chunks, R, k)
        size = scratch_bytes(outputs.panels_PSN, outputs.inputs, min(R, VOCABULARY_ROWS))
        scratch_PB = make_scratch_parts(chunks * -(-R // VOCABULARY_ROWS), size)
        arrays = outputs.panels_PSN, outputs.kernel_arrays
        _project(x_RD, *arrays, kernel_edits, peaks_SR, sums_SR, lists, needs_sums, scratch_PB)
        _merge(peaks_SR, sums_SR, lists, best, log_sums_R)
    return *best, kernel_edits.logits_R, log_sums_R


def project_top_k(
    x_RD: np.ndarray, outputs: Outputs, k: int, edits: Edits = NO_EDITS, normalized: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    values_Rk, ids_Rk, _, log_sums_R = choose(x_RD, outputs, k, edits, NO_INTS, normalized)
    if normalized:
        values_Rk -= log_sums_R[:, None]
    return values_Rk, ids_Rk


def log_probs(x_ND: np.ndarray, outputs: Outputs, targets_N: np.ndarray, edits: Edits = NO_EDITS) -> np.ndarray:
    _, _, logits_N, log_sums_N = choose(x_ND, outputs, 0, edits, targets_N, True)
    return logits_N - log_sums_N


def project_all(x_RD: np.ndarray, outputs: Outputs, edits: Edits = NO_EDITS) -> np.ndarray:
    if isinstance(outputs, PackedLinear):
        return _project_all_outputs(x_RD, outputs, edits)
    (first, *_), kernel_edits = outputs, edited_logits(edits, len(x_RD), NO_INTS)
    lines_RC = _choose_from_subsets(x_RD, outputs, kernel_edits, empty_lists(len(x_RD), 0), NO_FLOATS[1], False)
    log_probs_RV = np.full((len(x_RD), first.linear.packed.outputs), -np.inf, np.float32)
    for r, subset in enumerate(outputs):
        logits = lines_RC[r, : len(subset.ids)]
        log_softmax(logits)
        log_probs_RV[r, subset.ids] = logits
    return log_probs_RV


def _project_all_outputs(x_RD: np.ndarray, packed: PackedLinear, edits: Edits) -> np.ndarray:
    logits_RV = linear(x_RD, packed)
    suppressed_RJ, penalized_RJ, penalty, amounts_RJ, cap, *_ = edited_logits(edits, len(x_RD), NO_INTS)
    for r, logits_V in enumerate(logits_RV):  # one by one, so that a row's bits depend on no other row
        if cap:
            logits_V[:] = cap * np.tanh(logits_V / cap)
        logits_V[edits.biased_J] += edits.biases_J
        # Ids beyond the logits, of a model with a larger vocabulary, change nothing.
        valid_J = (penalized_RJ[r] >= 0) & (penalized_RJ[r] < len(logits_V))
        ids_J = penalized_RJ[r][valid_J]
        old_J = logits_V[ids_J]
        logits_V[ids_J] = np.where(old_J < 0, old_J * penalty, old_J / penalty) - amounts_RJ[r][valid_J]
        suppressed_J = suppressed_RJ[r]
        logits_V[suppressed_J[(suppressed_J >= 0) & (suppressed_J < len(logits_V))]] = -np.inf
        log_softmax(logits_V)
    return logits_RV


def log_softmax(logits: np.ndarray) -> None:
    """The log-softmax of one row, in place."""
    logits -= max(logits.max(), LOWEST)  # LOWEST where all logits are -inf
    logits -= np.log(max(np.exp(logits).sum(dtype=np.float64), TINY)).astype(np.float32)


_project_peaks = kernel_named("project", "_project_peaks")


def project_peaks(x_ND: np.ndarray, starts_B1: np.ndarray, packed: PackedLinear, least: float = 0.0) -> np.ndarray:
    panels, lengths_B = len(packed.panels_PSN), np.diff(starts_B1)
    peaks_BF = np.full((len(lengths_B), len(packed.bias)), least, np.float32)
    if len(x_ND):
        sentences_N = np.repeat(np.arange(len(lengths_B)), lengths_B)
        size = scratch_bytes(packed.panels_PSN, packed.inputs, min(len(x_ND), VOCABULARY_ROWS))
        scratch_PB = make_scratch_parts(-(-panels // GROUP), size)
        _project_peaks(x_ND, sentences_N, packed.panels_PSN, packed.kernel_arrays, scratch_PB, peaks_BF)
    return peaks_BF[:, : packed.outputs]
