"""Attention on Numba's simulator beyond the table of cases: the public functions' options, tile edges, equal bits.

A tile has 8 queries and keys there, a piece of a step 32 keys, and a block sums 16 value columns at most.
"""

import sys
from types import ModuleType

import numpy as np
import pytest

import fastattn
from bench import cuda_on_host as on_host
from bench.operations.attention import attention, attention_step, disentangled_attention
from fastattn import BlockMask
from fastattn.arguments.attention import Heads, KeyIndex, RaggedBatch
from fastattn.array_attention.attention import additive_attention
from fastattn.errors import InputError
from fastattn.ops import BACKENDS, cuda, reference
from fastattn.ops.cuda.attention import PIECE, TILE
from fastattn.spec.rounding import as_floats, bfloat16_bits
from tests.array_attention.formula import attend
from tests.kernels.cases import check, normal

B, T, S, H, G, K, V = 2, 9, 13, 2, 1, 5, 17
QUERY, KEY, VALUE = normal(1, B, T, H, K), normal(2, B, S, G, K), normal(3, B, S, G, V)
BIAS, LOGITS = normal(4, B, H, T, S), np.array([4, -1], np.float32)  # above all scores, and within them
BIAS[0, 1, 2, 3:9] = -np.inf
MASK = normal(6, B, 1, T, S) > 0
MASK[1, 0, 4] = False


@pytest.fixture(autouse=True)
def device(monkeypatch):
    monkeypatch.setitem(BACKENDS, "cuda", ".cuda")


def on_card(*arrays, **options):
    return fastattn.attention(*arrays, **options, device="cuda", return_weights=True, return_logsumexp=True)


def check_all(found, expected, atol=1e-5):
    for one, oracle in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, oracle, rtol=1e-5, atol=atol)


OPTIONS = {
    "plain": {},
    "lengths": {"lengths": [13, 0]},
    "causal": {"causal": True, "offset": 7},
    "offsets": {"causal": True, "offset": np.array([-3, 6])},
    "window": {"window": (2, 3), "offset": 5},
    "first keys": {"window": (1, 0), "offset": 4, "sinks": 2, "causal": True},
    "bias": {"bias": BIAS},
    "bias of keys": {"bias": BIAS[:1, :1, :1]},
    "bias of heads": {"bias": BIAS[:1, :, :1, :1], "scale": -0.5},
    "mask": {"mask": MASK},
    "mask of keys": {"mask": MASK[0, 0, 1], "lengths": [11, 5]},
    "softcap": {"softcap": 0.6, "scale": 2.0, "bias": BIAS},
    "logits": {"sinks": LOGITS, "lengths": [13, 0]},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_give_the_formula(name):
    options = OPTIONS[name]
    found, expected = on_card(QUERY, KEY, VALUE, **options), attend(QUERY, KEY, VALUE, **options)
    check_all(found, expected)
    out = fastattn.attention(QUERY, KEY, VALUE, **options, device="cuda")
    np.testing.assert_array_equal(out, found[0])
    if name != "plain":
        assert np.abs(expected[0] - attend(QUERY, KEY, VALUE)[0]).max() > 1e-3


@pytest.mark.parametrize("name", ["plain", "first keys", "logits"])
def test_a_ragged_batch_has_the_bits_of_its_sentences(name):
    options, starts = OPTIONS[name], ([0, 5, 5, 18], [0, 11, 12, 26])
    rows = [x.reshape(-1, *x.shape[2:]) for x in (QUERY, KEY, VALUE)]
    options = {**options, "lengths": [11, 1, 14]} if "lengths" in options else options
    got = fastattn.attention_ragged(*rows, *starts, **options, device="cuda", return_logsumexp=True)
    for b in range(3):
        t, s = (slice(one[b], one[b + 1]) for one in starts)
        own = {**options, "lengths": options["lengths"][b]} if "lengths" in options else options
        alone = rows[0][None, t], rows[1][None, s], rows[2][None, s]
        if t.start < t.stop:
            found = on_card(*alone, **own)
            np.testing.assert_array_equal(got[0][t], found[0][0])
            np.testing.assert_array_equal(got[1][t], found[2][0].T)
            check_all(found, attend(*alone, **own))


def test_arrays_of_any_strides_and_types():
    expected = attend(QUERY, KEY, VALUE)[0]
    swapped = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (QUERY, KEY, VALUE)]
    out = np.zeros((B, H, T, 2 * V), np.float32).swapaxes(1, 2)[..., 3 : 3 + V]
    assert fastattn.attention(*swapped, device="cuda", out=out) is out
    np.testing.assert_allclose(out, expected, atol=1e-5)
    bits = [bfloat16_bits(x) for x in (QUERY, KEY, VALUE)]
    exact = attend(*map(as_floats, bits))[0]
    found = fastattn.attention(*bits, device="cuda")
    assert found.dtype == np.uint16
    np.testing.assert_allclose(as_floats(found), exact, rtol=2**-8, atol=1e-5)
    halves = [x.astype(np.float16) for x in (QUERY, KEY, VALUE)]
    found = fastattn.attention(*halves, device="cuda")
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, attend(*halves)[0], rtol=2**-10, atol=1e-5)


