"""The loops over a row's keys that call a user's function, a vector of keys at a time, or key by key."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from fastattn.kernels.attention.arguments import ALL, NONE, SOME
from fastattn.simd.arguments import LOG2_E
from fastattn.simd.attention import store_byte
from fastattn.simd.emit import F32, I64
from fastattn.simd.lanes import keep_bytes, ramp
from fastattn.simd.operations import OPERATIONS
from fastattn.simd.ranges import make_range, truth_bits
from fastattn.simd.tables import Table
from fastattn.simd.target import LANES
from fastattn.simd.vector import load, load_scalar, splat, store, store_scalar

_LOG2_E, _LN_2 = np.float32(LOG2_E), np.float32(math.log(2))
_floats, _truths = OPERATIONS["floats_in_lanes"], OPERATIONS["truths_in_lanes"]
_float, _truth = OPERATIONS["to_float"], OPERATIONS["truth"]


@intrinsic
def captured_of(typing_context, function):
    """A tuple of the function's captured values."""

    def generate(context, builder, signature, arguments):
        (address,) = arguments
        kinds = zip(function.variants.captured, function.offsets)
        values = [_load(context, builder, kind, builder.add(address, I64(offset))) for kind, offset in kinds]
        return context.make_tuple(builder, signature.return_type, values)

    return types.Tuple(function.variants.captured)(function), generate


def _load(context, builder, kind, address):
    stored = F32 if kind == types.float32 else I64
    if isinstance(kind, Table):
        stored = context.get_value_type(kind)
    value = builder.load(builder.inttoptr(address, stored.as_pointer()))
    value.align = 8
    return builder.icmp_unsigned("!=", value, I64(0)) if kind == types.boolean else value


def modify_loop(function: Any) -> Callable:
    """The implementation of ``modify_scores`` for a function."""
    call = function.variants.compiled

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

    return in_lanes if function.variants.best() == "lanes" else one_by_one


def write_loop(function: Any) -> Callable:
    """The implementation of ``write_seen`` for a function."""
    call = function.variants.compiled

    def in_lanes(function, target, b, h, t, s, count):
        captured = captured_of(function)
        for k in range(0, count, LANES):
            keep_bytes(_truths(call(b, h, t, ramp(s + k), *captured)), target + k, count - k)

    def one_by_one(function, target, b, h, t, s, count):
        captured = captured_of(function)
        for k in range(count):
            if not _truth(call(b, h, t, s + k, *captured)):
                store_byte(0, target + k)

    return in_lanes if function.variants.best() == "lanes" else one_by_one


def state_of_ranges(function: Any) -> Callable:
    """The implementation of ``tile_state`` for a function."""
    if function.variants.why_not("ranges"):
        return lambda function, b, h, t_first, t_last, s_first, s_last: SOME
    call = function.variants.compiled

    def state(function, b, h, t_first, t_last, s_first, s_last):
        queries, keys = make_range(t_first, t_last), make_range(s_first, s_last)
        may = truth_bits(call(b, h, queries, keys, *captured_of(function)))
        return SOME if may == 3 else (ALL if may == 1 else NONE)

    return state
