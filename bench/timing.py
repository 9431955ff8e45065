"""Timing of competitors in one run: they alternate, so that a noisy machine is noisy for all; medians and ratios."""

import contextlib
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
