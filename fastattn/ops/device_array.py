"""Callers' arrays in a device's own memory; ``as_array`` and ``on_host`` for devices that use the host's memory."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from fastattn.arguments.attention import SoftmaxOutputs, StridedArrays


class DeviceArray(np.ndarray):
    """NumPy's description of a device's array: type, shape, strides and address. The host cannot read its numbers.

    owner  the array of the library to which the memory belongs
    """

    owner: Any = None

    def __array_finalize__(self, source: Any) -> None:
        self.owner = getattr(source, "owner", None)

    def __repr__(self) -> str:  # NumPy's would read the numbers
        return f"<{self.dtype} {self.shape} on a card>"

    __str__ = __repr__


def as_array(array: Any) -> Any:
    """The caller's array."""
    return array


def on_host(
    arrays: StridedArrays, outputs: SoftmaxOutputs
) -> AbstractContextManager[tuple[StridedArrays, SoftmaxOutputs]]:
    """The same arrays."""
    return nullcontext((arrays, outputs))
