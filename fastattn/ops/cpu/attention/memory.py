"""Arrays where they lie in memory, as kernels take them: one for the address and the type, and distances in bytes."""

from typing import NamedTuple

import numpy as np

NO_STEPS = (0, 0, 0, 0)
NO_ARRAY = np.empty(0, np.float32)


class Laid(NamedTuple):
    """Queries, keys, values and results where they lie, as the kernel ``attend`` takes them: arrays with two axes, for
    their addresses and their type; see there."""

    arrays: tuple[np.ndarray, ...]
    steps: tuple[int, ...]  # four of each array, see the kernel
    starts: tuple[np.ndarray, np.ndarray]


def steps_of(array_BHTS: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """(an array for its address and dtype, bytes along batch, head, row and key: 0 along an axis of length one).

    Bytes from key to key must be those of one element; other arrays are copied.
    """
    if array_BHTS.size == 0:
        return NO_ARRAY, NO_STEPS
    if array_BHTS.shape[3] > 1 and array_BHTS.strides[3] not in (0, array_BHTS.itemsize):
        array_BHTS = np.ascontiguousarray(array_BHTS)
    steps = tuple(step if size > 1 else 0 for size, step in zip(array_BHTS.shape, array_BHTS.strides))
    return writeable(array_BHTS[0, 0, 0, :1]), steps


class _Memory:
    """An array's memory as one that may be written to, which nobody does."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def writeable(array: np.ndarray) -> np.ndarray:
    """The array, or if it is read-only the same memory without that flag: else a kernel would be compiled for it."""
    return array if array.flags.writeable else np.asarray(_Memory(array))
