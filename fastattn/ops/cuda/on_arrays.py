"""Attention of callers' arrays, NumPy's or the card's own; users' functions of scores and masks."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import CellType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numba import cuda, int32
from numba.core.errors import NumbaError

from fastattn.arguments.attention import ALL, NONE, SOME, Heads, ScoreTerms, SoftmaxOutputs, StridedArrays, Visible
from fastattn.errors import InputError
from fastattn.ops.cuda import card
from fastattn.ops.cuda.attention import (
    Form,
    LaidHeads,
    NearRows,
    Outputs,
    Rows,
    VisibleKeys,
    broadcast,
    cleared,
    every_key,
    flat,
    launch_attend,
    places_of,
    same_score,
    terms_of,
)
from fastattn.ops.cuda.card import THREADS, none
from fastattn.ops.device_array import DeviceArray

ON_A_CARD = 2  # DLPack's kDLCUDA


def _on_device(function: Any) -> Any:
    """The function as a device function; functions that it calls become device functions too."""

    def on_device(value: Any) -> Any:
        return _on_device(value) if isinstance(value, FunctionType) and value is not function else value

    outer = function.__globals__
    names = {name: on_device(outer[name]) for name in function.__code__.co_names if name in outer}
    closure = tuple(CellType(on_device(cell.cell_contents)) for cell in function.__closure__ or ())
    definition = outer | names, function.__name__, function.__defaults__, closure
    return cuda.jit(device=True)(FunctionType(function.__code__, *definition))


@lru_cache(256)
def _compiled(function: Any, kind: str, captured: tuple) -> Any:
    """A user's function for arrays on the host, which broadcast; its ``device`` is the function for kernels."""
    compiled: Any = np.vectorize(function, otypes=[bool if kind == "mask_mod" else np.float64])
    compiled.device = _on_device(function)
    return compiled


def _captured(function: Any) -> tuple:
    """The values that a function reads from outside: compiled kernels contain them as constants."""
    names = function.__code__.co_names
    values = [cell.cell_contents for cell in function.__closure__ or ()]
    values += [function.__globals__.get(name) for name in names]
    values += [getattr(module, name, None) for module in values if isinstance(module, ModuleType) for name in names]
    return tuple(
        (value.tobytes(), value.shape, value.dtype.str) if isinstance(value, np.ndarray)
        else _captured(value) if isinstance(value, FunctionType) and value is not function
        else repr(value)
        for value in values
    )  # fmt: skip


def compile_function(function: Any, kind: str) -> Any:
    function = getattr(function, "py_func", function)
    if not isinstance(function, FunctionType):
        raise InputError(f"{kind}: expected a function, got a {type(function).__name__}")
    return _compiled(function, kind, _captured(function))


def _by_dlpack(array: Any) -> tuple[dict[str, Any], Any]:
    """(the array interface of a DLPack array on a card, bfloat16 as its bits; an object that keeps the memory)."""
    from cuda.core.utils import StridedMemoryView  # which numba-cuda needs itself

    view = StridedMemoryView.from_dlpack(array, stream_ptr=1)  # complete for the default stream
    dtype = np.dtype(np.uint16 if view.dtype.name == "bfloat16" else view.dtype)
    strides = None if view.strides is None else tuple(step * dtype.itemsize for step in view.strides)
    interface = {"shape": tuple(view.shape), "typestr": dtype.str, "strides": strides, "version": 3}
    return interface | {"data": (view.ptr, view.readonly)}, view


def as_array(array: Any) -> Any:
    """The caller's array; memory of the card, of any library, as a DeviceArray, without a copy."""
    kind, number = getattr(array, "__dlpack_device__", lambda: (None, 0))()
    if kind == ON_A_CARD and number != card.card_index():
        raise InputError(f"an array lies on card {number}, device 'cuda' is card {card.card_index()}")
    interface: Any = None
    view = None
    try:
        if kind == ON_A_CARD:  # preferred: it waits for the caller's stream, which PyTorch's other interface omits
            interface, view = _by_dlpack(array)
        else:
            interface = getattr(array, "__cuda_array_interface__", None)
        if interface is None:
            return array
        card.borrow(interface, array)  # waits for the array
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # PyTorch's, for a tensor with a gradient
        raise InputError(f"an array on the card cannot be read: {' '.join(str(error).split())}") from error
    described = np.asarray(SimpleNamespace(__array_interface__=interface | {"version": 3}, view=view)).view(DeviceArray)
    described.owner = array
    return described


