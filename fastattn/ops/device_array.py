"""Arrays of callers in a device's own memory; the two operations on them where that memory is the host's."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from fastattn.arguments.attention import SoftmaxOutputs, StridedArrays


class DeviceArray(np.ndarray):
    """An array of a device as NumPy describes it: type, shape, strides and address. The host cannot read its numbers.

    owner  the array as its library has it, whose memory it is
    """

    owner: Any = None

    def __array_finalize__(self, source: Any) -> None:
        self.owner = getattr(source, "owner", None)

    def __repr__(self) -> str:  # a debugger's, which would read the numbers
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
