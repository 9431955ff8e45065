"""The output layer: best tokens, log-probabilities or maxima of rows over the vocabulary, or over a subset of it.

Logits exist for one tile only, in shared memory. A block takes some rows through a piece of the outputs, tile by tile,
and keeps for each row the greatest logit, the sum of exponentials relative to it and a list of the best logits; then a
block for each row merges the row's pieces in order. The number of outputs alone decides the pieces, so a row's bits
depend on no other row.
"""

import math
import weakref
from collections import namedtuple
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32, int32

from fastattn.arguments.steps import NO_EDITS, Edits, SubsetRows
from fastattn.ops.cuda import card
from fastattn.ops.cuda.card import THREADS, TILE, device
from fastattn.ops.cuda.instructions import block_max, block_sum
from fastattn.ops.cuda.matmul import FEW_ROWS, CardLinear, affine, linear, output_of, stage, tile_product, tile_shape
from fastattn.ops.reference.project import ReferenceSubset, edit_logits, log_softmax

LOWEST = float32(np.finfo(np.float32).min)  # in place of -inf, since -inf minus -inf is NaN
ZERO, MINUS_INFINITY = float32(0), float32(-np.inf)
MOST_PIECES = THREADS  # of a row; each has a thread that merges it with the others
LOGIT_PITCH = TILE + 1  # floats between rows of logits; odd, so that a column is in all banks
NO_IDS = np.empty(0, np.int32)

_subsets: weakref.WeakValueDictionary[int, "CardSubset"] = weakref.WeakValueDictionary()


class CardSubset(ReferenceSubset):
    """A subset of outputs; entry: (the number by which a recorded step finds it, the number of its outputs, 0)."""

    def __init__(self, linear: Any, ids: np.ndarray):
        super().__init__(linear, ids)
        self.entry = id(self), len(ids), 0
        _subsets[id(self)] = self


Outputs = CardLinear | Sequence[CardSubset] | SubsetRows

# For each of P pieces of a row's outputs the greatest logit, the sum of exponentials relative to it, and the L best
# logits and their ids, best first, then -inf and -1; then target ids, or empty, and their logits.
Pieces = namedtuple("Pieces", "peaks_RP sums_RP values_RPL ids_RPL targets_R logits_R")


@device
def _store_logit(total, n, c, r, s, arguments):
    rows, weights, logits_RC = arguments
    logits_RC[r, s] = affine(total, n, c, rows, weights)


@device
def _index_of(token, ids_C, start, stop):
    """The index of an id among the outputs from ``start`` to below ``stop``; negative if it is not there."""
    if len(ids_C) == 0:
        return token
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if ids_C[middle] < token:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and ids_C[low] == token else -1


@device
def _add_exponentials(line, width, n, piece, pieces):
    """Add a line of logits to the running softmax of a row's piece."""
    peak, greatest, total = pieces.peaks_RP[n, piece], LOWEST, ZERO
    for c in range(width):
        if line[c] > greatest:
            greatest = line[c]
    if greatest > peak:
        pieces.sums_RP[n, piece] *= math.exp(peak - greatest)
        pieces.peaks_RP[n, piece] = peak = greatest
    for c in range(width):
        total += math.exp(line[c] - peak)
    pieces.sums_RP[n, piece] += total


@device
def _insert(value, token, values_L, ids_L):
    """Insert a value into a list, best first, in place of the last: behind equal values, so that the lower id wins."""
    i = len(values_L) - 1
    while i > 0 and values_L[i - 1] < value:
        values_L[i], ids_L[i] = values_L[i - 1], ids_L[i - 1]
        i -= 1
    values_L[i], ids_L[i] = value, token


