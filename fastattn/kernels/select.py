"""The projection onto the vocabulary, fused with log-softmax and top-k: logits live for one tile, in L1.

A task takes some rows through a run of the vocabulary's panels, a few at a time, and keeps for each row the running
maximum and sum of exponentials (lane by lane, online: Milakov and Gimelshein 2018; in base 2, which saves half of their
instructions) and the k best. Sums are kept apart
for segments of fixed size and merged in order, so the bits depend on neither batch nor threads.
"""

import numpy as np
from numba import prange

from fastattn.kernels.matmul import GROUP, MR, linear, multiply_tile, step_ahead
from fastattn.kernels.packing import NR, PackedLinear
from fastattn.kernels.staging import scratch_bytes, stage_rows, staged_row
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import make_scratch_parts, take_part
from fastattn.runtime.threads import current_threads
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    LOG2_E,
    SIZE,
    any_above,
    exp2,
    load,
    load_scalar,
    make_scratch,
    max_lanes,
    maximum,
    splat,
    store,
    store_scalar,
    sum_lanes,
)

# Rows that one task takes through the vocabulary: its weights come from memory, so as many rows as L2 holds share them.
ROW_BLOCK = 128
# Columns whose exponentials are summed apart from the others': 1,024 or a little more, so that the order of all sums is
# the same for any number of threads.
CHUNK = GROUP * NR
SEGMENT = max(1, 1024 // CHUNK) * GROUP  # panels
LOWEST = np.float32(np.finfo(np.float32).min)  # not -inf: -inf minus -inf is NaN
logits_scratch, zeros_scratch = make_scratch(max(MR, 2) * CHUNK * 4), make_scratch(CHUNK * 4)
state_scratch = make_scratch(2 * ROW_BLOCK * SIZE)
_NO_TARGETS = np.empty(0, np.int32)
_TINY = np.finfo(np.float64).tiny


@inner
def insert(value, token, values, ids, start, k):
    """Insert into k entries from ``start``, best first; an equal value goes behind, so ties keep the lower id."""
    j = start + k - 1
    while j > start and values[j - 1] < value:
        values[j] = values[j - 1]
        ids[j] = ids[j - 1]
        j -= 1
    values[j] = value
    ids[j] = token


@inner
def log_sum(peak, total):
    """peak + ln(total), total a float64."""
    # not of 0, whose logarithm from -inf is NaN, where every logit is ruled out
    return np.float32(np.float64(peak) + np.log(_TINY if total == 0 else total))


@inner
def fold_lanes(peak, sums):
    """A row's lanes, and what is below their peaks, as one: (highest peak, sum)."""
    highest = max_lanes(peak)
    return highest, sum_lanes(sums * exp2((peak - splat(highest)) * splat(np.float32(LOG2_E))))


@inner
def scan_row(logits, columns, first_id, peaks, sums, summed, values, ids, start, k):
    """Take ``columns`` logits (an address, a multiple of LANES) into one row's running softmax and k best.

    Lane by lane: the peak, and, where ``summed``, the sum of exponentials.
    """
    highest = load(logits)
    for j in range(LANES, columns, LANES):
        highest = maximum(load(logits + j * 4), highest)
    if summed:
        # The difference first: it is exactly 0 at the peak, however large the logits are.
        scale, peak, total = splat(np.float32(LOG2_E)), load(peaks), load(sums)
        if any_above(highest, peak):
            higher = maximum(highest, peak)
            total = total * exp2((peak - higher) * scale)
            peak = higher
            store(peak, peaks)
        for j in range(0, columns, LANES):
            total = total + exp2((load(logits + j * 4) - peak) * scale)
        store(total, sums)
    if k > 0 and any_above(highest, splat(values[start + k - 1])):
        for j in range(0, columns, LANES):
            if any_above(load(logits + j * 4), splat(values[start + k - 1])):
                for i in range(j, j + LANES):
                    one = load_scalar(logits + i * 4)
                    if one > values[start + k - 1]:
                        insert(one, first_id + i, values, ids, start, k)


@kernel
def _project(
    x_RD, panels_PSN, affine, edits, targets_R, peaks_SR, sums_SR, summed, k, chunks, values, ids, scratch_PB, logits_R,
):  # fmt: skip
    """The tasks, a row block times a run of segments each, cut into runs, one a part; see _run."""
    bias, factors, corrections, input_scale, input_factors = affine
    suppressed_RJ, penalised_RJ, penalty = edits
    R, D = x_RD.shape
    P, steps, S = panels_PSN.shape[0], panels_PSN.shape[1], peaks_SR.shape[0]
    x, w, b = x_RD.ctypes.data, panels_PSN.ctypes.data, bias.ctypes.data
    column_factors, column_corrections = factors.ctypes.data, corrections.ctypes.data
    has_targets, panel_bytes = targets_R.size > 0, panels_PSN.strides[0]
    a_row = staged_row(panels_PSN, D)
    tasks = chunks * ((R + ROW_BLOCK - 1) // ROW_BLOCK)
    for part in prange(0, len(scratch_PB)):
        staged, first_task, last_task = take_part(scratch_PB, part, tasks)
        row_factors = staged + min(R, ROW_BLOCK) * a_row
        scratch, peaks, zeros = logits_scratch(), state_scratch(), zeros_scratch()
        sums = peaks + ROW_BLOCK * SIZE
        for j in range(0, CHUNK, LANES):
            store(splat(np.float32(0)), zeros + j * 4)
        for task in range(first_task, last_task):
            chunk, first = task % chunks, task // chunks * ROW_BLOCK
            rows = min(R, first + ROW_BLOCK) - first
            a = stage_rows(panels_PSN, (input_scale, input_factors), x + first * D * 4, rows, D, staged, row_factors)
            ahead_step = step_ahead(panel_bytes, steps, rows)
            for segment in range(chunk * S // chunks, (chunk + 1) * S // chunks):
                for i in range(rows):
                    store(splat(LOWEST), peaks + i * SIZE)
                    store(splat(np.float32(0)), sums + i * SIZE)
                for p in range(segment * SEGMENT, min(P, segment * SEGMENT + SEGMENT), GROUP):
                    panels = min(GROUP, P - p)
                    columns, panel = panels * NR, w + p * panel_bytes
                    # the group of panels goes through one tile where the rows are few, else panel by panel
                    width = GROUP if rows < 4 and panels == GROUP else 1
                    r, ahead = 0, panel + panels * panel_bytes
                    while r < rows:
                        took = 0
                        for q in range(0, panels, width):
                            skip = (p + q) * NR * 4
                            took = multiply_tile(
                                panels_PSN, a + r * a_row, a_row, row_factors + r * 4, rows - r,
                                panel + q * panel_bytes, panel_bytes, width, columns, ahead, ahead_step, steps,
                                scratch + q * NR * 4, columns * 4,
                                b + skip, column_factors + skip, column_corrections + skip, zeros, 0,
                            )  # fmt: skip
                            ahead += ahead_step * steps
                        for i in range(took):
                            row = first + r + i
                            for j in range(penalised_RJ.shape[1]):
                                inside = penalised_RJ[row, j] - p * NR
                                if 0 <= inside < columns:
                                    place = scratch + (i * columns + inside) * 4
                                    logit = load_scalar(place)
                                    store_scalar(logit * penalty if logit < 0 else logit / penalty, place)
                            for j in range(suppressed_RJ.shape[1]):
                                inside = suppressed_RJ[row, j] - p * NR
                                if 0 <= inside < columns:
                                    store_scalar(np.float32(-np.inf), scratch + (i * columns + inside) * 4)
                            if has_targets and p * NR <= targets_R[row] < p * NR + columns:
                                logits_R[row] = load_scalar(scratch + (i * columns + targets_R[row] - p * NR) * 4)
                            at = (r + i) * SIZE
                            line, start = scratch + i * columns * 4, (chunk * R + row) * k
                            scan_row(line, columns, p * NR, peaks + at, sums + at, summed, values, ids, start, k)
                        r += took
                for i in range(rows):
                    peak, total = fold_lanes(load(peaks + i * SIZE), load(sums + i * SIZE))
                    peaks_SR[segment, first + i], sums_SR[segment, first + i] = peak, total


@kernel
def _merge(peaks_SR, sums_SR, k, chunks, values, ids, best_values, best_ids, log_sums_R):
    S, R = peaks_SR.shape
    for r in prange(0, R):
        peak = LOWEST
        for s in range(S):
            peak = max(peak, peaks_SR[s, r])
        total = np.float64(0)
        for s in range(S):
            total += np.float64(sums_SR[s, r]) * np.exp(np.float64(peaks_SR[s, r]) - np.float64(peak))
        for chunk in range(chunks):
            for at in range((chunk * R + r) * k, (chunk * R + r + 1) * k):
                if values[at] > best_values[r * k + k - 1]:
                    insert(values[at], ids[at], best_values, best_ids, r * k, k)
        log_sums_R[r] = log_sum(peak, total)


def _run(x_RD, packed, k, edits, targets_R, summed=True):
    R = x_RD.shape[0]
    S = -(-packed.panels_PSN.shape[0] // SEGMENT)
    # The k best do not depend on the number of lists that they are merged from: as many as keep all threads busy.
    chunks = min(S, current_threads()) if R <= ROW_BLOCK * 4 else 1
    peaks_SR, sums_SR = np.empty((S, R), np.float32), np.empty((S, R), np.float32)
    values, ids = np.full(chunks * R * k, -np.inf, np.float32), np.full(chunks * R * k, -1, np.int32)
    best_values, best_ids = np.full(R * k, -np.inf, np.float32), np.full(R * k, -1, np.int32)
    logits_R, log_sums_R = np.empty(R, np.float32), np.empty(R, np.float32)
    if R:
        size = scratch_bytes(packed.panels_PSN, packed.inputs, min(R, ROW_BLOCK))
        scratch_PB = make_scratch_parts(chunks * -(-R // ROW_BLOCK), size)
        _project(
            x_RD, packed.panels_PSN, packed.affine, edits, targets_R, peaks_SR, sums_SR, summed, k, chunks,
            values, ids, scratch_PB, logits_R,
        )  # fmt: skip
        _merge(peaks_SR, sums_SR, k, chunks, values, ids, best_values, best_ids, log_sums_R)
    return best_values.reshape(R, k), best_ids.reshape(R, k), logits_R, log_sums_R


def prepare_edits(R, suppressed_RJ, penalised_RJ, penalty):
    """What is done to single logits, as the kernel takes it: empty lists for none."""
    none = np.empty((R, 0), np.int32)
    lists = (none if ids_RJ is None else ids_RJ for ids_RJ in (suppressed_RJ, penalised_RJ))
    return (*lists, np.float32(penalty))


def project_top_k(
    x_RD: np.ndarray,
    packed: PackedLinear,
    k: int,
    suppressed_RJ: np.ndarray | None = None,
    penalised_RJ: np.ndarray | None = None,
    penalty: float = 1.0,
    normalised: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """The k best log-probabilities float32 [R, k] and their ids int32 [R, k], best first, ties to the lower id.

    penalised_RJ   int32 ids, each once a row and padded with -1, whose logits are divided by ``penalty`` where they
                   are positive and multiplied by it where negative (Keskar 2019, section 4.1).
    suppressed_RJ  int32 ids (padded with -1) whose logits count as -inf before the softmax.
    normalised     False: logits in place of log-probabilities, which saves an exponential for each.
    Where fewer than k ids are left, the rest is -inf and -1.
    """
    edits = prepare_edits(len(x_RD), suppressed_RJ, penalised_RJ, penalty)
    values_Rk, ids_Rk, _, log_sums_R = _run(x_RD, packed, k, edits, _NO_TARGETS, normalised)
    if normalised:
        values_Rk -= log_sums_R[:, None]
    return values_Rk, ids_Rk


def log_probs(
    x_ND: np.ndarray,
    packed: PackedLinear,
    targets_N: np.ndarray,
    suppressed_NJ: np.ndarray | None = None,
    penalised_NJ: np.ndarray | None = None,
    penalty: float = 1.0,
) -> np.ndarray:
    """The log-probability of one target id (int32, inside the vocabulary) a row; float32 [N]. The rest as above."""
    edits = prepare_edits(len(x_ND), suppressed_NJ, penalised_NJ, penalty)
    _, _, logits_N, log_sums_N = _run(x_ND, packed, 0, edits, targets_N)
    return logits_N - log_sums_N


def project_all(
    x_RD: np.ndarray,
    packed: PackedLinear,
    suppressed_RJ: np.ndarray | None = None,
    penalised_RJ: np.ndarray | None = None,
    penalty: float = 1.0,
) -> np.ndarray:
    """Every log-probability, float32 [R, V], for who samples from all of them: the one place that stores them."""
    logits_RV = linear(x_RD, packed)
    suppressed_RJ, penalised_RJ, penalty = prepare_edits(len(x_RD), suppressed_RJ, penalised_RJ, penalty)
    for r, logits_V in enumerate(logits_RV):  # one by one, so that a row's bits depend on no other
        penalised = penalised_RJ[r][penalised_RJ[r] >= 0]
        before = logits_V[penalised]
        logits_V[penalised] = np.where(before < 0, before * penalty, before / penalty)
        logits_V[suppressed_RJ[r][suppressed_RJ[r] >= 0]] = -np.inf
        log_softmax(logits_V)
    return logits_RV


def log_softmax(logits: np.ndarray) -> None:
    """Of one row, in place."""
    logits -= max(logits.max(), LOWEST)  # not -inf, should all be ruled out
    logits -= np.log(max(np.exp(logits).sum(dtype=np.float64), _TINY)).astype(np.float32)
