"""Queries, keys and values where they lie in memory, for the kernel: dense in two layouts, or ragged."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastattn.errors import InputError, OutOfMemoryError, conversion, described
from fastattn.ops.cpu.attention.memory import Laid, writeable
from fastattn.simd.target import TARGET
from fastattn.spec.rounding import as_floats

MAX_HEAD_WIDTH = 4096
MAX_SENTENCES = 1 << 26  # arrays without queries may have any number, in no memory
# Layout -> the axes of sentences, positions, heads and head width in it, and their names.
_LAYOUTS = {
    "BTHK": ((0, 1, 2, 3), "(batch, positions, heads, head width)"),
    "BHTK": ((0, 2, 1, 3), "(batch, heads, positions, head width)"),
}


@dataclass(frozen=True)
class Problem:
    """What one call computes. Arrays have axes of sentences, positions, heads and head width, where they lie.

    A ragged batch has one "sentence" in its arrays, and ``starts`` of the real ones in it.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    out: np.ndarray
    returned: np.ndarray  # to the caller, in the caller's layout and type
    place: np.ndarray  # the same with the axes of out, which is float32 beside it where no kernel writes its type
    starts: tuple[np.ndarray, np.ndarray]
    ragged: bool

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(sentences, query heads, most queries, most keys)."""
        B, H = len(self.starts[0]) - 1, self.query.shape[2]
        if not self.ragged:
            return B, H, self.query.shape[1], self.key.shape[1]
        queries, keys = (int(np.diff(starts).max(initial=0)) for starts in self.starts)
        return B, H, queries, keys

    def laid(self) -> Laid:
        """The arrays as the kernel takes them; there must be queries and keys."""
        arrays = self.query, self.key, self.value, self.out
        steps: list[int] = []
        for x in arrays:
            batch, row, head = x.strides[:3]
            steps += [0, 0 if self.ragged else batch - x.shape[1] * row, head, row]
        firsts = [writeable(x[0, 0, :1]) for x in arrays]
        if firsts[0].dtype == np.float16:
            firsts = [first.view(np.int16) for first in firsts]
        return Laid(tuple(firsts), tuple(steps), self.starts)

    def sentences(self) -> Iterator[tuple[slice, tuple[np.ndarray, ...]]]:
        """Of each its rows among all, and its queries, keys, values and results [positions, heads, width]."""
        for b, (first, stop) in enumerate(zip(self.starts[0][:-1], self.starts[0][1:])):
            rows, keys = slice(int(first), int(stop)), slice(int(self.starts[1][b]), int(self.starts[1][b + 1]))
            if self.ragged:
                yield rows, (self.query[0, rows], self.key[0, keys], self.value[0, keys], self.out[0, rows])
            else:
                yield rows, (self.query[b], self.key[b], self.value[b], self.out[b])

    def finish(self) -> np.ndarray:
        """The result, to be returned."""
        if self.out is not self.place:
            with np.errstate(over="ignore"):
                self.place[...] = self.out
        return self.returned


def dense(query: Any, key: Any, value: Any, layout: str, out: Any) -> Problem:
    """The problem of arrays [B, T, H, K], or with heads before positions; InputError where they do not fit."""
    if not isinstance(layout, str) or layout not in _LAYOUTS:
        raise InputError(f"layout: expected {' or '.join(_LAYOUTS)}, got {described(layout)}")
    axes, names = _LAYOUTS[layout]
    given = {"query": query, "key": key, "value": value}
    for name, array in given.items():
        _check_type(name, array, query)
        if array.ndim != 4:
            raise InputError(f"{name}: expected four axes {names}, got shape {array.shape}")
    arrays = [array.transpose(axes) for array in given.values()]
    B, S = arrays[0].shape[0], arrays[1].shape[1]
    if B > MAX_SENTENCES:
        raise InputError(f"query: expected a batch of at most {MAX_SENTENCES}, got {B}")
    if arrays[1].shape[0] != B or arrays[1].shape[3] != arrays[0].shape[3]:
        width = arrays[0].shape[3]
        raise InputError(f"key: expected batch {B} and head width {width} as in the query, got shape {key.shape}")
    if arrays[2].shape[:3] != arrays[1].shape[:3]:
        raise InputError(f"value: expected the key's shape {key.shape}, got {value.shape}; the width may differ")
    shape = (*arrays[0].shape[:3], arrays[2].shape[3])
    starts = np.arange(B + 1) * shape[1], np.arange(B + 1) * S
    return _problem(arrays, starts, False, _result(out, [shape[a] for a in axes], given), axes)


def ragged(query: Any, key: Any, value: Any, query_starts: Any, key_starts: Any, out: Any) -> Problem:
    """The problem of arrays [N, H, K] with the sentences one after another; InputError where they do not fit."""
    given = {"query": query, "key": key, "value": value}
    for name, array in given.items():
        _check_type(name, array, query)
        if array.ndim != 3:
            axes = "(positions of all sentences, heads, head width)"
            raise InputError(f"{name}: expected three axes {axes}, got shape {array.shape}")
    if key.shape[2] != query.shape[2]:
        raise InputError(f"key: expected head width {query.shape[2]} as in the query, got shape {key.shape}")
    if value.shape[:2] != key.shape[:2]:
        raise InputError(f"value: expected the key's shape {key.shape}, got {value.shape}; the width may differ")
    starts = _starts("query_starts", query_starts, len(query)), _starts("key_starts", key_starts, len(key))
    if len(starts[0]) != len(starts[1]):
        raise InputError(f"key_starts: expected {len(starts[0])} numbers, as query_starts has, got {len(starts[1])}")
    arrays = [array[None] for array in given.values()]
    shape = [*query.shape[:2], value.shape[2]]
    return _problem(arrays, starts, True, _result(out, shape, given), None)


def _starts(name: str, starts: Any, rows: int) -> np.ndarray:
    try:
        array = np.asarray(starts)
    except ValueError:  # lists of different lengths
        raise InputError(f"{name}: expected integers, one more than sentences, got nested lists") from None
    if array.ndim != 1 or not len(array) or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"{name}: expected integers, one more than sentences, got {array.dtype} of shape {array.shape}"
        )
    array = np.ascontiguousarray(np.minimum(array, np.iinfo(np.int64).max).astype(np.int64))
    if array[0] != 0 or array[-1] != rows or (np.diff(array) < 0).any():
        raise InputError(f"{name}: expected ascending numbers from 0 to {rows}, the number of rows")
    return array


def _problem(arrays: list, starts: tuple, is_ragged: bool, returned: np.ndarray, axes: tuple | None) -> Problem:
    (H, K), (G, V) = arrays[0].shape[2:], arrays[2].shape[2:]
    if H == 0:
        raise InputError("query: expected at least one head, got none")
    if G == 0 or H % G != 0:
        raise InputError(f"key: expected a number of heads that divides the query's {H}, got {G}")
    for name, width in (("query", K), ("value", V)):
        if not 1 <= width <= MAX_HEAD_WIDTH:
            raise InputError(f"{name}: expected a head width of 1 to {MAX_HEAD_WIDTH}, got {width}")
    query, key, value = (_usable(array) for array in arrays)
    place = returned[None] if axes is None else returned.transpose(axes)
    if place.dtype not in (np.float32, np.float16):
        place = place.view(np.uint16)
    out = place if place.dtype == query.dtype else new_array("a result", place.shape, np.float32)
    return Problem(query, key, value, out, returned, place, starts, is_ragged)


def new_array(name: str, shape: Sequence[int], dtype: Any, make: Callable = np.empty) -> np.ndarray:
    """An array of a shape that may be far greater than its inputs, which may be broadcast; or OutOfMemoryError."""
    try:
        return make(shape, dtype)
    except (MemoryError, ValueError):  # ValueError: more than there are addresses
        raise OutOfMemoryError(f"not enough memory for {name} of shape {tuple(shape)}") from None


def check_floats(name: str, array: Any) -> None:
    """InputError unless it is an array of one of the types that attention takes."""
    is_array = isinstance(array, np.ndarray)
    if not is_array or not (array.dtype in (np.float32, np.float16, np.uint16) or array.dtype.name == "bfloat16"):
        got = str(array.dtype) if is_array else type(array).__name__
        raise InputError(
            f"{name}: expected a NumPy array of float32, float16 or bfloat16 (or its bits, uint16), got {got}; write "
            f"{conversion(name, array)}"
        )


def as_float32(array: np.ndarray) -> np.ndarray:
    """The numbers of an array of such a type."""
    if array.dtype in (np.float32, np.float16):
        return array.astype(np.float32, copy=False)
    return as_floats(array.view(np.uint16))


def contiguous(array: np.ndarray) -> np.ndarray:
    """The array, C-contiguous, aligned and writeable as kernels take it; a copy where it must be."""
    return writeable(np.require(array, requirements=["C", "A"]))


def _check_type(name: str, array: Any, query: Any) -> None:
    check_floats(name, array)
    if array.dtype != query.dtype:
        raise InputError(f"{name}: expected the query's type {query.dtype}, got {array.dtype}")


def _result(out: Any, shape: list[int], given: dict[str, np.ndarray]) -> np.ndarray:
    dtype = given["query"].dtype
    if out is None:
        return new_array("a result", shape, dtype)
    if not isinstance(out, np.ndarray) or out.dtype != dtype or out.shape != tuple(shape):
        got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InputError(f"out: expected an array of {dtype} {tuple(shape)}, got {got}")
    if not out.flags.writeable or not out.flags.aligned or (out.shape[-1] > 1 and out.strides[-1] != out.itemsize):
        raise InputError("out: expected an array that is writeable, with adjacent numbers along its last axis")
    check_apart(out, **given)
    if not out.flags.c_contiguous:
        _check_places(out)
    return out


def _check_places(out: np.ndarray) -> None:
    """InputError where two numbers may lie at one place: every axis must step over all that lies within it."""
    within = out.itemsize  # bytes
    for step, size in sorted((abs(step), size) for step, size in zip(out.strides, out.shape) if size > 1):
        if step < within:
            raise InputError(f"out: expected a place for each number, got strides {out.strides} of shape {out.shape}")
        within += (size - 1) * step


def check_apart(out: np.ndarray, **arrays: np.ndarray | None) -> None:
    """InputError where the result's memory is also that of an array which is read."""
    for name, array in arrays.items():
        if array is not None and np.may_share_memory(out, array):
            raise InputError(f"out: expected memory of its own, got some of {name}'s")


def _usable(array: np.ndarray) -> np.ndarray:
    """The array with adjacent numbers along its last axis, of a type that the kernel knows; a copy where it must be."""
    if array.dtype not in (np.float32, np.float16):
        array = array.view(np.uint16)
    dtype = np.float32 if array.dtype == np.float16 and not TARGET.float16 else array.dtype
    adjacent = array.shape[-1] == 1 or array.strides[-1] == array.itemsize
    if adjacent and array.flags.aligned and dtype == array.dtype:
        return array
    copy = new_array("a copy", array.shape, dtype)
    copy[...] = array
    return copy