@cache
def _project_kernel(precision, few):
    compute, (ROWS, *_) = tile_product(precision, few, _store_logit), tile_shape(precision, few)

    @card.kernel_of(precision, few)
    def _project(rows, weights, tasks_G4, edits, pieces, needs_sums):
        logits_RC = cuda.shared.array((ROWS, LOGIT_PITCH), float32)
        t, piece, L, ids_C = cuda.threadIdx.x, cuda.blockIdx.y, pieces.values_RPL.shape[2], weights.ids_C
        first, end = tasks_G4[cuda.blockIdx.x, 0], tasks_G4[cuda.blockIdx.x, 1]
        start, stop = tasks_G4[cuda.blockIdx.x, 2], tasks_G4[cuda.blockIdx.x, 3]
        tiles = (stop - start + TILE - 1) // TILE
        size = (tiles + MOST_PIECES - 1) // MOST_PIECES * TILE
        for n in range(first + t, end, THREADS):
            pieces.peaks_RP[n, piece], pieces.sums_RP[n, piece] = LOWEST, ZERO
            for i in range(L):
                pieces.values_RPL[n, piece, i], pieces.ids_RPL[n, piece, i] = MINUS_INFINITY, -1
        for column in range(start + piece * size, min(stop, start + piece * size + size), TILE):
            width = min(TILE, stop - column)
            compute(rows, weights, first, end, column, stop, logits_RC)
            cuda.syncthreads()
            for i in range(t, (end - first) * width if edits.cap > ZERO else 0, THREADS):
                r, c = i // width, i % width
                logits_RC[r, c] = edits.cap * math.tanh(logits_RC[r, c] / edits.cap)
            cuda.syncthreads()
            for i in range(t, (end - first) * edits.biased_J.shape[0], THREADS):
                r, j = i // edits.biased_J.shape[0], i % edits.biased_J.shape[0]
                c = _index_of(edits.biased_J[j], ids_C, start, stop) - column
                if 0 <= c and c < width:
                    logits_RC[r, c] += edits.biases_J[j]
            cuda.syncthreads()
            for i in range(t, (end - first) * edits.penalized_RJ.shape[1], THREADS):
                r, j = i // edits.penalized_RJ.shape[1], i % edits.penalized_RJ.shape[1]
                c = _index_of(edits.penalized_RJ[first + r, j], ids_C, start, stop) - column
                if 0 <= c and c < width:
                    logit = logits_RC[r, c]
                    logit = logit * edits.penalty if logit < ZERO else logit / edits.penalty
                    logits_RC[r, c] = logit - edits.amounts_RJ[first + r, j]
            cuda.syncthreads()
            for i in range(t, (end - first) * edits.suppressed_RJ.shape[1], THREADS):
                r, j = i // edits.suppressed_RJ.shape[1], i % edits.suppressed_RJ.shape[1]
                c = _index_of(edits.suppressed_RJ[first + r, j], ids_C, start, stop) - column
                if 0 <= c and c < width:
                    logits_RC[r, c] = MINUS_INFINITY
            cuda.syncthreads()
            for r in range(t, end - first, THREADS):
                n = first + r
                if needs_sums:
                    _add_exponentials(logits_RC[r], width, n, piece, pieces)
                for c in range(width if L > 0 else 0):
                    if logits_RC[r, c] > pieces.values_RPL[n, piece, L - 1]:
                        token = output_of(column + c, weights)
                        _insert(logits_RC[r, c], token, pieces.values_RPL[n, piece], pieces.ids_RPL[n, piece])
                if len(pieces.targets_R) > 0:
                    c = _index_of(pieces.targets_R[n], ids_C, start, stop) - column
                    if 0 <= c and c < width:
                        pieces.logits_R[n] = logits_RC[r, c]
            cuda.syncthreads()

    return _project


@card.kernel
def _merge(pieces, values_Rk, ids_Rk, log_sums_R):
    """Merge a row's pieces: a thread has one, and each of k rounds takes the best head of their lists."""
    shared_T = cuda.shared.array(THREADS, float32)
    r, t, head = cuda.blockIdx.x, cuda.threadIdx.x, 0
    has_piece = t < pieces.peaks_RP.shape[1]
    own_peak = pieces.peaks_RP[r, t] if has_piece else LOWEST
    peak = block_max(own_peak, shared_T)
    total = block_sum(pieces.sums_RP[r, t] * math.exp(own_peak - peak) if has_piece else ZERO, shared_T)
    if t == 0:  # the logarithm of 1, not of 0, where every logit is -inf
        log_sums_R[r] = peak + math.log(float32(1) if total == ZERO else total)
    for i in range(values_Rk.shape[1]):
        value, token = MINUS_INFINITY, int32(-1)
        if has_piece and head < pieces.values_RPL.shape[2]:
            value, token = pieces.values_RPL[r, t, head], pieces.ids_RPL[r, t, head]
        best = block_max(value, shared_T)
        # among equal values the first piece's wins, since its ids are lower; thread 0 wins if all lists are empty
        winner = int32(-block_max(float32(-t) if value == best else float32(-THREADS), shared_T))
        if t == winner:
            values_Rk[r, i], ids_Rk[r, i] = value, token
            head += 1


