"""Attention of callers' arrays, which are NumPy's; users' functions of scores and masks."""

from functools import lru_cache
from types import CellType, FunctionType
from typing import Any

import numpy as np
from numba import cuda, int32
from numba.core.errors import NumbaError

from fastattn.errors import InputError
from fastattn.ops.attention import ALL, NONE, SOME, Heads, ScoreTerms, SoftmaxOutputs, StridedArrays, Visible
from fastattn.ops.cuda import card
from fastattn.ops.cuda.attend import Form, NearRows, Outputs, Rows
from fastattn.ops.cuda.attention import broadcast, cleared, flat, launch_attend, none, places_of, terms_of
from fastattn.ops.cuda.card import THREADS
from fastattn.ops.cuda.scores import LaidHeads, Seen, every_key, same_score
from fastattn.spec.rounding import bfloat16_bits


def _on_device(function: Any) -> Any:
    """A device function, as are those that it calls."""

    def made(one: Any) -> Any:
        return _on_device(one) if isinstance(one, FunctionType) and one is not function else one

    names = {
        name: made(function.__globals__[name]) for name in function.__code__.co_names if name in function.__globals__
    }
    closure = tuple(CellType(made(cell.cell_contents)) for cell in function.__closure__ or ())
    given = function.__globals__ | names, function.__name__, function.__defaults__, closure
    return cuda.jit(device=True)(FunctionType(function.__code__, *given))


class UserFunction:
    """A user's function on the card, ``device``, and of arrays that broadcast here."""

    def __init__(self, function: Any, kind: str):
        self.device = _on_device(function)
        self.host = np.vectorize(function, otypes=[bool if kind == "mask_mod" else np.float64])

    def __call__(self, *arguments: Any) -> np.ndarray:
        return self.host(*arguments)


@lru_cache(256)
def _compiled(function: Any, kind: str, captured: tuple) -> UserFunction:
    return UserFunction(function, kind)


def _captured(function: Any) -> tuple:
    """What a function reads of outside, by value: kernels have it as constants."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    found = [function.__globals__.get(name) for name in function.__code__.co_names]
    return tuple(
        (one.tobytes(), one.shape, one.dtype.str) if isinstance(one, np.ndarray)
        else _captured(one) if isinstance(one, FunctionType) and one is not function
        else repr(one)
        for one in (*cells, *found)
    )  # fmt: skip


def compile_function(function: Any, kind: str) -> Any:
    """What operations take for a ``score_mod(score, b, h, t, s)`` or ``mask_mod(b, h, t, s)``, as ``kind`` says."""
    function = getattr(function, "py_func", function)
    if not isinstance(function, FunctionType):
        raise InputError(f"{kind}: expected a function, got a {type(function).__name__}")
    return _compiled(function, kind, _captured(function))


def strided_attention(
    arrays: StridedArrays, heads: Heads, visible: Visible, terms: ScoreTerms, outputs: SoftmaxOutputs
) -> int:
    """Multi-head attention of a caller's arrays; the number of rows that float32 could not hold."""
    (_, H, T, _), K, V = arrays.shape, heads.width, heads.value_width or heads.width
    out_BTHV = card.empty(arrays.out_BTHV.shape, np.float32)
    weights, logs = outputs
    steps = (0, 1, H) if arrays.ragged else ((H - 1) * T, T, 1)
    places_X6 = card.upload(places_of(*arrays.starts))
    query, key, value, out = map(_laid, (*arrays[:3], out_BTHV))
    rows = Rows(query, key, value, out, places_X6, K, V, H // heads.key_heads)
    written = Outputs(
        none(4) if weights is None else cleared(card.empty(weights.shape, np.float32)),
        none(1) if logs is None else card.empty((logs.size,), np.float32),
        *steps,
        card.upload(np.zeros(1, np.int32)),
    )
    bytes_BHTS = None if visible.mask_BHTS is None else visible.mask_BHTS.view(np.uint8)
    mask, states = (broadcast(array, np.uint8) for array in (bytes_BHTS, visible.states_BHTS))
    seen = Seen(card.optional(visible.seen_N2, 2, np.int64), visible.sinks, mask, states, *visible.block)
    additive = terms.vector_HK is not None
    functions = (
        same_score if terms.function is None else terms.function.device,
        every_key if visible.function is None else visible.function.device,
    )

    def form(columns: int) -> Form:
        return Form(columns, str(arrays.query_BTHK.dtype), additive, False, False, *functions)

    scores = terms_of(heads, terms.bias_BHTS, None, terms.sinks_H, terms.vector_HK)
    _checked(lambda: launch_attend(form, rows, seen, scores, NearRows(none(2), none(2)), written, H))
    found = card.download(out_BTHV)
    arrays.out_BTHV[...] = bfloat16_bits(found) if arrays.out_BTHV.dtype == np.uint16 else found
    if weights is not None:
        weights[...] = card.download(written.weights_BHTS)
    if logs is not None:
        logs[...] = card.download(written.logs_X).reshape(logs.shape)
    return int(card.download(written.invalid_1)[0])


def _laid(array: Any) -> LaidHeads:
    """[B, T, H, K], adjacent on the card, whose rows are counted through all sentences."""
    _, _, H, K = array.shape
    return LaidHeads(flat(array), 0, 0, H * K, K)


def _checked(call: Any) -> Any:
    try:
        return call()
    except NumbaError as error:
        raise InputError(f"a function of scores or masks cannot be compiled: {str(error).splitlines()[-1]}") from error


@lru_cache(256)
def _make_states(mask_mod: Any) -> Any:
    @cuda.jit
    def states(sizes, states_X):
        """sizes: H, T, S, queries and keys of a block; a block of threads a block of the mask."""
        found_2 = cuda.shared.array(2, int32)  # whether any key is seen, and any hidden
        H, T, S, queries, keys = sizes
        rows, columns = (T + queries - 1) // queries, (S + keys - 1) // keys
        for x in range(cuda.blockIdx.x, len(states_X), cuda.gridDim.x):
            if cuda.threadIdx.x < 2:
                found_2[cuda.threadIdx.x] = 0
            cuda.syncthreads()
            first_t, first_s = x // columns % rows * queries, x % columns * keys
            width = min(keys, S - first_s)
            for e in range(cuda.threadIdx.x, min(queries, T - first_t) * width, THREADS):
                t, s = first_t + e // width, first_s + e % width
                if mask_mod(x // (H * rows * columns), x // (rows * columns) % H, t, s):
                    found_2[0] = 1  # by whom does not matter
                else:
                    found_2[1] = 1
            cuda.syncthreads()
            if cuda.threadIdx.x == 0:
                states_X[x] = SOME if found_2[0] and found_2[1] else ALL if found_2[0] else NONE
            cuda.syncthreads()

    return states


def block_states(function: Any, shape: tuple[int, int, int, int], block: tuple[int, int]) -> np.ndarray:
    """states_BHTS uint8 of the blocks (queries, keys) of masks [B, H, T, S]; ``function`` is a compiled mask_mod."""
    B, H, T, S = shape
    queries, keys = block
    states = B, H, -(-T // queries), -(-S // keys)
    states_X = card.empty((int(np.prod(states)),), np.uint8)
    kernel, sizes = _make_states(function.device), tuple(map(int, (H, T, S, queries, keys)))
    _checked(lambda: card.launch(kernel, min(len(states_X), 1 << 20), sizes, states_X))
    return card.download(states_X).reshape(states)
