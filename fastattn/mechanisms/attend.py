"""``attend``: any score, any keys seen and any normalizer."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, TypedDict, overload

import numpy as np

from fastattn.errors import InputError, check_bool, check_count
from fastattn.layers.draws import drawn_keys
from fastattn.mechanisms.arrays import check_integers
from fastattn.mechanisms.scores import ScaledDot, Score
from fastattn.mechanisms.seen import Everything, Seen
from fastattn.mechanisms.softmax import (
    NOWHERE,
    UNKNOWN,
    Inputs,
    Result,
    checked_inputs,
    most_probable_keys,
    soft_attention,
)
from fastattn.ops import on_threads
from fastattn.system.option_names import ATTENTION, Unpack, explains_options


@dataclass(frozen=True)
class Soft:
    """The weighted sum of the values (Bahdanau 2015, equation 5): (B, T, H, V)."""

    wants_weights: ClassVar = False

    def finish(self, inputs: Inputs, out_BTHV: np.ndarray, weights_BHTS: np.ndarray | None) -> Result:
        return out_BTHV[:, :, 0] if inputs.headless else out_BTHV, weights_BHTS


@dataclass(frozen=True)
class Hard:
    """The value of one key (Xu 2015, section 4.1): (B, T, H, V); its weight becomes 1, all others 0.

    seed  an integer draws the key by its weight, the same for the same seed and shape; None takes the first of the most
          probable keys
    A query that sees no key yields zeros.
    """

    seed: int | None = None

    wants_weights: ClassVar = True

    def finish(self, inputs: Inputs, out_BTHV: np.ndarray, weights_BHTS: np.ndarray | None) -> Result:
        assert weights_BHTS is not None
        B, H, T, S = weights_BHTS.shape
        best_BHT = np.full((B, H, T), NOWHERE)
        if S and self.seed is None:
            best_BHT = weights_BHTS.argmax(axis=3)
        elif S:
            seed = int(check_integers("seed", self.seed, (), 0, np.iinfo(np.int64).max))
            shares_BHT = np.random.default_rng(seed).random((B, H, T))
            for b, h in np.ndindex(B, H):
                best_BHT[b, h] = drawn_keys(weights_BHTS[b, h], shares_BHT[b, h])
        if S:
            weight_BHT = np.take_along_axis(weights_BHTS, best_BHT[..., None], axis=3)[..., 0]
            best_BHT = np.where(weight_BHT == 0, NOWHERE, np.where(np.isnan(weight_BHT), UNKNOWN, best_BHT))
        return self.take(inputs, best_BHT, True)

    def take(self, inputs: Inputs, best_BHT: np.ndarray, return_weights: bool) -> Result:
        """The values of these keys, and the weights if ``return_weights``; NaN where the key is UNKNOWN."""
        value_BSGV = inputs.value_BSGV
        (B, H, T), (S, G) = best_BHT.shape, value_BSGV.shape[1:3]
        factor_BHT = np.where(best_BHT == UNKNOWN, np.float32(np.nan), (best_BHT >= 0).astype(np.float32))
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
    """The options of ``attend``; see there."""

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
    """Attention of any kind: the normalizer of the values, by the softmax of score(query, key) over the keys seen.

    query is (B, T, K), key (B, S, K), value (B, S, V): sentences, positions, width; float32. With heads they are
    (B, T, H, K), (B, S, G, K) and (B, S, G, V); G divides H, and each key head serves H / G query heads in a row.
    score       how well a query and a key agree: see ``fastattn.mechanisms.scores``; by default ScaledDot()
    seen        which keys a query sees: see ``fastattn.mechanisms.seen``; with a tuple, the keys that all its parts
                show; by default Everything()
    normalizer  what becomes of the softmax: see ``fastattn.mechanisms.attend``; by default Soft()
    threads     the most threads; None: those of ``use_threads``, else all that the process may use
    device      where it computes: "cpu", "cuda" or "auto"
    Returns the normalizer's result, or with ``return_weights`` a tuple of the result and the weights, (B, H, T, S), or
    (B, T, S) without heads. A query that sees no key yields zeros. InputError for arguments that do not fit.
    """
    score, normalizer = options.get("score", _SCALED_DOT), options.get("normalizer", _SOFT)
    seen = options.get("seen", _EVERYTHING)
    parts = seen if isinstance(seen, tuple) else (seen,)
    _check_kind("score", score, Score)
    _check_kind("normalizer", normalizer, Normalizer)
    for part in parts:
        _check_kind("seen", part, Seen)
    with_weights = check_bool("return_weights", return_weights)
    if value is None and not isinstance(normalizer, Pointer | Saliency):
        raise InputError("value: expected a NumPy array of float32; only Pointer and Saliency do without")
    inputs = checked_inputs(options.get("device", "cpu"), query, key, value, score)
    with on_threads(inputs.ops, options.get("threads")):
        best_BHT = None
        if isinstance(normalizer, Hard) and normalizer.seed is None:
            best_BHT = most_probable_keys(inputs, score, parts)
        if isinstance(normalizer, Hard) and best_BHT is not None:
            result, weights_BHTS = normalizer.take(inputs, best_BHT, with_weights)
        else:
            out, weights_BHTS = soft_attention(inputs, score, parts, with_weights or normalizer.wants_weights)
            result, weights_BHTS = normalizer.finish(inputs, out, weights_BHTS)
    if not with_weights:
        return result
    assert weights_BHTS is not None
    return result, weights_BHTS[:, 0] if inputs.headless else weights_BHTS


def _check_kind(name: str, part: Any, union: Any) -> None:
    if not isinstance(part, union):
        names = ", ".join(kind.__name__ for kind in union.__args__)
        raise InputError(f"{name}: expected one of {names}, got {type(part).__name__}")
