"""Keys and values of positions decoded so far, to which new queries attend: fastattn.KVCache."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import numpy as np

from fastattn.arguments.attention import Heads, KeyIndex, KeyMask, ScoreTerms, SoftmaxOutputs, StridedArrays
from fastattn.array_attention import arguments
from fastattn.array_attention.arguments import MAX_HEAD_WIDTH, Integers, as_float32, check_floats
from fastattn.errors import InputError, OutOfMemoryError, check_bool, check_count, described
from fastattn.ops import backend, on_threads
from fastattn.ops.float64_attention import LARGE, is_extreme, is_ordinary, recompute_in_float64
from fastattn.ops.protocol import Ops
from fastattn.ops.row_pool import RowPool
from fastattn.printable import counted
from fastattn.spec.rounding import bfloat16_bits
from fastattn.system.option_names import STEPS, explains_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

FIRST_POSITIONS = 32  # columns of a new ``_row_indices_BS``; a growing cache doubles them
MAX_POSITIONS = 1 << 30  # of all sequences together: indices of rows in the table are int32
MAX_HEADS = 1 << 16
STORED_DTYPES = {"float32": np.float32, "bfloat16": np.uint16, "float16": np.int16}  # bits of 16-bit floats


class StepOptions(TypedDict, total=False):
    """The options of ``KVCache.attend``."""

    lengths: Integers | None
    window: tuple[int | None, int | None] | None
    bias: np.ndarray | None
    scale: float | None
    softcap: float | None
    threads: int | None


class KVCache:
    """Keys and values of a batch of growing sequences, for the attention of their newest positions.

    batch, key_heads, head_width, value_width  B, G, K and V of ``attention``; value_width None: head_width
    dtype     "float32", "float16" or "bfloat16", the type that is stored; half the bytes take half the time of a step
    capacity  positions of each sequence for which the new cache has memory; the cache grows as needed
    device    "cpu", "cuda" or "auto", where keys and values lie and attention is computed
    A position is a row of one table, and a sequence is a list of row indices: sequences share the rows of common
    positions (as vLLM shares pages, Kwon 2023). Rows that no sequence has any more are used again. A cache and its
    forks share their memory, which is freed with the last of them, and a lock: several threads may call them at once.
    ``len`` is the number of sequences. InputError for arguments that do not fit; the cache then stays as it is.
    """

    def __init__(
        self,
        batch: int,
        key_heads: int,
        head_width: int,
        value_width: int | None = None,
        dtype: Any = "float32",
        capacity: int = 0,
        device: str = "cpu",
    ):
        self._ops = ops = backend(device)
        G = _checked_count("key_heads", key_heads, 1, MAX_HEADS)
        K = _checked_count("head_width", head_width, 1, MAX_HEAD_WIDTH)
        V = K if value_width is None else _checked_count("value_width", value_width, 1, MAX_HEAD_WIDTH)
        B = _checked_count("batch", batch, 0, MAX_POSITIONS)
        capacity = _checked_count("capacity", capacity, 0, MAX_POSITIONS // max(B, 1))
        self._shape, self._dtype = (G, K, V), _dtype_name(dtype)
        try:
            self._row_indices_BS = np.zeros((B, max(capacity, FIRST_POSITIONS)), np.int32)  # arbitrary past the lengths
            self._lengths_B = np.zeros(B, np.int64)
            self._store = _Store(ops, G * (K + V), self._dtype, B * capacity)
        except MemoryError:
            raise OutOfMemoryError(f"not enough memory for {B} sequences of {capacity} positions") from None
        self._store.caches.add(self)

    def __len__(self) -> int:
        return len(self._lengths_B)

    def __repr__(self) -> str:
        G, K, V = self._shape
        longest = int(self._lengths_B.max(initial=0))
        sequences = f"{counted(len(self), 'sequence')} of at most {counted(longest, 'position')}"
        return f"KVCache({sequences}, {counted(G, 'head')} of {K} and {V}, {self._dtype})"

    @property
    def lengths(self) -> np.ndarray:
        """The number of positions of each sequence, int64 [B]."""
        return self._lengths_B.copy()

    def append(self, key: np.ndarray, value: np.ndarray, lengths: Integers | None = None) -> None:
        """Add T positions to each sequence: key (B, T, G, K), value (B, T, G, V), float32, float16 or bfloat16.

        lengths  integers [B]: only the first lengths[b] positions of sequence b are added; all others are padding
        """
        check_floats("key", key)
        check_floats("value", value)
        with self._store.lock:
            rows_BTE = self._key_value_rows(key, value)
            B, T, E = rows_BTE.shape
            counts_B = self._checked_counts(lengths, T)
            b_N, t_N = np.nonzero(np.arange(T) < counts_B[:, None])
            if not len(b_N):
                return
            new_lengths_B, columns = self._lengths_B + counts_B, self._row_indices_BS.shape[1]
            if (longest := int(new_lengths_B.max())) > columns:
                self._row_indices_BS = np.pad(self._row_indices_BS, ((0, 0), (0, max(longest, 2 * columns) - columns)))
            row_indices_N = self._store.take(len(b_N))
            values_NE = rows_BTE.reshape(B * T, E) if len(b_N) == B * T else rows_BTE[b_N, t_N]
            self._ops.write_rows(self._store.table, row_indices_N, self._ops.as_rows(values_NE), 0)
            self._row_indices_BS[b_N, self._lengths_B[b_N] + t_N] = row_indices_N
            self._lengths_B = new_lengths_B

    def _key_value_rows(self, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Rows of keys, then values, float32; InputError for shapes that do not fit."""
        (G, K, V), B = self._shape, len(self)
        T = key.shape[1] if key.ndim == 4 else 0
        for name, array, shape in (("key", key, (B, T, G, K)), ("value", value, (B, T, G, V))):
            if array.shape != shape:
                expected = str(shape) if key.ndim == 4 else f"({B}, positions, {G}, {shape[3]})"
                raise InputError(f"{name}: expected shape {expected}, got {array.shape}")
        rows_BTE = np.empty((B, T, G * (K + V)), np.float32)
        rows_BTE[..., : G * K].reshape(B, T, G, K)[...] = as_float32(key)
        rows_BTE[..., G * K :].reshape(B, T, G, V)[...] = as_float32(value)
        if self._dtype == "float16" and not self._ops.reads_float16():
            with np.errstate(over="ignore"):
                rows_BTE = rows_BTE.astype(np.float16).astype(np.float32)
        return rows_BTE

    @overload
    def attend(
        self, query: np.ndarray, *, return_weights: Literal[False] = ..., **options: Unpack[StepOptions]
    ) -> np.ndarray: ...

    @overload
    def attend(
        self, query: np.ndarray, *, return_weights: bool = ..., **options: Unpack[StepOptions]
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]: ...

    @explains_options(STEPS, StepOptions)
    def attend(
        self, query: np.ndarray, *, return_weights: bool = False, **options: Any
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Causal attention of the last T positions: query (B, T, H, K) to (B, T, H, V) of the query's type.

        Query t of a sequence of length L stands at position L - T + t and sees the positions up to its own; a
        query before the first position sees none, and yields zeros. So a step is append, then attend, with T = 1.
        lengths  integers [B]: the first lengths[b] queries of sequence b are its last positions; all other queries are
                 padding and yield zeros
        bias     float32 that broadcasts to (B, H, T, S), where S is the longest sequence's length
        return_weights  return (result, softmax weights); the weights are float32 (B, H, T, S)
        Further options as in ``attention``. A result's bits do not depend on how the positions were appended, on the
        other sequences or on the number of threads. For a first chunk of many positions ``attention`` is faster.
        """
        check_floats("query", query)
        scale, softcap = arguments.scale_of(options, self._shape[1]), arguments.softcap_of(options)
        left, _ = arguments.window_sides(options.get("window"))
        wants_weights = check_bool("return_weights", return_weights)
        with self._store.lock, on_threads(self._ops, options.get("threads")):
            heads = self._heads(query, scale, softcap)
            counts_B = self._checked_counts(options.get("lengths"), query.shape[1])
            seen_N2 = self._seen_ranges(counts_B, query.shape[1], left)
            out, weights = self._attend(as_float32(query), heads, seen_N2, options.get("bias"), wants_weights)
        if query.dtype == np.float16:
            with np.errstate(over="ignore"):
                out = out.astype(np.float16)
        elif query.dtype != np.float32:
            out = bfloat16_bits(out).view(query.dtype)
        return out if weights is None else (out, weights)

    def _heads(self, query: np.ndarray, scale: float, softcap: float) -> Heads:
        """The heads of a query and of the cache's rows; InputError where they do not fit."""
        G, K, V = self._shape
        if query.ndim != 4 or len(query) != len(self) or query.shape[3] != K:
            raise InputError(f"query: expected shape ({len(self)}, positions, heads, {K}), got {query.shape}")
        if not query.shape[2] or query.shape[2] % G:
            raise InputError(f"query: expected heads that the {G} of keys divide, got {query.shape[2]}")
        return Heads(query.shape[2], G, K, V, value_column=G * K, scale=scale, softcap=softcap)

    def _attend(
        self, query: np.ndarray, heads: Heads, seen_N2: np.ndarray, bias: np.ndarray | None, wants_weights: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        (B, T, H, K), V, S = query.shape, heads.value_width, int(self._lengths_B.max(initial=0))
        if bias is not None:
            bias = arguments.broadcastable("bias", bias, np.float32, (B, H, T, S))
        if not B * T * S:
            return np.zeros((B, T, H, V), np.float32), np.empty((B, H, T, S), np.float32) if wants_weights else None
        weights, weights_NHS = None, self._ops.empty((B * T, H, S), np.dtype(np.float32)) if wants_weights else None
        # where float32 cannot hold the scores, ``_recompute_in_float64`` replaces this result
        float32_heads = heads
        if abs(heads.scale or 0.0) >= LARGE or heads.softcap >= LARGE:
            float32_heads = heads._replace(scale=1.0, softcap=0.0)
        rows_NE, table_ME = self._ops.as_rows(query.reshape(B * T, H * K)), self._store.table
        index = KeyIndex(
            np.ascontiguousarray(self._row_indices_BS[:, :S]),
            stops_N=seen_N2[:, 1].copy(),
            rows_N=np.repeat(np.arange(B), T),
            firsts_N=seen_N2[:, 0].copy(),
        )
        bias_NHS = None if bias is None else _bias_of_queries(bias, B, T)
        out_NF = self._ops.attention_step(
            rows_NE, table_ME, table_ME, index, float32_heads, bias_NHS=bias_NHS, weights_NHS=weights_NHS
        )
        out = np.asarray(out_NF).reshape(B, T, H, V)
        if weights_NHS is not None:
            weights = np.ascontiguousarray(np.asarray(weights_NHS).reshape(B, T, H, S).transpose(0, 2, 1, 3))
        self._recompute_in_float64(query, out, heads, seen_N2, bias, weights)
        return out, weights

    def _recompute_in_float64(
        self,
        query: np.ndarray,
        out: np.ndarray,
        heads: Heads,
        seen_N2: np.ndarray,
        bias: np.ndarray | None,
        weights: np.ndarray | None,
    ) -> None:
        """Compute again, in ``out`` and ``weights``, the sequences with scores that float32 cannot hold."""
        (B, T), (G, K, V) = query.shape[:2], self._shape
        scale, softcap = heads.scale or 0.0, heads.softcap
        # an overflow leaves NaN or, where all scores became -inf, zeros
        overflowed_BT = (np.isnan(out).all(axis=3) | ~out.any(axis=3)).any(axis=2)
        overflowed_BT &= (seen_N2[:, 1] > seen_N2[:, 0]).reshape(B, T)
        for b in map(int, np.nonzero(overflowed_BT.any(axis=1))[0]) if is_ordinary(scale, softcap) else range(B):
            rows_SE = np.asarray(self._store.table)[self._row_indices_BS[b, : self._lengths_B[b]]]
            key = rows_SE[:, : G * K].reshape(-1, G, K)
            value = rows_SE[:, G * K : G * (K + V)].reshape(-1, G, V)
            sentence = slice(b, b + 1)
            shape, starts = (1, query.shape[2], T, len(key)), (np.array([0, T]), np.array([0, len(key)]))
            arrays = StridedArrays(query[sentence], key[None], value[None], out[sentence], shape, starts)
            sequence_bias = None if bias is None else bias[sentence] if len(bias) > 1 else bias
            outputs = SoftmaxOutputs(None if weights is None else weights[sentence])
            key_mask = KeyMask(seen_N2[b * T : (b + 1) * T])
            all_rows = is_extreme(scale, softcap, query[b], key)
            recompute_in_float64(arrays, heads, key_mask, ScoreTerms(sequence_bias), outputs, all_rows)

    def reorder(self, order: Sequence[int] | np.ndarray) -> None:
        """Sequence i becomes the former sequence order[i]; numbers may repeat, as beams do. No keys are copied."""
        with self._store.lock:
            order_B = self._checked_order(order)
            self._row_indices_BS, self._lengths_B = self._row_indices_BS[order_B], self._lengths_B[order_B]

    def fork(self, order: int | Sequence[int] | np.ndarray | None = None) -> KVCache:
        """A new cache with the sequences of these numbers, or all. The caches share positions, and grow separately."""
        with self._store.lock:
            order = np.arange(len(self)) if order is None else order
            order_B = self._checked_order([order] if isinstance(order, (int, np.integer)) else order)
            forked = object.__new__(KVCache)
            forked._shape, forked._dtype, forked._store, forked._ops = self._shape, self._dtype, self._store, self._ops
            forked._row_indices_BS, forked._lengths_B = self._row_indices_BS[order_B], self._lengths_B[order_B]
            self._store.caches.add(forked)
            return forked

    __copy__ = fork

    def __deepcopy__(self, memo: dict) -> KVCache:
        return self.fork()

    def truncate(self, lengths: Integers) -> None:
        """Keep the first positions of each sequence: integers [B], or an integer, which may exceed a length."""
        with self._store.lock:
            lengths_B = arguments.integers_of_sentences("lengths", lengths, len(self))
            if np.ndim(lengths) == 0:
                lengths_B = np.minimum(lengths_B, self._lengths_B)
            if ((lengths_B < 0) | (lengths_B > self._lengths_B)).any():
                expected, got = self._lengths_B.tolist(), lengths_B.tolist()
                raise InputError(f"lengths: expected 0 to the lengths {expected}, got {got}")
            self._lengths_B = lengths_B.copy()

    def rows(self) -> np.ndarray:
        """The indices in the table of all rows that the sequences have; shared rows are repeated."""
        return self._row_indices_BS[np.arange(self._row_indices_BS.shape[1]) < self._lengths_B[:, None]]

    def _checked_counts(self, lengths: Integers | None, T: int) -> np.ndarray:
        """``lengths`` as int64 [B], by default T for all; InputError unless all are 0 to T."""
        counts_B = arguments.integers_of_sentences("lengths", T if lengths is None else lengths, len(self))
        if ((counts_B < 0) | (counts_B > T)).any():
            raise InputError(f"lengths: expected 0 to {T}, the number of positions, got {counts_B.tolist()}")
        return counts_B

    def _seen_ranges(self, counts_B: np.ndarray, T: int, left: int | None) -> np.ndarray:
        """[N, 2] int64: the first position that each query sees, and the position behind the last."""
        t_T = np.arange(T)
        stops_BT = np.maximum((self._lengths_B - counts_B)[:, None] + t_T + 1, 0)
        stops_BT[t_T >= counts_B[:, None]] = 0
        firsts_BT = np.zeros_like(stops_BT) if left is None else np.maximum(stops_BT - 1 - left, 0)
        return np.stack([firsts_BT.reshape(-1), stops_BT.reshape(-1)], axis=1)

    def _checked_order(self, order: Any) -> np.ndarray:
        try:
            order_B = np.asarray(order)
        except ValueError:  # lists of different lengths
            raise InputError("order: expected integers, got nested lists") from None
        if order_B.shape == (0,):
            return order_B.astype(np.int64)
        if order_B.ndim != 1 or not np.issubdtype(order_B.dtype, np.integer):
            raise InputError(f"order: expected integers in one axis, got {order_B.dtype} of shape {order_B.shape}")
        if not 0 <= int(order_B.min()) <= int(order_B.max()) < len(self):
            raise InputError(f"order: expected numbers of the {len(self)} sequences, from 0 on, got {described(order)}")
        return order_B.astype(np.int64)


class _Store:
    """The table of rows that a cache and its forks share. Rows that no sequence of ``caches`` has are taken again."""

    def __init__(self, ops: Ops, row_width: int, dtype: str, rows: int):
        self.caches: weakref.WeakSet[KVCache] = weakref.WeakSet()
        self.lock = RLock()
        stored_dtype = STORED_DTYPES[dtype] if dtype != "float16" or ops.reads_float16() else np.float32
        self._pool = RowPool(ops, [row_width], np.dtype(stored_dtype), rows)

    @property
    def table(self) -> np.ndarray:
        return self._pool.layers[0]

    def take(self, count: int) -> np.ndarray:
        """The indices of ``count`` free rows in the table. If too few are free, rows that no sequence has are freed."""
        pool = self._pool
        if count > pool.free_count:
            used_M = np.zeros(pool.rows, bool)
            for cache in self.caches:
                used_M[cache.rows()] = True
            pool.free_unused(used_M)
        needed = pool.rows - pool.free_count + count
        if needed > MAX_POSITIONS:
            raise InputError(f"key: expected at most {MAX_POSITIONS} positions of all sequences, got {needed}")
        try:
            return pool.take(count)
        except MemoryError:
            raise OutOfMemoryError(f"not enough memory for {needed} positions") from None


def _bias_of_queries(bias_BHTS: np.ndarray, B: int, T: int) -> np.ndarray:
    """The bias with the axes of sentences and queries joined: [B T or 1, H or 1, S]."""
    batch, H, queries, S = bias_BHTS.shape
    if batch == queries == 1:
        return bias_BHTS[:, :, 0]
    return np.broadcast_to(bias_BHTS, (B, H, T, S)).transpose(0, 2, 1, 3).reshape(B * T, H, S)


def _checked_count(name: str, value: Any, least: int, most: int) -> int:
    is_zero = arguments.is_integer(value) and value == 0  # ``check_count`` refuses 0
    count = 0 if is_zero and least == 0 else check_count(name, value)
    if count > most:
        raise InputError(f"{name}: expected {least} to {most}, got {described(count)}")
    return count


def _dtype_name(dtype: Any) -> str:
    try:
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    except TypeError:
        name = ""
    if name not in STORED_DTYPES:
        raise InputError(f"dtype: expected {', '.join(STORED_DTYPES)}, got {described(dtype)}")
    return name
