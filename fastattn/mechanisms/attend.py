"""``attend``: a score, what is seen, a normalizer, combined in any way."""

from typing import Any, Literal, TypedDict, overload

import numpy as np

from fastattn.array_attention.other_names import ATTENTION
from fastattn.errors import InputError, check_bool
from fastattn.mechanisms.normalizers import Hard, Normalizer, Pointer, Saliency, Soft
from fastattn.mechanisms.scores import ScaledDot, Score
from fastattn.mechanisms.seen import Everything, Seen
from fastattn.mechanisms.softmax import checked_inputs, most_probable_keys, soft_attention
from fastattn.ops import on_threads
from fastattn.system.option_names import Unpack, explains_options

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
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    *,
    return_weights: bool = False,
    **options: Any,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Attention of any kind: normalizer(score(query, key) of what is seen) of the values.

    query is (B, T, K), key (B, S, K), value (B, S, V): sentences, positions, width; float32. With heads they are
    (B, T, H, K), (B, S, G, K) and (B, S, G, V); G divides H, and each key head serves H / G query heads in a row.
    score       how well a query and a key agree: see ``fastattn.mechanisms.scores``; by default ScaledDot()
    seen        which keys a query sees: see ``fastattn.mechanisms.seen``; of several in a tuple, what all show; by
                default Everything()
    normalizer  what becomes of the softmax: see ``fastattn.mechanisms.normalizers``; by default Soft()
    threads     the most to use; None: those of ``use_threads``, else all that the process may use
    device      "cpu", which computes
    Returns what the normalizer says, or with ``return_weights`` a tuple of that and the weights, (B, H, T, S), or
    (B, T, S) without heads. A query that sees no key yields zeros. InputError for arguments that do not fit.
    """
    score, normalizer = options.get("score", _SCALED_DOT), options.get("normalizer", _SOFT)
    seen = options.get("seen", _EVERYTHING)
    parts = seen if isinstance(seen, tuple) else (seen,)
    _check_kind("score", score, Score)
    _check_kind("normalizer", normalizer, Normalizer)
    for part in parts:
        _check_kind("seen", part, Seen)
    wanted = check_bool("return_weights", return_weights)
    if value is None and not isinstance(normalizer, Pointer | Saliency):
        raise InputError("value: expected a NumPy array of float32; only Pointer and Saliency do without")
    inputs = checked_inputs(options.get("device", "cpu"), query, key, value, score)
    with on_threads(inputs.ops, options.get("threads")):
        best_BHT = None
        if isinstance(normalizer, Hard) and normalizer.seed is None:
            best_BHT = most_probable_keys(inputs, score, parts)
        if isinstance(normalizer, Hard) and best_BHT is not None:
            result, weights_BHTS = normalizer.take(inputs, best_BHT, wanted)
        else:
            out, weights_BHTS = soft_attention(inputs, score, parts, wanted or normalizer.wants_weights)
            result, weights_BHTS = normalizer.finish(inputs, out, weights_BHTS)
    if not wanted:
        return result
    assert weights_BHTS is not None
    return result, weights_BHTS[:, 0] if inputs.headless else weights_BHTS


def _check_kind(name: str, given: Any, kinds: Any) -> None:
    if not isinstance(given, kinds):
        known = ", ".join(kind.__name__ for kind in kinds.__args__)
        raise InputError(f"{name}: expected one of {known}, got {type(given).__name__}")
