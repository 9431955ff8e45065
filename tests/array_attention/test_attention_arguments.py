"""Each argument of fastattn.attention, and all together, against the formula in float64."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastattn
from fastattn.array_attention import arrays as functional_arrays
from fastattn.array_attention.attention import additive_attention
from fastattn.errors import InputError, OutOfMemoryError
from fastattn.kernels.attention.constants import KEYS, ROWS
from fastattn.kernels.attention.sentences import attend as attend_kernel
from fastattn.simd.target import TARGET
from fastattn.spec.rounding import as_floats, bfloat16_bits
from tests.array_attention.formula import attend

FLOOR = 1e-6


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def arrays(seed=0, B=2, T=9, S=21, H=4, G=2, K=12, V=20, size=1.0):
    return normal(seed, B, T, H, K) * np.float32(size), normal(seed + 1, B, S, G, K), normal(seed + 2, B, S, G, V)


def check(query, key, value, **options):
    """Twice the error of the formula in float32, and a floor."""
    exact, naive = attend(query, key, value, **options), attend(query, key, value, dtype=np.float32, **options)
    given = {name: option for name, option in options.items() if option is not None}
    got = fastattn.attention(query, key, value, **given, return_weights=True, return_logsumexp=True)
    for one, other, oracle in zip(got, naive, exact, strict=True):
        finite = np.isfinite(oracle)
        np.testing.assert_array_equal(one[~finite], oracle[~finite])
        allowed = 2 * np.abs(other[finite] - oracle[finite]).max(initial=0)
        scale = np.abs(oracle[finite]).max(initial=1)
        assert np.abs(one[finite] - oracle[finite]).max(initial=0) <= allowed + FLOOR * scale
    np.testing.assert_array_equal(fastattn.attention(query, key, value, **given), got[0])


lengths_of = st.lists(st.integers(0, 21), min_size=2, max_size=2)
sides = st.tuples(st.none() | st.integers(0, 12), st.none() | st.integers(0, 12))


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.none() | lengths_of,
    causal=st.booleans(),
    offset=st.sampled_from([None, 3, "end", [-2, 15]]),
    window=st.none() | sides,
    sinks=st.sampled_from([None, 0, 3, 40, "logits"]),
    masked=st.sampled_from(["", "full", "keys", "rows", "heads"]),
    biased=st.booleans(),
    softcap=st.sampled_from([0.0, 1.5]),
    layout=st.sampled_from(["BTHK", "BHTK"]),
    rows=st.sampled_from([1, 2, 9]),
    seed=st.integers(0, 5),
)
def test_arguments_together(lengths, causal, offset, window, sinks, masked, biased, softcap, layout, rows, seed):
    rng = np.random.default_rng(seed)
    shape = {"full": (2, 4, rows, 21), "keys": (21,), "rows": (rows, 1), "heads": (4, 1, 21)}
    options = {
        "lengths": lengths,
        "causal": causal,
        "offset": offset,
        "window": window,
        "sinks": normal(7, 4) if sinks == "logits" else sinks,
        "mask": rng.random(shape[masked]) < 0.6 if masked else None,
        "bias": normal(8, 2, 1, rows, 21) if biased else None,
        "softcap": softcap,
        "layout": layout,
    }
    given = arrays(seed, T=rows)
    check(*(given if layout == "BTHK" else [x.swapaxes(1, 2) for x in given]), **options)


@pytest.mark.parametrize("T, S", [(1, 1), (1, 3 * KEYS + 5), (3, KEYS), (ROWS + 1, 2 * KEYS + 1), (70, KEYS + 31)])
@pytest.mark.parametrize("heads", [(1, 1), (2, 1), (4, 1), (3, 3)])
def test_rows_and_keys_around_the_tiles(T, S, heads):
    given = arrays(3, 1, T, S, *heads, 40, 24)
    rng = np.random.default_rng(T + S)
    check(*given)
    check(*given, mask=rng.random((T, S)) < 0.05)
    check(*given, causal=True, offset="end", window=(50, None))
    check(*given, window=(KEYS // 2, 3), offset=S - T, sinks=5)


@pytest.mark.parametrize("size", [1e-30, 1e4])
def test_scores_of_any_size(size):
    check(*arrays(5, size=size), causal=True, mask=np.arange(21) % 3 > 0)


def test_a_mask_that_hides_everything():
    given = arrays()
    out, weights, logs = fastattn.attention(
        *given, mask=np.zeros((1, 21), bool), return_weights=True, return_logsumexp=True
    )
    assert not out.any() and not weights.any() and np.isneginf(logs).all()
    check(*given, mask=np.zeros((9, 21), bool), sinks=normal(1, 4))


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
@pytest.mark.parametrize("T", [1, 3, 40])
def test_narrow_numbers(narrow, T):
    given = arrays(1, T=T, S=300, K=33, V=17)
    narrowed = [bfloat16_bits(x) if narrow == "bfloat16" else x.astype(np.float16) for x in given]
    exact = attend(*(as_floats(x) for x in narrowed), causal=True, offset=290)[0]
    got = fastattn.attention(*narrowed, causal=True, offset=290)
    assert got.dtype == narrowed[0].dtype
    step = 2.0**-8 if narrow == "bfloat16" else 2.0**-11
    np.testing.assert_allclose(as_floats(got), exact, rtol=1.001 * step, atol=1e-6)


@pytest.mark.parametrize("T", [4, 9])
def test_float16_where_no_instruction_converts_it(monkeypatch, T):
    given = [x.astype(np.float16) for x in arrays(1, T=T)]
    expected = fastattn.attention(*given)
    monkeypatch.setattr(functional_arrays, "TARGET", replace(TARGET, float16=False))
    np.testing.assert_array_equal(fastattn.attention(*given), expected)
    turned = fastattn.attention(*(x.swapaxes(1, 2) for x in given), layout="BHTK")
    np.testing.assert_array_equal(turned.swapaxes(1, 2), expected)
    out = np.zeros_like(expected)
    assert fastattn.attention(*given, out=out) is out
    np.testing.assert_array_equal(out, expected)
    alone = fastattn.attention_ragged(*(x[0] for x in given), [0, T], [0, 21])
    np.testing.assert_array_equal(alone, expected[0])


def test_bfloat16_of_the_ml_dtypes_package():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    given = arrays(1)
    got = fastattn.attention(*(x.astype(bfloat16) for x in given))
    assert got.dtype == bfloat16
    np.testing.assert_array_equal(got.view(np.uint16), fastattn.attention(*(bfloat16_bits(x) for x in given)))


def test_no_copy_of_arrays_whose_heads_are_whole(monkeypatch):
    """As columns of fused rows, with heads before positions, broadcast, backwards, read-only: all where they lie."""
    fused = normal(1, 2, 9, 3, 4, 16)
    query, key, value = (fused[:, :, n] for n in range(3))
    layouts = [
        (query, key, value, {}),
        (*(x.swapaxes(1, 2) for x in (query, key, value)), {"layout": "BHTK"}),
        (query, key[:, ::-1], np.broadcast_to(value[:, :, :1], value.shape), {}),
    ]
    for q, k, v, options in layouts:
        expected = fastattn.attention(*(np.ascontiguousarray(x) for x in (q, k, v)), **options)
        forms = len(attend_kernel.variants)
        q.flags.writeable = False
        with monkeypatch.context() as patch:
            patch.setattr(np, "ascontiguousarray", None)
            patch.setattr(np, "require", None)
            np.testing.assert_array_equal(fastattn.attention(q, k, v, **options), expected)
        assert len(attend_kernel.variants) == forms
        q.flags.writeable = True


def test_a_result_into_an_array_given():
    given = arrays()
    whole = np.full((2, 9, 5, 20), np.nan, np.float32)
    got = fastattn.attention(*given, out=whole[:, :, :4])
    assert np.shares_memory(got, whole) and np.isnan(whole[:, :, 4]).all()
    np.testing.assert_array_equal(got, fastattn.attention(*given))


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40)), min_size=1, max_size=4),
    causal=st.booleans(),
    end=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_ragged_batch_is_its_sentences(lengths, causal, end, seed):
    sentences = [arrays(seed + n, 1, T, S, 4, 2, 8, 8) for n, (T, S) in enumerate(lengths)]
    rows = [np.concatenate([one[n][0] for one in sentences]) for n in range(3)]
    starts = [np.cumsum([0, *(pair[n] for pair in lengths)]) for n in range(2)]
    options = {"causal": causal, "offset": "end" if end and causal else None, "sinks": normal(3, 4)}
    out, weights, logs = fastattn.attention_ragged(
        *rows, *starts, **options, return_weights=True, return_logsumexp=True
    )
    assert weights.shape == (len(lengths), 4, max(t for t, _ in lengths), max(s for _, s in lengths))
    for b, one in enumerate(sentences):
        mine = slice(starts[0][b], starts[0][b + 1])
        T, S = lengths[b]
        alone = fastattn.attention(*one, **options, return_weights=True, return_logsumexp=True)
        np.testing.assert_array_equal(out[mine], alone[0][0])
        np.testing.assert_array_equal(weights[b, :, :T, :S], alone[1][0])
        np.testing.assert_array_equal(logs[mine], alone[2][0].T)


def test_splitting_the_keys_and_merging_gives_the_whole():
    query, key, value = arrays(4, S=600)
    whole, log = fastattn.attention(query, key, value, return_logsumexp=True)
    parts = [slice(0, 1), slice(1, 300), slice(300, 600)]
    outs, logs = zip(*(fastattn.attention(query, key[:, p], value[:, p], return_logsumexp=True) for p in parts))
    total = np.logaddexp.reduce(np.array(logs, np.float64))
    merged = sum(out * np.exp(one - total).swapaxes(1, 2)[..., None] for out, one in zip(outs, logs))
    np.testing.assert_allclose(merged, whole, atol=1e-6)
    np.testing.assert_allclose(total, log, atol=1e-5)


def test_permuting_the_keys_changes_nothing_without_positions():
    query, key, value = arrays(6, S=300)
    order = np.random.default_rng(0).permutation(300)
    np.testing.assert_allclose(
        fastattn.attention(query, key[:, order], value[:, order]), fastattn.attention(query, key, value), atol=1e-6
    )


def test_masks_as_ranges_arrays_and_blocks_have_the_same_bits():
    T = S = 2 * KEYS + 77
    given = arrays(8, 1, T, S, 2, 1, 16, 16)
    for options in ({"causal": True}, {"window": (100, 30)}, {"lengths": 300}, {"causal": True, "window": (9, None)}):
        ranges = fastattn.attention(*given, **options)
        at = np.arange(T)[:, None] - np.arange(S)
        left, right = options.get("window", (None, None))
        mask = np.arange(S) < options.get("lengths", S) + 0 * at
        mask &= (at >= 0) | (not options.get("causal"))
        mask &= (at <= (S if left is None else left)) & (-at <= (S if right is None else right))
        np.testing.assert_array_equal(fastattn.attention(*given, mask=mask), ranges)
        for block in (128, (64, 256), (100, 33)):
            blocks = fastattn.BlockMask.from_mask(mask, block)
            np.testing.assert_array_equal(fastattn.attention(*given, block_mask=blocks), ranges)


def test_blocks_that_are_skipped_are_not_read():
    query, key, value = arrays(9, 1, 256, 1024, 2, 2, 16, 16)
    states = np.zeros((2, 8), np.uint8)
    states[0, 1] = states[1, 6] = 2
    blocks = fastattn.BlockMask(states, 256, 1024)
    expected = fastattn.attention(query, key, value, block_mask=blocks)
    key[:, 256:768] = np.nan
    np.testing.assert_array_equal(fastattn.attention(query, key, value, block_mask=blocks), expected)
    np.testing.assert_array_equal(
        fastattn.attention(query[:, :128], key[:, 128:256], value[:, 128:256]), expected[:, :128]
    )


def test_masked_rows_that_overflow_are_mended():
    query, key, value = arrays(10)
    bias = normal(1, 21)
    bias[:3] = 3e38
    rng = np.random.default_rng(1)
    for options in ({"mask": rng.random((9, 21)) < 0.5}, {"window": (3, 3), "sinks": 2}, {"sinks": normal(2, 4)}):
        check(query, key, value, bias=bias, **options)
        check(query, key, value, scale=1e36, **options)


X = np.zeros((2, 3, 4, 8), np.float32)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"layout": "BSHD"}, "layout: expected BTHK or BHTK, got 'BSHD'"),
        ({"key": X.astype(np.float16)}, "key: expected the query's type float32, got float16"),
        ({"layout": ["BTHK"]}, "layout: expected BTHK or BHTK, got ['BTHK']"),
        ({"window": 3}, "window: expected (left, right)"),
        ({"window": (-(10**5000), 0)}, "or None, got a tuple with a number of thousands of digits"),
        ({"lengths": np.full(2, 9)}, "lengths: expected 0 to 3, the number of keys, got [9, 9]"),
        ({"threads": np.ones((9, 9))}, "threads must be a whole number, got array([[1., 1."),
        ({"query": X[:0], "key": X[:0], "value": X[:0], "threads": 0}, "threads must be at least 1, got 0"),
        ({"sinks": -(10**5000)}, "logits of 4 heads, got a number of about 4983 digits"),
        ({"window": (-1, 0)}, "window: expected (left, right), each an integer from 0 on or None, got (-1, 0)"),
        ({"offset": "start", "causal": True}, "offset: expected integers or 'end', got 'start'"),
        ({"mask": np.ones((3, 3), np.float32)}, "mask: expected a NumPy array of bool, got float32"),
        ({"mask": np.ones((3, 4), bool)}, "mask: expected a shape that broadcasts to (2, 4, 3, 3), got (3, 4)"),
        ({"sinks": -1}, "sinks: expected a number of keys from 0 on, or float32 logits of 4 heads, got -1"),
        ({"sinks": np.zeros(3, np.float32)}, "sinks: expected 4 finite logits, one a head, got shape (3,)"),
        ({"sinks": 1.5}, "sinks: expected a number of keys"),
        ({"block_mask": 3}, "block_mask: expected a BlockMask, got int"),
        ({"block_mask": fastattn.BlockMask(np.ones((1, 1)).astype(int), 3, 4)}, "block_mask: expected one for batch 2"),
        ({"out": np.zeros((2, 3, 4, 9), np.float32)}, "out: expected an array of float32 (2, 3, 4, 8), got float32"),
        ({"out": X}, "out: expected memory of its own, got some of query's"),
        ({"out": X[:, ::-1]}, "out: expected memory of its own, got some of query's"),
        ({"out": np.broadcast_to(np.float32(0), X.shape)}, "out: expected an array that is writeable"),
        ({"score_mod": 3}, "score_mod: expected a function"),
        ({"return_logsumexp": 1}, "return_logsumexp must be True or False, got 1"),
    ],
)
def test_unfit_arguments_are_told(change, message):
    with pytest.raises(InputError) as raised:
        fastattn.attention(**{"query": X, "key": X, "value": X, **change})
    assert message in str(raised.value) and "\n" not in str(raised.value) and len(str(raised.value)) < 300


@pytest.mark.parametrize("name", ["bias", "mask", "sinks", "block_mask", "vector"])
def test_a_result_in_the_place_of_what_is_read_is_told(name):
    memory = np.zeros(5 * 16 * 4, np.uint8)
    out, rows = memory.view(np.float32)[: 4 * 16].reshape(1, 4, 1, 16), arrays(0, 1, 4, 4, 1, 1, 16, 16)
    options = {
        "bias": {"bias": memory.view(np.float32)[32:48].reshape(4, 4)},
        "mask": {"mask": memory.view(bool)[:4]},
        "sinks": {"sinks": memory.view(np.float32)[63:64]},
        "block_mask": {"block_mask": fastattn.BlockMask(memory[:16].reshape(4, 4), 4, 4, (1, 1))},
        "vector": {"vector": memory.view(np.float32)[48:64].reshape(1, 16)},
    }[name]
    with pytest.raises(InputError) as raised:
        (additive_attention if name == "vector" else fastattn.attention)(*rows, **options, out=out)
    assert str(raised.value) == f"out: expected memory of its own, got some of {name}'s"


def test_a_result_whose_numbers_have_one_place_is_told():
    rows, memory = arrays(0, 2, 4, 4, 2, 2, 8, 8), np.zeros(2 * 4 * 2 * 8, np.float32)
    whole = memory.reshape(2, 4, 2, 8)
    for strides in ((256, 0, 32, 4), (0, 64, 32, 4), (256, 64, 28, 4), (256, 32, 32, 4)):
        with pytest.raises(InputError, match=r"out: expected a place for each number, got strides \("):
            fastattn.attention(*rows, out=np.lib.stride_tricks.as_strided(whole, whole.shape, strides))
    expected = fastattn.attention(*rows)
    for view in (whole[::-1], whole.transpose(1, 0, 2, 3).reshape(2, 4, 2, 8), whole[:, ::-1, ::-1]):
        np.testing.assert_array_equal(fastattn.attention(*rows, out=view), expected)
    single = np.lib.stride_tricks.as_strided(whole[:1, ::-1], (1, 4, 2, 8), (0, -64, 32, 4))  # no axis to step along
    np.testing.assert_array_equal(fastattn.attention(*(x[:1] for x in rows), out=single), expected[:1])


def test_first_keys_are_seen_on_both_sides_of_a_window():
    given = arrays(0, 1, 9, 21)
    for options in ({}, {"causal": True}, {"lengths": [3]}, {"offset": -4}, {"lengths": [6], "offset": 2}):
        check(*given, window=(1, 1), sinks=5, **options)
    _, weights = fastattn.attention(*given, window=(0, 0), sinks=4, return_weights=True)
    assert (weights[0, 0, 0] > 0).nonzero()[0].tolist() == [0, 1, 2, 3]
    ragged = [x[0] for x in given]
    whole = fastattn.attention_ragged(*ragged, [0, 4, 9], [0, 9, 21], window=(1, 0), sinks=3)
    second = fastattn.attention(*(x[:, i:] for x, i in zip(given, (4, 9, 9))), window=(1, 0), sinks=3)
    np.testing.assert_array_equal(whole[4:], second[0])


def broadcast(*shape):
    return np.broadcast_to(np.float32(1), shape)


@pytest.mark.parametrize(
    "query, key, options, message",
    [
        ((1 << 10, 1 << 30, 1, 8), (1 << 10, 1, 1, 8), {}, "not enough memory for a result of shape (1024, 1073741824"),
        ((1, 1, 1, 8), (1, 1 << 50, 1, 8), {}, "not enough memory for a copy of shape (1, 1125899906842624, 1, 8)"),
        ((1, 1 << 20, 1 << 9, 1), (1, 1 << 40, 1, 1), {"return_weights": True}, "not enough memory for weights of"),
    ],
)
def test_arrays_of_more_than_all_memory_are_told(query, key, options, message):
    """Broadcast arrays take none themselves."""
    with pytest.raises(OutOfMemoryError) as raised:
        fastattn.attention(broadcast(*query), broadcast(*key), broadcast(*key), **options)
    assert message in str(raised.value)


def test_a_batch_without_queries_may_not_be_of_any_size():
    empty = np.empty((1 << 40, 0, 1, 8), np.float32)
    with pytest.raises(InputError, match="query: expected a batch of at most 67108864, got 1099511627776"):
        fastattn.attention(empty, empty, empty)


V = np.ones((4, 8), np.float32)


@pytest.mark.parametrize(
    "query, vector, message",
    [
        (X, V[:1, :1], "vector: expected an array of float32 (4, 8), got float32 (1, 1)"),
        (X, V.astype(np.float64), "vector: expected an array of float32 (4, 8), got float64 (4, 8)"),
        (X, 3, "vector: expected an array of float32 (4, 8), got int"),
        (X.astype(np.float16), V, "query: expected float32 for additive attention, got float16"),
    ],
)
def test_unfit_vectors_of_additive_attention_are_told(query, vector, message):
    with pytest.raises(InputError) as raised:
        additive_attention(query, query, query, vector)
    assert message in str(raised.value)


def test_unknown_options_are_told():
    rows = X.reshape(6, 4, 8), X.reshape(6, 4, 8), X.reshape(6, 4, 8), [0, 6], [0, 6]
    for name in ("layout", "additive_vector", "vector_HD"):
        with pytest.raises(TypeError, match=rf"attention_ragged\(\) got an unexpected keyword argument '{name}'"):
            fastattn.attention_ragged(*rows, **{name: V})
    for name in ("scale", "additive_vector", "colour"):
        with pytest.raises(TypeError, match=rf"additive_attention\(\) got an unexpected keyword argument '{name}'"):
            additive_attention(X, X, X, V, **{name: 1.0})


class Tensor:
    """As much of a tensor of torch's as a message looks at."""

    dtype = "torch.bfloat16"

    def detach(self):
        raise AssertionError("it is not read")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"query": X.astype(np.float64)}, "(or its bits, uint16), got float64; write query.astype(np.float32)"),
        ({"key": Tensor()}, "(or its bits, uint16), got Tensor; write key.float().numpy(force=True)"),
        ({"value": X.tolist()}, "(or its bits, uint16), got list; write np.asarray(value, np.float32)"),
        ({"bias": X[0, 0].astype(int)}, "bias: expected a NumPy array of float32, got int64; write bias.astype(np.f"),
        ({"mask": Tensor()}, "mask: expected a NumPy array of bool, got Tensor; write mask.float().numpy(force=True)"),
        (
            {"mask": X[0, 0]},
            "mask: expected a NumPy array of bool, got float32; write mask != 0, or bias=mask where it",
        ),
    ],
)
def test_arrays_of_other_types_are_told_what_to_write(change, message):
    with pytest.raises(InputError) as raised:
        fastattn.attention(**{"query": X, "key": X, "value": X, **change})
    assert message in str(raised.value)


