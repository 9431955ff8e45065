"""Kernels that do nothing but call a user's function, and what plain Python computes with it."""

import ctypes

import numpy as np
from numba import prange

from fastattn.functions.forms import Forms, handle_class
from fastattn.functions import compile_function
from fastattn.functions import any_seen, mask_scores, modify_scores, tile_state
from fastattn.runtime.jit import kernel
from fastattn.simd.target import LANES
from fastattn.simd.vector import LOG2_E, address


def apply_rows(function, score_TS, b, h, first, count):
    for t in prange(0, score_TS.shape[0]):
        modify_scores(function, address(score_TS) + t * score_TS.shape[1] * 4, b, h, t, first, count)


def mask_rows(function, score_TS, b, h, first, count):
    for t in prange(0, score_TS.shape[0]):
        mask_scores(function, address(score_TS) + t * score_TS.shape[1] * 4, b, h, t, first, count)


def ask_rows(function, seen_T, b, h, first, count):
    for t in prange(0, seen_T.shape[0]):
        seen_T[t] = any_seen(function, b, h, t, first, count)


def ask_tiles(function, state_TS, b, h, rows, columns):
    for i in prange(0, state_TS.shape[0]):
        for j in range(state_TS.shape[1]):
            t, s = i * rows, j * columns
            state_TS[i, j] = tile_state(function, b, h, t, t + rows - 1, s, s + columns - 1)


APPLY, MASK, ASK, TILES = map(kernel, (apply_rows, mask_rows, ask_rows, ask_tiles))


def handle_of(function, kind, form="best"):
    """The function's handle; of a form "scalar", as if there were no other."""
    handle = compile_function(function, kind)
    if form == "scalar":
        own = handle._numba_type_
        forms = Forms(kind, own.forms.rewritten, own.forms.captured)
        forms._reasons["lanes"] = "forced"
        alone = handle_class(f"{own.name} alone", forms, own.places, len(handle) * 8)()
        alone[:], alone.address, alone.kept = handle[:], ctypes.addressof(alone), handle
        return alone
    return handle


def padded(values_TS):
    """The values with as many columns as whole vectors may touch."""
    T, S = values_TS.shape
    result = np.full((T, -(-S // LANES) * LANES), 7, np.float32)
    result[:, :S] = values_TS
    return result


def modified(function, score_TS, b=0, h=0, first=0, form="best"):
    """score_mod of natural scores, by the kernel."""
    T, S = score_TS.shape
    row_TS = padded(score_TS * np.float32(LOG2_E))
    APPLY(handle_of(function, "score_mod", form), row_TS, b, h, first, S)
    return row_TS[:, :S] / np.float32(LOG2_E)


def seen(function, T, S, b=0, h=0, first=0, form="best"):
    """mask_mod as bool [T, S], by the kernel."""
    row_TS = padded(np.zeros((T, S), np.float32))
    MASK(handle_of(function, "mask_mod", form), row_TS, b, h, first, S)
    assert np.isin(row_TS[:, :S], (0, -np.inf)).all()
    return row_TS[:, :S] == 0


def expected_scores(function, score_TS, b=0, h=0, first=0):
    T, S = score_TS.shape
    rows = [[function(float(score_TS[t, s]), b, h, t, first + s) for s in range(S)] for t in range(T)]
    return np.array(rows, np.float64)


def expected_seen(function, T, S, b=0, h=0, first=0):
    return np.array([[bool(function(b, h, t, first + s)) for s in range(S)] for t in range(T)])
