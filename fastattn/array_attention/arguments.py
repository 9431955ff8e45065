"""The arguments of attention: checks, and where queries, keys and values lie in memory, in two layouts or ragged.

Each error message is one line that says what was expected and what came.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fastattn.arguments.attention import StridedArrays
from fastattn.errors import InputError, OutOfMemoryError, conversion, described
from fastattn.ops.device_array import DeviceArray
from fastattn.ops.protocol import Ops
from fastattn.spec.rounding import as_floats

MAX_INT64 = np.iinfo(np.int64).max
FAR = 1 << 60  # beyond any position; the sum of two such numbers is still an int64
Integers: TypeAlias = int | np.integer | Sequence[int] | np.ndarray


def finite_number(name: str, value: Any) -> float:
    """``value`` as a float; InputError unless it is a finite number."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name}: expected a finite number, got {type(value).__name__}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise InputError(f"{name}: expected a finite number, got {result}")
    return result


def scale_of(options: Mapping[str, Any], width: int) -> float:
    """The option ``scale``; by default 1 / sqrt(width)."""
    scale = options.get("scale")
    return width**-0.5 if scale is None else finite_number("scale", scale)


def softcap_of(options: Mapping[str, Any]) -> float:
    """The option ``softcap``, from 0 on; 0 for None."""
    softcap = 0.0 if options.get("softcap") is None else finite_number("softcap", options["softcap"])
    if softcap < 0:
        raise InputError(f"softcap: expected a number above 0, or 0 for none, got {softcap}")
    return softcap