def test_options_of_other_libraries_and_misspelt_ones_are_told_their_name():
    cache, rows = fastattn.KVCache(2, 4, 8), (X.reshape(6, 4, 8),) * 3
    calls = [
        ("attention", lambda **options: fastattn.attention(X, X, X, **options)),
        ("attention_ragged", lambda **options: fastattn.attention_ragged(*rows, [0, 6], [0, 6], **options)),
        ("attend", lambda **options: cache.attend(X, **options)),
    ]
    for function, call in calls:
        for option, told in [
            ("softmax_scale", "; here it is scale"),
            ("device", "; here it is left out: arrays are computed where they lie"),
            ("sofcap", "; did you mean softcap?"),
            ("colour", ""),
        ]:
            with pytest.raises(TypeError) as raised:
                call(**{option: 1})
            assert str(raised.value) == f"{function}() got an unexpected keyword argument '{option}'{told}"
    with pytest.raises(TypeError, match="'is_causal'; here it is causal$"):
        fastattn.attention(X, X, X, is_causal=True)
    with pytest.raises(TypeError, match="'causal'; here it is left out: steps always are$"):
        cache.attend(X, causal=True)


@pytest.mark.parametrize(
    "starts, message",
    [
        (([0, 3, 2, 6], [0, 1, 2, 6]), "query_starts: expected ascending numbers from 0 to 6"),
        (([0, 6], [0, 7]), "key_starts: expected ascending numbers from 0 to 6"),
        (([0, 6], [0, 3, 6]), "key_starts: expected 2 numbers, as query_starts has, got 3"),
        (([0.0, 6.0], [0, 6]), "query_starts: expected integers"),
        (([], [0, 6]), "query_starts: expected integers"),
        (([[0], [1, 6]], [0, 6]), "query_starts: expected integers, one more than sentences, got nested lists"),
    ],
)
def test_unfit_starts_are_told(starts, message):
    with pytest.raises(InputError) as raised:
        fastattn.attention_ragged(X.reshape(6, 4, 8), X.reshape(6, 4, 8), X.reshape(6, 4, 8), *starts)
    assert message in str(raised.value) and "\n" not in str(raised.value)
