"""How many worker processes share a model's work, by the time that Python code holds the interpreter's lock."""

import sys

from fastattn.system.cpus import can_start_python
from fastattn.system.records import dataclass

# (the most weights of the layers that a step goes through, the share of its time for which a thread holds the lock),
# measured with batches of greedy search and of texts: `python -m bench lock`.
LOCK_SHARES = ((4 << 20, 0.25), (float("inf"), 0.12))
# With fewer threads, a second process costs more (a second to start, 55 MB of memory) than it gains.
LEAST_THREADS = 8
LEAST_TEXTS = 16  # texts of a call for each process: calls of fewer texts start no processes
LEAST_SPEED = 0.92  # the share of their speed without a lock that the threads of one process should keep


def rate_under_lock(seconds: float, lock_seconds: float, threads: int) -> float:
    """Pieces of work a second that all threads under one lock do together.

    seconds  one thread's time for a piece of work; for ``lock_seconds`` of these the thread holds the lock
    By mean value analysis of a closed network (Reiser and Lavenberg 1980): each thread computes by itself, then queues
    for the lock. The limit for many threads is 1 / lock_seconds.
    """
    queue_length = rate = 0.0
    for n in range(1, threads + 1):
        seconds_at_lock = lock_seconds * (1 + queue_length)
        rate = n / (seconds - lock_seconds + seconds_at_lock)
        queue_length = rate * seconds_at_lock
    return rate


@dataclass(frozen=True)
class Sharing:
    """How ``processes``, each with so many ``threads``, share the work of a model; 1: this process alone.

    least_texts  of a call that goes to worker processes; this process computes calls of fewer texts
    """

    processes: int
    threads: int
    least_texts: int


def choose_sharing(processes: int | None, threads: int | None, total: int, weights: int) -> Sharing:
    """The Sharing that the caller's options request; ``total`` and ``weights`` decide about options that are None.

    processes, threads  the caller's options
    total               ``threads``, or for None all threads that there may be, which the processes then share
    """
    if processes is None:
        processes = choose_processes(total, weights)
        return Sharing(processes, -(-total // processes), LEAST_TEXTS * processes)
    return Sharing(processes, max(1, total // processes) if threads is None else total, 1)


def choose_processes(threads: int, weights: int) -> int:
    """The fewest processes whose threads, ``threads`` in all, keep LEAST_SPEED; 1: this process alone.

    weights  how many weights the layers have that a step of the model goes through
    """
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    if threads < LEAST_THREADS or not has_lock or not can_start_python():
        return 1
    share = next(share for most, share in LOCK_SHARES if weights <= most)
    threads_each = max(n for n in range(1, threads + 1) if rate_under_lock(1.0, share, n) >= LEAST_SPEED * n)
    return -(-threads // threads_each)
