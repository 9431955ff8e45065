"""Attention on NumPy arrays, without a model: checks of shapes and types, then the kernel."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias, overload

import numpy as np

from fastattn.attention_float64 import is_extreme, mend_rows
from fastattn.errors import InputError, check_bool
from fastattn.heads import Heads
from fastattn.kernels.attention import attend_counting, seen_keys
from fastattn.runtime.threads import use_threads

MAX_HEAD_WIDTH = 4096
_LARGEST = np.iinfo(np.int64).max
Integers: TypeAlias = int | np.integer | Sequence[int] | np.ndarray


@overload
def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    lengths: Integers | None = None,
    causal: bool = False,
    offset: Integers | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    bias: np.ndarray | None = None,
    return_weights: Literal[False] = False,
    threads: int | None = None,
) -> np.ndarray: ...


@overload
def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    lengths: Integers | None = None,
    causal: bool = False,
    offset: Integers | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    bias: np.ndarray | None = None,
    return_weights: Literal[True],
    threads: int | None = None,
) -> tuple[np.ndarray, np.ndarray]: ...


def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    lengths: Integers | None = None,
    causal: bool = False,
    offset: Integers | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    bias: np.ndarray | None = None,
    return_weights: bool = False,
    threads: int | None = None,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """softmax(Q K' scale + bias) V (Vaswani 2017) of each head: float32 (B, T, H, V), or with weights (B, H, T, S).

    query is (B, T, H, K), key (B, S, G, K), value (B, S, G, V): sentences, positions, heads, head width; float32. Where
    G is less than H it divides H, and each key head serves H / G query heads in a row (Ainslie 2023).
    lengths  integers [B]: keys at or past a sentence's length are padding; None: all S are keys
    causal   query t sees keys s <= t + offset; offset is an integer or integers [B], None: 0
    scale    multiplies the scores; None: 1 / sqrt(K)
    softcap  a scaled score s becomes softcap * tanh(s / softcap), as in Gemma 2; 0: no cap
    bias     float32, broadcast to (B, H, T, S), added after scale and cap; -inf hides a key
    threads  the most to use; None: those of ``use_threads``, else all that the process may use
    InputError for shapes or types that do not fit. Scores are not stored, except as weights (Dao 2023).
    PyTorch's scaled_dot_product_attention takes (B, H, T, K), calls bias attn_mask, causal is_causal, G < H enable_gqa.
    A query that sees no key yields zeros, as in PyTorch since 2.5 (before: NaN).
    """
    arrays = {"query": query, "key": key, "value": value}
    for name, array in arrays.items():
        _check_float32(name, array)
        if array.ndim != 4:
            axes = "(batch, positions, heads, head width)"
            raise InputError(f"{name}: expected four axes {axes}, got shape {array.shape}")
    B, T, H, K = query.shape
    S, G = key.shape[1:3]
    if key.shape != (B, S, G, K):
        raise InputError(f"key: expected batch {B} and head width {K} as in the query, got shape {key.shape}")
    V = value.shape[3]
    if value.shape[:3] != key.shape[:3] or not 1 <= V <= MAX_HEAD_WIDTH:
        raise InputError(f"value: expected the key's shape {key.shape}, got {value.shape}; the width may differ")
    if H == 0:
        raise InputError("query: expected at least one head, got none")
    if G == 0 or H % G != 0:
        raise InputError(f"key: expected a number of heads that divides the query's {H}, got {G}")
    if not 1 <= K <= MAX_HEAD_WIDTH:
        raise InputError(f"query: expected a head width of 1 to {MAX_HEAD_WIDTH}, got {K}")
    scale = K**-0.5 if scale is None else _number("scale", scale)
    softcap = _number("softcap", softcap)
    if softcap < 0:
        raise InputError(f"softcap: expected a number above 0, or 0 for none, got {softcap}")
    lengths_B = _integers("lengths", S if lengths is None else lengths, B)
    if B and not 0 <= int(lengths_B.min()) <= int(lengths_B.max()) <= S:
        raise InputError(f"lengths: expected 0 to {S}, the number of keys, got {lengths_B.tolist()}")
    causal = check_bool("causal", causal)
    if offset is not None and not causal:
        raise InputError("offset: expected only with causal=True")
    # an offset beyond the queries and keys hides or shows everything
    offset_B = np.clip(_integers("offset", 0 if offset is None else offset, B), -T, S)
    bias_BHTS = None if bias is None else _bias(bias, (B, H, T, S))
    weights_BHTS = np.empty((B, H, T, S), np.float32) if check_bool("return_weights", return_weights) else None
    extreme = is_extreme(scale, softcap, query, key)

    rows = tuple(_usable(array).reshape(-1, array.shape[2] * array.shape[3]) for array in arrays.values())
    starts = np.arange(B + 1) * T, np.arange(B + 1) * S
    seen_N2 = None
    if B and (causal or lengths is not None):
        seen_N2 = seen_keys(starts[0], np.ascontiguousarray(lengths_B), causal, np.ascontiguousarray(offset_B))
    # what float32 cannot hold is computed in float64
    heads = Heads(H, G, K, V, scale=1.0 if extreme else scale, softcap=0.0 if extreme else softcap)
    with nullcontext() if threads is None else use_threads(threads):
        out_NF, invalid = attend_counting(rows, starts, heads, (seen_N2, 0), (bias_BHTS, None), weights_BHTS)
    out_BTHK = out_NF.reshape(B, T, H, V)
    if invalid or extreme:
        seen_from_B = offset_B if causal else None
        given = query, key, value, lengths_B, seen_from_B, scale, softcap, bias_BHTS
        mend_rows(out_BTHK, weights_BHTS, *given, every=extreme)
    return out_BTHK if weights_BHTS is None else (out_BTHK, weights_BHTS)


def _check_float32(name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        got = str(array.dtype) if isinstance(array, np.ndarray) else type(array).__name__
        raise InputError(f"{name}: expected a NumPy array of float32, got {got}")


def _usable(array: np.ndarray) -> np.ndarray:
    """The array, C-contiguous and writeable: other arrays would need a kernel compiled for them."""
    return np.require(array, requirements=("C", "W"))


def _number(name: str, value: Any) -> float:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name}: expected a finite number, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{name}: expected a finite number, got {number}")
    return number


def _integers(name: str, values: Any, count: int) -> np.ndarray:
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
        array = np.minimum(array, np.uint64(_LARGEST))
    return np.broadcast_to(array.astype(np.int64), (count,))


def _integers_of_any_size(values: Any, array: np.ndarray) -> np.ndarray:
    """Integers beyond int64, which NumPy holds as objects or floats, clipped; ``array`` if they are no integers."""
    objects = np.asarray(values, object)
    if not objects.size or not all(isinstance(value, Integral) for value in objects.flat):
        return array
    bounded = [min(max(int(value), -_LARGEST), _LARGEST) for value in objects.flat]
    return np.array(bounded, np.int64).reshape(objects.shape)


def _bias(bias: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The bias with four axes, each of length one or as in ``shape``."""
    _check_float32("bias", bias)
    full = (1,) * (4 - bias.ndim) + bias.shape
    if len(full) != 4 or any(axis not in (1, size) for axis, size in zip(full, shape)):
        raise InputError(f"bias: expected a shape that broadcasts to {shape}, got {bias.shape}")
    return _usable(bias).reshape(full)
