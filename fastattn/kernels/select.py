"""The projection onto the vocabulary, fused with log-softmax and top-k: logits live for one tile, in L1.

The vocabulary is cut into segments of fixed size. A task takes some rows through one segment and keeps, for each row,
the running maximum and sum of exponentials (lane by lane, online: Milakov and Gimelshein 2018) and the k best. The
segments are then merged in order. Their size is constant, so the bits depend on neither batch nor threads.
"""

import numpy as np
from numba import prange

from fastattn.kernels.jit import inner, kernel
from fastattn.kernels.matmul import GROUP, MR, NR, ROW_BLOCK, PackedLinear, multiply_tile
from fastattn.simd.target import LANES
from fastattn.simd.vector import SIZE, any_above, exp, load, load_scalar, max_lanes, maximum, splat, store, sum_lanes

# 1,024 columns: 64 tasks for a vocabulary of 65,000, and a segment's k best are found again only that often.
SEGMENT = max(GROUP, 1024 // NR)  # panels
LOWEST = np.float32(np.finfo(np.float32).min)  # not -inf: -inf minus -inf is NaN
_NO_TARGETS = np.empty(0, np.int32)


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
def scan_row(logits, columns, first_id, peaks, sums, values, ids, start, k):
    """Take ``columns`` logits (an address, a multiple of LANES) into one row's running softmax and k best."""
    peak, total = load(peaks), load(sums)
    for j in range(0, columns, LANES):
        value = load(logits + j * 4)
        if any_above(value, peak):
            higher = maximum(value, peak)
            total = total * exp(peak - higher)
            peak = higher
        total = total + exp(value - peak)
        if k > 0 and any_above(value, splat(values[start + k - 1])):
            for i in range(LANES):
                one = load_scalar(logits + (j + i) * 4)
                if one > values[start + k - 1]:
                    insert(one, first_id + j + i, values, ids, start, k)
    store(peak, peaks)
    store(total, sums)


@kernel
def _project(x_RD, panels_PDN, bias, suppressed_RJ, targets_R, peaks_SR, sums_SR, k, values, ids, logits_R):
    R, D = x_RD.shape
    P, S = panels_PDN.shape[0], peaks_SR.shape[0]
    x, w, b = x_RD.ctypes.data, panels_PDN.ctypes.data, bias.ctypes.data
    has_targets = targets_R.size > 0
    for task in prange(S * ((R + ROW_BLOCK - 1) // ROW_BLOCK)):
        segment, first = task % S, task // S * ROW_BLOCK
        last = min(R, first + ROW_BLOCK)
        scratch_array = np.empty((2 * GROUP + MR) * NR, np.float32)
        scratch = scratch_array.ctypes.data
        state_array = np.empty((2, last - first, LANES), np.float32)
        state_array[0] = LOWEST
        state_array[1] = np.float32(0)
        peaks = state_array.ctypes.data
        sums = peaks + (last - first) * SIZE
        p, end = segment * SEGMENT, min(P, segment * SEGMENT + SEGMENT)
        while p < end:
            panels = GROUP if last - first < 4 and p + GROUP <= end else 1
            columns = panels * NR
            panel, panel_bytes = w + p * D * NR * 4, D * NR * 4
            r = first
            while r < last:
                rows = x + r * D * 4
                took = multiply_tile(
                    rows, D * 4, last - r, panel, panel_bytes, panels, D, b + p * NR * 4, scratch, columns * 4
                )
                for i in range(took):
                    row = scratch + i * columns * 4
                    for j in range(suppressed_RJ.shape[1]):
                        inside = suppressed_RJ[r + i, j] - p * NR
                        if 0 <= inside < columns:
                            scratch_array[i * columns + inside] = -np.inf
                    if has_targets and p * NR <= targets_R[r + i] < p * NR + columns:
                        logits_R[r + i] = scratch_array[i * columns + targets_R[r + i] - p * NR]
                    at, start = (r + i - first) * SIZE, (segment * R + r + i) * k
                    scan_row(row, columns, p * NR, peaks + at, sums + at, values, ids, start, k)
                r += took
            p += panels
        for i in range(last - first):
            peak = load(peaks + i * SIZE)
            highest = max_lanes(peak)
            peaks_SR[segment, first + i] = highest
            sums_SR[segment, first + i] = sum_lanes(load(sums + i * SIZE) * exp(peak - splat(highest)))


@kernel
def _merge(peaks_SR, sums_SR, k, values, ids, best_values, best_ids, log_sums_R):
    S, R = peaks_SR.shape
    for r in prange(R):
        peak = LOWEST
        for s in range(S):
            peak = max(peak, peaks_SR[s, r])
        total = np.float64(0)
        for s in range(S):
            total += np.float64(sums_SR[s, r]) * np.exp(np.float64(peaks_SR[s, r]) - np.float64(peak))
            for at in range((s * R + r) * k, (s * R + r + 1) * k):
                if values[at] > best_values[r * k + k - 1]:
                    insert(values[at], ids[at], best_values, best_ids, r * k, k)
        log_sums_R[r] = np.float32(np.float64(peak) + np.log(total))


def _run(x_RD, packed, k, suppressed_RJ, targets_R):
    R = x_RD.shape[0]
    S = -(-packed.panels_PDN.shape[0] // SEGMENT)
    if suppressed_RJ is None:
        suppressed_RJ = np.empty((R, 0), np.int32)
    peaks_SR, sums_SR = np.empty((S, R), np.float32), np.empty((S, R), np.float32)
    values, ids = np.full(S * R * k, -np.inf, np.float32), np.full(S * R * k, -1, np.int32)
    best_values, best_ids = np.full(R * k, -np.inf, np.float32), np.full(R * k, -1, np.int32)
    logits_R, log_sums_R = np.empty(R, np.float32), np.empty(R, np.float32)
    if R:
        panels, bias = packed.panels_PDN, packed.bias
        _project(x_RD, panels, bias, suppressed_RJ, targets_R, peaks_SR, sums_SR, k, values, ids, logits_R)
        _merge.serial(peaks_SR, sums_SR, k, values, ids, best_values, best_ids, log_sums_R)
    return best_values.reshape(R, k), best_ids.reshape(R, k), logits_R, log_sums_R


def project_top_k(
    x_RD: np.ndarray, packed: PackedLinear, k: int, suppressed_RJ: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The k best log-probabilities float32 [R, k] and their ids int32 [R, k], best first, ties to the lower id.

    suppressed_RJ  int32 ids (padded with -1) whose logits count as -inf before the softmax.
    Where fewer than k ids are left, the rest is -inf and -1.
    """
    values_Rk, ids_Rk, _, log_sums_R = _run(x_RD, packed, k, suppressed_RJ, _NO_TARGETS)
    values_Rk -= log_sums_R[:, None]
    return values_Rk, ids_Rk


def log_probs(x_ND: np.ndarray, packed: PackedLinear, targets_N: np.ndarray) -> np.ndarray:
    """The log-probability of one target id (int32, inside the vocabulary) a row; float32 [N]."""
    _, _, logits_N, log_sums_N = _run(x_ND, packed, 0, None, targets_N)
    return logits_N - log_sums_N