def check_dtype(name: str, array: Any, dtype: type) -> None:
    """InputError unless ``array`` is a NumPy array of this dtype."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        got = str(array.dtype) if isinstance(array, np.ndarray) else type(array).__name__
        correction = conversion(name, array, "bool" if dtype is np.bool_ else f"np.{np.dtype(dtype)}")
        if dtype is np.bool_ and isinstance(array, np.ndarray):
            correction = f"{name} != 0, or bias={name} where it is added to the scores"
        raise InputError(f"{name}: expected a NumPy array of {np.dtype(dtype)}, got {got}; write {correction}")


def is_integer(value: Any) -> bool:
    """Whether ``value`` is an integer of Python or NumPy; a bool is not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def integers_of_sentences(name: str, values: Any, count: int) -> np.ndarray:
    """``values``, a number for all sentences or one for each, as int64 [count], clipped to the range of int64."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "Of" and not isinstance(values, np.ndarray):
            array = _clipped_integers(values, array)
    except ValueError:  # lists of different lengths
        raise InputError(f"{name}: expected an integer or {count} of them, got nested lists") from None
    is_empty = array.shape == (0,)  # NumPy makes float64 of an empty list
    if not (is_empty or np.issubdtype(array.dtype, np.integer)) or array.shape not in ((), (count,)):
        raise InputError(f"{name}: expected an integer or {count} of them, got {array.dtype} of shape {array.shape}")
    if array.dtype == np.uint64:
        array = np.minimum(array, np.uint64(MAX_INT64))
    return np.broadcast_to(array.astype(np.int64), (count,))


def _clipped_integers(values: Any, array: np.ndarray) -> np.ndarray:
    """``values`` clipped to int64 if all are integers, else ``array``. NumPy makes objects or floats of larger ones."""
    objects = np.asarray(values, object)
    if not objects.size or not all(isinstance(value, Integral) for value in objects.flat):
        return array
    bounded = [min(max(int(value), -MAX_INT64), MAX_INT64) for value in objects.flat]
    return np.array(bounded, np.int64).reshape(objects.shape)


def window_sides(window: Any) -> tuple[int | None, int | None]:
    """(left, right), each an integer from 0 on, or None for an open side."""
    if window is None:
        return None, None
    sides = tuple(window) if isinstance(window, (tuple, list)) else ()
    if len(sides) != 2 or not all(side is None or (is_integer(side) and side >= 0) for side in sides):
        raise InputError(f"window: expected (left, right), each an integer from 0 on or None, got {described(window)}")
    left, right = (None if side is None else min(int(side), FAR) for side in sides)
    return left, right


def seen_sides(causal: bool, window: tuple[int | None, int | None]) -> tuple[int, int]:
    """(before, after), the arguments of the operation ``seen_around``: -1 is an open side."""
    left, right = window
    return -1 if left is None else left, 0 if causal else -1 if right is None else right


def broadcastable(name: str, array: Any, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    """``array`` with four axes, each of length one or as in ``shape``; InputError where it does not fit."""
    check_dtype(name, array, dtype)
    four_axes = (1,) * (4 - array.ndim) + array.shape
    if len(four_axes) != 4 or any(length not in (1, size) for length, size in zip(four_axes, shape)):
        raise InputError(f"{name}: expected a shape that broadcasts to {shape}, got {array.shape}")
    return array.reshape(four_axes) if array.ndim < 4 else array


MAX_HEAD_WIDTH = 4096
MAX_SENTENCES = 1 << 26  # an array without queries takes no memory, however many sentences it has
# Layout -> its axes of sentences, positions, heads and head width; its axes as error messages write them.
_LAYOUTS = {
    "BTHK": ((0, 1, 2, 3), "(batch, positions, heads, head width)"),
    "BHTK": ((0, 2, 1, 3), "(batch, heads, positions, head width)"),
}


class Problem(NamedTuple):
    """The arrays of a call.

    output       the result in the caller's layout and type
    output_BTHV  a view of ``output``. ``arrays.out_BTHV`` is this view, or a separate float32 array where no operation
                 writes the caller's type
    """

    arrays: StridedArrays
    output: np.ndarray
    output_BTHV: np.ndarray

    def finish(self) -> np.ndarray:
        """``output`` with the contents of ``arrays.out_BTHV``, which an operation has written."""
        if self.arrays.out_BTHV is not self.output_BTHV:
            with np.errstate(over="ignore"):
                self.output_BTHV[...] = self.arrays.out_BTHV
        return self.output


def dense_problem(ops: Ops, query: Any, key: Any, value: Any, layout: str, out: Any) -> Problem:
    """The problem of arrays in a ``layout``, [B, T, H, K] or [B, H, T, K]; InputError where they do not fit."""
    if not isinstance(layout, str) or layout not in _LAYOUTS:
        raise InputError(f"layout: expected {' or '.join(_LAYOUTS)}, got {described(layout)}")
    axes, axis_names = _LAYOUTS[layout]
    inputs = _inputs(ops, (query, key, value), f"four axes {axis_names}", 4)
    arrays = [array.transpose(axes) for array in inputs.values()]
    (B, T, _, K), (key_batch, S, _, key_width) = arrays[0].shape, arrays[1].shape
    if B > MAX_SENTENCES:
        raise InputError(f"query: expected a batch of at most {MAX_SENTENCES}, got {B}")
    if (key_batch, key_width) != (B, K):
        got = inputs["key"].shape
        raise InputError(f"key: expected batch {B} and head width {K} as in the query, got shape {got}")
    return _problem(ops, inputs, arrays, (np.arange(B + 1) * T, np.arange(B + 1) * S), out, axes)


def ragged_problem(ops: Ops, query: Any, key: Any, value: Any, starts: tuple[Any, Any], out: Any) -> Problem:
    """The problem of arrays [N, H, K] with one sentence after another; InputError where they do not fit."""
    inputs = _inputs(ops, (query, key, value), "three axes (positions of all sentences, heads, head width)", 3)
    query, key, value = inputs.values()
    if key.shape[2] != query.shape[2]:
        raise InputError(f"key: expected head width {query.shape[2]} as in the query, got shape {key.shape}")
    starts = _checked_starts("query_starts", starts[0], len(query)), _checked_starts("key_starts", starts[1], len(key))
    if len(starts[0]) != len(starts[1]):
        raise InputError(f"key_starts: expected {len(starts[0])} numbers, as query_starts has, got {len(starts[1])}")
    return _problem(ops, inputs, [array[None] for array in inputs.values()], starts, out, None)


def _inputs(ops: Ops, arrays: tuple[Any, ...], axes: str, count: int) -> dict[str, np.ndarray]:
    """Query, key and value by name, as arrays of the operations; InputError for a wrong type, device or axes."""
    query, key, value = map(ops.as_array, arrays)
    inputs = {"query": query, "key": key, "value": value}
    for name, array in inputs.items():
        check_floats(name, array)
        if array.dtype != query.dtype:
            raise InputError(f"{name}: expected the query's type {query.dtype}, got {array.dtype}")
        _check_device(name, array, query)
        if array.ndim != count:
            raise InputError(f"{name}: expected {axes}, got shape {array.shape}")
    return inputs


def _checked_starts(name: str, starts: Any, rows: int) -> np.ndarray:
    """``starts`` as int64 [B + 1]; InputError unless they ascend from 0 to ``rows``."""
    try:
        array = np.asarray(starts)
    except ValueError:  # lists of different lengths
        raise InputError(f"{name}: expected integers, one more than sentences, got nested lists") from None
    if array.ndim != 1 or not len(array) or not np.issubdtype(array.dtype, np.integer):
        got = f"{array.dtype} of shape {array.shape}"
        raise InputError(f"{name}: expected integers, one more than sentences, got {got}")
    array = np.ascontiguousarray(np.minimum(array, MAX_INT64).astype(np.int64))
    if array[0] != 0 or array[-1] != rows or (np.diff(array) < 0).any():
        raise InputError(f"{name}: expected ascending numbers from 0 to {rows}, the number of rows")
    return array


def _problem(
    ops: Ops,
    inputs: dict[str, np.ndarray],
    arrays: list[np.ndarray],
    starts: tuple[np.ndarray, np.ndarray],
    out: Any,
    axes: tuple[int, ...] | None,
) -> Problem:
    """The problem of ``arrays``, the inputs as [B, T, H, K]; ``axes`` are the layout's, or None for a ragged batch."""
    (H, K), (G, V) = arrays[0].shape[2:], arrays[2].shape[2:]
    if arrays[2].shape[:3] != arrays[1].shape[:3]:
        expected, got = inputs["key"].shape, inputs["value"].shape
        raise InputError(f"value: expected the key's shape {expected}, got {got}; the width may differ")
    shape_BTHV = (*arrays[0].shape[:3], V)
    output_shape = list(shape_BTHV[1:]) if axes is None else [shape_BTHV[axis] for axis in axes]
    output = _checked_output(ops, ops.as_array(out), output_shape, inputs)
    output_BTHV = output[None] if axes is None else output.transpose(axes)
    if H == 0:
        raise InputError("query: expected at least one head, got none")
    if G == 0 or H % G != 0:
        raise InputError(f"key: expected a number of heads that divides the query's {H}, got {G}")
    for name, width in (("query", K), ("value", V)):
        if not 1 <= width <= MAX_HEAD_WIDTH:
            raise InputError(f"{name}: expected a head width of 1 to {MAX_HEAD_WIDTH}, got {width}")
    reads_float16 = ops.reads_float16()
    query, key, value = (_readable(name, array, reads_float16) for name, array in zip(inputs, arrays))
    if output_BTHV.dtype not in (np.float32, np.float16):
        output_BTHV = output_BTHV.view(np.uint16)
    out = output_BTHV if output_BTHV.dtype == query.dtype else new_array("a result", output_BTHV.shape, np.float32)
    T, S = query.shape[1], key.shape[1]
    if axes is None:
        T, S = (int(np.diff(starts_B1).max(initial=0)) for starts_B1 in starts)
    shape = len(starts[0]) - 1, H, T, S
    return Problem(StridedArrays(query, key, value, out, shape, starts, axes is None), output, output_BTHV)


