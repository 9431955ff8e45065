"""fastattn.attention: checks of its arguments, then the kernel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import numpy as np

from fastattn.array_attention import arguments
from fastattn.array_attention.arguments import Integers
from fastattn.array_attention.arrays import Problem, check_apart, dense, new_array, ragged
from fastattn.array_attention.attention_float64 import Scores, is_extreme, is_large
from fastattn.array_attention.block_mask import BlockMask
from fastattn.errors import InputError, check_bool, check_count, described
from fastattn.kernels.attention.types import MaskArguments, OutputArguments
from fastattn.kernels.user_functions.states import NO_FUNCTION
from fastattn.ops.cpu.attention.additive_tile import far_heads, vector_factors
from fastattn.ops.cpu.attention.memory import NO_STEPS, steps_of
from fastattn.ops.cpu.attention.scores import DOT, score_arguments
from fastattn.ops.cpu.attention.sentences import (
    NO_BLOCKS,
    NO_BYTES,
    NO_MASK,
    NO_OUTPUTS,
    NO_RANGES,
    attend_laid,
    seen_around,
)
from fastattn.ops.heads import Heads
from fastattn.runtime.threads import use_threads
from fastattn.simd.constants import LOG2_E

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AttentionOptions(TypedDict, total=False):
    """The options of ``attention`` and ``attention_ragged``; see there."""

    lengths: Integers | None
    causal: bool
    offset: Integers | Literal["end"] | None
    window: tuple[int | None, int | None] | None
    bias: np.ndarray | None
    mask: np.ndarray | None
    scale: float | None
    softcap: float | None
    sinks: int | np.ndarray | None
    score_mod: Callable | None
    mask_mod: Callable | None
    block_mask: BlockMask | None
    out: np.ndarray | None
    threads: int | None


RETURNED = ("return_weights", "return_logsumexp")


class DenseOptions(AttentionOptions, total=False):
    """Those of ``attention``."""

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


def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    layout: str = "BTHK",
    lengths: Integers | None = None,
    causal: bool = False,
    offset: Integers | str | None = None,
    window: tuple[int | None, int | None] | None = None,
    bias: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    scale: float | None = None,
    softcap: float | None = 0.0,
    sinks: int | np.ndarray | None = None,
    score_mod: Callable | None = None,
    mask_mod: Callable | None = None,
    block_mask: BlockMask | None = None,
    return_weights: bool = False,
    return_logsumexp: bool = False,
    out: np.ndarray | None = None,
    threads: int | None = None,
    **unknown: Any,
) -> np.ndarray | tuple[np.ndarray, ...]:
    """softmax(Q K' scale + bias) V (Vaswani 2017) of each head: (B, T, H, V), or a tuple with what else is asked for.

    query is (B, T, H, K), key (B, S, G, K), value (B, S, G, V): sentences, positions, heads, head width. Where G is
    less than H it divides H, and each key head serves H / G query heads in a row (Ainslie 2023). All are float32,
    float16, or bfloat16 (as uint16, its bits, or of the ml_dtypes package), and so is the result; computed in float32.
    layout   "BTHK", or "BHTK": heads before positions, in the result too; no array is copied whose heads are whole
    lengths  integers [B]: keys at or past a sentence's length are padding; None: all S are keys
    causal   query t sees keys s <= t + offset
    offset   an integer or integers [B], where queries begin among the keys; "end": length - T; None: 0. Nothing but
             causal and window asks for it
    window   (left, right): query t sees keys t + offset - left <= s <= t + offset + right; None: no bound
    bias     float32 that broadcasts to (B, H, T, S), added after scale and cap; -inf hides a key
    mask     bool that broadcasts to (B, H, T, S): True is seen
    scale    multiplies the scores; None: 1 / sqrt(K)
    softcap  a scaled score s becomes softcap * tanh(s / softcap), as in Gemma 2; 0 or None: no cap
    sinks    an integer: so many first keys are seen beside the window, before or behind it, by all that see any (Xiao
             2023); float32 [H]: logits that take part in each softmax, and have no value (gpt-oss)
    score_mod, mask_mod  functions compiled into the kernel, see docs/attention.md: score_mod(score, b, h, t, s) is the
             score, after the cap, and mask_mod(b, h, t, s) whether it is seen
    block_mask  which blocks of keys are skipped, see BlockMask
    return_weights    the softmax weights as well, float32 (B, H, T, S)
    return_logsumexp  then the log of each softmax's sum, float32 (B, H, T); -inf where no key is seen
    out      an array for the result
    threads  the most to use; None: those of ``use_threads``, else all that the process may use
    InputError for arguments that do not fit. Scores are not stored, except as weights (Dao 2023). A query that sees no
    key yields zeros. docs/coming-from-attention.md has the names of other libraries.
    """
    if unknown:
        arguments.check_options("attention", unknown, {*DenseOptions.__annotations__, *RETURNED})
    options = _Options(
        lengths, causal, offset, window, bias, mask, scale, softcap, sinks, score_mod, mask_mod, block_mask,
        return_weights, return_logsumexp, threads,
    )  # fmt: skip
    return _attend(dense(query, key, value, layout, out), options)


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


def attention_ragged(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    query_starts: Integers,
    key_starts: Integers,
    **options: Any,
) -> np.ndarray | tuple[np.ndarray, ...]:
    """``attention`` of sentences of any lengths, one after another without padding: (N, H, V).

    query is (N, H, K), key (M, G, K), value (M, G, V). Sentence b has queries query_starts[b] .. query_starts[b + 1],
    likewise keys; starts are integers [B + 1], from 0 to all rows. Options as in ``attention``, without layout: B, T
    and S are sentences and the most queries and keys of one, positions count from its start, logsumexp is (N, H).
    """
    out = options.pop("out", None)
    known = _known("attention_ragged", options, set(_Options.__annotations__))
    return _attend(ragged(query, key, value, query_starts, key_starts, out), known)


def additive_attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, vector: np.ndarray, **options: Any
) -> np.ndarray | tuple[np.ndarray, ...]:
    """``attention`` whose scores are v . tanh(q + k) (Bahdanau 2015), of queries and keys that are projected already.

    vector  v, float32 (H, D); query is (B, T, H, D), key (B, S, G, D), float32
    No array of queries by keys by D is made. The other options are those of ``attention``, but for scale.
    """
    layout, out = options.pop("layout", "BTHK"), options.pop("out", None)
    known = _known("additive_attention", options, set(_Options.__annotations__) - {"scale"})
    problem = dense(query, key, value, layout, out)
    _check_vector(vector, query, problem)
    return _attend(problem, known, vector)


def _check_vector(vector: Any, query: np.ndarray, problem: Problem) -> None:
    shape = problem.query.shape[2:]
    if not isinstance(vector, np.ndarray) or vector.dtype != np.float32 or vector.shape != shape:
        got = f"{vector.dtype} {vector.shape}" if isinstance(vector, np.ndarray) else type(vector).__name__
        raise InputError(f"vector: expected an array of float32 {shape}, got {got}")
    if query.dtype != np.float32:
        raise InputError(f"query: expected float32 for additive attention, got {query.dtype}")


@dataclass(frozen=True)
class _Options:
    lengths: Any = None
    causal: bool = False
    offset: Any = None
    window: Any = None
    bias: np.ndarray | None = None
    mask: np.ndarray | None = None
    scale: float | None = None
    softcap: float | None = 0.0
    sinks: Any = None
    score_mod: Callable | None = None
    mask_mod: Callable | None = None
    block_mask: BlockMask | None = None
    return_weights: bool = False
    return_logsumexp: bool = False
    threads: int | None = None


def _known(function: str, options: dict[str, Any], names: set[str]) -> _Options:
    arguments.check_options(function, options, names)
    return _Options(**options)


def _attend(
    problem: Problem, options: _Options, vector_HD: np.ndarray | None = None
) -> np.ndarray | tuple[np.ndarray, ...]:
    B, H, T, S = problem.shape
    G, K, V = problem.key.shape[2], problem.query.shape[3], problem.value.shape[3]
    scale = K**-0.5 if options.scale is None else arguments.number("scale", options.scale)
    softcap = arguments.softcap_of(options.softcap)
    if options.threads is not None:
        check_count("threads", options.threads)
    sinks, sinks_H = _sinks(options.sinks, H, S)
    seen_N2 = _ranges(problem, options, sinks)
    bias = None if options.bias is None else arguments.broadcastable("bias", options.bias, np.float32, (B, H, T, S))
    mask, blocks = _masks(options, (B, H, T, S))
    states = None if blocks is None else blocks.states_BHTS
    check_apart(problem.returned, bias=bias, mask=mask, sinks=sinks_H, block_mask=states, vector=vector_HD)
    score_function, mask_function = _functions(options, blocks)
    weights = None
    if check_bool("return_weights", options.return_weights):
        weights = new_array("weights", (B, H, T, S), np.float32, np.zeros)
    logs = _empty_logs(problem) if check_bool("return_logsumexp", options.return_logsumexp) else None

    additive: tuple[Any, np.ndarray] = DOT
    plain = score_function is NO_FUNCTION and mask_function is NO_FUNCTION
    if vector_HD is not None:
        additive, plain, scale = _additive(problem, vector_HD, seen_N2), False, 1 / LOG2_E
    extreme = plain and (is_large(sinks_H) or is_extreme(scale, softcap, problem.query, problem.key))
    invalid = 0
    if B and T and S:
        # what float32 cannot hold is computed in float64
        heads = Heads(H, G, K, V, scale=1.0 if extreme else scale, softcap=0.0 if extreme else softcap)
        form = score_arguments(heads, bias, None, None if extreme else sinks_H, score_function, additive)
        seen = (NO_RANGES if seen_N2 is None else seen_N2), sinks
        with nullcontext() if options.threads is None else use_threads(options.threads):
            masks = _kernel_mask(mask, blocks, mask_function)
            outputs = _outputs(problem, weights, logs)
            N = int(problem.starts[0][-1])
            invalid = int(attend_laid(problem.laid(), N, heads, seen, masks, form, outputs).sum())
    else:
        problem.out[...] = 0
        if logs is not None:
            logs[...] = -np.inf if sinks_H is None else sinks_H if problem.ragged else sinks_H[:, None]
    if extreme or (invalid and plain):
        scores = Scores(scale, softcap, bias, seen_N2, sinks, sinks_H, mask, None if blocks is None else blocks.seen)
        for b, (rows, (q, k, v, o)) in enumerate(problem.sentences()):
            lines = None if logs is None else logs[rows].T if problem.ragged else logs[b]
            scores.mend(b, rows, q, k, v, o, None if weights is None else weights[b], lines, every=extreme)
    results = [result for result in (problem.finish(), weights, logs) if result is not None]
    return results[0] if len(results) == 1 else tuple(results)


def _additive(problem: Problem, vector_HD: np.ndarray, seen_N2: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """(factors of the scores, which heads of which sentences are computed by exponentials) for ``score_arguments``."""
    near = []
    for rows, (query_THD, key_SGD, _, _) in problem.sentences():
        last = None if seen_N2 is None else int(seen_N2[rows, 1].max(initial=0))
        near.append(~far_heads(query_THD, key_SGD[:last]))
    return vector_factors(vector_HD), np.array(near, np.uint8).reshape(-1, vector_HD.shape[0])


def _ranges(problem: Problem, options: _Options, sinks: int) -> np.ndarray | None:
    """seen_N2 of all queries, or None where all keys are seen."""
    if options.lengths is options.offset is options.window is None and options.causal is False:
        return None
    B = problem.shape[0]
    keys_B = np.diff(problem.starts[1])
    lengths_B = keys_B
    if options.lengths is not None:
        lengths_B = arguments.integers("lengths", options.lengths, B)
        if ((lengths_B < 0) | (lengths_B > keys_B)).any():
            most = int(keys_B.max(initial=0))
            raise InputError(f"lengths: expected 0 to {most}, the number of keys, got {described(lengths_B.tolist())}")
    causal, window = check_bool("causal", options.causal), arguments.window_sides(options.window)
    offset = options.offset
    if isinstance(offset, str):
        if offset != "end":
            raise InputError(f"offset: expected integers or 'end', got {described(offset)}")
        offset = lengths_B - np.diff(problem.starts[0])
    # an offset beyond the queries and keys hides or shows everything
    offset_B = np.zeros(B, np.int64)
    if offset is not None:
        offset_B = np.clip(arguments.integers("offset", offset, B), -arguments.FAR, arguments.FAR)
    if not causal and window == (None, None) and options.lengths is None:
        return None
    lengths_B, sides = np.ascontiguousarray(lengths_B), arguments.sides_of(causal, window)
    seen_N2 = seen_around(problem.starts[0], lengths_B, offset_B, *sides)
    if sinks and not causal and window[1] is not None:
        # those before a window are the kernel's to show; those behind it are not hidden by causality
        ends_N = np.repeat(np.minimum(lengths_B, sinks), np.diff(problem.starts[0]))
        sees_N = seen_N2[:, 0] < seen_N2[:, 1]
        np.maximum(seen_N2[:, 1], ends_N, out=seen_N2[:, 1], where=sees_N)
    return seen_N2


def _sinks(sinks: Any, H: int, S: int) -> tuple[int, np.ndarray | None]:
    """(the number of first keys that stay seen, logits of heads or None)."""
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


def _masks(options: _Options, shape: tuple[int, int, int, int]) -> tuple[np.ndarray | None, BlockMask | None]:
    """(the boolean array with four axes, the blocks), None for those not given."""
    mask, blocks = options.mask, options.block_mask
    if blocks is not None:
        if not isinstance(blocks, BlockMask):
            raise InputError(f"block_mask: expected a BlockMask, got {type(blocks).__name__}")
        blocks.fit(*shape)
        if blocks.mask is not None:
            if mask is not None:
                raise InputError("mask: expected none beside a block_mask made of one")
            mask = blocks.mask
    return None if mask is None else arguments.broadcastable("mask", mask, np.bool_, shape), blocks


def _kernel_mask(mask: np.ndarray | None, blocks: BlockMask | None, function: Any) -> MaskArguments:
    if mask is None and blocks is None and function is NO_FUNCTION:
        return NO_MASK
    array, steps = (NO_BYTES, NO_STEPS) if mask is None else steps_of(mask.view(np.uint8))
    return MaskArguments._make((array, *steps, *(NO_BLOCKS if blocks is None else blocks.table), function))


def _functions(options: _Options, blocks: BlockMask | None) -> tuple[Any, Any]:
    """The compiled functions of scores and of the mask."""
    mask_mod = options.mask_mod
    if blocks is not None:
        if mask_mod is not None and mask_mod is not blocks.mask_mod:
            raise InputError("mask_mod: expected none beside a block_mask, but the one that it was made of")
        mask_mod = blocks.mask_mod
    return _compiled(options.score_mod, "score_mod"), _compiled(mask_mod, "mask_mod")


def _compiled(function: Callable | None, kind: str) -> Any:
    if function is None:
        return NO_FUNCTION
    from fastattn.user_functions.plan import compile_function

    return compile_function(function, kind)


def _empty_logs(problem: Problem) -> np.ndarray:
    B, H, T, _ = problem.shape
    return np.empty((int(problem.starts[0][-1]), H) if problem.ragged else (B, H, T), np.float32)


def _outputs(problem: Problem, weights: np.ndarray | None, logs: np.ndarray | None) -> OutputArguments:
    _, H, T, _ = problem.shape
    steps = (0, 4, 4 * H) if problem.ragged else (4 * (H - 1) * T, 4 * T, 4)
    logs = NO_OUTPUTS.logs if logs is None else logs.reshape(-1)
    return OutputArguments(NO_OUTPUTS.weights_BHTS if weights is None else weights, logs, *steps)
