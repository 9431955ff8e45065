"""The least time that attention can take on one core of this CPU: its products at the speed of the kernel's own tile,
with operands in L1, and its exponentials at the speed of the kernel's own loop."""

import time

import numpy as np
from numba import prange

from fastattn.kernels.attention.arguments import COLUMNS, ROWS
from fastattn.kernels.attention.tiles import score_tile
from fastattn.runtime.jit import kernel
from fastattn.runtime.threads import use_threads
from fastattn.simd.attention import make_exponentials
from fastattn.simd.target import LANES

exponentials_of_one = make_exponentials(1)
STEPS, EXPONENTIALS = 64, 256
REPEATS = 7


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
        for _ in range(count):  # of the last ones: all are near 0.14 soon
            exponentials_of_one(x.ctypes.data, 0, x.size * 4, shift.ctypes.data, total.ctypes.data)


def _seconds(run, *arguments, count: int) -> float:
    """Of one round, the least of several."""
    run(*arguments, 1)
    best = np.inf
    for _ in range(REPEATS):
        start = time.perf_counter()
        run(*arguments, count)
        best = min(best, time.perf_counter() - start)
    return best / count


def rates() -> tuple[float, float]:
    """(floating-point operations, exponentials) a second on one core."""
    rng = np.random.default_rng(0)
    a, b = rng.random((ROWS, STEPS), np.float32), rng.random((STEPS, COLUMNS), np.float32)
    x = -rng.random(EXPONENTIALS, np.float32)
    with use_threads(1):
        tile = _seconds(_run_tile, a, b, np.empty((ROWS, COLUMNS), np.float32), count=20_000)
        shift, total = np.full(1, 3, np.float32), np.zeros(LANES, np.float32)
        exps = _seconds(_run_exponentials, x, shift, total, count=50_000)
    return 2.0 * ROWS * COLUMNS * STEPS / tile, EXPONENTIALS / exps


def floor(shape: tuple[int, int, int, int], causal: bool, speed: tuple[float, float]) -> float:
    """Seconds on one core of attention (B, H, T, K) of T keys; causal: of the scores that are seen."""
    B, H, T, K = shape
    scores = B * H * T * ((T + 1) / 2 if causal else T)
    return scores * (4 * K / speed[0] + 1 / speed[1])
