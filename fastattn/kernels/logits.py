"""Processing of a row's logits, a few at a time: edits, a running softmax, the k best so far.

The softmax keeps the maximum and the sum of exponentials lane by lane (online: Milakov and Gimelshein 2018; in base 2,
which saves half of their instructions).
"""

from collections import namedtuple

import numpy as np

from fastattn.kernels.constants import LOWEST, TINY
from fastattn.runtime.jit import inner
from fastattn.simd.constants import LOG2_E, SIZE
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    address,
    any_above,
    exp2,
    load,
    load_index,
    load_scalar,
    max_lanes,
    maximum,
    splat,
    store,
    store_index,
    store_scalar,
    sum_lanes,
)

STATE = 2 * SIZE  # bytes of a row's running softmax: peaks, and sums of exponentials against them


def make_edit(find):
    """Make the helper ``edit(line, row, outputs, edits)``, which edits a row's logits at an address.

    find   (id, outputs) -> its index among the outputs in the line, or negative
    edits  EditedLogits
    """

    @inner
    def edit(line, row, outputs, edits):
        suppressed_RJ, penalized_RJ, penalty, targets_R, logits_R = edits
        for j in range(penalized_RJ.shape[1]):
            at = find(penalized_RJ[row, j], outputs)
            if at >= 0:
                logit = load_scalar(line + at * 4)
                store_scalar(logit * penalty if logit < 0 else logit / penalty, line + at * 4)
        for j in range(suppressed_RJ.shape[1]):
            at = find(suppressed_RJ[row, j], outputs)
            if at >= 0:
                store_scalar(np.float32(-np.inf), line + at * 4)
        if targets_R.size > 0:
            at = find(targets_R[row], outputs)
            if at >= 0:
                logits_R[row] = load_scalar(line + at * 4)

    return edit


# A row's ``k`` best: addresses of values and ids.
Best = namedtuple("Best", "values ids k")


@inner
def best_of(lists, number):
    """The Best in BestLists of the row with that number."""
    k = lists.values.shape[-1]
    return Best(address(lists.values) + number * k * 4, address(lists.ids) + number * k * 4, k)


@inner
def clear_best(best):
    """Empty a row's k best: -inf and -1."""
    values, ids, k = best
    for j in range(k):
        store_scalar(np.float32(-np.inf), values + j * 4)
        store_index(-1, ids + j * 4)


@inner
def worst(best):
    """The last of the k best, 1 at least."""
    return load_scalar(best.values + (best.k - 1) * 4)


@inner
def insert(value, token, best):
    """Insert into the k best a value that belongs there; equal values go behind, so ties keep the lower id."""
    values, ids, k = best
    j = k - 1
    while j > 0 and load_scalar(values + (j - 1) * 4) < value:
        store_scalar(load_scalar(values + (j - 1) * 4), values + j * 4)
        store_index(load_index(ids + (j - 1) * 4), ids + j * 4)
        j -= 1
    store_scalar(value, values + j * 4)
    store_index(token, ids + j * 4)


@inner
def log_sum(peak, total):
    """peak + ln(total), total a float64."""
    # not of 0, whose logarithm from -inf is NaN, where every logit is ruled out
    return np.float32(np.float64(peak) + np.log(TINY if total == 0 else total))


@inner
def clear_state(state):
    store(splat(LOWEST), state)
    store(splat(np.float32(0)), state + SIZE)


@inner
def fold_state(state):
    """(peak, sum) of a row: its lanes reduced to one."""
    peak, sums = load(state), load(state + SIZE)
    highest = max_lanes(peak)
    return highest, sum_lanes(sums * exp2((peak - splat(highest)) * splat(np.float32(LOG2_E))))


@inner
def add_exponentials(logits, columns, highest, state):
    """Add ``columns`` logits to a row's running softmax, lane by lane; ``highest`` holds their maxima."""
    # The difference first: it is exactly 0 at the peak, however large the logits are.
    scale, peak, total = splat(np.float32(LOG2_E)), load(state), load(state + SIZE)
    if any_above(highest, peak):
        higher = maximum(highest, peak)
        total = total * exp2((peak - higher) * scale)
        peak = higher
        store(peak, state)
    for j in range(0, columns, LANES):
        total = total + exp2((load(logits + j * 4) - peak) * scale)
    store(total, state + SIZE)


@inner
def scan_row(logits, columns, first_id, state, summed, best):
    """Take ``columns`` logits, whole vectors, into one row's k best and, where ``summed``, its running softmax."""
    highest = load(logits)
    for j in range(LANES, columns, LANES):
        highest = maximum(load(logits + j * 4), highest)
    if summed:
        add_exponentials(logits, columns, highest, state)
    if best.k > 0 and any_above(highest, splat(worst(best))):
        for j in range(0, columns, LANES):
            if any_above(load(logits + j * 4), splat(worst(best))):
                for i in range(j, j + LANES):
                    one = load_scalar(logits + i * 4)
                    if one > worst(best):
                        insert(one, first_id + i, best)
