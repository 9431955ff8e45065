"""Scratch memory for the parts into which tasks are cut, one for each thread; see ``parts``."""

import numpy as np

from fastattn.runtime.arena import empty
from fastattn.runtime.threads import current_threads


def make_scratch_parts(tasks: int, *shape: int, dtype: type = np.uint8) -> np.ndarray:
    """[parts, *shape], not cleared: as many parts as the caller has threads, but no more than tasks."""
    return empty((min(tasks, current_threads()), *shape), dtype)
