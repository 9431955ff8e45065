"""Timing of engines in one run: they alternate, so that a noisy machine is noisy for all; medians and ratios."""

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
    """Seconds of one call, a list for each engine; they alternate.

    known    seconds of one call of each, which has run before. If that is a quarter of ``seconds`` or more, it is the
             only sample of that engine.
    seconds  after which rounds end: at least three are run, or as many as fit into twice that time.
    pause    seconds of rest before each, in which the previous engine's threads stop waiting for work on their cores;
             a fast call is then run once untimed, which wakes its own threads.
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
    """fastattn and the libraries on so many threads; all that there are is what these take by themselves."""
    from fastattn.runtime.threads import thread_limit, use_threads  # not before what measures imports

    limited = contextlib.nullcontext() if threads == thread_limit() else library_threads(threads)
    with limited, use_threads(threads):
        yield


@contextlib.contextmanager
def library_threads(count: int) -> Iterator[None]:
    """Limit NumPy's BLAS, OpenMP and PyTorch, if installed, to ``count`` threads; tokenizers to one or all."""
    import threadpoolctl

    with threadpoolctl.threadpool_limits(count), _tokenizers(count > 1), _torch(count):
        yield


@contextlib.contextmanager
def _tokenizers(parallel: bool) -> Iterator[None]:
    """Set the library's variable, which it reads at each call; its pool has as many threads as the machine has CPUs."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "true" if parallel else "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


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
