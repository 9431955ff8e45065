"""``attend``: attention with any score, any keys seen and any normalizer, and the choice of the kernel for them.

Products and additive scores go to the kernels of ``fastattn.attention``. A graph's neighbours have a kernel of their
own, and so have windows around predicted positions; in combinations that these kernels lack, both become masks.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias, TypedDict, overload

import numpy as np

from fastattn.array_attention.arguments import MAX_HEAD_WIDTH
from fastattn.array_attention.attention import additive_attention, attention, attention_ragged
from fastattn.errors import InputError, check_bool, check_count
from fastattn.layers.draws import drawn_keys
from fastattn.mechanisms.arrays import check_float32, check_integers
from fastattn.mechanisms.scores import Additive, Content, Dot, General, Graph, Location, Product, ScaledDot, Score
from fastattn.mechanisms.seen import (
    Causal,
    Everything,
    LocalMonotonic,
    LocalPredictive,
    Neighbours,
    Padded,
    Restricted,
    Seen,
    Sentences,
    View,
)
from fastattn.ops import backend, on_threads
from fastattn.ops.float64_attention import LARGE, is_extreme
from fastattn.ops.protocol import Ops
from fastattn.system.option_names import ATTENTION, Unpack, explains_options

Result = tuple[np.ndarray, np.ndarray | None]  # out (B, T, H, V), and weights (B, H, T, S) or None
NO_KEY, NAN_KEY = -1, -2  # instead of the number of a best key: the query sees no key; its scores are NaN


@dataclass(frozen=True)
class Inputs:
    """The arrays of a call with four axes; ``headless``: the caller's arrays have no axis of heads."""

    device: str
    query_BTHK: np.ndarray
    key_BSGK: np.ndarray
    value_BSGV: np.ndarray
    headless: bool = False

    @property
    def ops(self) -> Ops:
        return backend(self.device)

    def view(self, *limits: Seen) -> View:
        """What queries see within all limits but a LocalPredictive, whose window depends on the queries' values."""
        B, T, H, _ = self.query_BTHK.shape
        view = View(self.ops, (B, H, T, self.key_BSGK.shape[1]), self.headless)
        for limit in limits:
            if not isinstance(limit, LocalPredictive):
                view = limit.limit(view)  # type: ignore[union-attr]
        return view

    def sliced(self, queries: slice, keys: slice) -> "Inputs":
        """The inputs with a slice of the queries, and of the keys with their values."""
        slices = zip((queries, keys, keys), (self.query_BTHK, self.key_BSGK, self.value_BSGV))
        query_BTHK, key_BSGK, value_BSGV = (np.ascontiguousarray(x[:, rows]) for rows, x in slices)
        return Inputs(self.device, query_BTHK, key_BSGK, value_BSGV, self.headless)


@dataclass(frozen=True)
class Soft:
    """The weighted sum of the values (Bahdanau 2015, equation 5): (B, T, H, V)."""

    wants_weights: ClassVar = False  # whether ``finish`` needs the weights

    def finish(self, inputs: Inputs, out_BTHV: np.ndarray, weights_BHTS: np.ndarray | None) -> Result:
        return out_BTHV[:, :, 0] if inputs.headless else out_BTHV, weights_BHTS


