"""The card: its arrays, launches of kernels, and one-line errors where a card, the package or memory is missing.

Kernels are written for ``numba.cuda`` (package numba-cuda). With NUMBA_ENABLE_CUDASIM=1 Numba's simulator runs them as
Python: then blocks have few threads, and instructions of the card are written in Python.
"""

import functools
import hashlib
import math
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.errors import FastattnError, InputError, OutOfMemoryError
from fastattn.system.atomic_files import make_folder
from fastattn.system.cache_folder import cache_root

_PACKAGE = "device 'cuda' needs the package numba-cuda: pip install 'fastattn[cuda]'"

try:
    import numba_cuda  # without it numba.cuda is Numba's own, which is no longer maintained
    from numba import config, cuda
    from numba.cuda.core import config as settings
except ImportError as error:
    raise InputError(_PACKAGE) from error

SIMULATED = bool(config.ENABLE_CUDASIM)
if not SIMULATED:
    from numba.cuda.cudadrv.devicearray import DeviceNDArray
    from numba.cuda.cudadrv.driver import AutoFreePointer

    from fastattn.ops.cuda import launching

SIDE = 2 if SIMULATED else 16  # threads of a tile along its rows and along its columns
THREADS = SIDE * SIDE  # of every block
MICRO = 4  # rows and columns of a tile that a thread has in registers
TILE = SIDE * MICRO  # rows and columns of a tile

device = cuda.jit(device=True)  # decorates functions that kernels call

_process = os.getpid()
_work_lock = threading.RLock()  # held while a thread gives the card work; the card computes without it


