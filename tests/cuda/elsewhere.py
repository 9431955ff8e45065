"""What Numba's simulator lacks: arrays that tell where they lie, at addresses which end a process that reads them."""

import ctypes
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


class Exported:
    """An array of a library that has DLPack's protocol alone, of a type and on a device by DLPack's numbers."""

    def __init__(self, array: np.ndarray, code: int | None = None, device: tuple[int, int] = (2, 0)):
        self.array, self.code, self.device, self.asked = array, code, device, {}

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, stream: int | None = None, **options: Any) -> Any:
        self.asked["stream"] = stream
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        tensor = pointer(capsule, b"dltensor")  # data, device's kind and number, axes, the type's code
        ctypes.c_uint64.from_address(tensor).value += FAR
        ctypes.c_int32.from_address(tensor + 8).value = self.device[0]
        if self.code is not None:
            ctypes.c_uint8.from_address(tensor + 20).value = self.code
        return capsule


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
