"""What a mask hides costs no time: causal attention, windows and block masks of 8192 positions."""

from functools import partial

import numpy as np

from bench.attention_cases import Shape, inputs, ours
from bench.case import largest_difference
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, milliseconds, plural, timed
from fastattn import BlockMask

SHAPE: Shape = (1, 8, 8192, 64)
WINDOW = 256
CAUSAL_SHARE, WINDOW_SHARE = 0.55, 0.12


def within(b: int, h: int, t: int, s: int) -> bool:
    """The last keys, as window=(WINDOW, 0)."""
    return (s <= t) & (t - s <= WINDOW)


def around(b: int, h: int, t: int, s: int) -> bool:
    """Keys on both sides, as window=(WINDOW // 2, WINDOW // 2)."""
    return (s - t <= WINDOW // 2) & (t - s <= WINDOW // 2)


@check(
    "attention-skipping",
    "one thread and two, (1, 8, 8192, 64): causal at most 0.55 of the full time, a window of 256, to one side or both, "
    "and block masks of it at most 0.12",
)
def skipping(findings: Findings, data: Data) -> None:
    arrays, length = inputs(SHAPE), SHAPE[2]
    attend = partial(ours, arrays)
    calls = {"full": attend(), "causal": attend(causal=True)}
    for name, window, function in (("window", (WINDOW, 0), within), ("both sides", (WINDOW // 2, WINDOW // 2), around)):
        t_T1, s_S = np.arange(length)[:, None], np.arange(length)
        blocks = {
            "mask": BlockMask.from_mask(np.asarray(function(0, 0, t_T1, s_S))),
            "function": BlockMask.from_function(function, 1, 1, length, length),
        }
        calls[name] = attend(window=window)
        calls |= {f"{name}, block mask of {kind}": attend(block_mask=one) for kind, one in blocks.items()}
        _agree(calls, name)
    for threads in THREADS:
        times = timed(calls, threads, seconds=12.0)
        for name, seconds in list(times.items())[1:]:
            wanted = CAUSAL_SHARE if name == "causal" else WINDOW_SHARE
            remark = milliseconds({"it": seconds, "full": times["full"]})
            findings.at_most(f"{plural(threads)}, {name}:", seconds / times["full"], "of the full time", wanted, remark)


def _agree(calls: dict, name: str) -> None:
    """RuntimeError unless the window's result is also that of its block masks."""
    for other in calls:
        if other.startswith(f"{name},"):
            agrees, difference = largest_difference(calls[name](), calls[other]())
            if not agrees:
                raise RuntimeError(f"the result of {other} differs from that of {name}, {difference}")
