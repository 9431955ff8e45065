"""Checks of the mechanisms' arrays, and their linear projections. Axes: B T H K, as everywhere."""

import math
from typing import Any

import numpy as np

from fastattn.array_attention.arguments import check_dtype, finite_number
from fastattn.errors import InputError
from fastattn.ops.protocol import Ops


def check_float32(name: str, array: Any, *shapes: str) -> np.ndarray:
    """The array, C-contiguous and writeable; InputError unless it is float32 with the axes of one of ``shapes``.

    shapes  the axes as error messages write them, such as "(B, T, K)"; of one axis "(D,)"
    """
    check_dtype(name, array, np.float32)
    if array.ndim not in {shape.count(",") + (shape[-2] != ",") for shape in shapes}:
        raise InputError(f"{name}: expected {' or '.join(shapes)}, got shape {array.shape}")
    return np.require(array, requirements=("C", "W"))  # other layouts would compile another variant of a kernel


def check_shape(name: str, array: np.ndarray, shape: tuple[int, ...], reason: str) -> None:
    if array.shape != shape:
        raise InputError(f"{name}: expected shape {shape}, {reason}, got {array.shape}")


def check_number(name: str, value: Any, least: float = -math.inf) -> float:
    result = finite_number(name, value)
    if result < least:
        raise InputError(f"{name}: expected a finite number of at least {least:g}, got {result:g}")
    return result


def check_integers(name: str, values: Any, shape: tuple[int, ...], low: int, high: int) -> np.ndarray:
    """``values`` as C-contiguous int64, broadcast to ``shape``; InputError unless all are ``low`` to ``high``."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        raise InputError(f"{name}: expected integers of shape {shape}, got nested lists") from None
    if array.size == 0 and not isinstance(values, np.ndarray):
        array = array.astype(np.int64)  # NumPy makes float64 of an empty list
    if array.dtype.kind not in "iu" or array.shape not in ((), shape):
        raise InputError(f"{name}: expected integers of shape {shape}, got {array.dtype} of shape {array.shape}")
    if array.size and not low <= int(array.min()) <= int(array.max()) <= high:
        raise InputError(f"{name}: expected {low} to {high}, got {int(array.min())} to {int(array.max())}")
    return np.array(np.broadcast_to(array.astype(np.int64), shape), order="C")


def shape_of(name: str, values: Any) -> tuple[int, ...]:
    try:
        return np.shape(values)
    except ValueError:
        raise InputError(f"{name}: expected integers, got lists of different lengths") from None


def vector_per_head(name: str, vector: Any, heads: int, width: int, reason: str = "a row of weight") -> np.ndarray:
    """A vector that all heads share, or one of each head, as (H, width); ``reason``: what has one number each."""
    vector_HD = per_head(name, vector, heads, "D")
    if vector_HD.shape[1] != width:
        raise InputError(f"{name}: expected {width} numbers, {reason} each, got {vector_HD.shape[1]}")
    return vector_HD


def per_head(name: str, array: Any, heads: int, *axes: str) -> np.ndarray:
    """A parameter as (H, *axes): an array for each head. An array (*axes) is repeated for all heads."""
    shared_axes = f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"
    array = check_float32(name, array, shared_axes, f"(H, {', '.join(axes)})")
    if array.ndim == len(axes):
        return np.repeat(array[None], heads, axis=0)
    if len(array) != heads:
        raise InputError(f"{name}: expected one for each of {heads} heads, got {len(array)}")
    return array


def linear(
    ops: Ops, x_ND: np.ndarray, weight_FD: np.ndarray, bias_F: np.ndarray | None = None, activation: str = "none"
) -> np.ndarray:
    """activation(x W' + b), [N, F]."""
    return np.asarray(ops.linear(ops.as_rows(x_ND), ops.pack_linear(weight_FD, bias_F), activation))


def project(ops: Ops, x_BTHK: np.ndarray, name: str, weight: Any, activation: str = "none") -> np.ndarray:
    """activation(W x) of each head: (B, T, H, D). W, the array ``weight``, is (D, K) for all heads, or (H, D, K)."""
    B, T, H, K = x_BTHK.shape
    weight = check_float32(name, weight, "(D, K)", "(H, D, K)")
    if weight.shape[-1] != K or 0 in weight.shape:
        raise InputError(f"{name}: expected a last axis of {K}, the width that it multiplies, got shape {weight.shape}")
    D = weight.shape[-2]
    if weight.ndim == 2:
        return linear(ops, x_BTHK.reshape(B * T * H, K), weight, None, activation).reshape(B, T, H, D)
    if len(weight) != H:
        raise InputError(f"{name}: expected one for each of {H} heads, got {len(weight)}")
    projected_BTHD = np.empty((B, T, H, D), np.float32)
    for h in range(H):
        rows_NK = np.ascontiguousarray(x_BTHK[:, :, h]).reshape(B * T, K)
        projected_BTHD[:, :, h] = linear(ops, rows_NK, weight[h], None, activation).reshape(B, T, D)
    return projected_BTHD
