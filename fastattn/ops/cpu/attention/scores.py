"""What a score is made of, as both attention kernels take it."""

from functools import lru_cache
from typing import Any

import numpy as np

from fastattn.kernels.attention.types import ScoreArguments
from fastattn.kernels.user_functions.states import NO_FUNCTION
from fastattn.ops.cpu.attention.memory import NO_ARRAY, NO_STEPS, steps_of
from fastattn.ops.heads import Heads
from fastattn.ops.position_bias import PositionBias
from fastattn.simd.constants import LOG2_E

_NO_POSITION_BIAS = PositionBias()
_NO_TABLE = np.empty((0, 1), np.float32)
DOT = 0, np.empty((0, 0), np.uint8)


def score_arguments(
    heads: Heads,
    bias_BHTS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    sinks_H: np.ndarray | None = None,
    function: Any = NO_FUNCTION,
    product: tuple[Any, np.ndarray] = DOT,
) -> ScoreArguments:
    """What kernels take. product: see products.py, with its details; of additive attention the scale is 1 / log2(e)."""
    plain = _plain_scores(heads.width, heads.scale, heads.softcap)
    others = bias_BHTS is not None or position_bias is not None or sinks_H is not None
    if not others and function is NO_FUNCTION and product is DOT:
        return plain
    position_bias = position_bias or _NO_POSITION_BIAS
    bias, steps = (NO_ARRAY, NO_STEPS) if bias_BHTS is None else steps_of(bias_BHTS)
    slopes_H = NO_ARRAY if position_bias.slopes_H is None else position_bias.slopes_H
    table_HL = _NO_TABLE if position_bias.table_HL is None else position_bias.table_HL
    sinks_H = NO_ARRAY if sinks_H is None else sinks_H * np.float32(LOG2_E)
    biases = bias, *steps, slopes_H, table_HL, int(position_bias.from_start)
    return ScoreArguments._make((plain.factor, plain.softcap, *biases, sinks_H, function, *product))


@lru_cache(256)  # a model needs the same thousands of times a second
def _plain_scores(width: int, scale: float | None, softcap: float) -> ScoreArguments:
    factor = np.float32((width**-0.5 if scale is None else scale) * LOG2_E)
    cap = np.float32(softcap * LOG2_E)
    biases = NO_ARRAY, *NO_STEPS, NO_ARRAY, _NO_TABLE, 0
    return ScoreArguments._make((factor, cap, *biases, NO_ARRAY, NO_FUNCTION, *DOT))
