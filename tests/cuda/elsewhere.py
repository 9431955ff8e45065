"""What Numba's simulator lacks: arrays that tell where they lie, at addresses which end a process that reads them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

FAR = 1 << 60  # added to addresses; no memory is there


class Lent:
    """An array of a third library, which has the interface alone."""

    def __init__(self, array: np.ndarray, **more: Any):
        self.array = array
        pointer, readonly = array.__array_interface__["data"]
        self.__cuda_array_interface__ = dict(array.__array_interface__, data=(pointer + FAR, readonly), **more)


@property
def interface(array: FakeCUDAArray) -> dict[str, Any]:
    return Lent(array._ary, stream=None).__cuda_array_interface__


def borrow(interface: dict[str, Any], owner: Any = None) -> FakeCUDAArray:
    """In place of ``numba.cuda.from_cuda_array_interface``."""
    if interface.get("mask") is not None:
        raise NotImplementedError("Masked arrays are not supported")
    pointer, readonly = interface["data"]
    near = dict(interface, data=(pointer - FAR, readonly))
    return FakeCUDAArray(np.asarray(SimpleNamespace(__array_interface__=near, owner=owner)))
