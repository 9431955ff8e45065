"""The output layer: best tokens, log-probabilities or maxima of rows over the vocabulary, or over a subset of it.

Logits live for one tile, in shared memory. A block takes some rows through a piece of the outputs, tile by tile, and
keeps for each row the greatest logit, the sum of exponentials relative to it and a list of the best; then a block a row
merges the pieces in their order. Pieces are cut by the number of outputs alone, so a row's bits depend on no other.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32, int32

from fastattn.ops.cuda import card
from fastattn.ops.cuda.blocks import block_max, block_sum
from fastattn.ops.cuda.card import THREADS, TILE
from fastattn.ops.cuda.matmul import FEW, CardLinear, linear, output_of, staged, tile_for
from fastattn.ops.steps import NO_EDITS, Edits
from fastattn.spec.quantized import Tensor

LOWEST = float32(np.finfo(np.float32).min)  # not -inf: -inf minus -inf is NaN
MOST_PIECES = THREADS  # each is merged by a thread
LINE = TILE + 1  # of a row's logits; threads that read a column each then read different banks
NO_TARGETS = np.empty(0, np.int32)


class CardSubset:
    """Some outputs of a linear layer, from which a row chooses; ids int32, ascending."""

    place = 0, 0, 0  # in memory, for the CPU's kernels alone

    def __init__(self, linear: CardLinear, ids: np.ndarray):
        self.linear, self.ids = linear, ids


Outputs = CardLinear | Sequence[CardSubset]


def pack_rows(weight_FD: Tensor, packed: CardLinear) -> CardLinear:
    """The weights of ``packed``, which are stored by rows."""
    return packed


def select_outputs(linear: CardLinear, ids: np.ndarray) -> CardSubset:
    """The outputs ``ids``: int32, ascending, at least one, all in range."""
    return CardSubset(linear, ids)


class EditLists(NamedTuple):
    """``Edits``, with empty lists for none."""

    suppressed_RJ: Any
    penalized_RJ: Any
    penalty: np.float32


class Found(NamedTuple):
    """What was found in each of P pieces of a row's outputs.

    peaks_RP, sums_RP    the greatest logit, and the sum of exponentials relative to it
    values_RPL, ids_RPL  the L best logits and their ids, best first; then -inf and -1
    targets_R, logits_R  ids that are asked for, or empty, and their logits, written
    """

    peaks_RP: Any
    sums_RP: Any
    values_RPL: Any
    ids_RPL: Any
    targets_R: Any
    logits_R: Any


@cuda.jit(device=True)
def _place_of(token, ids_C, start, stop):
    """Where an id is among the wanted outputs from ``start`` on, below ``stop``; negative if it is not there."""
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


@cuda.jit(device=True)
def _edit(line, c, penalty, penalizes):
    """Penalize or suppress a logit of a line."""
    if not penalizes:
        line[c] = -math.inf
    elif line[c] < float32(0):
        line[c] *= penalty
    else:
        line[c] /= penalty


@cuda.jit(device=True)
def _log_sum(peak, total):
    """peak + ln(total), but not of 0, where every logit is ruled out."""
    return peak + math.log(float32(1) if total == float32(0) else total)


@cuda.jit(device=True)
def _insert(value, token, values_L, ids_L):
    """Into a list, best first, a value that belongs there: behind equal ones, so ties keep the lower id."""
    at = len(values_L) - 1
    while at > 0 and values_L[at - 1] < value:
        values_L[at], ids_L[at] = values_L[at - 1], ids_L[at - 1]
        at -= 1
    values_L[at], ids_L[at] = value, token


@cuda.jit(device=True)
def _take_line(line, width, column, ids_C, n, piece, found, summed):
    """Take the logits of row n, from ``column`` on, into what its piece has found."""
    values_L, ids_L = found.values_RPL[n, piece], found.ids_RPL[n, piece]
    if summed:
        peak, greatest, total = found.peaks_RP[n, piece], LOWEST, float32(0)
        for c in range(width):
            if line[c] > greatest:
                greatest = line[c]
        if greatest > peak:
            found.sums_RP[n, piece] *= math.exp(peak - greatest)
            peak = greatest
        for c in range(width):
            total += math.exp(line[c] - peak)
        found.peaks_RP[n, piece] = peak
        found.sums_RP[n, piece] += total
    if len(values_L) > 0:
        worst = values_L[len(values_L) - 1]
        for c in range(width):
            if line[c] > worst:
                _insert(line[c], ids_C[column + c] if len(ids_C) > 0 else column + c, values_L, ids_L)
                worst = values_L[len(values_L) - 1]


@lru_cache(maxsize=None)
def _tile_of_logits(precision, few):
    """The device function that puts a tile's logits into shared memory, for all threads of the block."""
    _, DOWN, ACROSS, dtype, multiply, tile_row, tile_column = tile_for(precision, few)

    @cuda.jit(device=True)
    def compute(rows, weights, first, end, column, stop, logits_RC):
        sums = cuda.local.array((DOWN, ACROSS), dtype)
        for i in range(DOWN):
            for j in range(ACROSS):
                sums[i, j] = dtype(0)
        multiply(rows, weights, first, end, column, stop, sums)
        for i in range(DOWN):
            for j in range(ACROSS):
                n, c = first + tile_row(i), column + tile_column(j)
                if n < end and c < stop:
                    f = weights.ids_C[c] if len(weights.ids_C) > 0 else c
                    logits_RC[tile_row(i), tile_column(j)] = output_of(sums[i, j], n, f, rows, weights)
        cuda.syncthreads()

    return compute