def new_array(name: str, shape: Sequence[int], dtype: Any, make: Callable = np.empty) -> np.ndarray:
    """A new array, which may be far larger than the caller's arrays; OutOfMemoryError where memory is short."""
    try:
        return make(shape, dtype)
    except (MemoryError, ValueError):  # ValueError: more bytes than addresses
        raise OutOfMemoryError(f"not enough memory for {name} of shape {tuple(shape)}") from None


def new_result(
    ops: Ops, query: np.ndarray, name: str, shape: Sequence[int], dtype: Any, make: Callable = np.empty
) -> np.ndarray:
    """A ``new_array``; where the query lies on the card, an array there whose values are arbitrary."""
    if isinstance(query, DeviceArray):
        return ops.as_array(ops.empty(tuple(shape), dtype))
    return new_array(name, shape, dtype, make)


def check_floats(name: str, array: Any) -> None:
    """InputError unless ``array`` is a NumPy array of a dtype that attention takes."""
    is_array = isinstance(array, np.ndarray)
    if not is_array or not (array.dtype in (np.float32, np.float16, np.uint16) or array.dtype.name == "bfloat16"):
        got = str(array.dtype) if is_array else type(array).__name__
        dtypes = "float32, float16 or bfloat16 (or its bits, uint16)"
        raise InputError(f"{name}: expected a NumPy array of {dtypes}, got {got}; write {conversion(name, array)}")


