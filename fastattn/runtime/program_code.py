"""The compiled side of recorded programs; see ``recording``."""

from fastattn.runtime.internals import compile_helper
from fastattn.runtime.pool import MOST_PARTS
from fastattn.runtime.pool_code import call_entry, launch, load

_launch = compile_helper(launch)


def run_program(pool, threads, calls, count, most, stop):
    """Make ``count`` calls, in order, up to ``most`` times: until the word at ``stop`` is not 0 after the last.

    threads  for the tasks of each, of which the pool has all but one
    calls    the address of (the address of ``entry``, the address of its arguments) of each, int64
    """
    for turn in range(most):
        for n in range(count):
            entry, arguments = load(calls + 16 * n), load(calls + 16 * n + 8)
            if threads <= 1:
                call_entry(entry, arguments, 0, 1 << 62)
                continue
            tasks = call_entry(entry, arguments, 0, 0)
            parts = min(tasks, threads, MOST_PARTS)
            if parts <= 1:
                call_entry(entry, arguments, 0, tasks)
            else:
                _launch(pool, entry, arguments, tasks, parts)
        if load(stop) != 0:
            return turn + 1
    return most
