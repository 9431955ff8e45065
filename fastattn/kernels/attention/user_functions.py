"""What kernels do with a user's function: change a row of scores, clear bytes of hidden keys, ask about a tile.

A function is the handle of ``compile_function``, or NO_FUNCTION, for which nothing is compiled. A row is that of query
t of head h of sentence b; b, h, t and the first key s are int64. Scores are float32 times log2(e) in memory that may be
read and written in whole vectors; bytes say which keys are seen.
"""

from numba import types

from fastattn.arguments.attention import ALL
from fastattn.runtime.jit import inner_overload


def _is_none(function) -> bool:
    return isinstance(function, types.Integer) or function == types.Tuple(())


@inner_overload
def any_function(function):
    """Whether there is one; known when the kernel is compiled."""
    return (lambda function: False) if _is_none(function) else (lambda function: True)


@inner_overload
def modify_scores(function, score, b, h, t, s, count):
    """score = score_mod(score, b, h, t, s) at the address ``score``, for the keys s to s + count - 1."""
    if _is_none(function):
        return lambda function, score, b, h, t, s, count: None
    return function.modify_loop()


@inner_overload
def write_seen(function, target, b, h, t, s, count):
    """Set the bytes at ``target`` to 0 for the hidden ones of the keys s to s + count - 1, and touch no others."""
    if _is_none(function):
        return lambda function, target, b, h, t, s, count: None
    return function.write_loop()


@inner_overload
def tile_state(function, b, h, t_first, t_last, s_first, s_last):
    """Of these queries and keys, the last ones included: NONE, SOME or ALL of them are shown by mask_mod."""
    if _is_none(function):
        return lambda function, b, h, t_first, t_last, s_first, s_last: ALL
    return function.state_of_ranges()
