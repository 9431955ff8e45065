"""The least time of attention on one core of this CPU: its products and exponentials by the kernel's own loops.

The tile multiplies operands that lie in the first cache; nothing is packed, stored or normalized.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numba import prange

from fastattn.kernels.attention.arguments import COLUMNS, ROWS
from fastattn.kernels.attention.tiles import score_tile
from fastattn.runtime.jit import kernel
from fastattn.simd.attention import make_exponentials
from fastattn.simd.target import LANES

_STEPS, _ROW, _ROUNDS = 64, 256, 20_000

exponentials_of_row = make_exponentials(1)


@kernel
def _run_tile(a, b, c, count):
    for _ in prange(0, 1):
        for _ in range(count):
            score_tile(
                a.ctypes.data, a.shape[1] * 4, b.ctypes.data, b.shape[1] * 4, a.shape[1], c.ctypes.data, c.shape[1] * 4
            )


@kernel
def _run_exponentials(x, shift, total, count):
    for _ in prange(0, 1):
        for _ in range(count):  # of the last results, which are near 0.14 soon
            exponentials_of_row(x.ctypes.data, 0, x.size * 4, shift.ctypes.data, total.ctypes.data)


def calls() -> dict[str, Callable[[], None]]:
    """The calls, of some milliseconds on one core, by whose times ``floor`` judges: "products" and "exponentials"."""
    rng = np.random.default_rng(0)
    a, b = rng.random((ROWS, _STEPS), np.float32), rng.random((_STEPS, COLUMNS), np.float32)
    x, shift, total = -rng.random(_ROW, np.float32), np.full(1, 3, np.float32), np.zeros(LANES, np.float32)
    c = np.empty((ROWS, COLUMNS), np.float32)
    return {
        "products": partial(_run_tile, a, b, c, _ROUNDS),
        "exponentials": partial(_run_exponentials, x, shift, total, _ROUNDS),
    }


def floor(shape: tuple[int, ...], causal: bool, seconds: dict[str, float]) -> float:
    """Seconds on one core of attention (B, H, T, K) over T keys; causal: of the scores that are seen.

    seconds  of ``calls``
    """
    B, H, T, K = shape
    scores = B * H * T * ((T + 1) / 2 if causal else T)
    products, exponentials = ROWS * COLUMNS * _STEPS * _ROUNDS, _ROW * _ROUNDS
    return scores * (2 * K / products * seconds["products"] + seconds["exponentials"] / exponentials)
