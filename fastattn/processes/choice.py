"""How many worker processes share a model's work, by how long its Python code holds the interpreter's lock."""

import sys
from dataclasses import dataclass

from fastattn.system.cpus import can_start_python

# (most weights of the layers that a step goes through, share of a thread's time with the lock held), measured with
# batches of greedy search and of texts: `python -m bench lock`.
LOCK_SHARES = ((4 << 20, 0.25), (float("inf"), 0.12))
# With fewer threads a second process costs more (a second to start, 55 MB of its own) than it gives.
LEAST_THREADS = 8
LEAST_TEXTS = 16  # of a call, for each process that starts because of it
WANTED = 0.92  # share of their speed without the lock that the threads of one process should keep


def rate_under_lock(seconds: float, held: float, threads: int) -> float:
    """Pieces of work a second that threads with one lock do together.

    seconds  one thread's time for a piece, of which it holds the lock for ``held`` seconds
    Mean value analysis of a closed network (Reiser and Lavenberg 1980): each thread computes by itself, then queues for
    the lock. The limit for many threads is 1 / held.
    """
    waiting = rate = 0.0
    for n in range(1, threads + 1):
        with_lock = held * (1 + waiting)
        rate = n / (seconds - held + with_lock)
        waiting = rate * with_lock
    return rate


@dataclass(frozen=True)
class Sharing:
    """How processes share the work of a model.

    processes  1: this process alone
    threads    of each process
    least      texts of a call that goes to worker processes; this process computes calls of fewer texts
    """

    processes: int
    threads: int
    least: int


def sharing(processes: int | None, threads: int | None, total: int, weights: int) -> Sharing:
    """The sharing that the caller's options request; None for an option lets the weights and threads decide.

    processes, threads  the caller's options
    total               threads of a process without others: the caller's, or for None all that there may be
    """
    if processes is None:
        processes = chosen_processes(total, weights)
        return Sharing(processes, -(-total // processes), LEAST_TEXTS * processes)
    return Sharing(processes, max(1, total // processes) if threads is None else total, 1)


def chosen_processes(threads: int, weights: int) -> int:
    """The fewest processes with ``threads`` threads in all whose threads keep WANTED of their speed; 1: this one alone.

    weights  number of weights of the layers that a step of the model goes through
    """
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    if threads < LEAST_THREADS or not has_lock or not can_start_python():
        return 1
    share = next(share for most, share in LOCK_SHARES if weights <= most)
    each = max(n for n in range(1, threads + 1) if rate_under_lock(1.0, share, n) >= WANTED * n)
    return -(-threads // each)
