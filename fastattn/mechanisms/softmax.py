"""The softmax over the scores of the keys seen, and the weighted sum: which kernel computes it for which parts.

Products and additive scores go to the kernels of ``fastattn.attention``; a graph's neighbours and windows around
predicted positions have a kernel each. In other combinations neighbours and windows become masks.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastattn.array_attention.arguments import MAX_HEAD_WIDTH
from fastattn.array_attention.attention import additive_attention, attention, attention_ragged
from fastattn.errors import InputError
from fastattn.mechanisms.arrays import check_float32
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
from fastattn.ops import backend
from fastattn.ops.float64_attention import LARGE, is_extreme
from fastattn.ops.protocol import Ops

Result = tuple[np.ndarray, np.ndarray | None]  # out (B, T, H, V), and weights (B, H, T, S) or None
NOWHERE, UNKNOWN = -1, -2  # instead of a key, for a query that sees no key, or whose scores are NaN


@dataclass(frozen=True)
class Inputs:
    """Queries (B, T, H, K), keys (B, S, G, K), values (B, S, G, V); headless: the caller's arrays had no heads."""

    device: str
    query_BTHK: np.ndarray
    key_BSGK: np.ndarray
    value_BSGV: np.ndarray
    headless: bool = False

    @property
    def ops(self) -> Ops:
        return backend(self.device)

    def view(self, *limits: Seen) -> View:
        """What the queries see within these limits, without a LocalPredictive, whose window depends on the queries."""
        B, T, H, _ = self.query_BTHK.shape
        view = View(self.ops, (B, H, T, self.key_BSGK.shape[1]), self.headless)
        for limit in limits:
            if not isinstance(limit, LocalPredictive):
                view = limit.limit(view)  # type: ignore[union-attr]
        return view

    def part(self, queries: slice, keys: slice) -> "Inputs":
        """Some of the queries, and some of the keys with their values."""
        cut = zip((queries, keys, keys), (self.query_BTHK, self.key_BSGK, self.value_BSGV))
        query_BTHK, key_BSGK, value_BSGV = (np.ascontiguousarray(x[:, rows]) for rows, x in cut)
        return Inputs(self.device, query_BTHK, key_BSGK, value_BSGV, self.headless)


def checked_inputs(
    device: str, query: np.ndarray, key: np.ndarray | None, value: np.ndarray | None, score: Score
) -> Inputs:
    """The arrays of ``attend`` with four axes; InputError where they do not fit."""
    arrays = {"query": query, "key": key, "value": value}
    checked = {
        name: check_float32(name, array, "(B, T, K)", "(B, T, H, K)")
        for name, array in arrays.items()
        if array is not None or name == "query"
    }
    headless = checked["query"].ndim == 3
    for name, array in checked.items():
        if (array.ndim == 3) != headless:
            raise InputError(f"{name}: expected {checked['query'].ndim} axes as in the query, got shape {array.shape}")
        checked[name] = array[:, :, None] if headless else array
    B, _, H, K = checked["query"].shape
    if H == 0 or K == 0:
        raise InputError(f"query: expected a head and a width of at least one, got shape {query.shape}")
    if key is None and not isinstance(score, Location):
        raise InputError("key: expected a NumPy array of float32; only Location does without")
    shape = next((checked[name].shape[:3] for name in ("key", "value") if name in checked), None)
    if shape is None:
        assert isinstance(score, Location)
        shape = B, np.shape(score.weight)[-2] if np.ndim(score.weight) > 1 else 0, H
    if shape[0] != B or shape[2] == 0 or H % shape[2]:
        raise InputError(
            f"key: expected batch {B} and a number of heads that divides {H}, got {shape[0]} and {shape[2]}"
        )
    for name, array in checked.items():
        if array.shape[3] > MAX_HEAD_WIDTH:
            raise InputError(f"{name}: expected a width of at most {MAX_HEAD_WIDTH}, got {array.shape[3]}")
    key_BSGK = checked.get("key", np.empty((*shape, 0), np.float32))
    value_BSGV = checked.get("value", np.zeros((*shape, 1), np.float32))
    if value_BSGV.shape[:3] != shape or value_BSGV.shape[3] == 0:
        raise InputError(f"value: expected {shape} as the key has, and a width, got {value_BSGV.shape}")
    return Inputs(device, checked["query"], key_BSGK, value_BSGV, headless)


def soft_attention(inputs: Inputs, score: Score, seen: tuple[Seen, ...], with_weights: bool) -> Result:
    """Outputs, and weights if ``with_weights``."""
    sentences, limits = _sentences(seen)
    if sentences is not None:
        return _each_sentence(inputs, score, sentences, limits, with_weights)
    local = [part for part in seen if isinstance(part, LocalPredictive)]
    if len(local) > 1:
        raise InputError("seen: expected one LocalPredictive, got several")
    if len(seen) == 1 and isinstance(seen[0], Neighbours) and not isinstance(score, Additive):
        result = _neighbours(inputs, score, seen[0], with_weights)
        if result is not None:
            return result
    view = inputs.view(*seen)
    return (
        _around_centres(inputs, score, local[0], view, with_weights)
        if local
        else _in_view(inputs, score, view, with_weights)
    )


