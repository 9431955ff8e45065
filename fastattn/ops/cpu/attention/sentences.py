"""Attention over whole sentences in one pass over the keys; see ``kernels/attention/sentences.py``."""

from functools import lru_cache

import numpy as np

from fastattn.kernels.attention.constants import ROWS
from fastattn.kernels.attention.types import MaskArguments, OutputArguments, ScoreArguments, ShapeArguments
from fastattn.kernels.user_functions.states import NO_FUNCTION
from fastattn.ops.cpu.attention.blocks import scratch_size
from fastattn.ops.cpu.attention.distance_tile import PackedDistances, scratch_floats
from fastattn.ops.cpu.attention.memory import NO_ARRAY, NO_STEPS, Laid
from fastattn.ops.cpu.attention.scores import DOT, score_arguments
from fastattn.ops.heads import Heads
from fastattn.ops.position_bias import PositionBias
from fastattn.ops.seen import RaggedBatch
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.threads import current_threads

attend, _see = kernel_named("attention.sentences", "attend"), kernel_named("attention.sentences", "_see")

# Keys are packed once for 512 query rows of width 64: 1% of the work there. The block's queries and sums take 256 KiB
# for a sentence of any length.
BLOCK_FLOATS = 512 * 64


def block_rows(N: int, heads: int, key_heads: int, width: int, parts: int) -> int:
    """The most rows of a block: as many as fit the cache, with four blocks a thread unless they become too small."""
    rows = BLOCK_FLOATS // width
    if parts > 1:
        rows = min(rows, max(N * heads // (4 * parts), 8 * ROWS))
    rows = max(rows // ROWS * ROWS, ROWS)
    return min(rows, max(-(-N * (heads // key_heads) // ROWS), 1) * ROWS)


def seen_around(
    query_starts_B1: np.ndarray, lengths_B: np.ndarray, offset_B: np.ndarray, before: int, after: int
) -> np.ndarray:
    """seen_N2 int64 for a RaggedBatch: the first key that each query sees and its stop, within its sentence.

    Query t sees keys t + offset - before to t + offset + after; below 0: no bound. All are int64, their sums as well.
    """
    seen_N2 = np.empty((int(query_starts_B1[-1]), 2), np.int64)
    _see(query_starts_B1, lengths_B, offset_B, before, after, seen_N2)
    return seen_N2


NO_RANGES = np.empty((0, 2), np.int64)
NO_BYTES = np.empty(0, np.uint8)
NO_BLOCKS = NO_BYTES, 0, 0, 1, 1, 0
NO_MASK = MaskArguments._make((NO_BYTES, *NO_STEPS, *NO_BLOCKS, NO_FUNCTION))
NO_OUTPUTS = OutputArguments(np.empty((0, 0, 0, 0), np.float32), NO_ARRAY, 0, 0, 0)


def attend_laid(
    laid: Laid, N: int, heads: Heads, seen: tuple, mask: MaskArguments, scores: ScoreArguments, outputs: OutputArguments
) -> np.ndarray:
    """The kernel ``attend`` of N queries on the caller's threads; its invalid_P. seen: seen_N2 and sinks."""
    shape, scratch_PN, invalid_P = _shape_and_scratch(N, heads, laid.arrays[0].itemsize < 4)
    attend(laid.arrays, laid.steps, (*laid.starts, *seen), shape, mask, scores, outputs, scratch_PN, invalid_P)
    return invalid_P


def _shape_and_scratch(
    N: int, heads: Heads, narrow: bool, more: int = 0
) -> tuple[ShapeArguments, np.ndarray, np.ndarray]:
    parts = current_threads()
    shape, floats = _shape_of(N, heads, narrow, parts)
    return shape, np.empty((parts, floats + more), np.float32), np.empty(parts, np.int64)


@lru_cache(1024)  # a model's layers, and the steps and sentences of one length, ask for the same
def _shape_of(N: int, heads: Heads, narrow: bool, parts: int) -> tuple[ShapeArguments, int]:
    """(the kernel's shape, floats of a part's scratch)."""
    H, G, width, value_width = heads[:4]
    value_width = value_width or width
    limit = block_rows(N, H, G, width, parts)
    return ShapeArguments(H, G, width, value_width, limit), scratch_size(limit, width, value_width, narrow)


@lru_cache(256)
def _steps_of_rows(heads: Heads, query: int, key: int, value: int) -> tuple[int, ...]:
    """The steps of packed rows, so many floats each, and of their result."""
    width, value_width = heads.width, heads.value_width or heads.width
    steps = (
        heads.query_column, 0, width, query,
        heads.key_column, 0, width, key,
        heads.value_column, 0, value_width, value,
        0, 0, value_width, heads.query_heads * value_width,
    )  # fmt: skip
    return tuple(4 * step for step in steps)


def attention(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    batch: RaggedBatch,
    heads: Heads,
    *,
    bias_BHTS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    distances: PackedDistances | None = None,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    """Multi-head attention (Vaswani 2017) over a ragged batch: out_NF float32, F = query heads * value width.

    Head h of query row n is query[n, query_column + h K : + K].
    bias_BHTS     added after the scale; axes of length one are broadcast; -inf hides a key.
    position_bias  added too; a query's position is its index in its sentence. Arrays are C-contiguous.
    distances     disentangled attention (He 2021), see ``pack_distances``; each query head has a key head of its own.
    weights_BHTS  written if given, float32 and C-contiguous: the softmax weights, 0 for a hidden key.
    A query that sees no key yields zeros. Arrays are float32 and C-contiguous; nothing is checked here.
    """
    N = len(query_NE)
    out_NF = np.empty((N, heads.query_heads * (heads.value_width or heads.width)), np.float32)
    steps = _steps_of_rows(heads, query_NE.shape[1], key_ME.shape[1], value_ME.shape[1])
    outputs = NO_OUTPUTS
    if weights_BHTS is not None:
        weights_BHTS.fill(0)
        outputs = NO_OUTPUTS._replace(weights_BHTS=weights_BHTS)
    query_starts_B1, key_starts_B1, seen_N2, sinks = batch
    seen = query_starts_B1, key_starts_B1, NO_RANGES if seen_N2 is None else seen_N2, sinks
    scores = score_arguments(heads, bias_BHTS, position_bias, product=DOT if distances is None else distances)
    more = 0 if distances is None else scratch_floats(heads.width)
    shape, scratch_PN, invalid_P = _shape_and_scratch(N, heads, False, more)
    attend((query_NE, key_ME, value_ME, out_NF), steps, seen, shape, NO_MASK, scores, outputs, scratch_PN, invalid_P)
    return out_NF