@lru_cache(maxsize=None)
def _project_kernel(precision, few):
    compute, ROWS = _tile_of_logits(precision, few), tile_for(precision, few).rows

    @cuda.jit
    def _project(rows, weights, tasks_G4, edits, found, summed):
        logits_RC = cuda.shared.array((ROWS, LINE), float32)
        t, piece, ids_C = cuda.threadIdx.x, cuda.blockIdx.y, weights.ids_C
        first, end = tasks_G4[cuda.blockIdx.x, 0], tasks_G4[cuda.blockIdx.x, 1]
        start, stop = tasks_G4[cuda.blockIdx.x, 2], tasks_G4[cuda.blockIdx.x, 3]
        tiles = (stop - start + TILE - 1) // TILE
        size = (tiles + MOST_PIECES - 1) // MOST_PIECES * TILE
        for n in range(first + t, end, THREADS):
            found.peaks_RP[n, piece], found.sums_RP[n, piece] = LOWEST, float32(0)
            for at in range(found.values_RPL.shape[2]):
                found.values_RPL[n, piece, at], found.ids_RPL[n, piece, at] = -math.inf, -1
        for column in range(start + piece * size, min(stop, start + piece * size + size), TILE):
            width = min(TILE, stop - column)
            compute(rows, weights, first, end, column, stop, logits_RC)
            for penalizes in range(1, -1, -1):
                lists_RJ = edits.penalized_RJ if penalizes else edits.suppressed_RJ
                J = lists_RJ.shape[1]
                for at in range(t, (end - first) * J, THREADS):
                    r = at // J
                    c = _place_of(lists_RJ[first + r, at % J], ids_C, start, stop) - column
                    if 0 <= c and c < width:
                        _edit(logits_RC[r], c, edits.penalty, penalizes)
                cuda.syncthreads()
            for r in range(t, end - first, THREADS):
                n = first + r
                _take_line(logits_RC[r], width, column, ids_C, n, piece, found, summed)
                if len(found.targets_R) > 0:
                    c = _place_of(found.targets_R[n], ids_C, start, stop) - column
                    if 0 <= c and c < width:
                        found.logits_R[n] = logits_RC[r, c]
            cuda.syncthreads()

    return _project


@cuda.jit
def _merge(found, values_Rk, ids_Rk, log_sums_R):
    """A row's pieces: a thread has one, and in each of k rounds the best head of their lists is taken."""
    shared_T = cuda.shared.array(THREADS, float32)
    r, t = cuda.blockIdx.x, cuda.threadIdx.x
    mine = t < found.peaks_RP.shape[1]
    own = found.peaks_RP[r, t] if mine else LOWEST
    peak = block_max(own, shared_T)
    total = block_sum(found.sums_RP[r, t] * math.exp(own - peak) if mine else float32(0), shared_T)
    if t == 0:
        log_sums_R[r] = _log_sum(peak, total)
    head = 0
    for at in range(values_Rk.shape[1]):
        value, token = float32(-math.inf), int32(-1)
        if mine and head < found.values_RPL.shape[2]:
            value, token = found.values_RPL[r, t, head], found.ids_RPL[r, t, head]
        best = block_max(value, shared_T)
        # of equal values the first piece's, whose ids are lower
        winner = -block_max(float32(-t) if token >= 0 and value == best else float32(-THREADS), shared_T)
        if t == winner or (t == 0 and winner == THREADS):
            values_Rk[r, at], ids_Rk[r, at] = value, token
            head += 1


