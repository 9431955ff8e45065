"""Tasks of a kernel shared among the threads of Numba's own threading layer."""

import numba
import numpy as np

from fastattn.runtime.loop import FLAGS
from fastattn.runtime.pool_code import call


@numba.njit(parallel=True, **FLAGS)
def run_tasks(entry, arguments):
    """All tasks of ``entry`` with the arguments at an address, cut into as many parts as the caller has threads."""
    tasks = call(entry, (arguments, 0, 0))
    parts = min(tasks, np.int64(numba.get_num_threads()))
    for part in numba.prange(0, parts):
        call(entry, (arguments, tasks * part // parts, tasks * (part + 1) // parts))
