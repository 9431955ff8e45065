"""Each option, alone: it changes the result, to what the formula gives; none may be taken and dropped."""

import inspect

import numpy as np

import fastattn
from fastattn.array_attention.attention import DenseOptions
from fastattn.array_attention.cache import StepOptions
from fastattn.ops import cpu as operations
from tests.array_attention.formula import attend

B, T, S, H, G, K, V, D = 2, 5, 9, 4, 2, 12, 20, 24
rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


QUERY, KEY, VALUE = normal(B, T, H, K), normal(B, S, G, K), normal(B, S, G, V)
BIAS, LOGITS = normal(B, H, T, S), normal(H)
MASK = np.ones((T, S), bool)
MASK[:, [0, 3]] = False


# Option -> (its value, options beside it, what the formula is told in its place)
CHANGES = {
    "lengths": ([7, 3], {}, None),
    "causal": (True, {}, None),
    "offset": (2, {"causal": True}, None),
    "window": ((1, 2), {}, None),
    "bias": (BIAS, {}, None),
    "mask": (MASK, {}, None),
    "scale": (0.7, {}, None),
    "softcap": (0.6, {}, None),
    "sinks": (LOGITS, {}, None),
    "block_mask": (fastattn.BlockMask.from_mask(MASK, (2, 3)), {}, {"mask": MASK}),
}
NONE = {name: 0 if name == "sinks" else None for name in CHANGES} | {"causal": False}
OTHERS = {"out", "threads", "layout", "device"}  # which change no number
FUNCTIONS = {"score_mod", "mask_mod"}  # each is compiled, and tested in test_attention_functions.py
STEPS = {"window": (1, 0), "bias": normal(B, H, T, T), "scale": 0.7, "softcap": 0.6}


def dense(**options):
    return fastattn.attention(QUERY, KEY, VALUE, **options)


def ragged(**options):
    joined = (x.reshape(-1, *x.shape[2:]) for x in (QUERY, KEY, VALUE))
    starts = np.arange(B + 1) * T, np.arange(B + 1) * S
    return fastattn.attention_ragged(*joined, *starts, **options).reshape(B, T, H, V)


def test_no_option_is_forgotten_here():
    assert set(CHANGES) | OTHERS | FUNCTIONS == set(DenseOptions.__annotations__)
    named = {name for name, value in inspect.signature(fastattn.attention).parameters.items() if value.kind == 3}
    assert named == {*DenseOptions.__annotations__, "return_weights", "return_logsumexp"}
    assert {*STEPS, "lengths", "threads"} == set(StepOptions.__annotations__)


def test_it_changes_the_result_to_the_formula():
    for call in (dense, ragged):
        for name in CHANGES:
            value, beside, told = CHANGES[name]
            expected, *_ = attend(QUERY, KEY, VALUE, **({name: value} if told is None else told), **beside)
            got = call(**{name: value}, **beside)
            np.testing.assert_allclose(got, expected, atol=1e-5)
            without = call(**beside)
            assert np.abs(got - without).max() > 1e-3
            np.testing.assert_array_equal(call(**{name: NONE[name]}, **beside), without)


def test_it_reaches_the_attention_of_a_layer():
    for name in CHANGES:
        value, beside, told = CHANGES[name]
        weights = fastattn.ProjectionWeights(normal(H * K, D), normal(G * K, D), normal(G * V, D), normal(D, H * V))
        weights = fastattn.ProjectionWeights(*(w / 5 for w in weights[:4]))
        x, memory = normal(B, T, D), normal(B, S, D)
        mha = fastattn.MultiHeadAttention(weights, H)
        rows = (x @ weights.query.T, memory @ weights.key.T, memory @ weights.value.T)
        query, key, value_rows = (x.reshape(B, -1, heads, width) for x, heads, width in zip(rows, (H, G, G), (K, K, V)))
        context, *_ = attend(query, key, value_rows, **({name: value} if told is None else told), **beside)
        got = mha(x, memory, **{name: value}, **beside)
        np.testing.assert_allclose(got, context.reshape(B, T, H * V) @ weights.output.T, atol=1e-4)
        assert np.abs(got - mha(x, memory, **beside)).max() > 1e-3
        rounded = fastattn.multi_head_attention(x, memory, weights=weights, heads=H, precision="bfloat16", **beside)
        assert 1e-4 < np.abs(rounded - mha(x, memory, **beside)).max() < 0.5