def test_additive_scores():
    query, key, vector = QUERY[:, :5], KEY, normal(7, H, K)
    found = additive_attention(
        query, key, VALUE, vector, device="cuda", lengths=[13, 9], return_weights=True, return_logsumexp=True
    )
    sums = np.tanh(query[:, :, None] + np.repeat(key, H // G, axis=2)[:, None].astype(np.float64))
    scores = np.einsum("btshk,hk->bhts", sums, vector)
    zero = np.zeros_like(QUERY[:, :5]), np.zeros_like(KEY), VALUE
    check_all(found, attend(*zero, bias=scores, lengths=[13, 9]))


TABLE = np.arange(S) % 5


def score_mod(score, b, h, t, s):
    return 2 * score + (h + 1) * (s - t) * 0.1 + b


def mask_mod(b, h, t, s):
    return (TABLE[s] != h) & (s <= t + 3 + b)


def by_number(b, h, t, s):
    return s % 3


def test_functions_of_scores_and_masks():
    b, h, t, s = np.ogrid[:B, :H, :T, :S]
    mask = np.broadcast_to(mask_mod(b, h, t, s), (B, H, T, S))
    scored = {"softcap": 3.0, "bias": BIAS, "mask": mask}
    expected = attend(QUERY, KEY, VALUE, **scored, score_mod=lambda score: score_mod(score, b, h, t, s))
    options = {"softcap": 3.0, "bias": BIAS, "score_mod": score_mod}
    check_all(on_card(QUERY, KEY, VALUE, **options, mask_mod=mask_mod), expected, 2e-5)
    both = fastattn.and_masks(mask_mod, lambda b, h, t, s: s % 3 > 0)
    expected = attend(QUERY, KEY, VALUE, mask=mask & (s % 3 > 0))
    check_all(on_card(QUERY, KEY, VALUE, mask_mod=both), expected)
    compiled = cuda.compile_function(score_mod, "score_mod")
    assert compiled is cuda.compile_function(score_mod, "score_mod")
    np.testing.assert_array_equal(compiled(1.5, b, h, t, s), score_mod(1.5, b, h, t, s))
    with pytest.raises(InputError, match="mask_mod: expected a function"):
        cuda.compile_function(3, "mask_mod")


@pytest.mark.parametrize("block", [(4, 3), (3, 8), (16, 5), (1, 1)])
def test_blocks_of_a_function(block):
    function = by_number if block == (4, 3) else mask_mod
    b, h, t, s = np.ogrid[:B, :H, :T, :S]
    mask = np.broadcast_to(function(b, h, t, s), (B, H, T, S)).astype(bool)
    states = cuda.block_states(cuda.compile_function(function, "mask_mod"), (B, H, T, S), block)
    np.testing.assert_array_equal(states, BlockMask.from_mask(mask, block).states_BHTS)
    expected = fastattn.attention(QUERY, KEY, VALUE, mask=mask, device="cuda")
    for blocks in (BlockMask.from_mask(mask, block), BlockMask(states, T, S, block, function)):
        got = fastattn.attention(QUERY, KEY, VALUE, block_mask=blocks, device="cuda")
        np.testing.assert_array_equal(got, expected)


def test_blocks_that_hide_or_show_more_than_their_function():
    for state in (0, 2):
        states = np.where(np.random.default_rng(1).random((3, 3)) < 0.5, state, 1)
        shown = states.repeat(4, axis=0).repeat(6, axis=1)[:T, :S]
        mask = np.where(shown == 1, np.arange(S) <= np.arange(T)[:, None], shown == 2)
        blocks = BlockMask(states, T, S, (4, 6), lambda b, h, t, s: s <= t)
        found = on_card(QUERY, KEY, VALUE, block_mask=blocks)
        check_all(found, attend(QUERY, KEY, VALUE, mask=mask))


def test_rows_that_float32_cannot_hold_are_counted_and_computed_in_float64(monkeypatch):
    counts, real = [], cuda.strided_attention
    monkeypatch.setattr(cuda, "strided_attention", lambda *given: counts.append(real(*given)) or counts[-1])
    on_card(QUERY, KEY, VALUE, lengths=[13, 0])
    bias = normal(8, B, H, T, S)
    bias[1, 0, 3], bias[0, 1, 5, :2] = np.finfo(np.float32).max, [3e38, 2.9e38]
    query, key = QUERY.copy(), KEY.copy()
    query[0, 2, 1], key[0, 4, 0] = 1e38, [8, -8, 8, -8, 1]  # in float32 the sum of these products is NaN
    with np.errstate(all="ignore"):
        check_all(on_card(query, key, VALUE, bias=bias), attend(query, key, VALUE, bias=bias))
    assert counts == [0, 1]


def test_nan_and_infinity_stay_in_their_rows():
    for number in (np.nan, np.inf):
        query = QUERY.copy()
        query[0, 3, 1] = number
        out = fastattn.attention(query, KEY, VALUE, device="cuda")
        assert np.isnan(out[0, 3, 1]).all()
        out[0, 3, 1] = 0
        assert np.isfinite(out).all()
    key, value = KEY.copy(), VALUE.copy()
    key[0, 10:], value[0, 10:] = np.nan, np.inf
    lengths = {"lengths": [10, 13], "device": "cuda"}
    expected = fastattn.attention(QUERY, KEY, VALUE, **lengths)
    np.testing.assert_array_equal(fastattn.attention(QUERY, key, value, **lengths), expected)


def test_lengths_around_the_tiles():
    for length in (TILE - 1, TILE, TILE + 1, 2 * TILE):
        check(attention((length, 3), (17, length), 2, 1, 3), on_host)
        check(attention((length,), (length,), 1, 1, 9, causal=True, window=5, sinks=1), on_host)
        check(disentangled_attention((length, 2), 2, 5, 3), on_host)


def test_head_widths():
    for width in (1, 2, 3, 4, 7, 8, 9, 16, 17, 33):
        check(attention((5,), (9,), 2, 2, 3, value_width=width), on_host)
        check(attention((5,), (9,), 2, 2, width, causal=True, offset=(3,)), on_host)


def test_distances_beyond_the_rows_share_the_last():
    for terms in ("keys", "queries", "keys queries"):
        check(disentangled_attention((19, 3), 2, 3, 2, terms), on_host)
        check(disentangled_attention((19,), 1, 3, 19, terms, causal=True), on_host)


def test_windows_leave_out_tiles():
    query_NE, key_ME = normal(1, 3, 4), normal(2, 70, 8)
    starts = np.array([0, 3]), np.array([0, 70])
    seen_N2 = cuda.seen_around(starts[0], np.array([70]), np.array([60]), 4, 0)
    batch, heads = RaggedBatch(*starts, seen_N2, 3), Heads(1, 1, 4, value_column=4)
    expected = on_host.attention(query_NE, key_ME, key_ME, batch, heads)
    np.testing.assert_allclose(expected, reference.attention(query_NE, key_ME, key_ME, batch, heads), atol=1e-5)
    key_ME[3:56] = np.nan
    np.testing.assert_array_equal(on_host.attention(query_NE, key_ME, key_ME, batch, heads), expected)


def test_later_keys_and_queries_change_no_bit():
    rows_NE, heads = normal(3, 21, 12), Heads(1, 1, 4, key_column=4, value_column=8)

    def run(length):
        starts = np.array([0, length])
        seen_N2 = cuda.seen_around(starts, np.diff(starts), np.zeros(1, np.int64), -1, 0)
        rows = rows_NE[:length]
        return on_host.attention(rows, rows, rows, RaggedBatch(starts, starts, seen_N2), heads)

    for length in (1, 7, 8, 9, 16):
        np.testing.assert_array_equal(run(21)[:length], run(length))


def test_pieces_of_a_step():
    for length in (PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 3):
        check(attention_step((length, 3, 0), 2, 1, 5, bias=True, positions="table"), on_host)
        check(attention_step((length,), 1, 1, 3, window=PIECE + 2, narrow=True), on_host)


def test_places_neighbours_and_windows_change_no_bit_of_a_step():
    rng, heads = np.random.default_rng(2), Heads(2, 1, 5, value_column=5)
    longest = 2 * PIECE + 5
    index_RS = np.stack([rng.permutation(90)[:longest] for _ in range(2)]).astype(np.int32)
    query_NE, cache_ME = normal(1, 4, 10), normal(2, 90, 10)
    stops_N, firsts_N = np.array([longest, PIECE + 3, longest - 1, 5]), np.array([20, 0, 7, 5])
    rows_N = np.array([0, 1, 1, 0])
    weights = np.full((4, 2, longest), np.nan, np.float32)
    seen = KeyIndex(index_RS, stops_N, rows_N, firsts_N)
    got = on_host.attention_step(query_NE, cache_ME, cache_ME, seen, heads, weights_NHS=weights)
    places = rng.permutation(120)[:90].astype(np.int32)
    moved_ME = np.full((120, 10), np.nan, np.float32)
    moved_ME[places] = cache_ME
    for n in range(4):
        own_1S = np.ascontiguousarray(places[index_RS[rows_N[n], firsts_N[n] : stops_N[n]]][None])
        own_weights = np.full((1, 2, own_1S.shape[1]), np.nan, np.float32)
        alone = KeyIndex(own_1S, stops_N[n : n + 1] - firsts_N[n])
        step = on_host.attention_step(query_NE[n : n + 1], moved_ME, moved_ME, alone, heads, weights_NHS=own_weights)
        np.testing.assert_array_equal(got[n], step[0])
        np.testing.assert_array_equal(weights[n, :, firsts_N[n] : stops_N[n]], own_weights[0])
        weights[n, :, firsts_N[n] : stops_N[n]] = 0
    assert not weights.any() and not got[3].any()


def test_logits_and_vectors_that_the_caller_changes():
    """What is kept on the card goes by the array: of a model's it may, of a caller's it would be stale."""
    logits, vector = LOGITS.copy(), normal(9, H, K)
    for _ in range(2):
        check_all(
            on_card(QUERY, KEY, VALUE, sinks=logits),
            fastattn.attention(QUERY, KEY, VALUE, sinks=logits, return_weights=True, return_logsumexp=True),
        )
        arrays = QUERY[:, :, :1], KEY, VALUE, vector[:1]
        found, expected = (additive_attention(*arrays, device=name) for name in ("cuda", "cpu"))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        logits += 3
        vector *= -2


SETTINGS = ModuleType("settings")
LIMIT, FACTORS_2 = 3.0, np.array([1.0, 2.0], np.float32)


def test_functions_whose_outside_changes(monkeypatch):
    """Kernels have what a function reads of outside as constants, and are others once it is another."""
    slope, namespace = 0.5, sys.modules[__name__]
    SETTINGS.SHIFT = 1.0

    def helper(score):
        return min(score, LIMIT)

    def score_mod(score, b, h, t, s):
        return helper(score * slope + SETTINGS.SHIFT) * FACTORS_2[h % 2]

    def agree():
        found = fastattn.attention(QUERY, KEY, VALUE, score_mod=score_mod, device="cuda")
        limited = lambda scores: np.minimum(scores * slope + SETTINGS.SHIFT, namespace.LIMIT)  # noqa: E731
        factors_H = namespace.FACTORS_2[np.arange(H) % 2]
        expected, *_ = attend(QUERY, KEY, VALUE, score_mod=lambda scores: limited(scores) * factors_H[:, None, None])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        kept.append(cuda.compile_function(score_mod, "score_mod"))

    kept = []
    agree()
    slope = 2.0
    agree()
    monkeypatch.setattr(namespace, "LIMIT", 0.25)
    agree()
    SETTINGS.SHIFT = -1.0
    agree()
    monkeypatch.setattr(namespace, "FACTORS_2", np.array([3.0, 1.0], np.float32))
    agree()
    assert len(set(map(id, kept))) == 5
    assert cuda.compile_function(score_mod, "score_mod") is kept[-1]
