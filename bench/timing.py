"""Timing of competitors in one run: they alternate, so that a noisy machine is noisy for all; medians and ratios."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator

import numpy as np


def alternate(calls: dict[str, Callable[[], object]], rounds: int = 5, seconds: float = 60.0) -> dict[str, float]:
    """Median seconds of each call, after one untimed call of each; past ``seconds`` 3 rounds are enough."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    begun = time.perf_counter()
    for done in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
        if done >= 2 and time.perf_counter() - begun > seconds:
            break
    return {name: float(np.median(values)) for name, values in times.items()}


BLOCK = 0.02  # seconds: what is quicker is called several times in a row


def sample(
    calls: dict[str, Callable[[], object]],
    known: dict[str, float],
    rounds: int,
    seconds: float,
    pause: float = 0.0,
) -> dict[str, list[float]]:
    """Seconds of one call, a list for each competitor; they alternate.

    known    seconds of one call of each, which has run before. Where that is a quarter of ``seconds`` or more, it is
             the only sample of that competitor.
    seconds  after which rounds end: three are run at least, or what fits into twice that time.
    pause    seconds of rest before each, in which the threads of the one before stop waiting for work on their cores;
             what is quick is then called once more untimed, which wakes its own.
    """
    times = {name: [known[name]] if known[name] >= seconds / 4 else [] for name in calls}
    repeats = {name: max(1, math.ceil(BLOCK / known[name])) for name in calls if not times[name]}
    begun = time.perf_counter()
    for done in range(rounds):
        for name, count in repeats.items():
            if pause:
                time.sleep(pause)
                if count > 1:
                    calls[name]()
            start = time.perf_counter()
            for _ in range(count):
                calls[name]()
            times[name].append((time.perf_counter() - start) / count)
        spent = time.perf_counter() - begun
        if spent > 2 * seconds or (done >= 2 and spent > seconds):
            break
    return times


@contextlib.contextmanager
def library_threads(count: int) -> Iterator[None]:
    """NumPy's BLAS, OpenMP and PyTorch, where it is there, held to ``count`` threads."""
    import threadpoolctl

    with threadpoolctl.threadpool_limits(count):
        try:
            import torch
        except ImportError:
            yield
            return
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)
