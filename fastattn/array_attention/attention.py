"""fastattn.attention, of padded or ragged batches, and additive attention: checks of arguments, then an operation."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import numpy as np

from fastattn.arguments.attention import Heads, KeyMask, ScoreTerms, SoftmaxOutputs, StridedArrays
from fastattn.array_attention import arguments
from fastattn.array_attention.arguments import Integers, Problem, check_apart, dense_problem, new_result, ragged_problem
from fastattn.array_attention.block_mask import BlockMask
from fastattn.errors import InputError, check_bool, described
from fastattn.ops import backend, on_threads
from fastattn.ops.device_array import DeviceArray
from fastattn.ops.float64_attention import LARGE, is_extreme, is_ordinary, recompute_in_float64
from fastattn.ops.protocol import Ops
from fastattn.system.option_names import ATTENTION, explains_options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SharedOptions(TypedDict, total=False):
    """The options that all kinds of attention on arrays have; see ``attention``."""

    lengths: Integers | None
    causal: bool
    offset: Integers | Literal["end"] | None
    window: tuple[int | None, int | None] | None
    bias: np.ndarray | None
    mask: np.ndarray | None
    softcap: float | None
    sinks: int | np.ndarray | None
    score_mod: Callable | None
    mask_mod: Callable | None
    block_mask: BlockMask | None
    threads: int | None


class LayerOptions(SharedOptions, total=False):
    """The options of a call of ``MultiHeadAttention``."""

    scale: float | None


class AttentionOptions(LayerOptions, total=False):
    """The options of ``attention_ragged``."""

    out: np.ndarray | None
    device: str


class DenseOptions(AttentionOptions, total=False):
    """The options of ``attention``."""

    layout: Literal["BTHK", "BHTK"]


class AdditiveOptions(SharedOptions, total=False):
    """The options of ``additive_attention``."""

    out: np.ndarray | None
    device: str
    layout: Literal["BTHK", "BHTK"]


@overload
def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    return_weights: Literal[False] = ...,
    return_logsumexp: Literal[False] = ...,
    **options: Unpack[DenseOptions],
) -> np.ndarray: ...


@overload
def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    return_weights: bool = ...,
    return_logsumexp: bool = ...,
    **options: Unpack[DenseOptions],
) -> tuple[np.ndarray, ...]: ...


@explains_options(ATTENTION, DenseOptions)
def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    return_weights: bool = False,
    return_logsumexp: bool = False,
    **options: Any,
) -> np.ndarray | tuple[np.ndarray, ...]:
    """softmax(Q K' scale + bias) V (Vaswani 2017) of each head: (B, T, H, V), or a tuple that begins with it.

    query is (B, T, H, K), key (B, S, G, K), value (B, S, G, V): sentences, positions, heads, head width. Where G is
    less than H it divides H, and each key head serves H / G query heads in a row (Ainslie 2023). All have
    one type, which is also the result's: float32, float16 or bfloat16 (its bits as uint16, or ml_dtypes' type).
    layout   "BTHK", the default, or "BHTK": heads before positions, in the result too; arrays are not copied if the
             numbers of a head are adjacent
    lengths  integers [B]: keys at or past a sentence's length are padding; None: all S are keys
    causal   True: query t sees keys s <= t + offset
    offset   an integer or integers [B], where queries begin among the keys; "end": length - T; None: 0. Only causal
             and window use it
    window   (left, right): query t sees keys t + offset - left <= s <= t + offset + right; None: no bound
    bias     float32 that broadcasts to (B, H, T, S), added after scale and cap; -inf hides a key
    mask     bool that broadcasts to (B, H, T, S): True is seen
    scale    multiplies the scores; None: 1 / sqrt(K)
    softcap  a scaled score s becomes softcap * tanh(s / softcap), as in Gemma 2; 0 or None: no cap
    sinks    an integer: a query that sees any key also sees that many first keys, outside its window too (Xiao 2023);
             float32 [H]: a logit of each head takes part in its softmaxes, without a value (gpt-oss)
    score_mod, mask_mod  functions compiled into the kernel, see docs/attention.md: score_mod(score, b, h, t, s) is the
             score, after the cap, and mask_mod(b, h, t, s) whether it is seen
    block_mask  which blocks of keys are skipped, see BlockMask
    return_weights    add the softmax weights to the tuple, float32 (B, H, T, S)
    return_logsumexp  add the log of each softmax's sum, as the last, float32 (B, H, T); -inf where no key is seen
    out      an array for the result
    threads  the most threads; None: those of ``use_threads``, else all that the process may use
    device   "cpu", "cuda" or "auto", where attention is computed; on "cuda" query, key, value and out may lie on the
             card, with __cuda_array_interface__, and results are arrays of numba.cuda then
    InputError for arguments that do not fit. Scores are float32 and not stored (Dao 2023). A query that sees no
    key yields zeros. docs/coming-from-attention.md has the names of other libraries.
    """
    ops = backend(options.get("device", "cpu"))
    problem = dense_problem(ops, query, key, value, options.get("layout", "BTHK"), options.get("out"))
    return _attend(ops, problem, options, (return_weights, return_logsumexp))


@overload
def attention_ragged(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    query_starts: Integers,
    key_starts: Integers,
    *,
    return_weights: Literal[False] = ...,
    return_logsumexp: Literal[False] = ...,
    **options: Unpack[AttentionOptions],
) -> np.ndarray: ...


@overload
def attention_ragged(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    query_starts: Integers,
    key_starts: Integers,
    *,
    return_weights: bool = ...,
    return_logsumexp: bool = ...,
    **options: Unpack[AttentionOptions],
) -> tuple[np.ndarray, ...]: ...


@explains_options(ATTENTION, AttentionOptions)
def attention_ragged(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    query_starts: Integers,
    key_starts: Integers,
    *,
    return_weights: bool = False,
    return_logsumexp: bool = False,
    **options: Any,
) -> np.ndarray | tuple[np.ndarray, ...]:
    """``attention`` of sentences of any lengths, one after another without padding: (N, H, V).

    query is (N, H, K), key (M, G, K), value (M, G, V). Sentence b has queries query_starts[b] .. query_starts[b + 1],
    likewise keys; starts are integers [B + 1] from 0 to N or M. Options are those of ``attention`` but layout; T and S
    are the most queries and keys of a sentence, positions count from a sentence's start, and logsumexp is (N, H).
    """
    ops = backend(options.get("device", "cpu"))
    problem = ragged_problem(ops, query, key, value, (query_starts, key_starts), options.get("out"))
    return _attend(ops, problem, options, (return_weights, return_logsumexp))


@explains_options(ATTENTION, AdditiveOptions)
def additive_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    vector: np.ndarray,
    *,
    return_weights: bool = False,
    return_logsumexp: bool = False,
    **options: Any,
) -> np.ndarray | tuple[np.ndarray, ...]:
    """``attention`` whose scores are v . tanh(q + k) (Bahdanau 2015), of queries and keys that are projected already.

    vector  v, float32 (H, D); query is (B, T, H, D), key (B, S, G, D), float32
    No array (T, S, D) is made. All options but scale are those of ``attention``.
    """
    ops = backend(options.get("device", "cpu"))
    problem = dense_problem(ops, query, key, value, options.get("layout", "BTHK"), options.get("out"))
    shape, dtype = problem.arrays.query_BTHK.shape[2:], problem.arrays.query_BTHK.dtype
    if not isinstance(vector, np.ndarray) or vector.dtype != np.float32 or vector.shape != shape:
        got = f"{vector.dtype} {vector.shape}" if isinstance(vector, np.ndarray) else type(vector).__name__
        raise InputError(f"vector: expected an array of float32 {shape}, got {got}")
    if dtype != np.float32:
        raise InputError(f"query: expected float32 for additive attention, got {dtype}")
    return _attend(ops, problem, options, (return_weights, return_logsumexp), vector)


def _attend(
    ops: Ops,
    problem: Problem,
    options: dict[str, Any],
    wanted_outputs: tuple[bool, bool],
    vector_HK: np.ndarray | None = None,
) -> np.ndarray | tuple[np.ndarray, ...]:
    """The result, or a tuple of the result and the wanted outputs: the weights, the logsumexp."""
    arrays = problem.arrays
    B, H, T, S = arrays.shape
    G, K, V = *arrays.key_BSGK.shape[2:], arrays.value_BSGV.shape[3]
    heads = Heads(H, G, K, V, scale=arguments.scale_of(options, K), softcap=arguments.softcap_of(options))
    with on_threads(ops, options.get("threads")):
        key_mask, sinks_H = _key_mask(ops, arrays, options)
        bias, score_mod = options.get("bias"), options.get("score_mod")
        terms = ScoreTerms(
            None if bias is None else arguments.broadcastable("bias", bias, np.float32, (B, H, T, S)),
            sinks_H,
            None if score_mod is None else ops.compile_function(score_mod, "score_mod"),
            vector_HK,
        )
        if options.get("out") is not None:
            inputs = {"bias": terms.bias_BHTS, "mask": key_mask.mask_BHTS, "sinks": sinks_H, "vector": vector_HK}
            check_apart(problem.output, **inputs, block_mask=key_mask.states_BHTS)
        outputs = _new_outputs(ops, arrays, wanted_outputs)
        if B and T and S:
            _compute(ops, arrays, heads, key_mask, terms, outputs)
        else:
            with ops.on_host(arrays, outputs) as (host_arrays, (_, logs)):
                host_arrays.out_BTHV[...] = 0
                if logs is not None and sinks_H is not None:
                    if float(np.abs(sinks_H).max()) <= LARGE:  # as the kernel rounds them
                        sinks_H = (sinks_H * np.float32(math.log2(math.e))).astype(np.float64) * math.log(2)
                    logs[...] = sinks_H if arrays.ragged else sinks_H[:, None]
                elif logs is not None:
                    logs[...] = -np.inf
    results = [result for result in (problem.finish(), *outputs) if result is not None]
    results = [result.owner if isinstance(result, DeviceArray) else result for result in results]
    return results[0] if len(results) == 1 else tuple(results)


def _compute(
    ops: Ops, arrays: StridedArrays, heads: Heads, key_mask: KeyMask, terms: ScoreTerms, outputs: SoftmaxOutputs
) -> None:
    """Call the operation, then compute again in float64 the rows whose scores float32 cannot hold."""
    scale, softcap = heads.scale or 0.0, heads.softcap
    may_recompute = terms.function is None and key_mask.function is None and terms.vector_HK is None
    all_rows = may_recompute and terms.sinks_H is not None and float(np.abs(terms.sinks_H).max()) > LARGE
    if may_recompute and not all_rows and not is_ordinary(scale, softcap):
        with ops.on_host(arrays, SoftmaxOutputs()) as (host_arrays, _):
            all_rows = is_extreme(scale, softcap, host_arrays.query_BTHK, host_arrays.key_BSGK)
    inputs = heads, key_mask, terms
    if all_rows:
        inputs = heads._replace(scale=1.0, softcap=0.0), key_mask, terms._replace(sinks_H=None)
    if (ops.strided_attention(arrays, *inputs, outputs) or all_rows) and may_recompute:
        with ops.on_host(arrays, outputs) as (host_arrays, host_outputs):
            recompute_in_float64(host_arrays, heads, key_mask, terms, host_outputs, all_rows)


def _key_mask(ops: Ops, arrays: StridedArrays, options: dict[str, Any]) -> tuple[KeyMask, np.ndarray | None]:
    """(the keys that queries see, the heads' logits if ``sinks`` are logits, or None)."""
    shape = arrays.shape
    sinks, sinks_H = _sinks(options.get("sinks"), *shape[1::2])
    seen_N2 = _seen_ranges(ops, arrays, options, sinks)
    mask, mask_mod, block_mask = options.get("mask"), options.get("mask_mod"), options.get("block_mask")
    states, block = None, (1, 1)
    if block_mask is not None:
        if not isinstance(block_mask, BlockMask):
            raise InputError(f"block_mask: expected a BlockMask, got {type(block_mask).__name__}")
        block_mask.check_fits(*shape)
        if block_mask.mask is not None:
            if mask is not None:
                raise InputError("mask: expected none beside a block_mask made of one")
            mask = block_mask.mask
        if mask_mod is not None and mask_mod is not block_mask.mask_mod:
            raise InputError("mask_mod: expected none beside a block_mask, but the one that it was made of")
        states, block, mask_mod = block_mask.states_BHTS, block_mask.block, block_mask.mask_mod
    if mask is not None:
        mask = arguments.broadcastable("mask", mask, np.bool_, shape)
    function = None if mask_mod is None else ops.compile_function(mask_mod, "mask_mod")
    return KeyMask(seen_N2, sinks, mask, states, block, function), sinks_H


def _seen_ranges(ops: Ops, arrays: StridedArrays, options: dict[str, Any], sinks: int) -> np.ndarray | None:
    """[N, 2] int64: the first key that each query sees and the key behind its last; None where all keys are seen."""
    lengths, offset, causal = options.get("lengths"), options.get("offset"), options.get("causal", False)
    if causal is False and all(option is None for option in (lengths, offset, options.get("window"))):
        return None
    queries_B, lengths_B = (starts[1:] - starts[:-1] for starts in arrays.starts)
    B = len(queries_B)
    if lengths is not None:
        keys_B, lengths_B = lengths_B, arguments.integers_of_sentences("lengths", lengths, B)
        if ((lengths_B < 0) | (lengths_B > keys_B)).any():
            longest, got = int(keys_B.max(initial=0)), described(lengths_B.tolist())
            raise InputError(f"lengths: expected 0 to {longest}, the number of keys, got {got}")
    causal, window = check_bool("causal", causal), arguments.window_sides(options.get("window"))
    if isinstance(offset, str):
        if offset != "end":
            raise InputError(f"offset: expected integers or 'end', got {described(offset)}")
        offset = lengths_B - queries_B
    offset_B = arguments.integers_of_sentences("offset", 0 if offset is None else offset, B)
    # an offset beyond all queries and keys hides or shows all keys: clipping changes nothing
    offset_B = np.clip(offset_B, -arguments.FAR, arguments.FAR)
    if not causal and window == (None, None) and lengths is None:
        return None
    lengths_B, sides = np.ascontiguousarray(lengths_B), arguments.seen_sides(causal, window)
    seen_N2 = ops.seen_around(arrays.starts[0], lengths_B, offset_B, *sides)
    if sinks and not causal and window[1] is not None:
        # The kernel shows sinks before a window. Sinks behind it need a longer window; causality would hide them.
        ends_N = np.repeat(np.minimum(lengths_B, sinks), queries_B)
        sees_any_N = seen_N2[:, 0] < seen_N2[:, 1]
        np.maximum(seen_N2[:, 1], ends_N, out=seen_N2[:, 1], where=sees_any_N)
    return seen_N2


def _sinks(sinks: Any, H: int, S: int) -> tuple[int, np.ndarray | None]:
    """(how many first keys queries see in addition to their window, the heads' logits or None)."""
    if sinks is None:
        return 0, None
    if isinstance(sinks, np.ndarray) and sinks.dtype == np.float32:
        if sinks.shape != (H,) or not np.isfinite(sinks).all():
            raise InputError(f"sinks: expected {H} finite logits, one a head, got shape {sinks.shape}")
        return 0, np.ascontiguousarray(sinks)
    if not arguments.is_integer(sinks) or sinks < 0:
        got = described(sinks) if isinstance(sinks, (int, float)) else type(sinks).__name__
        raise InputError(f"sinks: expected a number of keys from 0 on, or float32 logits of {H} heads, got {got}")
    return min(int(sinks), S), None


def _new_outputs(ops: Ops, arrays: StridedArrays, wanted_outputs: tuple[bool, bool]) -> SoftmaxOutputs:
    returns_weights = check_bool("return_weights", wanted_outputs[0])
    returns_logs = check_bool("return_logsumexp", wanted_outputs[1])
    B, H, T, S = arrays.shape
    logs_shape = (int(arrays.starts[0][-1]), H) if arrays.ragged else (B, H, T)
    new = partial(new_result, ops, arrays.query_BTHK)
    return SoftmaxOutputs(
        new("weights", (B, H, T, S), np.float32, np.zeros) if returns_weights else None,
        new("logsumexp", logs_shape, np.float32) if returns_logs else None,
    )
