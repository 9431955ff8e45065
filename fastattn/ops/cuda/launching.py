"""Launches by the driver: a compiled kernel starts within microseconds, where Numba needs hundreds of microseconds.

Numba compiles a kernel for types of arguments and makes its first launch. Later launches hand the arguments to the
driver in the layout of Numba's convention: scalars as they are, an array as five words, its shape and its strides.
"""

import ctypes
import struct
import weakref
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as api
from numba import types
from numba.cuda.cudadrv.devicearray import DeviceNDArray
from numba.cuda.cudadrv.devices import get_context
from numba.cuda.cudadrv.driver import driver

LETTERS = {"int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q"}
LETTERS |= {"uint64": "Q", "float32": "f", "float64": "d", "bool": "?"}
END, BUFFER, SIZE = 0, 1, 2  # CU_LAUNCH_PARAM_END, _BUFFER_POINTER and _BUFFER_SIZE


def layout_of(argument: Any) -> str:
    """The letters of ``struct`` for an argument of a Numba type; KeyError for a type that no kernel here takes."""
    if isinstance(argument, types.Array):
        return "q" * (5 + 2 * argument.ndim)
    if isinstance(argument, types.BaseTuple):
        return "".join(map(layout_of, argument))
    return LETTERS[str(argument)]


def _fingerprint(argument: Any) -> Any:
    """The properties of an argument that decide its Numba type."""
    if isinstance(argument, tuple):
        return type(argument), *map(_fingerprint, argument)
    if isinstance(argument, DeviceNDArray):
        order = argument.is_c_contiguous(), argument.is_f_contiguous(), 0 in argument.strides
        return argument.dtype, argument.ndim, *order
    return type(argument)


def _words(argument: Any, words: list[Any]) -> list[Any]:
    """Append an argument's words; an array's are 0, 0 (its owner), size, item size, address, shape and strides."""
    if isinstance(argument, tuple):
        for member in argument:
            _words(member, words)
    elif isinstance(argument, DeviceNDArray):
        address = int(argument.gpu_data.device_pointer) if argument.size else 0
        words += (0, 0, argument.size, argument.dtype.itemsize, address, *argument.shape, *argument.strides)
    else:
        words.append(argument)
    return words


class PackedKernel:
    """A kernel compiled for types of arguments: the driver's function, and a buffer for arguments in its layout."""

    def __init__(self, overload: Any):
        self._function = api.CUfunction(int(overload._codelibrary.get_cufunc().handle))
        self._layout = struct.Struct("@" + "".join(map(layout_of, overload.argument_types)))
        self._packed = ctypes.create_string_buffer(self._layout.size)
        size = ctypes.c_size_t(self._layout.size)
        entries = BUFFER, ctypes.addressof(self._packed), SIZE, ctypes.addressof(size), END
        self._extra = (ctypes.c_void_p * len(entries))(*entries)
        self._size = size  # the driver reads it by its address

    def launch(self, blocks: tuple[int, ...], threads: int, arguments: tuple, stream: Any = 0) -> None:
        """Start the kernel, from one thread at a time. The driver has copied the arguments when this returns."""
        self._layout.pack_into(self._packed, 0, *_words(arguments, []))
        grid = *blocks, *(1,) * (3 - len(blocks))
        driver.cuLaunchKernel(self._function, *grid, threads, 1, 1, 0, stream, 0, ctypes.addressof(self._extra))


_compiled: Any = weakref.WeakKeyDictionary()  # PackedKernel by kernel and by fingerprint; None: Numba launches it


def compiled_of(kernel: Any, arguments: tuple) -> PackedKernel | None:
    """The kernel that Numba has compiled for arguments like these; None before their first launch."""
    return _compiled.get(kernel, {}).get(_fingerprint(arguments))


def remember(kernel: Any, arguments: tuple) -> None:
    """Remember the kernel that Numba has compiled for these arguments and launched."""
    overload = kernel.overloads.get(tuple(map(kernel.typeof_pyval, arguments)))
    packed = PackedKernel(overload) if overload is not None else None
    _compiled.setdefault(kernel, {})[_fingerprint(arguments)] = packed


class LaunchGraph:
    """Launches that the driver makes as one, in order."""

    def __init__(self, record: Callable[[Any], None]):
        """``record`` makes the launches in the stream that is its argument."""
        get_context()
        stream = driver.cuStreamCreate(api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        driver.cuStreamBeginCapture(stream, api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        try:
            record(stream)
        finally:
            graph = driver.cuStreamEndCapture(stream)
        self._executable = driver.cuGraphInstantiate(graph, 0)
        driver.cuGraphDestroy(graph)
        driver.cuStreamDestroy(stream)
        weakref.finalize(self, api.cuGraphExecDestroy, self._executable).atexit = False

    def launch(self) -> None:
        """Start the launches behind those of the default stream; the graph keeps no argument's memory alive."""
        driver.cuGraphLaunch(self._executable, 0)
