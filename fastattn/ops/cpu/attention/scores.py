"""What a score is made of, as both attention kernels are given it; see ``kernels/attention/scores.py``."""

from functools import lru_cache
from typing import Any

import numpy as np

from fastattn.kernels.user_functions.states import NO_FUNCTION
from fastattn.ops.cpu.attention.memory import NO_ARRAY, NO_STEPS, steps_of
from fastattn.ops.heads import Heads
from fastattn.ops.position_bias import PositionBias
from fastattn.simd.constants import LOG2_E

_NO_TABLE = np.empty((0, 1), np.float32)
DOT = 0, np.empty((0, 0), np.uint8)


def score_form(
    heads: Heads,
    bias_BHTS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    sinks_H: np.ndarray | None = None,
    function: Any = NO_FUNCTION,
    product: tuple[Any, np.ndarray] = DOT,
) -> tuple:
    """(factor of products, their cap or 0, bias and its steps, slopes_H, table_HL, whether positions count from the
    start, sinks_H times log2(e), function; ``product`` and ``details`` of products.py, the scale of additive attention
    being 1 / log2(e)), for kernels; arrays may be empty."""
    others = bias_BHTS is not None or position_bias is not None or sinks_H is not None
    if not others and function is NO_FUNCTION and product is DOT:
        return _plain_form(heads.width, heads.scale, heads.softcap)
    position_bias = position_bias or PositionBias()
    bias, steps = (NO_ARRAY, NO_STEPS) if bias_BHTS is None else steps_of(bias_BHTS)
    return (
        *_plain_form(heads.width, heads.scale, heads.softcap)[:2],
        bias,
        *steps,
        NO_ARRAY if position_bias.slopes_H is None else position_bias.slopes_H,
        _NO_TABLE if position_bias.table_HL is None else position_bias.table_HL,
        int(position_bias.from_start),
        NO_ARRAY if sinks_H is None else sinks_H * np.float32(LOG2_E),
        function,
        *product,
    )


@lru_cache(256)  # a model needs the same thousands of times a second
def _plain_form(width: int, scale: float | None, softcap: float) -> tuple:
    scale = width**-0.5 if scale is None else scale
    factor, cap = np.float32(scale * LOG2_E), np.float32(softcap * LOG2_E)
    return factor, cap, NO_ARRAY, *NO_STEPS, NO_ARRAY, _NO_TABLE, 0, NO_ARRAY, NO_FUNCTION, *DOT