def as_float32(array: np.ndarray) -> np.ndarray:
    """An array of float32, float16 or bfloat16 (or its bits) as float32."""
    if array.dtype in (np.float32, np.float16):
        return array.astype(np.float32, copy=False)
    return as_floats(array.view(np.uint16))


def _check_device(name: str, array: np.ndarray, query: np.ndarray) -> None:
    on_card = [isinstance(one, DeviceArray) for one in (query, array)]
    if on_card[0] != on_card[1]:
        expected, got = ("an array on the card" if one else "a NumPy array" for one in on_card)
        raise InputError(f"{name}: expected {expected}, as the query is, got {got}")


def _checked_output(ops: Ops, out: Any, shape: list[int], inputs: dict[str, np.ndarray]) -> np.ndarray:
    """``out``, or a new array where it is None; InputError unless ``out`` can take the result."""
    query, dtype = inputs["query"], inputs["query"].dtype
    if out is None:
        return new_result(ops, query, "a result", shape, dtype)
    if not isinstance(out, np.ndarray) or out.dtype != dtype or out.shape != tuple(shape):
        got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InputError(f"out: expected an array of {dtype} {tuple(shape)}, got {got}")
    _check_device("out", out, query)
    if not out.flags.writeable or not out.flags.aligned or (out.shape[-1] > 1 and out.strides[-1] != out.itemsize):
        raise InputError("out: expected an array that is writeable, with adjacent numbers along its last axis")
    check_apart(out, **inputs)
    if not out.flags.c_contiguous:
        _check_overlap(out)
    return out


def _check_overlap(out: np.ndarray) -> None:
    """InputError where two numbers may share an address: an axis must step over all bytes of its inner axes."""
    inner_bytes = out.itemsize
    for step, size in sorted((abs(step), size) for step, size in zip(out.strides, out.shape) if size > 1):
        if step < inner_bytes:
            raise InputError(f"out: expected a place for each number, got strides {out.strides} of shape {out.shape}")
        inner_bytes += (size - 1) * step


def check_apart(out: np.ndarray, **arrays: np.ndarray | None) -> None:
    """InputError where ``out`` may share memory with one of ``arrays``, which attention reads."""
    for name, array in arrays.items():
        if array is not None and np.may_share_memory(out, array):
            raise InputError(f"out: expected memory of its own, got some of {name}'s")


def _readable(name: str, array: np.ndarray, reads_float16: bool) -> np.ndarray:
    """The array with adjacent numbers along its last axis, in a dtype that operations read; a copy only if needed."""
    if array.dtype not in (np.float32, np.float16):
        array = array.view(np.uint16)
    on_card = isinstance(array, DeviceArray)
    dtype = np.float32 if array.dtype == np.float16 and not (reads_float16 or on_card) else array.dtype
    adjacent = array.shape[-1] == 1 or array.strides[-1] == array.itemsize
    if adjacent and array.flags.aligned and dtype == array.dtype:
        return array
    if on_card:
        layout = "on the card, aligned and adjacent along the last axis"
        raise InputError(f"{name}: expected numbers {layout}, got strides {array.strides} of {array.dtype}")
    copy = new_array("a copy", array.shape, dtype)
    copy[...] = array
    return copy