def _lists(edits: Edits, rows: int) -> EditLists:
    lists = (np.empty((rows, 0), np.int32) if ids_RJ is None else ids_RJ for ids_RJ in edits[:2])
    return EditLists(*map(card.upload, lists), np.float32(edits.penalty))


def _joined(outputs: Outputs) -> tuple[np.ndarray, np.ndarray]:
    """(ids of all different subsets end to end, where each row's start and stop there)."""
    first = {id(subset): subset.ids for subset in outputs}
    ends = dict(zip(first, np.cumsum([len(ids) for ids in first.values()])))
    spans = [(ends[id(subset)] - len(subset.ids), ends[id(subset)]) for subset in outputs]
    return np.concatenate(list(first.values())), np.array(spans, np.int32)


def choose(
    x_RD: Any, outputs: Outputs, k: int, edits: Edits, targets_R: np.ndarray, summed: bool = True
) -> tuple[Any, Any, Any, Any]:
    """(values_Rk, ids_Rk, logits_R, log_sums_R), on the card: the k best logits, the targets', log-sum-exp of all.

    targets_R  int32, or empty; log_sums_R are valid only if ``summed``.
    """
    R = len(x_RD)
    if isinstance(outputs, CardLinear):
        packed, ids_C, spans_R2 = outputs, NO_TARGETS, np.tile(np.int32([0, outputs.outputs]), (R, 1))
    else:
        packed, (ids_C, spans_R2) = outputs[0].linear, _joined(outputs)
    precision, few = packed.precision, R <= FEW
    tasks: list[list[int]] = []  # first row, end, and the outputs from which those rows choose
    for r, span in enumerate(spans_R2.tolist()):
        if not tasks or tasks[-1][2:] != span or r - tasks[-1][0] == tile_for(precision, few).rows:
            tasks.append([r, r, *span])
        tasks[-1][1] = r + 1
    tiles = -(-np.diff(spans_R2).ravel() // TILE)
    sizes = -(-tiles // MOST_PIECES)  # of pieces, in tiles
    pieces, longest = int((-(-tiles // sizes)).max(initial=1)), int(sizes.max(initial=0)) * TILE
    best = card.empty((R, k), np.float32), card.empty((R, k), np.int32)
    parts = [card.empty((R, pieces), np.float32) for _ in range(2)]
    lists = [card.empty((R, pieces, min(k, longest)), dtype) for dtype in (np.float32, np.int32)]
    logits_R = card.upload(np.full(len(targets_R), -np.inf, np.float32))
    found, log_sums_R = Found(*parts, *lists, card.upload(targets_R), logits_R), card.empty((R,), np.float32)
    weights = packed.weights._replace(ids_C=card.upload(ids_C))
    tasks_G4 = card.upload(np.array(tasks, np.int32).reshape(-1, 4))
    kernel, rows = _project_kernel(precision, few), staged(x_RD, packed)
    card.launch(kernel, (len(tasks), pieces), rows, weights, tasks_G4, _lists(edits, R), found, summed)
    card.launch(_merge, R, found, *best, log_sums_R)
    return *best, logits_R, log_sums_R


def project_top_k(
    x_RD: np.ndarray, outputs: Outputs, k: int, edits: Edits = NO_EDITS, normalized: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The k best log-probabilities float32 [R, k] and their ids int32 [R, k], best first, ties to the lower id.

    normalized  False: logits instead of log-probabilities.
    If fewer than k ids are left, the others are -inf and -1.
    """
    values_Rk, ids_Rk, _, log_sums_R = choose(x_RD, outputs, k, edits, NO_TARGETS, normalized)
    best_Rk = card.download(values_Rk)
    if normalized:
        best_Rk = best_Rk - card.download(log_sums_R)[:, None]
    return best_Rk, card.download(ids_Rk)


def log_probs(x_ND: np.ndarray, outputs: Outputs, targets_N: np.ndarray, edits: Edits = NO_EDITS) -> np.ndarray:
    """The log-probability of one target id a row, float32 [N]; -inf for one outside the row's subset."""
    _, _, logits_N, log_sums_N = choose(x_ND, outputs, 0, edits, targets_N)
    return card.download(logits_N) - card.download(log_sums_N)


@cuda.jit
def _log_softmax(logits_RV, edits, ids_C, spans_R2):
    """The log-softmax of edited logits in place, a block a row; -inf outside the row's subset."""
    shared_T = cuda.shared.array(THREADS, float32)
    r, t = cuda.blockIdx.x, cuda.threadIdx.x
    V, logits_V = logits_RV.shape[1], logits_RV[r]
    for penalizes in range(1, -1, -1):
        lists_RJ = edits.penalized_RJ if penalizes else edits.suppressed_RJ
        for j in range(t, lists_RJ.shape[1], THREADS):
            if lists_RJ[r, j] >= 0:
                _edit(logits_V, lists_RJ[r, j], edits.penalty, penalizes)
        cuda.syncthreads()
    peak, total = LOWEST, float32(0)
    for v in range(t, V, THREADS):
        if _place_of(v, ids_C, spans_R2[r, 0], spans_R2[r, 1]) < 0:
            logits_V[v] = -math.inf
        if logits_V[v] > peak:
            peak = logits_V[v]
    peak = block_max(peak, shared_T)
    for v in range(t, V, THREADS):
        total += math.exp(logits_V[v] - peak)
    rest = _log_sum(float32(0), block_sum(total, shared_T))
    for v in range(t, V, THREADS):
        logits_V[v] = logits_V[v] - peak - rest


def project_all(x_RD: np.ndarray, outputs: Outputs, edits: Edits = NO_EDITS) -> np.ndarray:
    """All log-probabilities, float32 [R, V], -inf outside a row's subset: the only operation that stores them."""
    whole = isinstance(outputs, CardLinear)
    ids_C, spans_R2 = (NO_TARGETS, np.zeros((len(x_RD), 2), np.int32)) if whole else _joined(outputs)
    logits_RV = linear(x_RD, outputs if whole else outputs[0].linear)
    given = _lists(edits, len(x_RD)), card.upload(ids_C), card.upload(spans_R2)
    card.launch(_log_softmax, len(x_RD), logits_RV, *given)
    return card.download(logits_RV)


@lru_cache(maxsize=None)
def _peaks_kernel(precision, few):
    compute, ROWS = _tile_of_logits(precision, few), tile_for(precision, few).rows

    @cuda.jit
    def _peaks(rows, weights, starts_B1, least, peaks_BF):
        logits_RC = cuda.shared.array((ROWS, LINE), float32)
        b, left, F = cuda.blockIdx.x, cuda.blockIdx.y * TILE, peaks_BF.shape[1]
        end = starts_B1[b + 1]
        for f in range(left + cuda.threadIdx.x, min(left + TILE, F), THREADS):
            peaks_BF[b, f] = least
        for first in range(starts_B1[b], end, ROWS):
            compute(rows, weights, first, end, left, F, logits_RC)
            for f in range(left + cuda.threadIdx.x, min(left + TILE, F), THREADS):
                for r in range(min(ROWS, end - first)):
                    value = logits_RC[r, f - left]
                    if value > peaks_BF[b, f] or value != value:  # NaN stays
                        peaks_BF[b, f] = value
            cuda.syncthreads()

    return _peaks


def project_peaks(x_ND: np.ndarray, starts_B1: np.ndarray, packed: CardLinear, least: float = 0.0) -> np.ndarray:
    """The largest of each sentence's x W' + b, no less than ``least``: float32 [B, outputs], of NumPy.

    starts_B1  where each sentence's rows start; the last one's end at N
    """
    B, few = len(starts_B1) - 1, int(np.diff(starts_B1).max(initial=0)) <= FEW
    peaks_BF = card.empty((B, packed.outputs), np.float32)
    kernel, rows = _peaks_kernel(packed.precision, few), staged(x_ND, packed)
    blocks = B, -(-packed.outputs // TILE)
    card.launch(kernel, blocks, rows, packed.weights, card.upload(starts_B1), np.float32(least), peaks_BF)
    return card.download(peaks_BF)
