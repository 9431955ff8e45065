"""Checks of the arguments of attention; each error is one line with what was expected and what came."""

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np

from fastattn.errors import InputError, conversion, described

LARGEST = np.iinfo(np.int64).max
FAR = 1 << 60  # beyond any array; sums of two are int64 still
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


def scale_of(options: Mapping[str, Any], width: int) -> float:
    """The option ``scale``; by default 1 / sqrt(width)."""
    scale = options.get("scale")
    return width**-0.5 if scale is None else number("scale", scale)


def softcap_of(options: Mapping[str, Any]) -> float:
    """The option ``softcap``, from 0 on; 0 for None."""
    given = options.get("softcap")
    softcap = 0.0 if given is None else number("softcap", given)
    if softcap < 0:
        raise InputError(f"softcap: expected a number above 0, or 0 for none, got {softcap}")
    return softcap


def check_dtype(name: str, array: Any, dtype: type) -> None:
    """InputError unless it is an array of this type."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        got = str(array.dtype) if isinstance(array, np.ndarray) else type(array).__name__
        way = conversion(name, array, "bool" if dtype is np.bool_ else f"np.{np.dtype(dtype)}")
        if dtype is np.bool_ and isinstance(array, np.ndarray):
            way = f"{name} != 0, or bias={name} where it is added to the scores"
        raise InputError(f"{name}: expected a NumPy array of {np.dtype(dtype)}, got {got}; write {way}")


def is_integer(value: Any) -> bool:
    """Whether it is one of Python's or NumPy's integers; a bool is none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


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
    if len(sides) != 2 or not all(side is None or (is_integer(side) and side >= 0) for side in sides):
        raise InputError(f"window: expected (left, right), each an integer from 0 on or None, got {described(window)}")
    left, right = (None if side is None else min(int(side), FAR) for side in sides)
    return left, right


def sides_of(causal: bool, window: tuple[int | None, int | None]) -> tuple[int, int]:
    """(before, after) as ``seen_around`` takes them."""
    left, right = window
    return -1 if left is None else left, 0 if causal else -1 if right is None else right


def broadcastable(name: str, array: Any, kind: type, shape: tuple[int, ...]) -> np.ndarray:
    """The array with four axes, each of length one or as in ``shape``."""
    check_dtype(name, array, kind)
    full = (1,) * (4 - array.ndim) + array.shape
    if len(full) != 4 or any(axis not in (1, size) for axis, size in zip(full, shape)):
        raise InputError(f"{name}: expected a shape that broadcasts to {shape}, got {array.shape}")
    return array.reshape(full) if array.ndim < 4 else array