@functools.cache
def _source_hash() -> str:
    """The hash of all files of this folder, since a kernel includes helpers of several files."""
    digest = hashlib.sha256(numba_cuda.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


class _Locator:
    """Tells Numba to keep compiled kernels in fastattn's cache, in a folder for each state of the sources."""

    @classmethod
    def from_function(cls, function: Callable, file: str) -> "_Locator":
        return cls()

    def get_cache_path(self) -> str:
        return str(cache_root() / "cuda" / _source_hash())

    def ensure_cache_path(self) -> None:
        make_folder(Path(self.get_cache_path()))

    def get_source_stamp(self) -> str:
        return _source_hash()

    def get_disambiguator(self) -> None:
        return None


def kernel_of(*constants: Any, **options: Any) -> Callable[[Callable], Any]:
    """A decorator of kernels; a kernel is compiled and kept for types of arguments when it is first launched with them.

    constants  the values for which a kernel is made, by which its kept code is found. Numba by itself would find the
               code by the objects in the kernel's closure, whose bytes differ from process to process
    """

    def decorate(function: Callable) -> Any:
        if SIMULATED:
            return cuda.jit(function)
        from numba.cuda.dispatcher import CUDACache, CUDACacheImpl

        def index_key(cache: Any, signature: Any, codegen: Any) -> tuple:
            return signature, codegen.magic_tuple(), constants, cache._launch_config_key

        implementation = type("_LocatedCacheImpl", (CUDACacheImpl,), {"_locator_classes": [_Locator]})
        compiled = cuda.jit(**options)(function)
        members = {"_impl_class": implementation, "_index_key": index_key}
        compiled._cache = type("_LocatedCache", (CUDACache,), members)(function)
        return compiled

    return decorate


kernel = kernel_of()  # decorates a kernel that no constants vary


class HostNeeded(Exception):
    """A function cannot be recorded, since it needs a result on the host."""


class _Recording(threading.local):
    program: Any = None  # a ``recording.LaunchProgram`` while this thread records


recording = _Recording()


def check_card() -> None:
    """InputError that says what is missing, unless there is a card that can be used."""
    try:
        cuda.current_context()
    except Exception as error:
        if not _is_card_error(error):
            raise
        raise InputError(f"device 'cuda' cannot be used: {_in_one_line(error)}") from error


def description() -> str:
    """The card's name, generation and memory."""
    if SIMULATED:
        return "Numba's simulator"
    device = cuda.get_current_device()
    free, total = (size / 2**30 for size in cuda.current_context().get_memory_info())
    major, minor = device.compute_capability
    return f"{device.name}, compute capability {major}.{minor}, {free:.1f} of {total:.1f} GiB free"


def card_index() -> int:
    """The number of the current card; 0 on the simulator."""
    return getattr(cuda.get_current_device(), "id", 0)


def free_memory() -> int:
    """Bytes that are free on the card or in ``_spare_blocks``; 1 << 40 on the simulator, which does not know."""
    spare = sum(size * len(blocks) for size, blocks in list(_spare_blocks.items()))
    return int(min(_guarded(lambda: cuda.current_context().get_memory_info().free), 1 << 40)) + spare


# The number of threads decides how many rows go through all layers at a time, 384 a thread (models/encoder.py). A tile
# of a product is 64 x 64 and a card has some 100 multiprocessors, of a few blocks each: 12,000 rows of 384 columns are
# 1,150 tiles. Twice the rows fill the multiprocessors no better, and take twice the memory.
MAX_THREADS = 32
THREAD_BYTES = 384 * 16384 * 4  # of 384 rows in a layer, 16,384 numbers a row: more than a width of 1,024 needs


def current_threads() -> int:
    """The threads whose chunks of rows are large enough for a card, and small enough for half of its free memory."""
    return max(1, min(MAX_THREADS, free_memory() // 2 // THREAD_BYTES))


def thread_limit() -> int:
    """1: kernels run one after another, whichever thread calls them."""
    return 1


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(" .:") or type(error).__name__


def _is_card_error(error: Exception) -> bool:
    """Whether the driver, a compiler or their callers raised it, by its module, since not all classes are public."""
    return type(error).__module__.startswith(("cuda.", "numba.cuda.cudadrv.", "numba.cuda.simulator.cudadrv."))


def _guarded(call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's result; FastattnError for an error of the card, and in a process that was forked after CUDA began."""
    if os.getpid() != _process:
        raise FastattnError("this process was forked after device 'cuda' began: start it by 'spawn' instead")
    try:
        with _work_lock:
            return call(*arguments)
    except Exception as error:
        if not _is_card_error(error):
            raise
        if "OUT_OF_MEMORY" in str(error):
            raise OutOfMemoryError("the card has not enough memory left: smaller batches need less") from error
        raise FastattnError(f"the card failed: {_in_one_line(error)}") from error


def empty_for_caller(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of the card for a caller, C-contiguous, of arbitrary values; its memory goes back to the driver."""
    return _guarded(cuda.device_array, shape, np.dtype(dtype))


_spare_blocks: dict[int, list[Any]] = defaultdict(list)  # by size in bytes: memory of freed arrays of ``empty``
_used_memory: dict[int, Any] = {}  # by address: memory of arrays that exist; Numba's views refer to it weakly


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of the card between kernels, C-contiguous, of arbitrary values.

    When the array is freed, a later one gets its memory: kernels run in the order of their launches, so kernels that
    still read the freed array run before those that write the later one. The driver would take memory back only when
    the card has done all its work.
    """
    dtype = np.dtype(dtype)
    if SIMULATED or not all(shape):
        return empty_for_caller(shape, dtype)
    return _guarded(_take_memory, tuple(map(int, shape)), dtype)


def _take_memory(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    array_bytes, *strides = (dtype.itemsize * math.prod(shape[axis:]) for axis in range(len(shape) + 1))
    grain = max(512, (1 << array_bytes.bit_length()) >> 4)  # so that ``size`` is at most an eighth above array_bytes
    size = -(-array_bytes // grain) * grain
    block = _spare_blocks[size].pop() if _spare_blocks[size] else _new_memory(size)
    address = int(block.device_pointer)

    def give_back() -> None:
        del _used_memory[address]
        _spare_blocks[size].append(block)

    memory = _used_memory[address] = AutoFreePointer(block.context, block.device_pointer, size, finalizer=give_back)
    return DeviceNDArray(shape, tuple(strides), dtype, gpu_data=memory.own())


def _new_memory(size: int) -> Any:
    """``size`` bytes from the driver; if the driver has not enough, all spare memory goes back to it first."""
    context = cuda.current_context()
    try:
        return context.memalloc(size)
    except Exception as error:
        if not _is_card_error(error):
            raise
        _spare_blocks.clear()
        context.deallocations.clear()
        return context.memalloc(size)


def borrow(interface: dict[str, Any], owner: Any) -> Any:
    """Another library's memory as an array of the card; waits for that library's stream if the interface names one."""
    return _guarded(cuda.from_cuda_array_interface, interface, owner)


def upload(x: Any) -> Any:
    """A copy on the card of an array of the host, C-contiguous; an array of the card is returned as it is."""
    if not isinstance(x, np.ndarray):
        return x
    if recording.program is not None and x.size:
        return recording.program.copy_of(x)
    x = np.ascontiguousarray(x)
    if SIMULATED:  # the simulator's copies to an existing array compare strides even along axes of length one
        return _guarded(cuda.to_device, x)
    copy = empty(x.shape, x.dtype)
    send(x, copy)
    return copy


def download(array: Any) -> np.ndarray:
    """A copy on the host of an array of the card; waits until the array is computed."""
    if recording.program is not None:
        raise HostNeeded
    return np.asarray(_guarded(array.copy_to_host))


def launch(kernel: Any, blocks: int | tuple[int, ...], *arguments: Any) -> None:
    """Start ``blocks`` blocks, perhaps none, of THREADS threads of a kernel, which runs after all kernels before it."""
    if np.prod(blocks):
        if recording.program is not None:
            recording.program.add(kernel, blocks, arguments)
        else:
            _guarded(_start, kernel, blocks, arguments)


def _start(kernel: Any, blocks: int | tuple[int, ...], arguments: tuple) -> None:
    """Launch a kernel without Numba's warning of few blocks: a step of few rows has few blocks."""
    launch_compiled = _compiled_launch(kernel, blocks, arguments)
    if launch_compiled is not None:
        launch_compiled()
        return
    warnings, settings.CUDA_LOW_OCCUPANCY_WARNINGS = settings.CUDA_LOW_OCCUPANCY_WARNINGS, 0
    try:
        configured = kernel[blocks, THREADS]
    finally:
        settings.CUDA_LOW_OCCUPANCY_WARNINGS = warnings
    configured(*arguments)
    if not SIMULATED:
        launching.remember(kernel, arguments)


def _compiled_launch(kernel: Any, blocks: int | tuple[int, ...], arguments: tuple) -> Any:
    """A function that starts a kernel in a stream, by the driver; None before Numba has launched it once."""
    compiled = None if SIMULATED else launching.compiled_of(kernel, arguments)
    grid = blocks if isinstance(blocks, tuple) else (blocks,)
    return None if compiled is None else partial(compiled.launch, grid, THREADS, arguments)


def graph_of(launches: Sequence[tuple[Any, Any, tuple]]) -> Callable[[], None] | None:
    """A function that makes launches (kernel, blocks, arguments) as one; None if a kernel was never launched."""
    starters = [_compiled_launch(*launch) for launch in launches]
    if None in starters:
        return None

    def record(stream: Any) -> None:
        for start in starters:
            start(stream)

    return partial(_guarded, _guarded(launching.LaunchGraph, record).launch)


def written_copy(array: np.ndarray) -> Any:
    """The card's copy of a host's array that a recorded kernel writes; a run copies the array to the card and back."""
    if recording.program is None:
        raise AssertionError("kernels write arrays of the host only while they are recorded")
    return recording.program.copy_of(array, written=True)


def send(array: np.ndarray, copy: Any) -> None:
    """Copy an array of the host to one of the card."""
    _guarded(copy.copy_to_device, array)


def fetch(copy: Any, array: np.ndarray) -> None:
    """Copy an array of the card to one of the host."""
    _guarded(copy.copy_to_host, array)


_uploaded: dict[int, tuple[Any, Any]] = {}  # by the host array's id: (weak reference to it, its copy on the card)


def parameter(array: np.ndarray | None, dimensions: int = 1) -> Any:
    """A copy on the card, made once, of an array that never changes, such as weights; freed with the array."""
    if array is None:
        return no_array(dimensions)
    if not isinstance(array, np.ndarray):
        return array
    key = id(array)
    if key not in _uploaded:
        copy = _guarded(cuda.to_device, np.ascontiguousarray(array))
        _uploaded[key] = weakref.ref(array, lambda _: _uploaded.pop(key, None)), copy
    return _uploaded[key][1]


@functools.cache
def no_array(dimensions: int, dtype: Any = np.float32) -> Any:
    """The empty array that kernels take in place of an absent one, which they recognize by its length."""
    return upload(np.empty((0,) * dimensions, dtype))


def optional(array: np.ndarray | None, dimensions: int, dtype: Any = np.float32) -> Any:
    """``upload`` of the array, or ``no_array``."""
    return no_array(dimensions, dtype) if array is None else upload(array)