def _tasks(R: int, outputs: Outputs) -> tuple[CardLinear, np.ndarray, np.ndarray, int]:
    """(layer, ids_C, tasks_G4, widest) for R rows.

    ids_C     the ids of all different subsets, end to end; empty where rows choose from all outputs
    tasks_G4  a task's first row and end; the start and stop, in ids_C or among all outputs, of its rows' choice
    widest    the greatest number of outputs that a row chooses from
    """
    if isinstance(outputs, SubsetRows):
        return outputs.linear, *_tasks_of_steps(outputs), outputs.columns
    if isinstance(outputs, CardLinear):
        packed, ids_C, spans = outputs, NO_IDS, [(0, outputs.outputs)] * R
    else:
        ids_by_subset = {id(subset): subset.ids for subset in outputs}
        stops = dict(zip(ids_by_subset, np.cumsum([len(ids) for ids in ids_by_subset.values()]).tolist()))
        spans = [(stops[id(subset)] - len(subset.ids), stops[id(subset)]) for subset in outputs]
        first: Any = next(iter(outputs))
        packed, ids_C = first.linear, np.concatenate(list(ids_by_subset.values()))
    tasks: list[list[int]] = []
    rows, *_ = tile_shape(packed.precision, R <= FEW_ROWS)
    for r, span in enumerate(spans):
        if not tasks or tuple(tasks[-1][2:]) != span or r - tasks[-1][0] == rows:
            tasks.append([r, r, *span])
        tasks[-1][1] = r + 1
    tasks_G4 = np.array(tasks, np.int32).reshape(-1, 4)
    return packed, ids_C, tasks_G4, max((stop - start for start, stop in spans), default=0)


def _tasks_of_steps(outputs: SubsetRows) -> tuple[np.ndarray, np.ndarray]:
    """(ids_C, tasks_R4) of a recorded step; each run of the step fills both arrays first."""
    (R, _), C = outputs.rows_R4.shape, outputs.columns
    ids_RC, tasks_R4 = np.zeros((R, C), np.int32), np.empty((R, 4), np.int32)
    tasks_R4[:] = np.arange(R)[:, None] * (1, 1, C, C) + (0, 1, 0, 0)

    def fill() -> None:
        for r, (number, count) in enumerate(outputs.rows_R4[:, 1:3].tolist()):
            ids_RC[r, :count] = _subsets[number].ids
            tasks_R4[r, 3] = tasks_R4[r, 2] + count

    card.recording.program.fillers.append(fill)
    return ids_RC.reshape(-1), tasks_R4


