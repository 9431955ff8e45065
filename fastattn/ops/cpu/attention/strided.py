"""Attention on a caller's arrays where they lie; see ``kernels/attention/sentences.py``."""

from typing import Any

import numpy as np

from fastattn.kernels.attention.types import MaskArguments, OutputArguments
from fastattn.kernels.user_functions.states import NO_FUNCTION
from fastattn.ops.cpu.attention.additive_tile import far_heads, vector_factors
from fastattn.ops.cpu.attention.memory import NO_ARRAY, NO_STEPS, Laid, steps_of, writeable
from fastattn.ops.cpu.attention.scores import DOT, score_arguments
from fastattn.ops.cpu.attention.sentences import NO_BLOCKS, NO_MASK, NO_OUTPUTS, NO_RANGES, attend_laid
from fastattn.ops.heads import Heads
from fastattn.ops.strided_attention import ScoreTerms, SoftmaxOutputs, StridedArrays, Visible
from fastattn.simd.constants import LOG2_E
from fastattn.simd.target import TARGET


def reads_float16() -> bool:
    """Whether arrays of float16, and cache tables of its bits as int16, are read as they are."""
    return TARGET.float16


def compile_function(function: Any, kind: str) -> Any:
    """What operations take for a ``score_mod(score, b, h, t, s)`` or ``mask_mod(b, h, t, s)``, as ``kind`` says.

    InputError for a function that cannot be compiled.
    """
    from fastattn.user_functions.plan import compile_function  # not before there is a function: it imports Numba

    return compile_function(function, kind)


def strided_attention(
    arrays: StridedArrays, heads: Heads, visible: Visible, terms: ScoreTerms, outputs: SoftmaxOutputs
) -> int:
    """Multi-head attention of a caller's arrays, where they lie; the number of rows that float32 could not hold.

    Their results are NaN or 0. There are queries and keys. A query that sees no key yields zeros.
    """
    if terms.vector_HK is not None:
        heads = heads._replace(scale=1 / LOG2_E)
    scores = score_arguments(
        heads,
        terms.bias_BHTS,
        None,
        terms.sinks_H,
        NO_FUNCTION if terms.function is None else terms.function,
        DOT if terms.vector_HK is None else _additive(arrays, terms.vector_HK, visible.seen_N2),
    )
    seen = (NO_RANGES if visible.seen_N2 is None else visible.seen_N2), visible.sinks
    rows = int(arrays.starts[0][-1])
    return int(attend_laid(_laid(arrays), rows, heads, seen, _mask(visible), scores, _outputs(arrays, outputs)).sum())


def _laid(arrays: StridedArrays) -> Laid:
    steps: list[int] = []
    for x in arrays[:4]:
        batch, row, head = x.strides[:3]
        steps += [0, 0 if arrays.ragged else batch - x.shape[1] * row, head, row]
    firsts = [writeable(x[0, 0, :1]) for x in arrays[:4]]
    if firsts[0].dtype == np.float16:
        firsts = [first.view(np.int16) for first in firsts]
    return Laid(tuple(firsts), tuple(steps), arrays.starts)


def _mask(visible: Visible) -> MaskArguments:
    mask, states, function = visible.mask_BHTS, visible.states_BHTS, visible.function
    if mask is None and states is None and function is None:
        return NO_MASK
    array, steps = (NO_MASK.seen, NO_STEPS) if mask is None else steps_of(mask.view(np.uint8))
    blocks = NO_BLOCKS
    if states is not None:
        b, h, rows, columns = states.shape
        strides = rows * columns * h if b > 1 else 0, rows * columns if h > 1 else 0
        blocks = (states.reshape(-1), *strides, *visible.block, columns)
    return MaskArguments._make((array, *steps, *blocks, NO_FUNCTION if function is None else function))


def _outputs(arrays: StridedArrays, outputs: SoftmaxOutputs) -> OutputArguments:
    _, H, T, _ = arrays.shape
    steps = (0, 4, 4 * H) if arrays.ragged else (4 * (H - 1) * T, 4 * T, 4)
    weights, logs = outputs
    array = NO_ARRAY if logs is None else logs.reshape(-1)
    return OutputArguments(NO_OUTPUTS.weights_BHTS if weights is None else weights, array, *steps)


def _additive(
    arrays: StridedArrays, vector_HD: np.ndarray, seen_N2: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """(factors of the scores, which heads of which sentences are computed by exponentials) for ``score_arguments``."""
    near = []
    for rows, (query_THD, key_SGD, _, _) in arrays.sentences():
        last = None if seen_N2 is None else int(seen_N2[rows, 1].max(initial=0))
        near.append(~far_heads(query_THD, key_SGD[:last]))
    return vector_factors(vector_HD), np.array(near, np.uint8).reshape(-1, vector_HD.shape[0])