def _memory(array: DeviceArray) -> tuple[Any, int]:
    """(the memory of an array of the card, not empty, with one axis; the place of the array's first number there)."""
    size = array.itemsize
    ends = [(count - 1) * step // size for count, step in zip(array.shape, array.strides)]
    first = -sum(end for end in ends if end < 0)
    interface = {"shape": (first + 1 + sum(end for end in ends if end > 0),), "typestr": array.dtype.str}
    interface |= {"data": (array.ctypes.data - first * size, False), "strides": None, "version": 3}
    return card.borrow(interface, array.owner), first


@contextmanager
def on_host(arrays: StridedArrays, outputs: SoftmaxOutputs) -> Iterator[tuple[StridedArrays, SoftmaxOutputs]]:
    copies: list[tuple[Any, np.ndarray]] = []

    def fetched(array: Any) -> Any:
        if not isinstance(array, DeviceArray):
            return array
        if array.size == 0:
            return np.empty(array.shape, array.dtype)
        memory_X, first = _memory(array)
        copies.append((memory_X, card.download(memory_X)))
        return np.lib.stride_tricks.as_strided(copies[-1][1][first:], array.shape, array.strides)

    host_outputs, out_BTHV = SoftmaxOutputs(*map(fetched, outputs)), fetched(arrays.out_BTHV)
    written = list(copies)
    query_BTHK, key_BSGK, value_BSGV = map(fetched, arrays[:3])
    yield StridedArrays(query_BTHK, key_BSGK, value_BSGV, out_BTHV, *arrays[4:]), host_outputs
    for memory_X, copy_X in written:
        card.send(copy_X, memory_X)


def strided_attention(
    arrays: StridedArrays, heads: Heads, visible: Visible, terms: ScoreTerms, outputs: SoftmaxOutputs
) -> int:
    (_, H, T, _), K, V = arrays.shape, heads.width, heads.value_width or heads.width
    weights, logs = outputs
    out_BTHV = arrays.out_BTHV
    if not isinstance(out_BTHV, DeviceArray):
        out_BTHV = card.empty(out_BTHV.shape, out_BTHV.dtype)
    steps = (0, 1, H) if arrays.ragged else ((H - 1) * T, T, 1)
    places_X6 = card.upload(places_of(*arrays.starts))
    query, key, value, out = (_laid(array, arrays.ragged) for array in (*arrays[:3], out_BTHV))
    rows = Rows(query, key, value, out, places_X6, K, V, H // heads.key_heads)
    written = Outputs(
        none(4) if weights is None else cleared(_room(weights)),
        none(1) if logs is None else flat(_room(logs)),
        *steps,
        card.upload(np.zeros(1, np.int32)),
    )
    bytes_BHTS = None if visible.mask_BHTS is None else visible.mask_BHTS.view(np.uint8)
    mask, states = (broadcast(array, np.uint8) for array in (bytes_BHTS, visible.states_BHTS))
    keys = VisibleKeys(card.optional(visible.seen_N2, 2, np.int64), visible.sinks, mask, states, *visible.block)
    form = Form(
        dtype=str(arrays.query_BTHK.dtype),
        out=str(arrays.out_BTHV.dtype),
        additive=terms.vector_HK is not None,
        score_mod=same_score if terms.function is None else terms.function.device,
        mask_mod=every_key if visible.function is None else visible.function.device,
    )
    scores = terms_of(heads, terms.bias_BHTS, None, terms.sinks_H, terms.vector_HK)
    _checked(lambda: launch_attend(form, rows, keys, scores, NearRows(none(2), none(2)), written, H))
    results = (arrays.out_BTHV, out_BTHV), (weights, written.weights_BHTS), (logs, written.logs_X)
    for result, device_array in results:
        if result is not None and not isinstance(result, DeviceArray):
            result[...] = card.download(device_array).reshape(result.shape)
    return int(card.download(written.invalid_1)[0])


def _room(array: Any) -> Any:
    """The array of the card that a kernel writes for this one: its own memory, or an array of its size."""
    return array.owner if isinstance(array, DeviceArray) else card.empty(array.shape, array.dtype)


def _laid(array: Any, ragged: bool) -> LaidHeads:
    """[B, T, H, K] with rows counted through all sentences: where it lies on the card, or a contiguous copy there."""
    _, T, H, K = array.shape
    if not isinstance(array, DeviceArray):
        return LaidHeads(flat(array), 0, 0, H * K, K)
    memory_X, first = _memory(array)
    batch, row, head = (step // array.itemsize for step in array.strides[:3])
    return LaidHeads(memory_X, first, 0 if ragged else batch - T * row, row, head)


def _checked(call: Any) -> Any:
    try:
        return call()
    except NumbaError as error:
        raise InputError(f"a function of scores or masks cannot be compiled: {str(error).splitlines()[-1]}") from error


@lru_cache(256)
def _make_states(mask_mod: Any) -> Any:
    @cuda.jit
    def states(sizes, states_X):
        """A block of threads for each block of the mask; sizes: H, T, S, queries and keys of a block."""
        flags_2 = cuda.shared.array(2, int32)  # whether any key is seen, and whether any is hidden
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
                    flags_2[0] = 1  # several threads may write it
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
    states = B, H, -(-T // queries), -(-S // keys)
    states_X = card.empty((int(np.prod(states)),), np.uint8)
    kernel, sizes = _make_states(function.device), tuple(map(int, (H, T, S, queries, keys)))
    _checked(lambda: card.launch(kernel, min(len(states_X), 1 << 20), sizes, states_X))
    return card.download(states_X).reshape(states)
