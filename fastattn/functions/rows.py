"""What kernels do with a user's function: change a row of scores, clear bytes of hidden keys, ask about a tile.

A function is the handle of ``compile_function``, or NO_FUNCTION, for which nothing is compiled. A row is that of query
t of head h of sentence b; b, h, t and the first key s are int64. Scores are float32 times log2(e) in memory that may be
read and written in whole vectors; bytes say which keys are seen.
"""

import math

import numpy as np
from numba import types

from fastattn.functions.forms import Function, captured_of
from fastattn.runtime.jit import inner_by_type
from fastattn.simd.bytes import store_byte
from fastattn.simd.lanes import keep_bytes, ramp
from fastattn.simd.operations import OPERATIONS
from fastattn.simd.ranges import make_range, truth_bits
from fastattn.simd.target import LANES
from fastattn.simd.vector import LOG2_E, load, load_scalar, splat, store, store_scalar

_LOG2_E, _LN_2 = np.float32(LOG2_E), np.float32(math.log(2))
_floats, _truths = OPERATIONS["floats_in_lanes"], OPERATIONS["truths_in_lanes"]
_float, _truth = OPERATIONS["to_float"], OPERATIONS["truth"]
NO_FUNCTION = 0
NONE_SEEN, SOME_SEEN, ALL_SEEN = 0, 1, 2


def any_function(function):
    """Whether there is one; known when the kernel is compiled."""
    raise NotImplementedError("any_function is for kernels")


def modify_scores(function, score, b, h, t, s, count):
    """score = score_mod(score, b, h, t, s) at the address ``score``, for the keys s to s + count - 1."""
    raise NotImplementedError("modify_scores is for kernels")


def write_seen(function, target, b, h, t, s, count):
    """Set the bytes at ``target`` to 0 for the hidden ones of the keys s to s + count - 1, and touch no others."""
    raise NotImplementedError("write_seen is for kernels")


def tile_state(function, b, h, t_first, t_last, s_first, s_last):
    """Of these queries and keys, the last ones included: 0 if mask_mod shows none, 2 if all, 1 if some or not known."""
    raise NotImplementedError("tile_state is for kernels")


def _is_none(function) -> bool:
    return isinstance(function, types.Integer) or function == types.Tuple(())


@inner_by_type(any_function)
def _any_function(function):
    if _is_none(function):
        return lambda function: False
    return (lambda function: True) if isinstance(function, Function) else None


@inner_by_type(modify_scores)
def _modify_scores(function, score, b, h, t, s, count):
    if _is_none(function):
        return lambda function, score, b, h, t, s, count: None
    return _modify_by(function, function.forms.best()) if isinstance(function, Function) else None


def _modify_by(function, form):
    call = function.forms.compiled

    def in_lanes(function, score, b, h, t, s, count):
        captured, down, up = captured_of(function), splat(_LN_2), splat(_LOG2_E)
        for k in range(0, count, LANES):
            changed = call(load(score + k * 4) * down, b, h, t, ramp(s + k), *captured)
            store(_floats(changed) * up, score + k * 4)

    def one_by_one(function, score, b, h, t, s, count):
        captured = captured_of(function)
        for k in range(count):
            changed = call(load_scalar(score + k * 4) * _LN_2, b, h, t, s + k, *captured)
            store_scalar(_float(changed) * _LOG2_E, score + k * 4)

    return in_lanes if form == "lanes" else one_by_one


@inner_by_type(write_seen)
def _write_seen(function, target, b, h, t, s, count):
    if _is_none(function):
        return lambda function, target, b, h, t, s, count: None
    return _write_by(function, function.forms.best()) if isinstance(function, Function) else None


def _write_by(function, form):
    call = function.forms.compiled

    def in_lanes(function, target, b, h, t, s, count):
        captured = captured_of(function)
        for k in range(0, count, LANES):
            keep_bytes(_truths(call(b, h, t, ramp(s + k), *captured)), target + k, count - k)

    def one_by_one(function, target, b, h, t, s, count):
        captured = captured_of(function)
        for k in range(count):
            if not _truth(call(b, h, t, s + k, *captured)):
                store_byte(0, target + k)

    return in_lanes if form == "lanes" else one_by_one


@inner_by_type(tile_state)
def _tile_state(function, b, h, t_first, t_last, s_first, s_last):
    if _is_none(function):
        return lambda function, b, h, t_first, t_last, s_first, s_last: ALL_SEEN
    if not isinstance(function, Function):
        return None
    if function.forms.why_not("ranges"):
        return lambda function, b, h, t_first, t_last, s_first, s_last: SOME_SEEN
    call = function.forms.compiled

    def state(function, b, h, t_first, t_last, s_first, s_last):
        queries, keys = make_range(t_first, t_last), make_range(s_first, s_last)
        may = truth_bits(call(b, h, queries, keys, *captured_of(function)))
        return SOME_SEEN if may == 3 else (ALL_SEEN if may == 1 else NONE_SEEN)

    return state
