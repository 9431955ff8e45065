"""Checks of the arguments of attention; each error is one line with what was expected and what came."""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np

from fastattn.errors import InputError

LARGEST = np.iinfo(np.int64).max
Integers: TypeAlias = int | np.integer | Sequence[int] | np.ndarray


def number(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name}: expected a finite number, got {type(value).__name__}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InputError(f"{name}: expected a finite number, got {found}")
    return found


def integers(name: str, values: Any, count: int) -> np.ndarray:
    """``values``, one for all or one a sentence, as int64 [count], clipped to its range."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "Of" and not isinstance(values, np.ndarray):
            array = _integers_of_any_size(values, array)
    except ValueError:  # lists of different lengths
        raise InputError(f"{name}: expected an integer or {count} of them, got nested lists") from None
    none = array.shape == (0,)  # an empty list is of float64
    if not (none or np.issubdtype(array.dtype, np.integer)) or array.shape not in ((), (count,)):
        raise InputError(f"{name}: expected an integer or {count} of them, got {array.dtype} of shape {array.shape}")
    if array.dtype == np.uint64:
        array = np.minimum(array, np.uint64(LARGEST))
    return np.broadcast_to(array.astype(np.int64), (count,))


def _integers_of_any_size(values: Any, array: np.ndarray) -> np.ndarray:
    """Integers beyond int64, which NumPy holds as objects or floats, clipped; ``array`` if they are no integers."""
    objects = np.asarray(values, object)
    if not objects.size or not all(isinstance(value, Integral) for value in objects.flat):
        return array
    bounded = [min(max(int(value), -LARGEST), LARGEST) for value in objects.flat]
    return np.array(bounded, np.int64).reshape(objects.shape)


def window_sides(window: Any) -> tuple[int | None, int | None]:
    """(left, right), each an integer from 0 on, or None: open."""
    if window is None:
        return None, None
    sides = tuple(window) if isinstance(window, (tuple, list)) else ()
    fits = [
        side is None or (isinstance(side, (int, np.integer)) and not isinstance(side, bool) and side >= 0)
        for side in sides
    ]
    if len(sides) != 2 or not all(fits):
        raise InputError(f"window: expected (left, right), each an integer from 0 on or None, got {window!r}")
    left, right = (None if side is None else min(int(side), LARGEST // 4) for side in sides)
    return left, right


def broadcastable(name: str, array: Any, kind: type, shape: tuple[int, ...]) -> np.ndarray:
    """The array with four axes, each of length one or as in ``shape``."""
    if not isinstance(array, np.ndarray) or array.dtype != kind:
        got = str(array.dtype) if isinstance(array, np.ndarray) else type(array).__name__
        raise InputError(f"{name}: expected a NumPy array of {np.dtype(kind)}, got {got}")
    full = (1,) * (4 - array.ndim) + array.shape
    if len(full) != 4 or any(axis not in (1, size) for axis, size in zip(full, shape)):
        raise InputError(f"{name}: expected a shape that broadcasts to {shape}, got {array.shape}")
    return array.reshape(full) if array.ndim < 4 else array


def ranges(
    starts_B1: np.ndarray,
    lengths_B: np.ndarray,
    offset_B: np.ndarray,
    causal: bool,
    window: tuple[int | None, int | None],
) -> np.ndarray:
    """seen_N2 int64: the first key that each query sees and its stop, within its sentence."""
    counts_B = np.diff(starts_B1)
    stop_N = np.repeat(lengths_B, counts_B)
    begin_N = np.zeros_like(stop_N)
    left, right = window
    if causal or left is not None or right is not None:
        # an offset beyond the queries and keys hides or shows everything
        bounded_B = np.clip(offset_B, -counts_B - (right or 0) - 1, lengths_B + (left or 0) + 1)
        at_N = np.arange(int(starts_B1[-1])) - np.repeat(starts_B1[:-1] - bounded_B, counts_B)
        if causal:
            stop_N = np.minimum(stop_N, at_N + 1)
        if right is not None:
            stop_N = np.minimum(stop_N, at_N + right + 1)
        if left is not None:
            begin_N = np.maximum(at_N - left, 0)
    return np.stack([begin_N, stop_N], axis=1)
