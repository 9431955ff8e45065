"""Timing of engines in one run: they alternate, so that a machine's noise meets all; medians and ratios."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator

import numpy as np

BLOCK = 0.02  # seconds: a faster call is repeated


def once(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def alternate(
    calls: dict[str, Callable[[], object]], rounds: int = 5, seconds: float = 60.0, pause: float = 0.0
) -> dict[str, float]:
    """Median seconds of each call, sampled as ``sample`` does after one untimed call of each."""
    for call in calls.values():
        call()
    times = sample(calls, {name: once(call) for name, call in calls.items()}, rounds, seconds, pause)
    return {name: float(np.median(values)) for name, values in times.items()}


def sample(
    calls: dict[str, Callable[[], object]], known: dict[str, float], rounds: int, seconds: float, pause: float = 0.0
) -> dict[str, list[float]]:
    """A list for each engine of the seconds of its calls; engines alternate.

    known    seconds of an earlier call of each; a quarter of ``seconds`` or more is the engine's only sample.
    seconds  after which rounds end: at least three run, or as many as fit into twice that time.
    pause    seconds of rest before each call, in which the previous engine's threads stop waiting for work on their
             cores; a fast call then runs once untimed, which wakes its own threads.
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
def limited_to(threads: int) -> Iterator[None]:
    """Limit fastattn and, below the machine's number of threads, the libraries to so many threads."""
    from fastattn.runtime.threads import thread_limit, use_threads  # late, since imports may be measured

    limited = contextlib.nullcontext() if threads == thread_limit() else library_threads(threads)
    with limited, use_threads(threads):
        yield


@contextlib.contextmanager
def library_threads(count: int) -> Iterator[None]:
    """Limit NumPy's BLAS, OpenMP and PyTorch, if installed, to ``count`` threads; tokenizers to one or all."""
    from unittest import mock

    import threadpoolctl

    # tokenizers reads the variable at each call; its pool has as many threads as the machine has CPUs.
    variables = {"TOKENIZERS_PARALLELISM": str(count > 1).lower()}
    with threadpoolctl.threadpool_limits(count), mock.patch.dict(os.environ, variables), _torch(count):
        yield


@contextlib.contextmanager
def _torch(count: int) -> Iterator[None]:
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
