"""Attention on callers' arrays of the host or of the card; users' functions of scores and masks."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import CellType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numba import cuda, int32
from numba.core.errors import NumbaError

from fastattn.arguments.attention import ALL, NONE, SOME, Heads, KeyMask, ScoreTerms, SoftmaxOutputs, StridedArrays
from fastattn.errors import InputError
from fastattn.ops.cuda import card
from fastattn.ops.cuda.attention import (
    AttentionRows,
    CardDistances,
    HeadLayout,
    KernelVariant,
    Outputs,
    VisibleKeys,
    broadcast,
    clear,
    every_key,
    flat,
    launch_attend,
    same_score,
    terms_of,
    tiles_of,
)
from fastattn.ops.cuda.card import THREADS, no_array
from fastattn.ops.device_array import DeviceArray

CUDA_DEVICE = 2  # DLPack's kDLCUDA


def _on_device(function: Any) -> Any:
    """The function as a device function; the functions that it calls become device functions too."""

    def converted(value: Any) -> Any:
        return _on_device(value) if isinstance(value, FunctionType) and value is not function else value

    module_names = function.__globals__
    names = {name: converted(module_names[name]) for name in function.__code__.co_names if name in module_names}
    closure = tuple(CellType(converted(cell.cell_contents)) for cell in function.__closure__ or ())
    definition = module_names | names, function.__name__, function.__defaults__, closure
    return cuda.jit(device=True)(FunctionType(function.__code__, *definition))


@lru_cache(256)
def _compiled(function: Any, kind: str, captured: tuple) -> Any:
    """A user's function of host arrays that broadcast; its attribute ``device`` is the device function.

    captured  the values that the function reads from outside; with other values it is compiled again
    """
    compiled: Any = np.vectorize(function, otypes=[bool if kind == "mask_mod" else np.float64])
    compiled.device = _on_device(function)
    return compiled


def _captured_values(function: Any) -> tuple:
    """The values that a function reads from outside: compiled kernels contain them as constants."""
    names = function.__code__.co_names
    values = [cell.cell_contents for cell in function.__closure__ or ()]
    values += [function.__globals__.get(name) for name in names]
    values += [getattr(module, name, None) for module in values if isinstance(module, ModuleType) for name in names]
    return tuple(
        (value.tobytes(), value.shape, value.dtype.str) if isinstance(value, np.ndarray)
        else _captured_values(value) if isinstance(value, FunctionType) and value is not function
        else repr(value)
        for value in values
    )  # fmt: skip


def compile_function(function: Any, kind: str) -> Any:
    function = getattr(function, "py_func", function)
    if not isinstance(function, FunctionType):
        raise InputError(f"{kind}: expected a function, got a {type(function).__name__}")
    return _compiled(function, kind, _captured_values(function))


def _dlpack_interface(array: Any) -> tuple[dict[str, Any], Any]:
    """(the array interface of a DLPack array on a card, bfloat16 as its bits; an object that keeps the memory)."""
    from cuda.core.utils import StridedMemoryView  # a dependency of numba-cuda

    view = StridedMemoryView.from_dlpack(array, stream_ptr=1)  # complete for the default stream
    dtype = np.dtype(np.uint16 if view.dtype.name == "bfloat16" else view.dtype)
    strides = None if view.strides is None else tuple(step * dtype.itemsize for step in view.strides)
    interface = {"shape": tuple(view.shape), "typestr": dtype.str, "strides": strides, "version": 3}
    return interface | {"data": (view.ptr, view.readonly)}, view


def as_array(array: Any) -> Any:
    """The caller's array; an array of the card, of any library, becomes a DeviceArray, without a copy."""
    kind, number = getattr(array, "__dlpack_device__", lambda: (None, 0))()
    if kind == CUDA_DEVICE and number != card.card_index():
        raise InputError(f"an array lies on card {number}, device 'cuda' is card {card.card_index()}")
    interface: Any = None
    view = None
    try:
        if kind == CUDA_DEVICE:  # DLPack waits for the caller's stream, unlike PyTorch's CUDA array interface
            interface, view = _dlpack_interface(array)
        else:
            interface = getattr(array, "__cuda_array_interface__", None)
        if interface is None:
            return array
        card.borrow(interface, array)  # waits until the array is computed
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # PyTorch refuses a tensor with a gradient
        raise InputError(f"an array on the card cannot be read: {' '.join(str(error).split())}") from error
    result = np.asarray(SimpleNamespace(__array_interface__=interface | {"version": 3}, view=view)).view(DeviceArray)
    result.owner = array
    return result


