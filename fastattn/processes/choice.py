"""How many worker processes a model's work is shared among, from how long its Python code holds the lock."""

import sys
from dataclasses import dataclass

from fastattn.system.cpus import can_start_python

# Measured shares of one thread's time with the interpreter's lock held, batches of greedy search and of texts, by the
# weights of the layers that a step goes through: `python -m bench lock`. At most so many -> share.
LOCK_SHARES = ((4 << 20, 0.25), (float("inf"), 0.12))
# Below this many threads a second process costs more (a second to start, 55 MB of its own) than it gives.
LEAST_THREADS = 8
LEAST_TEXTS = 16  # of a call, for each process that is started because of it
WANTED = 0.92  # of the threads' own speed, that those of one process should reach together


def rate_under_lock(seconds: float, held: float, threads: int) -> float:
    """Pieces of work a second of threads that share one lock.

    seconds  of one thread for a piece; ``held`` of them with the lock
    Mean value analysis of a closed network (Reiser and Lavenberg 1980): each thread computes by itself, then queues for
    the lock. The limit for many is 1 / held.
    """
    waiting = rate = 0.0
    for n in range(1, threads + 1):
        with_lock = held * (1 + waiting)
        rate = n / (seconds - held + with_lock)
        waiting = rate * with_lock
    return rate


@dataclass(frozen=True)
class Sharing:
    """How the work of a model is shared.

    processes  1: this one alone
    threads    of each
    least      texts of a call that the others take; calls of fewer stay here
    """

    processes: int
    threads: int
    least: int


def sharing(processes: int | None, threads: int | None, total: int, weights: int) -> Sharing:
    """What a caller asks for, or for None what the model's weights and the number of threads suggest.

    processes, threads  the caller's
    total               threads of a process that has no other; None of the caller's stands for all that there may be
    """
    if processes is None:
        processes = chosen_processes(total, weights)
        return Sharing(processes, -(-total // processes), LEAST_TEXTS * processes)
    return Sharing(processes, max(1, total // processes) if threads is None else total, 1)


def chosen_processes(threads: int, weights: int) -> int:
    """The fewest processes, of so many threads together, in each of which threads keep WANTED of their speed.

    weights  of the layers that a step of the model goes through
    1 where threads alone serve.
    """
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    if threads < LEAST_THREADS or not has_lock or not can_start_python():
        return 1
    share = next(share for most, share in LOCK_SHARES if weights <= most)
    each = max(n for n in range(1, threads + 1) if rate_under_lock(1.0, share, n) >= WANTED * n)
    return -(-threads // each)
