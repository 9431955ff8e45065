"""Any score with any parts of what is seen and any normalizer, of any shape, against the formulas."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn import mechanisms as m
from fastattn.kernels.attention.arguments import COLUMNS, ROWS
from fastattn.ops.reference.mechanisms import seen
from tests.mechanisms.oracle import check_attention, inputs
from tests.mechanisms.test_scores import NAMES, made


def part(name, draw, B, T, S):
    """(an object, its mask)."""
    if name == "padded":
        lengths = np.array(draw(st.lists(st.integers(0, S), min_size=B, max_size=B)))
        return m.Padded(lengths), seen.padded(lengths, S)
    if name == "causal":
        offset = draw(st.integers(-T, S))
        return m.Causal(offset), seen.causal(T, S, (offset,))
    if name == "restricted":
        size = draw(st.integers(1, S + 2))
        return m.Restricted(size), seen.restricted(T, S, size)
    if name == "local-m":
        return m.LocalMonotonic(size := draw(st.integers(0, S))), seen.local_monotonic(T, S, size)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    mask_TS = rng.random((T, S)) < 0.4
    if name == "mask":
        return m.Mask(mask_TS), mask_TS
    starts = np.concatenate([[0], np.cumsum(mask_TS.sum(axis=1))])
    return m.Neighbours(starts, np.nonzero(mask_TS)[1]), mask_TS


PARTS = ("padded", "restricted", "local-m", "mask", "neighbours")


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    parts=st.lists(st.sampled_from(PARTS), max_size=2, unique=True),
    B=st.integers(1, 2),
    T=st.integers(1, 2 * ROWS),
    S=st.integers(1, COLUMNS + 3),
    data=st.data(),
)
def test_any_of_them_together(name, parts, B, T, S, data):
    arrays = inputs(B=B, T=T, S=S, H=2, G=data.draw(st.sampled_from([1, 2])), K=5, V=3)
    score, formula, parameters = made(name, arrays, D=6)
    # windows are around a query's place, which an offset moves: both together are in test_seen.py
    windowed = {"restricted", "local-m"} & set(parts)
    names = [*parts, *(["causal"] if not windowed and data.draw(st.booleans()) else [])]
    drawn = [part(one, data.draw, B, T, S) for one in names]
    mask = np.ones((1, 1, T, S), bool)
    for _, other in drawn:
        mask = mask & other
    given = tuple(one for one, _ in drawn)
    out, weights = m.attend(*arrays, score=score, seen=given, normalizer=m.Soft(), return_weights=True)
    check_attention((out, weights), formula, arrays, parameters, mask)
    query, key, _ = arrays
    np.testing.assert_array_equal(m.attend(query, key, None, score=score, seen=given, normalizer=m.Pointer()), weights)
    maps = m.attend(query, key, None, score=score, seen=given, normalizer=m.Saliency((1, S)))
    np.testing.assert_array_equal(maps[:, :, 0], weights.mean(axis=1))
    _, hard = m.attend(*arrays, score=score, seen=given, normalizer=m.Hard(), return_weights=True)
    # of weights that are equal but for rounding either may be chosen
    np.testing.assert_allclose((hard * weights).sum(axis=-1), weights.max(axis=-1), rtol=3e-5)
    np.testing.assert_array_equal(hard.sum(axis=-1), weights.any(axis=-1).astype(np.float32))
