"""Steps of attention over a cache whose scores float32 cannot hold, computed again in float64."""

from collections.abc import Callable

import numpy as np

from fastattn.array_attention.attention_float64 import Scores, is_extreme, is_ordinary


def mend_steps(
    query: np.ndarray,
    out: np.ndarray,
    weights: np.ndarray | None,
    seen_N2: np.ndarray,
    bias: np.ndarray | None,
    scale_softcap: tuple[float, float],
    keys_values: Callable[[int], tuple[np.ndarray, np.ndarray]],
) -> None:
    """Recompute in place what overflowed: query and out [B, T, H, width], float32, weights [B, H, T, S].

    seen_N2      the first key and the stop of each query
    keys_values  returns those of a sentence
    """
    (B, T), (scale, softcap) = query.shape[:2], scale_softcap
    ordinary = is_ordinary(scale, softcap)
    seen_BT = (seen_N2[:, 1] > seen_N2[:, 0]).reshape(B, T)
    # an overflow leaves NaN, or zeros where all scores became -inf
    wrong_BT = (np.isnan(out).all(axis=3) | ~out.any(axis=3)).any(axis=2) & seen_BT
    scores = Scores(scale, softcap, bias, seen_N2, 0, None, None, None)
    for b in range(B) if not ordinary else map(int, np.nonzero(wrong_BT.any(axis=1))[0]):
        key, value = keys_values(b)
        rows, lines = slice(b * T, (b + 1) * T), None if weights is None else weights[b]
        every = is_extreme(scale, softcap, query[b], key)
        scores.mend(b, rows, query[b], key, value, out[b], lines, None, every=every)
