"""Kernels that do nothing but call a user's function, and what plain Python computes with it."""

import ctypes

import numpy as np
from numba import prange

from fastattn.kernels.attention.masks import modify_scores, tile_state, write_seen
from fastattn.runtime.jit import kernel
from fastattn.simd.arguments import LOG2_E
from fastattn.simd.memory import address
from fastattn.simd.target import LANES
from fastattn.user_functions.function_type import Variants, handle_class
from fastattn.user_functions.plan import compile_function


def apply_rows(function, score_TS, b, h, first, count):
    for t in prange(0, score_TS.shape[0]):
        modify_scores(function, address(score_TS) + t * score_TS.shape[1] * 4, b, h, t, first, count)


def ask_tiles(function, state_TS, b, h, rows, columns):
    for i in prange(0, state_TS.shape[0]):
        for j in range(state_TS.shape[1]):
            t, s = i * rows, j * columns
            state_TS[i, j] = tile_state(function, b, h, t, t + rows - 1, s, s + columns - 1)


def keep_rows(function, seen_TS, b, h, first, count):
    for t in prange(0, seen_TS.shape[0]):
        write_seen(function, address(seen_TS) + t * seen_TS.shape[1], b, h, t, first, count)


APPLY, TILES, KEEP = map(kernel, (apply_rows, ask_tiles, keep_rows))


def handle_of(function, kind, variant="best"):
    """The function's handle; for "scalar", as if there were no other variant; of no function, what stands for that."""
    if not callable(function):
        return function
    handle = compile_function(function, kind)
    if variant == "scalar":
        own = handle._numba_type_
        variants = Variants(kind, own.variants.new_source, own.variants.captured_types)
        variants._reasons["lanes"] = "forced"
        alone = handle_class(f"{own.name} alone", variants, own.offsets, len(handle) * 8)()
        alone[:], alone.address, alone.captured = handle[:], ctypes.addressof(alone), handle
        return alone
    return handle


def modified(function, score_TS, b=0, h=0, first=0, variant="best"):
    """score_mod of natural scores, by the kernel, which may touch whole vectors."""
    T, S = score_TS.shape
    row_TS = np.full((T, -(-S // LANES) * LANES), 7, np.float32)
    row_TS[:, :S] = score_TS * np.float32(LOG2_E)
    APPLY(handle_of(function, "score_mod", variant), row_TS, b, h, first, S)
    return row_TS[:, :S] / np.float32(LOG2_E)


def in_both(function, score_TS, *place):
    """score_mod of natural scores in lanes, and without."""
    return [modified(function, score_TS, *place, variant=variant) for variant in ("best", "scalar")]


def seen(function, T, S, b=0, h=0, first=0, variant="best"):
    """mask_mod as bool [T, S], by the bytes that it sets to 0; no others are touched."""
    seen_TS = np.full((T, S + 5), 3, np.uint8)
    KEEP(handle_of(function, "mask_mod", variant), seen_TS, b, h, first, S)
    assert (seen_TS[:, S:] == 3).all() and np.isin(seen_TS, (0, 3)).all()
    return seen_TS[:, :S] == 3


def states_of(function, shape, tile, b=0, h=0):
    """The states of tiles of so many queries and keys."""
    states = np.full(shape, -1, np.int64)
    TILES(handle_of(function, "mask_mod"), states, b, h, *tile)
    return states


def expected_scores(function, score_TS, b=0, h=0, first=0):
    function = getattr(function, "py_func", function)
    T, S = score_TS.shape
    rows = [[function(float(score_TS[t, s]), b, h, t, first + s) for s in range(S)] for t in range(T)]
    return np.array(rows, np.float64)


def expected_seen(function, T, S, b=0, h=0, first=0):
    return np.array([[bool(function(b, h, t, first + s)) for s in range(S)] for t in range(T)])


def one_of_scores(functions):
    """The score_mod that calls the function of number b, as of sentence 1: compiled once, not each by itself."""
    if len(functions) == 1:
        (function,) = functions
        return lambda score, b, h, t, s: function(score, 1, h, t, s)
    middle = len(functions) // 2
    first, second = one_of_scores(functions[:middle]), one_of_scores(functions[middle:])
    return lambda score, b, h, t, s: first(score, b, h, t, s) if b < middle else second(score, b - middle, h, t, s)


def one_of_masks(functions):
    """The mask_mod that calls the function of number b, as of sentence 1."""
    if len(functions) == 1:
        (function,) = functions
        return lambda b, h, t, s: function(1, h, t, s)
    middle = len(functions) // 2
    first, second = one_of_masks(functions[:middle]), one_of_masks(functions[middle:])
    return lambda b, h, t, s: first(b, h, t, s) if b < middle else second(b - middle, h, t, s)