def _sentences(seen: tuple[Seen, ...]) -> tuple[Sentences | None, tuple[Seen, ...]]:
    """The first Sentences among the parts, or None, and the other parts."""
    first = next((part for part in seen if isinstance(part, Sentences)), None)
    return first, tuple(part for part in seen if part is not first)


def most_probable_keys(inputs: Inputs, score: Score, seen: tuple[Seen, ...]) -> np.ndarray | None:
    """The most probable key of each query, (B, H, T), or NOWHERE or UNKNOWN; None where only the weights show it."""
    if any(isinstance(part, LocalPredictive) for part in seen):
        return None
    sentences, limits = _sentences(seen)
    if sentences is not None:
        best_BHT = np.empty(inputs.view().shape[:3], np.int64)
        for queries, keys in sentences.spans(inputs.view()):
            part_BHT = most_probable_keys(inputs.part(queries, keys), score, limits)
            if part_BHT is None:
                return None
            best_BHT[:, :, queries] = np.where(part_BHT >= 0, part_BHT + keys.start, part_BHT)
        return best_BHT
    view = inputs.view(*seen)
    bias, options = None, dict[str, Any]()
    if isinstance(score, Additive):
        query_BTHK, key_BSGK, options["vector_HK"] = score.project(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
    else:
        query_BTHK, key_BSGK, scale, softcap, bias = score.product(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
        bias = None if bias is None else checked_bias(bias, view)
        # A cap alone does not change the order of keys.
        unclear = bias is not None and (softcap != 0 or bias.max(initial=0) > LARGE)
        if unclear or is_extreme(scale, 0, query_BTHK, key_BSGK):
            return None
        options["factor"] = np.float32(scale)
    if view.mask is not None:  # a bias of -inf where the mask is False
        hiding = np.where(view.mask, np.float32(0) if bias is None else bias, np.float32(-np.inf))
        bias = np.ascontiguousarray(hiding)
    best_BHT = inputs.ops.best_keys(query_BTHK, key_BSGK, seen_BT2=view.ranges(), bias_BHTS=bias, **options)
    sees_BHT = np.broadcast_to(view.whole_mask().any(axis=-1), best_BHT.shape)
    best_BHT = np.where((best_BHT < 0) & sees_BHT, UNKNOWN, best_BHT)
    return None if bias is not None and (best_BHT == UNKNOWN).any() else best_BHT


def _in_view(inputs: Inputs, score: Score, view: View, with_weights: bool) -> Result:
    if isinstance(score, Additive):
        return _additive(inputs, score, view, with_weights)
    product = score.product(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
    bias = None if product.bias is None else checked_bias(product.bias, view)
    arrays = product.query_BTHK, product.key_BSGK, inputs.value_BSGV
    options = {"scale": product.scale, "softcap": product.softcap, "bias": bias, **view.options()}
    return _with_weights(attention(*arrays, **options, return_weights=with_weights, device=inputs.device))


def _with_weights(result: np.ndarray | tuple[np.ndarray, ...]) -> Result:
    return (result[0], result[1]) if isinstance(result, tuple) else (result, None)


def checked_bias(bias: np.ndarray, view: View) -> np.ndarray:
    """A score's bias with four axes; InputError unless it broadcasts to (B, H, T, S)."""
    checked = view.four_axes(check_float32("bias", bias, "(S,)", "(T, S)", "(H, T, S)", "(B, H, T, S)"))
    if any(axis not in (1, size) for axis, size in zip(checked.shape, view.shape)):
        raise InputError(f"bias: expected a shape that broadcasts to {view.shape}, got {bias.shape}")
    return checked


def _additive(inputs: Inputs, score: Additive, view: View, with_weights: bool) -> Result:
    query_BTHD, key_BSGD, vector_HD = score.project(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
    value_BSGV = inputs.value_BSGV
    if key_BSGD.shape[2] != value_BSGV.shape[2]:
        value_BSGV = np.repeat(value_BSGV, key_BSGD.shape[2] // value_BSGV.shape[2], axis=2)
    arrays = query_BTHD, key_BSGD, value_BSGV, vector_HD
    return _with_weights(
        additive_attention(*arrays, **view.options(), return_weights=with_weights, device=inputs.device)
    )


def _neighbours(inputs: Inputs, score: Score, neighbours: Neighbours, with_weights: bool) -> Result | None:
    """Attention by the kernel of graphs; None for scores that it does not compute."""
    view = inputs.view()
    B, H, T, S = view.shape
    starts_N1, indices_E = neighbours.checked(T, S)
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


def _around_centres(inputs: Inputs, score: Score, local: LocalPredictive, view: View, with_weights: bool) -> Result:
    """Attention by the kernel of windows, or by its formula from the weights of another kernel."""
    centre_BTH = local.centres(inputs.query_BTHK, view)
    windows_BTH2 = local.windows(centre_BTH, view)
    product = None if isinstance(score, Additive) else score.product(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
    if product is not None and product.softcap == 0 and product.bias is None and view.mask is None:
        weights_BHTS = np.empty(view.shape, np.float32) if with_weights else None
        arrays = product.query_BTHK, product.key_BSGK, inputs.value_BSGV, centre_BTH, windows_BTH2
        out = inputs.ops.local_attention(*arrays, scale=product.scale, spread=local.spread(), weights_BHTS=weights_BHTS)
        return out, weights_BHTS
    B, H, T, S = view.shape
    first, stop = (windows_BTH2[..., n].transpose(0, 2, 1)[..., None] for n in (0, 1))
    inside = (np.arange(S) >= first) & (np.arange(S) < stop)
    mask = inside if view.mask is None else inside & view.mask
    _, weights_BHTS = _in_view(inputs, score, replace(view, mask=mask), True)
    assert weights_BHTS is not None
    distance_BHTS = np.arange(S, dtype=np.float32) - centre_BTH.transpose(0, 2, 1)[..., None]
    weights_BHTS *= np.exp(-np.square(distance_BHTS) * np.float32(local.spread()))
    return weighted_sum(weights_BHTS, inputs.value_BSGV), weights_BHTS if with_weights else None


def weighted_sum(weights_BHTS: np.ndarray, value_BSGV: np.ndarray) -> np.ndarray:
    """(B, T, H, V): each query's values, weighted."""
    B, H, T, S = weights_BHTS.shape
    G, V = value_BSGV.shape[2:]
    finite_BSGV = np.isfinite(value_BSGV)
    held_BGSV = np.where(finite_BSGV, value_BSGV, 0).transpose(0, 2, 1, 3)
    sums = weights_BHTS.reshape(B, G, H // G, T, S) @ held_BGSV[:, :, None]
    out_BTHV = np.ascontiguousarray(sums.reshape(B, H, T, V).transpose(0, 2, 1, 3))
    # A value that is not finite counts only for queries that see it: 0 times such a value is NaN.
    for b, s, g in np.argwhere(~finite_BSGV.all(axis=3)):
        heads = slice(g * (H // G), (g + 1) * (H // G))
        weight_THI = weights_BHTS[b, heads, :, s].T[..., None]
        endless_V = np.where(finite_BSGV[b, s, g], 0, value_BSGV[b, s, g])
        with np.errstate(invalid="ignore"):
            out_BTHV[b, :, heads] += np.where(weight_THI == 0, 0, weight_THI * endless_V)
    return out_BTHV


_RAGGED = Everything, Padded, Causal, Restricted, LocalMonotonic  # what a ragged batch has options for


def _each_sentence(
    inputs: Inputs, score: Score, sentences: Sentences, limits: tuple[Seen, ...], with_weights: bool
) -> Result:
    """All sentences by one call of the ragged kernel where it can; else, and for weights, sentence by sentence."""
    view = inputs.view()
    spans, (B, H, T, S) = sentences.spans(view), view.shape
    if isinstance(score, Dot | ScaledDot | Content | General) and not with_weights:
        product = score.product(inputs.ops, inputs.query_BTHK, inputs.key_BSGK)
        if product.bias is None and all(isinstance(part, _RAGGED) for part in limits):
            return _ragged(product, inputs, spans, limits), None
    out_BTHV = np.empty((B, T, H, inputs.value_BSGV.shape[3]), np.float32)
    weights_BHTS = np.zeros((B, H, T, S), np.float32) if with_weights else None
    for queries, keys in spans:
        out, weights = soft_attention(inputs.part(queries, keys), score, limits, with_weights)
        out_BTHV[:, queries] = out
        if weights_BHTS is not None and weights is not None:
            weights_BHTS[:, :, queries, keys] = weights
    return out_BTHV, weights_BHTS


def _ragged(product: Product, inputs: Inputs, spans: list[tuple[slice, slice]], limits: tuple[Seen, ...]) -> np.ndarray:
    """(1, T, H, V): sentences that lie end to end, by the kernel of dot products."""
    starts = ([0, *(span[n].stop for span in spans)] for n in (0, 1))
    # These limits are the same for all sentences.
    options = {name: value for name, value in inputs.view(*limits).options().items() if value is not None}
    options |= {name: int(options[name][0]) for name in ("lengths", "offset") if name in options}
    arrays = (x[0] for x in (product.query_BTHK, product.key_BSGK, inputs.value_BSGV))
    options |= {"scale": product.scale, "softcap": product.softcap, "device": inputs.device}
    return attention_ragged(*arrays, *starts, **options)[None]