def choose(
    x_RD: Any, outputs: Outputs, k: int, edits: Edits, targets_R: np.ndarray, needs_sums: bool
) -> tuple[Any, Any, Any, Any]:
    """(values_Rk, ids_Rk, logits_R, log_sums_R), on the card: the k best logits, the targets' logits, log-sum-exp.

    targets_R  int32, or empty; log_sums_R are valid only if ``needs_sums``.
    """
    R, few = len(x_RD), len(x_RD) <= FEW_ROWS
    packed, ids_C, tasks_G4, widest = _tasks(R, outputs)
    tiles = max(-(-widest // TILE), 1)
    P, L = min(tiles, MOST_PIECES), min(k, -(-tiles // MOST_PIECES) * TILE)  # shorter spans have empty pieces
    peaks_RP, sums_RP = (card.empty((R, P), np.float32) for _ in range(2))
    values_RPL, ids_RPL = (card.empty((R, P, L), dtype) for dtype in (np.float32, np.int32))
    logits_R = card.upload(np.full(len(targets_R), -np.inf, np.float32))
    pieces = Pieces(peaks_RP, sums_RP, values_RPL, ids_RPL, card.upload(targets_R), logits_R)
    suppressed_RJ, penalized_RJ = (card.optional(ids_RJ, 2, np.int32) for ids_RJ in edits[:2])
    amounts_RJ = edits.amounts_RJ
    if amounts_RJ is None and edits.penalized_RJ is not None:
        amounts_RJ = np.zeros(edits.penalized_RJ.shape, np.float32)
    penalty, cap = np.float32(edits.penalty), np.float32(edits.cap)
    biases = (card.optional(list_J if list_J.size else None, 1, list_J.dtype) for list_J in edits[-2:])
    card_edits = Edits(suppressed_RJ, penalized_RJ, penalty, card.optional(amounts_RJ, 2), cap, *biases)
    weights = packed.weights._replace(ids_C=card.upload(ids_C))
    kernel, blocks = _project_kernel(packed.precision, few), (len(tasks_G4), P)
    card.launch(kernel, blocks, stage(x_RD, packed), weights, card.upload(tasks_G4), card_edits, pieces, needs_sums)
    best = card.empty((R, k), np.float32), card.empty((R, k), np.int32)
    log_sums_R = card.empty((R,), np.float32)
    card.launch(_merge, R, pieces, *best, log_sums_R)
    return *best, pieces.logits_R, log_sums_R


def project_top_k(
    x_RD: np.ndarray, outputs: Outputs, k: int, edits: Edits = NO_EDITS, normalized: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    values_Rk, ids_Rk, _, log_sums_R = choose(x_RD, outputs, k, edits, NO_IDS, normalized)
    shift_R1 = card.download(log_sums_R)[:, None] if normalized else np.float32(0)
    return card.download(values_Rk) - shift_R1, card.download(ids_Rk)


def log_probs(x_ND: np.ndarray, outputs: Outputs, targets_N: np.ndarray, edits: Edits = NO_EDITS) -> np.ndarray:
    _, _, logits_N, log_sums_N = choose(x_ND, outputs, 0, edits, targets_N, True)
    return card.download(logits_N) - card.download(log_sums_N)


def project_all(x_RD: np.ndarray, outputs: Any, edits: Edits = NO_EDITS) -> np.ndarray:
    packed, subsets_R = (outputs, ()) if isinstance(outputs, CardLinear) else (next(iter(outputs)).linear, outputs)
    return log_softmax(edit_logits(card.download(linear(x_RD, packed)), subsets_R, edits))


@cache
def _peaks_kernel(precision, few):
    compute, (ROWS, *_) = tile_product(precision, few, _store_logit), tile_shape(precision, few)

    @card.kernel_of(precision, few)
    def _peaks(rows, weights, starts_B1, least, peaks_BF):
        logits_RC = cuda.shared.array((ROWS, LOGIT_PITCH), float32)
        b, first_f, F = cuda.blockIdx.x, cuda.blockIdx.y * TILE, peaks_BF.shape[1]
        end = starts_B1[b + 1]
        for f in range(first_f + cuda.threadIdx.x, min(first_f + TILE, F), THREADS):
            peaks_BF[b, f] = least
        for first in range(starts_B1[b], end, ROWS):
            compute(rows, weights, first, end, first_f, F, logits_RC)
            cuda.syncthreads()
            for f in range(first_f + cuda.threadIdx.x, min(first_f + TILE, F), THREADS):
                for r in range(min(ROWS, end - first)):
                    value = logits_RC[r, f - first_f]
                    if value > peaks_BF[b, f] or value != value:  # NaN stays
                        peaks_BF[b, f] = value
            cuda.syncthreads()

    return _peaks


def project_peaks(x_ND: np.ndarray, starts_B1: np.ndarray, packed: CardLinear, least: float = 0.0) -> np.ndarray:
    B, few = len(starts_B1) - 1, int(np.diff(starts_B1).max(initial=0)) <= FEW_ROWS
    peaks_BF, starts_B1 = card.empty((B, packed.outputs), np.float32), card.upload(starts_B1)
    kernel, blocks = _peaks_kernel(packed.precision, few), (B, -(-packed.outputs // TILE))
    card.launch(kernel, blocks, stage(x_ND, packed), packed.weights, starts_B1, np.float32(least), peaks_BF)
    return card.download(peaks_BF)
