"""Each option, alone: it changes the result, to what the formula gives; none may be taken and dropped."""

import inspect
from functools import partial

import numpy as np
import pytest

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
LOGITS, MASK = normal(H), np.ones((T, S), bool)
MASK[:, [0, 3]] = False
WEIGHTS = fastattn.ProjectionWeights(*(normal(*n) / 5 for n in ((H * K, D), (G * K, D), (G * V, D), (D, H * V))))
MHA = fastattn.MultiHeadAttention(WEIGHTS, H)
# Option -> its value.
CHANGES = {
    "lengths": [7, 3],
    "causal": True,
    "offset": 2,
    "window": (1, 2),
    "scale": 0.7,
    "softcap": 0.6,
    "sinks": LOGITS,
    "bias": normal(B, H, T, S),
    "mask": MASK,
    "block_mask": fastattn.BlockMask.from_mask(MASK, (2, 3)),
}
NONE = {"sinks": 0, "causal": False}  # of the others: None
OTHERS = {"out", "threads", "layout", "device"}  # which change no number
FUNCTIONS = {"score_mod", "mask_mod"}  # each is compiled, and tested in test_attention_functions.py
STEPS = {"window", "bias", "scale", "softcap", "lengths", "threads"}  # of KVCache, tested in test_cache.py


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
    assert STEPS == set(StepOptions.__annotations__)


@pytest.mark.parametrize("name", CHANGES)
def test_it_changes_the_result_to_the_formula(name):
    beside = {"causal": True} if name == "offset" else {}
    option = {name: CHANGES[name], **beside}
    told = {"mask": MASK} if name == "block_mask" else option
    for call in (dense, ragged):
        got, without = call(**option), call(**beside)
        np.testing.assert_allclose(got, attend(QUERY, KEY, VALUE, **told)[0], atol=1e-5)
        assert np.abs(got - without).max() > 1e-3
        np.testing.assert_array_equal(call(**{name: NONE.get(name)}, **beside), without)
    x, memory = normal(B, T, D), normal(B, S, D)
    parts = (x, WEIGHTS.query, H, K), (memory, WEIGHTS.key, G, K), (memory, WEIGHTS.value, G, V)
    rows = ((rows @ weight.T).reshape(B, -1, heads, width) for rows, weight, heads, width in parts)
    context = attend(*rows, **told)[0]
    got, without = MHA(x, memory, **option), MHA(x, memory, **beside)
    np.testing.assert_allclose(got, context.reshape(B, T, H * V) @ WEIGHTS.output.T, atol=1e-4)
    assert np.abs(got - without).max() > 1e-3


def test_threads_are_those_asked_for(monkeypatch):
    counts = []

    def counted(call):
        return lambda *given, **options: counts.append(operations.current_threads()) or call(*given, **options)

    cache = fastattn.KVCache(B, G, K, V)
    cache.append(KEY, VALUE)
    for name in ("strided_attention", "linear", "attention_step"):
        monkeypatch.setattr(operations, name, counted(getattr(operations, name)))
    calls = dense, ragged, partial(cache.attend, QUERY), partial(MHA, normal(B, T, D))
    with operations.use_threads(2):
        for call, counted_times in zip(calls, (1, 1, 1, 3), strict=True):
            counts.clear()
            call(threads=1)
            assert counts == [1] * counted_times


def test_sinks_of_any_number_and_without_keys():
    np.testing.assert_array_equal(dense(window=(1, 0), sinks=2**70), dense(window=(1, 0), sinks=S))
    out, logs = fastattn.attention(QUERY, KEY[:, :0], VALUE[:, :0], sinks=LOGITS, return_logsumexp=True)
    assert not out.any()
    nothing = fastattn.attention(QUERY[:0], KEY[:0], VALUE[:0], lengths=[], causal=True, offset=[])
    assert nothing.shape == (0, T, H, V)
    np.testing.assert_array_equal(logs, np.broadcast_to(LOGITS[:, None], (B, H, T)))
    rows = QUERY[0], KEY[0, :0], VALUE[0, :0], [0, T], [0, 0]
    _, logs = fastattn.attention_ragged(*rows, sinks=LOGITS, return_logsumexp=True)
    np.testing.assert_array_equal(logs, np.broadcast_to(LOGITS, (T, H)))
