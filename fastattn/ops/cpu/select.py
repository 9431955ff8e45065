"""The projection onto the vocabulary, fused with log-softmax and top-k; see ``kernels/select.py``."""

import numpy as np

from fastattn.kernels.constants import SEGMENT, VOCABULARY_ROWS
from fastattn.ops.cpu.logits import empty_lists, prepared
from fastattn.ops.cpu.packing import PackedLinear
from fastattn.ops.cpu.staging import scratch_bytes
from fastattn.ops.edits import Edits
from fastattn.runtime.arena import empty, make_scratch_parts
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.threads import current_threads

_project, _merge = kernel_named("select", "_project"), kernel_named("select", "_merge")


def choose_from_all(
    x_RD: np.ndarray, packed: PackedLinear, k: int, edits: Edits, targets_R: np.ndarray, summed: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(values_Rk, ids_Rk, logits_R, log_sums_R): the k best logits, the targets' logits, log-sum-exp of all.

    targets_R  int32, or empty; log_sums_R are valid only if ``summed``.
    """
    R = x_RD.shape[0]
    S = -(-packed.panels_PSN.shape[0] // SEGMENT)
    # The k best do not depend on the number of lists that they are merged from: as many as keep all threads busy.
    chunks = min(S, current_threads()) if R <= VOCABULARY_ROWS * 4 else 1
    peaks_SR, sums_SR = empty((S, R)), empty((S, R))
    lists, best_lists = empty_lists(chunks, R, k), empty_lists(R, k)
    given, log_sums_R = prepared(edits, R, targets_R), empty(R)
    if R:
        size = scratch_bytes(packed.panels_PSN, packed.inputs, min(R, VOCABULARY_ROWS))
        scratch_PB = make_scratch_parts(chunks * -(-R // VOCABULARY_ROWS), size)
        _project(x_RD, packed.panels_PSN, packed.kernel_arrays, given, peaks_SR, sums_SR, lists, summed, scratch_PB)
        _merge(peaks_SR, sums_SR, lists, best_lists, log_sums_R)
    return *best_lists, given.logits_R, log_sums_R