@dataclass(frozen=True)
class Hard:
    """The value of one key (Xu 2015, section 4.1): (B, T, H, V); the key's weight becomes 1, all others 0.

    seed  an integer: the key is drawn by its weight, equally for equal seeds and shapes; None: the first of the most
          probable keys
    A query that sees no key yields zeros.
    """

    seed: int | None = None

    wants_weights: ClassVar = True

    def finish(self, inputs: Inputs, out_BTHV: np.ndarray, weights_BHTS: np.ndarray | None) -> Result:
        assert weights_BHTS is not None
        B, H, T, S = weights_BHTS.shape
        best_BHT = np.full((B, H, T), NO_KEY)
        if S and self.seed is None:
            best_BHT = weights_BHTS.argmax(axis=3)
        elif S:
            seed = int(check_integers("seed", self.seed, (), 0, np.iinfo(np.int64).max))
            shares_BHT = np.random.default_rng(seed).random((B, H, T))
            for b, h in np.ndindex(B, H):
                best_BHT[b, h] = drawn_keys(weights_BHTS[b, h], shares_BHT[b, h])
        if S:
            weight_BHT = np.take_along_axis(weights_BHTS, best_BHT[..., None], axis=3)[..., 0]
            best_BHT = np.where(weight_BHT == 0, NO_KEY, np.where(np.isnan(weight_BHT), NAN_KEY, best_BHT))
        return self.values_of(inputs, best_BHT, True)

    def values_of(self, inputs: Inputs, best_BHT: np.ndarray, return_weights: bool) -> Result:
        """The values of the keys ``best_BHT``, NaN for NAN_KEY; with ``return_weights`` their weights too."""
        value_BSGV = inputs.value_BSGV
        (B, H, T), (S, G) = best_BHT.shape, value_BSGV.shape[1:3]
        factor_BHT = np.where(best_BHT == NAN_KEY, np.float32(np.nan), (best_BHT >= 0).astype(np.float32))
        key_BHT = np.maximum(best_BHT, 0)
        out_BTHV = np.zeros((B, T, H, value_BSGV.shape[3]), np.float32)
        for b, h in np.ndindex(B, H if S else 0):
            chosen_TV = value_BSGV[b, key_BHT[b, h], h // (H // G)]
            out_BTHV[b, :, h] = np.where(factor_BHT[b, h, :, None] == 0, 0, chosen_TV * factor_BHT[b, h, :, None])
        weights_BHTS = None
        if return_weights:
            weights_BHTS = np.zeros((B, H, T, S), np.float32)
            if S:
                np.put_along_axis(weights_BHTS, key_BHT[..., None], factor_BHT[..., None], axis=3)
        return Soft().finish(inputs, out_BTHV, weights_BHTS)


@dataclass(frozen=True)
class Pointer:
    """The weights (Vinyals 2015, equation 3): (B, H, T, S), or (B, T, S) without heads. Values may be None."""

    wants_weights: ClassVar = True

    def finish(self, inputs: Inputs, out_BTHV: np.ndarray, weights_BHTS: np.ndarray | None) -> Result:
        assert weights_BHTS is not None
        return weights_BHTS[:, 0] if inputs.headless else weights_BHTS, weights_BHTS


@dataclass(frozen=True)
class Saliency:
    """Each query's weights as a map of the input, averaged over heads (Xu 2015, figure 2): (B, T, *grid).

    grid  the axes of the input, such as (rows, columns), whose product is S: the keys are its positions. None: (S,)
    Values may be None.
    """

    grid: tuple[int, ...] | None = None

    wants_weights: ClassVar = True

    def finish(self, inputs: Inputs, out_BTHV: np.ndarray, weights_BHTS: np.ndarray | None) -> Result:
        assert weights_BHTS is not None
        B, _, T, S = weights_BHTS.shape
        if not isinstance(self.grid, tuple | list | type(None)):
            raise InputError(f"grid: expected a tuple of axes, got {type(self.grid).__name__}")
        grid = (S,) if self.grid is None else tuple(check_count("grid", axis) for axis in self.grid)
        if math.prod(grid) != S:
            raise InputError(f"grid: expected axes whose product is {S}, the number of keys, got {grid}")
        return weights_BHTS.mean(axis=1).reshape(B, T, *grid), weights_BHTS


Normalizer: TypeAlias = Soft | Hard | Pointer | Saliency


_SCALED_DOT, _EVERYTHING, _SOFT = ScaledDot(), Everything(), Soft()


class AttendOptions(TypedDict, total=False):
    """The options of ``attend``."""

    score: Score
    seen: Seen | tuple[Seen, ...]
    normalizer: Normalizer
    threads: int | None
    device: str


@overload
def attend(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    *,
    return_weights: Literal[False] = ...,
    **options: "Unpack[AttendOptions]",
) -> np.ndarray: ...


@overload
def attend(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    *,
    return_weights: Literal[True],
    **options: "Unpack[AttendOptions]",
) -> tuple[np.ndarray, np.ndarray]: ...


@explains_options(ATTENTION, AttendOptions)
def attend(
    query: np.ndarray, key: np.ndarray | None, value: np.ndarray | None, *, return_weights: bool = False, **options: Any
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Attention of any kind: the normalizer combines values by the softmax of score(query, key) over the keys seen.

    query is (B, T, K), key (B, S, K), value (B, S, V): sentences, positions, width; float32. With heads they are
    (B, T, H, K), (B, S, G, K) and (B, S, G, V); G divides H, and each key head serves H / G query heads in a row.
    score       how well a query and a key agree: see ``fastattn.mechanisms.scores``; by default ScaledDot()
    seen        which keys a query sees: see ``fastattn.mechanisms.seen``; with a tuple, the keys that all its items
                show; by default Everything()
    normalizer  what the softmax and the values become: see ``fastattn.mechanisms.attend``; by default Soft()
    threads     the most threads; None: those of ``use_threads``, else all that the process may use
    device      where attention is computed: "cpu", "cuda" or "auto"
    Returns the normalizer's result, or with ``return_weights`` a tuple of the result and the weights, (B, H, T, S), or
    (B, T, S) without heads. A query that sees no key yields zeros. InputError for arguments that do not fit.
    """
    score, normalizer = options.get("score", _SCALED_DOT), options.get("normalizer", _SOFT)
    seen = options.get("seen", _EVERYTHING)
    limits = seen if isinstance(seen, tuple) else (seen,)
    _check_class("score", score, Score)
    _check_class("normalizer", normalizer, Normalizer)
    for limit in limits:
        _check_class("seen", limit, Seen)
    with_weights = check_bool("return_weights", return_weights)
    if value is None and not isinstance(normalizer, Pointer | Saliency):
        raise InputError("value: expected a NumPy array of float32; only Pointer and Saliency do without")
    inputs = checked_inputs(options.get("device", "cpu"), query, key, value, score)
    with on_threads(inputs.ops, options.get("threads")):
        best_BHT = None
        if isinstance(normalizer, Hard) and normalizer.seed is None:
            best_BHT = most_probable_keys(inputs, score, limits)
        if isinstance(normalizer, Hard) and best_BHT is not None:
            result, weights_BHTS = normalizer.values_of(inputs, best_BHT, with_weights)
        else:
            out, weights_BHTS = soft_attention(inputs, score, limits, with_weights or normalizer.wants_weights)
            result, weights_BHTS = normalizer.finish(inputs, out, weights_BHTS)
    if not with_weights:
        return result
    assert weights_BHTS is not None
    return result, weights_BHTS[:, 0] if inputs.headless else weights_BHTS


def _check_class(name: str, option: Any, union: Any) -> None:
    if not isinstance(option, union):
        names = ", ".join(class_.__name__ for class_ in union.__args__)
        raise InputError(f"{name}: expected one of {names}, got {type(option).__name__}")


def checked_inputs(
    device: str, query: np.ndarray, key: np.ndarray | None, value: np.ndarray | None, score: Score
) -> Inputs:
    """The arrays of ``attend`` with four axes; InputError where they do not fit."""
    inputs = {
        name: check_float32(name, array, "(B, T, K)", "(B, T, H, K)")
        for name, array in {"query": query, "key": key, "value": value}.items()
        if array is not None or name == "query"
    }
    headless = inputs["query"].ndim == 3
    for name, array in inputs.items():
        if (array.ndim == 3) != headless:
            raise InputError(f"{name}: expected {inputs['query'].ndim} axes as in the query, got shape {array.shape}")
        inputs[name] = array[:, :, None] if headless else array
    B, _, H, K = inputs["query"].shape
    if H == 0 or K == 0:
        raise InputError(f"query: expected a head and a width of at least one, got shape {query.shape}")
    if key is None and not isinstance(score, Location):
        raise InputError("key: expected a NumPy array of float32; only Location does without")
    key_shape = next((inputs[name].shape[:3] for name in ("key", "value") if name in inputs), None)
    if key_shape is None:
        assert isinstance(score, Location)
        key_shape = B, np.shape(score.weight)[-2] if np.ndim(score.weight) > 1 else 0, H
    if key_shape[0] != B or key_shape[2] == 0 or H % key_shape[2]:
        got = f"{key_shape[0]} and {key_shape[2]}"
        raise InputError(f"key: expected batch {B} and a number of heads that divides {H}, got {got}")
    for name, array in inputs.items():
        if array.shape[3] > MAX_HEAD_WIDTH:
            raise InputError(f"{name}: expected a width of at most {MAX_HEAD_WIDTH}, got {array.shape[3]}")
    key_BSGK = inputs.get("key", np.empty((*key_shape, 0), np.float32))
    value_BSGV = inputs.get("value", np.zeros((*key_shape, 1), np.float32))
    if value_BSGV.shape[:3] != key_shape or value_BSGV.shape[3] == 0:
        raise InputError(f"value: expected {key_shape} as the key has, and a width, got {value_BSGV.shape}")
    return Inputs(device, inputs["query"], key_BSGK, value_BSGV, headless)


def soft_attention(inputs: Inputs, score: Score, seen: tuple[Seen, ...], with_weights: bool) -> Result:
    """The sums of values weighted by the softmax, and the weights if ``with_weights``."""
    sentences, limits = _split_sentences(seen)
    if sentences is not None:
        return _attend_in_sentences(inputs, score, sentences, limits, with_weights)
    local_limits = [limit for limit in limits if isinstance(limit, LocalPredictive)]
    if len(local_limits) > 1:
        raise InputError("seen: expected one LocalPredictive, got several")
    if len(seen) == 1 and isinstance(seen[0], Neighbours) and not isinstance(score, Additive):
        result = _attend_to_neighbours(inputs, score, seen[0], with_weights)
        if result is not None:
            return result
    view = inputs.view(*seen)
    if local_limits:
        return _attend_locally(inputs, score, local_limits[0], view, with_weights)
    return _attend_in_view(inputs, score, view, with_weights)


def _split_sentences(seen: tuple[Seen, ...]) -> tuple[Sentences | None, tuple[Seen, ...]]:
    """(the first Sentences in ``seen``, or None; all other items)."""
    first = next((limit for limit in seen if isinstance(limit, Sentences)), None)
    return first, tuple(limit for limit in seen if limit is not first)


def most_probable_keys(inputs: Inputs, score: Score, seen: tuple[Seen, ...]) -> np.ndarray | None:
    """The most probable key of each query, NO_KEY or NAN_KEY, (B, H, T); None where only weights can tell."""
    if any(isinstance(limit, LocalPredictive) for limit in seen):
        return None
    sentences, limits = _split_sentences(seen)
    if sentences is not None:
        best_BHT = np.empty(inputs.view().shape[:3], np.int64)
        for queries, keys in sentences.spans(inputs.view()):
            sentence_BHT = most_probable_keys(inputs.sliced(queries, keys), score, limits)
            if sentence_BHT is None:
                return None
            best_BHT[:, :, queries] = sentence_BHT + np.where(sentence_BHT >= 0, keys.start, 0)
        return best_BHT
    view = inputs.view(*seen)
    bias, options = None, dict[str, Any]()
    if isinstance(score, Additive):
        query_BTHK, key_BSGK, options["vector_HK"] = score.project(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
    else:
        query_BTHK, key_BSGK, scale, softcap, bias = score.product(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
        bias = None if bias is None else checked_bias(bias, view)
        # A cap alone does not change the order of keys.
        is_order_unclear = bias is not None and (softcap != 0 or bias.max(initial=0) > LARGE)
        if is_order_unclear or is_extreme(scale, 0, query_BTHK, key_BSGK):
            return None
        options["factor"] = np.float32(scale)
    if view.mask is not None:  # a bias of -inf where the mask is False
        masked_bias = np.where(view.mask, np.float32(0) if bias is None else bias, np.float32(-np.inf))
        bias = np.ascontiguousarray(masked_bias)
    best_BHT = inputs.ops.best_keys(query_BTHK, key_BSGK, seen_BT2=view.ranges(), bias_BHTS=bias, **options)
    sees_BHT = np.broadcast_to(view.joint_mask().any(axis=-1), best_BHT.shape)
    best_BHT = np.where((best_BHT < 0) & sees_BHT, NAN_KEY, best_BHT)
    return None if bias is not None and (best_BHT == NAN_KEY).any() else best_BHT


def _attend_in_view(inputs: Inputs, score: Score, view: View, with_weights: bool) -> Result:
    """Attention by the kernels of ``fastattn.attention``."""
    if isinstance(score, Additive):
        return _attend_additively(inputs, score, view, with_weights)
    product = score.product(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
    bias = None if product.bias is None else checked_bias(product.bias, view)
    arrays = product.query_BTHK, product.key_BSGK, inputs.value_BSGV
    options = {"scale": product.scale, "softcap": product.softcap, "bias": bias, **view.options()}
    return _as_result(attention(*arrays, **options, return_weights=with_weights, device=inputs.device))


def _as_result(result: np.ndarray | tuple[np.ndarray, ...]) -> Result:
    return (result[0], result[1]) if isinstance(result, tuple) else (result, None)


def checked_bias(bias: np.ndarray, view: View) -> np.ndarray:
    """A score's bias with four axes; InputError unless it broadcasts to (B, H, T, S)."""
    bias_BHTS = view.four_axes(check_float32("bias", bias, "(S,)", "(T, S)", "(H, T, S)", "(B, H, T, S)"))
    if any(axis not in (1, size) for axis, size in zip(bias_BHTS.shape, view.shape)):
        raise InputError(f"bias: expected a shape that broadcasts to {view.shape}, got {bias.shape}")
    return bias_BHTS


def _attend_additively(inputs: Inputs, score: Additive, view: View, with_weights: bool) -> Result:
    query_BTHD, key_BSGD, vector_HD = score.project(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
    value_BSGV = inputs.value_BSGV
    if key_BSGD.shape[2] != value_BSGV.shape[2]:
        value_BSGV = np.repeat(value_BSGV, key_BSGD.shape[2] // value_BSGV.shape[2], axis=2)
    arrays = query_BTHD, key_BSGD, value_BSGV, vector_HD
    options = {**view.options(), "return_weights": with_weights, "device": inputs.device}
    return _as_result(additive_attention(*arrays, **options))


def _attend_to_neighbours(inputs: Inputs, score: Score, neighbours: Neighbours, with_weights: bool) -> Result | None:
    """Attention by the kernel of graphs; None for scores that this kernel does not compute."""
    view = inputs.view()
    B, H, T, S = view.shape
    starts_N1, indices_E = neighbours.checked_arrays(T, S)
    value_BSHV = np.repeat(inputs.value_BSGV, H // inputs.value_BSGV.shape[2], axis=2)
    if isinstance(score, Graph):
        target, source, factor = score.terms(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
    else:
        product = score.product(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)  # type: ignore[union-attr]
        if product.softcap != 0 or product.bias is not None:
            return None
        target, factor = product.query_BTHK, product.scale
        source = np.repeat(product.key_BSGK, H // product.key_BSGK.shape[2], axis=2)
    out_BTHV = np.empty((B, T, H, value_BSHV.shape[3]), np.float32)
    weights_BHTS = np.zeros(view.shape, np.float32) if with_weights else None
    weights_EH = np.empty((len(indices_E), H), np.float32) if with_weights else None
    nodes_E = np.repeat(np.arange(T), np.diff(starts_N1))
    for b in range(B):
        pair = np.ascontiguousarray(target[b]), np.ascontiguousarray(source[b])
        terms, dots = (pair, None) if isinstance(score, Graph) else (None, pair)
        out_BTHV[b] = inputs.ops.graph_attention(
            value_BSHV[b], starts_N1, indices_E, terms=terms, dots=dots, factor=factor, weights_EH=weights_EH
        )
        if weights_BHTS is not None and weights_EH is not None:
            np.add.at(weights_BHTS[b].transpose(1, 2, 0), (nodes_E, indices_E), weights_EH)
    return out_BTHV, weights_BHTS


def _attend_locally(inputs: Inputs, score: Score, limit: LocalPredictive, view: View, with_weights: bool) -> Result:
    """Attention by the kernel of local windows; for scores that it lacks, by weights that another kernel returns."""
    centre_BTH = limit.centres(inputs.query_BTHK, view)
    windows_BTH2 = limit.windows(centre_BTH, view)
    product = None if isinstance(score, Additive) else score.product(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
    if product is not None and product.softcap == 0 and product.bias is None and view.mask is None:
        weights_BHTS = np.empty(view.shape, np.float32) if with_weights else None
        arrays = product.query_BTHK, product.key_BSGK, inputs.value_BSGV, centre_BTH, windows_BTH2
        out = inputs.ops.local_attention(*arrays, scale=product.scale, decay=limit.decay(), weights_BHTS=weights_BHTS)
        return out, weights_BHTS
    B, H, T, S = view.shape
    first, stop = (windows_BTH2[..., n].transpose(0, 2, 1)[..., None] for n in (0, 1))
    inside_BHTS = (np.arange(S) >= first) & (np.arange(S) < stop)
    mask = inside_BHTS if view.mask is None else inside_BHTS & view.mask
    _, weights_BHTS = _attend_in_view(inputs, score, replace(view, mask=mask), True)
    assert weights_BHTS is not None
    distance_BHTS = np.arange(S, dtype=np.float32) - centre_BTH.transpose(0, 2, 1)[..., None]
    weights_BHTS *= np.exp(-np.square(distance_BHTS) * np.float32(limit.decay()))
    return weighted_sum(weights_BHTS, inputs.value_BSGV), weights_BHTS if with_weights else None


def weighted_sum(weights_BHTS: np.ndarray, value_BSGV: np.ndarray) -> np.ndarray:
    """The sum of the values for each query, weighted: (B, T, H, V)."""
    B, H, T, S = weights_BHTS.shape
    G, V = value_BSGV.shape[2:]
    finite_BSGV = np.isfinite(value_BSGV)
    zeroed_BGSV = np.where(finite_BSGV, value_BSGV, 0).transpose(0, 2, 1, 3)
    sums = weights_BHTS.reshape(B, G, H // G, T, S) @ zeroed_BGSV[:, :, None]
    out_BTHV = np.ascontiguousarray(sums.reshape(B, H, T, V).transpose(0, 2, 1, 3))
    # A value that is not finite is added only where its weight is not 0: 0 times such a value would be NaN.
    for b, s, g in np.argwhere(~finite_BSGV.all(axis=3)):
        heads = slice(g * (H // G), (g + 1) * (H // G))
        weight_THI = weights_BHTS[b, heads, :, s].T[..., None]
        infinite_V = np.where(finite_BSGV[b, s, g], 0, value_BSGV[b, s, g])
        with np.errstate(invalid="ignore"):
            out_BTHV[b, :, heads] += np.where(weight_THI == 0, 0, weight_THI * infinite_V)
    return out_BTHV


_RAGGED_LIMITS = Everything, Padded, Causal, Restricted, LocalMonotonic  # limits that are options of attention_ragged


def _attend_in_sentences(
    inputs: Inputs, score: Score, sentences: Sentences, limits: tuple[Seen, ...], with_weights: bool
) -> Result:
    """One call of ``attention_ragged``, or a call for each sentence: for weights and options that the former lacks."""
    view = inputs.view()
    spans, (B, H, T, S) = sentences.spans(view), view.shape
    if isinstance(score, Dot | ScaledDot | Content | General) and not with_weights:
        product = score.product(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
        if product.bias is None and all(isinstance(limit, _RAGGED_LIMITS) for limit in limits):
            return _ragged(product, inputs, spans, limits), None
    out_BTHV = np.empty((B, T, H, inputs.value_BSGV.shape[3]), np.float32)
    weights_BHTS = np.zeros((B, H, T, S), np.float32) if with_weights else None
    for queries, keys in spans:
        out, weights = soft_attention(inputs.sliced(queries, keys), score, limits, with_weights)
        out_BTHV[:, queries] = out
        if weights_BHTS is not None and weights is not None:
            weights_BHTS[:, :, queries, keys] = weights
    return out_BTHV, weights_BHTS


def _ragged(product: Product, inputs: Inputs, spans: list[tuple[slice, slice]], limits: tuple[Seen, ...]) -> np.ndarray:
    """(1, T, H, V): attention in sentences that lie end to end, by ``attention_ragged``."""
    starts = ([0, *(span[n].stop for span in spans)] for n in (0, 1))
    # The limits of ``_RAGGED_LIMITS`` are the same for all sentences: B is 1.
    options = {name: value for name, value in inputs.view(*limits).options().items() if value is not None}
    options |= {name: int(options[name][0]) for name in ("lengths", "offset") if name in options}
    arrays = (x[0] for x in (product.query_BTHK, product.key_BSGK, inputs.value_BSGV))
    options |= {"scale": product.scale, "softcap": product.softcap, "device": inputs.device}
    return attention_ragged(*arrays, *starts, **options)[None]