def test_threads_are_those_asked_for(monkeypatch):
    counts = []

    def counted(call):
        return lambda *given, **options: counts.append(operations.current_threads()) or call(*given, **options)

    cache = fastattn.KVCache(B, G, K, V)
    cache.append(KEY, VALUE)
    weights = fastattn.ProjectionWeights(normal(H * K, D), normal(G * K, D), normal(G * V, D), normal(D, H * V))
    for name in ("strided_attention", "linear", "attention_step"):
        monkeypatch.setattr(operations, name, counted(getattr(operations, name)))
    calls = [dense, ragged, lambda **options: cache.attend(QUERY, **options)]
    calls.append(lambda **options: fastattn.MultiHeadAttention(weights, H)(normal(B, T, D), **options))
    with operations.use_threads(2):
        for call, counted_times in zip(calls, (1, 1, 1, 3), strict=True):
            counts.clear()
            call(threads=1)
            assert counts == [1] * counted_times


def test_it_changes_a_step():
    for name in STEPS:
        cache = fastattn.KVCache(B, G, K, V)
        key, value = KEY[:, :T], VALUE[:, :T]
        cache.append(key, value)
        expected, weights, _ = attend(QUERY, key, value, causal=True, **{name: STEPS[name]})
        got = cache.attend(QUERY, return_weights=True, **{name: STEPS[name]})
        np.testing.assert_allclose(got[0], expected, atol=1e-5)
        np.testing.assert_allclose(got[1], weights, atol=1e-5)
        assert np.abs(got[0] - cache.attend(QUERY)).max() > 1e-3
        np.testing.assert_array_equal(cache.attend(QUERY, **{name: None}), cache.attend(QUERY))


def test_sizes_of_a_cache():
    cache = fastattn.KVCache(3, G, K, V, dtype="float16", capacity=100)
    assert len(cache) == 3 and "2 heads of 12 and 20, float16" in repr(cache)
    assert cache._rows_BS.shape == (3, 100) and cache._store._pool.rows >= 300
    assert "2 heads of 12 and 12, float32" in repr(fastattn.KVCache(3, G, K))


def test_sizes_of_blocks():
    first = lambda b, h, t, s: s < 3  # noqa: E731
    by_function = fastattn.BlockMask.from_function(first, B, H, T, S, (2, 3))
    by_hand = fastattn.BlockMask(by_function.states_BHTS, T, S, (2, 3))
    by_mask = fastattn.BlockMask.from_mask(np.arange(S) < np.full((B, H, T, 1), 3), (2, 3))
    for made in (by_function, by_hand, by_mask):
        assert (made.block, made.queries, made.keys, made.states_BHTS.shape) == ((2, 3), T, S, (B, H, 3, 3))
        assert made.states_BHTS.tolist() == [[[[2, 0, 0]] * 3] * H] * B
    np.testing.assert_array_equal(dense(block_mask=by_hand), dense(lengths=3))


def test_sinks_of_any_number_and_without_keys():
    np.testing.assert_array_equal(dense(window=(1, 0), sinks=2**70), dense(window=(1, 0), sinks=S))
    np.testing.assert_array_equal(dense(window=(1, 0), sinks=2**63), dense(window=(1, 0), sinks=10 * S))
    out, logs = fastattn.attention(QUERY, KEY[:, :0], VALUE[:, :0], sinks=LOGITS, return_logsumexp=True)
    assert not out.any()
    np.testing.assert_array_equal(logs, np.broadcast_to(LOGITS[:, None], (B, H, T)))
    rows = QUERY[0], KEY[0, :0], VALUE[0, :0], [0, T], [0, 0]
    _, logs = fastattn.attention_ragged(*rows, sinks=LOGITS, return_logsumexp=True)
    np.testing.assert_array_equal(logs, np.broadcast_to(LOGITS, (T, H)))