def _memory(array: DeviceArray) -> tuple[Any, int]:
    """(an array of one axis over the memory of ``array``, which is not empty; the index of its first number there)."""
    size = array.itemsize
    ends = [(count - 1) * step // size for count, step in zip(array.shape, array.strides)]
    first = -sum(end for end in ends if end < 0)
    interface = {"shape": (first + 1 + sum(end for end in ends if end > 0),), "typestr": array.dtype.str}
    interface |= {"data": (array.ctypes.data - first * size, False), "strides": None, "version": 3}
    return card.borrow(interface, array.owner), first


@contextmanager
def on_host(arrays: StridedArrays, outputs: SoftmaxOutputs) -> Iterator[tuple[StridedArrays, SoftmaxOutputs]]:
    copies: list[tuple[Any, np.ndarray]] = []  # (memory on the card, its copy on the host)

    def host_array(array: Any) -> Any:
        if not isinstance(array, DeviceArray):
            return array
        if array.size == 0:
            return np.empty(array.shape, array.dtype)
        memory_X, first = _memory(array)
        copies.append((memory_X, card.download(memory_X)))
        return np.lib.stride_tricks.as_strided(copies[-1][1][first:], array.shape, array.strides)

    host_outputs, out_BTHV = SoftmaxOutputs(*map(host_array, outputs)), host_array(arrays.out_BTHV)
    output_copies = list(copies)
    query_BTHK, key_BSGK, value_BSGV = map(host_array, arrays[:3])
    yield StridedArrays(query_BTHK, key_BSGK, value_BSGV, out_BTHV, *arrays[4:]), host_outputs
    for memory_X, copy_X in output_copies:
        card.send(copy_X, memory_X)


def strided_attention(
    arrays: StridedArrays, heads: Heads, key_mask: KeyMask, terms: ScoreTerms, outputs: SoftmaxOutputs
) -> int:
    (_, H, T, _), K, V = arrays.shape, heads.width, heads.value_width or heads.width
    weights, logs = outputs
    out_BTHV = arrays.out_BTHV
    if not isinstance(out_BTHV, DeviceArray):
        out_BTHV = card.empty(out_BTHV.shape, out_BTHV.dtype)
    steps = (0, 1, H) if arrays.ragged else ((H - 1) * T, T, 1)
    tiles_X6 = card.upload(tiles_of(*arrays.starts))
    query, key, value, out = (_layout(array, arrays.ragged) for array in (*arrays[:3], out_BTHV))
    rows = AttentionRows(query, key, value, out, tiles_X6, K, V, H // heads.key_heads)
    card_outputs = Outputs(
        no_array(4) if weights is None else clear(_output_memory(weights)),
        no_array(1) if logs is None else flat(_output_memory(logs)),
        *steps,
        card.upload(np.zeros(1, np.int32)),
    )
    bytes_BHTS = None if key_mask.mask_BHTS is None else key_mask.mask_BHTS.view(np.uint8)
    mask, states = (broadcast(array, np.uint8) for array in (bytes_BHTS, key_mask.states_BHTS))
    keys = VisibleKeys(card.optional(key_mask.seen_N2, 2, np.int64), key_mask.sinks, mask, states, *key_mask.block)
    variant = KernelVariant(
        dtype=str(arrays.query_BTHK.dtype),
        out_dtype=str(arrays.out_BTHV.dtype),
        additive=terms.vector_HK is not None,
        score_mod=same_score if terms.function is None else terms.function.device,
        mask_mod=every_key if key_mask.function is None else key_mask.function.device,
    )
    scores = terms_of(heads, terms.bias_BHTS, None, terms.sinks_H, terms.vector_HK)
    no_distances = CardDistances(no_array(2), no_array(2))
    _compile_checked(lambda: launch_attend(variant, H, rows, keys, scores, no_distances, card_outputs))
    results = (arrays.out_BTHV, out_BTHV), (weights, card_outputs.weights_BHTS), (logs, card_outputs.logs_X)
    for result, computed in results:
        if result is not None and not isinstance(result, DeviceArray):
            result[...] = card.download(computed).reshape(result.shape)
    return int(card.download(card_outputs.invalid_1)[0])


def _output_memory(array: Any) -> Any:
    """The card's array that a kernel writes for ``array``: its own memory, or a new array of its shape."""
    return array.owner if isinstance(array, DeviceArray) else card.empty(array.shape, array.dtype)


def _layout(array: Any, ragged: bool) -> HeadLayout:
    """The layout of [B, T, H, K], an array of the card or copied to it, with rows counted through all sentences."""
    _, T, H, K = array.shape
    if not isinstance(array, DeviceArray):
        return HeadLayout(flat(array), 0, 0, H * K, K)
    memory_X, first = _memory(array)
    batch, row, head = (step // array.itemsize for step in array.strides[:3])
    return HeadLayout(memory_X, first, 0 if ragged else batch - T * row, row, head)


def _compile_checked(call: Any) -> Any:
    """The result of a call that may compile a user's function; Numba's error becomes an InputError."""
    try:
        return call()
    except NumbaError as error:
        raise InputError(f"a function of scores or masks cannot be compiled: {str(error).splitlines()[-1]}") from error


@lru_cache(256)
def _make_states(mask_mod: Any) -> Any:
    @cuda.jit
    def states(sizes, states_X):
        """A block of threads for each block of the mask; sizes: H, T, S, queries and keys of a block."""
        flags_2 = cuda.shared.array(2, int32)  # whether any key is visible, and whether any is hidden
        H, T, S, queries, keys = sizes
        rows, columns = (T + queries - 1) // queries, (S + keys - 1) // keys
        for x in range(cuda.blockIdx.x, len(states_X), cuda.gridDim.x):
            if cuda.threadIdx.x < 2:
                flags_2[cuda.threadIdx.x] = 0
            cuda.syncthreads()
            first_t, first_s = x // columns % rows * queries, x % columns * keys
            width = min(keys, S - first_s)
            for e in range(cuda.threadIdx.x, min(queries, T - first_t) * width, THREADS):
                t, s = first_t + e // width, first_s + e % width
                if mask_mod(x // (H * rows * columns), x // (rows * columns) % H, t, s):
                    flags_2[0] = 1  # several threads may write the flag
                else:
                    flags_2[1] = 1
            cuda.syncthreads()
            if cuda.threadIdx.x == 0:
                states_X[x] = SOME if flags_2[0] and flags_2[1] else ALL if flags_2[0] else NONE
            cuda.syncthreads()

    return states


def block_states(function: Any, shape: tuple[int, int, int, int], block: tuple[int, int]) -> np.ndarray:
    B, H, T, S = shape
    queries, keys = block
    state_shape = B, H, -(-T // queries), -(-S // keys)
    states_X = card.empty((int(np.prod(state_shape)),), np.uint8)
    kernel, sizes = _make_states(function.device), tuple(map(int, (H, T, S, queries, keys)))
    _compile_checked(lambda: card.launch(kernel, min(len(states_X), 1 << 20), sizes, states_X))
    return card.download(states_X).reshape(state_shape)
