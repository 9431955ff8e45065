"""fastattn.KVCache against the formula over whole sequences, and sequences shared against copies by hand."""

import copy
import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastattn
from fastattn.array_attention.cache import FIRST_POSITIONS, MAX_POSITIONS
from fastattn.errors import InputError
from fastattn.ops.cpu.attention import GRAIN
from fastattn.spec.rounding import as_floats, bfloat16_bits
from tests.array_attention.formula import attend, check_near
from tests.kernels.cases import normal
from tests.messages import refused

H, G, K, V = 4, 2, 12, 20


def arrays(seed=0, B=2, T=9):
    return normal(seed, B, T, H, K), normal(seed + 1, B, T, G, K), normal(seed + 2, B, T, G, V)


def filled(T=3, size=1.0, **options):
    """A cache that has the keys and values, and the three arrays."""
    query, key, value = arrays(T=T)
    cache = fastattn.KVCache(2, G, K, V, **options)
    cache.append(key * np.float32(size), value)
    return cache, query * np.float32(size), key * np.float32(size), value


def rounded(array, dtype):
    if dtype == "float16":
        return array.astype(np.float16).astype(np.float32)
    return as_floats(bfloat16_bits(array)) if dtype == "bfloat16" else array


def agrees(got, query, key, value, **options):
    options = {"causal": True, "offset": "end", **options}
    check_near(got, lambda dtype: attend(query, key, value, dtype=dtype, **options))


@settings(max_examples=40, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 45), max_size=5),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    options=st.fixed_dictionaries({
        "window": st.none() | st.tuples(st.none() | st.integers(0, 50), st.none() | st.integers(0, 3)),
        "softcap": st.sampled_from([0.0, 1.5]),
        "scale": st.sampled_from([None, 0.0, -0.7]),
    }),
    biased=st.sampled_from(["", "full", "positions", "keys", "heads", "rows", "sentences"]),
    capacity=st.sampled_from([0, 7, 45, 100]),
)  # fmt: skip
def test_any_chunks(cuts, dtype, options, biased, capacity):
    query, key, value = arrays(T=45)
    shape = {"full": (2, H, 45, 45), "positions": (45, 45), "keys": (45,), "heads": (H, 1, 45), "rows": (2, 1, 45, 1)}
    shape["sentences"] = 2, 1, 1, 45
    bias = normal(7, *shape[biased]) if biased else None
    if biased:
        bias[bias > 1] = -np.inf
    cache = fastattn.KVCache(2, G, K, V, dtype, capacity)
    ends = [0, *sorted(cuts), 45]
    found = []
    for first, stop in zip(ends, ends[1:]):
        cache.append(key[:, first:stop], value[:, first:stop])
        part = bias
        if biased:
            rows = slice(first, stop) if bias.ndim > 1 and bias.shape[-2] > 1 else slice(None)
            part = bias[..., rows, :stop] if bias.ndim > 1 else bias[:stop]
        out, weights = cache.attend(query[:, first:stop], **options, bias=part, return_weights=True)
        keys, values = rounded(key[:, :stop], dtype), rounded(value[:, :stop], dtype)
        agrees((out, weights), query[:, first:stop], keys, values, **options, bias=part)
        found.append(out)
        np.testing.assert_array_equal(cache.lengths, [stop] * 2)
    whole = cache.attend(query, **options, bias=bias)
    np.testing.assert_array_equal(np.concatenate(found, axis=1), whole)
    other = fastattn.attention(query, rounded(key, dtype), rounded(value, dtype), causal=True, bias=bias, **options)
    np.testing.assert_allclose(whole, other, atol=1e-5)


class ByHand:
    """A cache whose sequences are arrays of their own."""

    def __init__(self, cache, sequences):
        self.cache, self.sequences = cache, sequences

    def append(self, seed, T, lengths):
        B = len(self.sequences)
        _, key, value = arrays(seed, B, T)
        self.cache.append(key, value, lengths)
        for b, (length, before) in enumerate(zip([T] * B if lengths is None else lengths, self.sequences)):
            new = key[b, :length], value[b, :length]
            self.sequences[b] = tuple(np.concatenate(pair) for pair in zip(before, new))

    def check(self, seed):
        np.testing.assert_array_equal(self.cache.lengths, [len(key) for key, _ in self.sequences])
        query, _, _ = arrays(seed, len(self.sequences), 2)
        out, weights = self.cache.attend(query, return_weights=True)
        for b, (key, value) in enumerate(self.sequences):
            got = out[b : b + 1], weights[b : b + 1, :, :, : len(key)]
            agrees(got, query[b : b + 1], key[None], value[None])
            assert not weights[b, :, :, len(key) :].any()


@settings(max_examples=40, deadline=None)
@given(data=st.data(), capacity=st.sampled_from([0, 3]))
def test_shared_sequences_are_like_copies(data, capacity):
    nothing = np.zeros((0, G, K), np.float32), np.zeros((0, G, V), np.float32)
    caches = [ByHand(fastattn.KVCache(3, G, K, V, capacity=capacity), [nothing] * 3)]
    for seed in range(data.draw(st.integers(1, 12))):
        one = data.draw(st.sampled_from(caches))
        B = len(one.sequences)
        what = data.draw(st.sampled_from(["append", "append", "ragged", "reorder", "fork", "truncate", "drop"]))
        if what in ("append", "ragged"):
            T = data.draw(st.integers(0, 40))
            ragged = what == "ragged"
            one.append(seed, T, data.draw(st.lists(st.integers(0, T), min_size=B, max_size=B)) if ragged else None)
        elif what == "truncate":
            lengths = [data.draw(st.integers(0, len(key))) for key, _ in one.sequences]
            one.cache.truncate(lengths)
            one.sequences = [(key[:n], value[:n]) for n, (key, value) in zip(lengths, one.sequences)]
        elif what == "drop" and len(caches) > 1:
            caches.remove(one)
        elif B:
            order = data.draw(st.lists(st.integers(0, B - 1), max_size=5))
            sequences = [one.sequences[b] for b in order]
            if what == "fork":
                caches.append(ByHand(one.cache.fork(order), sequences))
            elif what == "reorder":
                one.cache.reorder(order)
                one.sequences = sequences
    for seed, one in enumerate(caches):
        one.check(seed)


@pytest.mark.parametrize("narrow", [lambda x: x.astype(np.float16), bfloat16_bits], ids=["float16", "bfloat16"])
def test_narrow_arrays_give_the_same_as_their_numbers(narrow):
    query, *rows = (narrow(x) for x in arrays())
    (cache, *_), (wide, *_) = filled(0), filled(0)
    cache.append(*rows)
    wide.append(*(as_floats(x).astype(np.float32) for x in rows))
    found = cache.attend(query)
    assert found.dtype == query.dtype
    np.testing.assert_array_equal(found, narrow(wide.attend(as_floats(query).astype(np.float32))))


def test_float16_beyond_its_range_is_infinite():
    cache = fastattn.KVCache(1, 1, 4, 4, dtype=np.float16)
    cache.append(np.zeros((1, 1, 1, 4), np.float32), np.float32([[[[1e6, -1e6, 65504, 1]]]]))
    np.testing.assert_array_equal(cache.attend(np.zeros((1, 1, 1, 4), np.float32)).ravel(), [np.inf, -np.inf, 65504, 1])


def test_queries_of_different_numbers():
    query, key, value = arrays(T=6)
    cache = fastattn.KVCache(2, G, K, V)
    cache.append(key, value, [6, 2])
    out, weights = cache.attend(query, lengths=[6, 2], return_weights=True)
    agrees((out[:1], weights[:1]), query[:1], key[:1], value[:1])
    agrees((out[1:, :2], weights[1:, :, :2, :2]), query[1:, :2], key[1:, :2], value[1:, :2])
    assert not (out[1, 2:].any() or weights[1, :, 2:].any() or weights[1, :, :, 2:].any())
    # the last positions of all: of sequence 1 four queries stand before its first position
    last = cache.attend(query)
    assert not last[1, :4].any()
    agrees((last[1:, 4:],), query[1:, 4:], key[1:, :2], value[1:, :2])


def test_no_sequences_no_positions_and_no_queries():
    cache = fastattn.KVCache(2, G, K, V)
    query, key, value = arrays(T=3)
    out, weights = cache.attend(query, return_weights=True)
    assert out.shape == (2, 3, H, V) and not out.any() and weights.shape == (2, H, 3, 0)
    cache.append(key[:, :0], value[:, :0])
    cache.append(key, value)
    assert cache.attend(query[:, :0]).shape == (2, 0, H, V)
    cache.reorder([])
    assert len(cache) == 0 and cache.attend(query[:0]).shape == (0, 3, H, V)
    assert "2 heads of 12 and 20, float16" in repr(fastattn.KVCache(3, G, K, V, dtype="float16"))
    assert len(fastattn.KVCache(0, 1, 1)) == 0
    with refused(InputError, "order", "0 sequences"):
        cache.fork(0)


def test_bits_depend_on_no_other_sequence_and_no_thread():
    query, key, value = arrays(B=5, T=GRAIN // (H * K * 40))
    cache = fastattn.KVCache(5, G, K, V)
    cache.append(key, value)
    bits = [cache.attend(query, threads=threads) for threads in (1, 2)]
    np.testing.assert_array_equal(*bits)
    for b in range(5):
        alone = fastattn.KVCache(1, G, K, V, capacity=1)
        alone.append(key[b : b + 1], value[b : b + 1])
        np.testing.assert_array_equal(alone.attend(query[b : b + 1]), bits[0][b : b + 1])
    # a beam among others that share its positions
    cache.reorder([3, 3, 0, 3])
    np.testing.assert_array_equal(cache.attend(query[[3, 3, 0, 3]]), bits[0][[3, 3, 0, 3]])


def test_scores_beyond_float32():
    for size, scale, softcap in ((1e15, 1e10, 0.0), (1.0, 1e300, 0.0), (1e4, 1e5, 1e-200), (1e25, -1, 0)):
        cache, query, key, value = filled(size=size)
        options = {"scale": scale, "softcap": softcap}
        got = cache.attend(query, **options, return_weights=True)
        for one, oracle in zip(got, attend(query, key, value, causal=True, **options)):
            np.testing.assert_allclose(one, oracle, atol=1e-5)
        np.testing.assert_array_equal(cache.attend(query, **options), got[0])


def test_rows_are_used_again():
    query, key, value = arrays(T=FIRST_POSITIONS)
    cache = fastattn.KVCache(2, G, K, V, capacity=2 * FIRST_POSITIONS)
    rows = len(cache._store.table)
    for _ in range(5):
        cache.append(key, value)
        forked = cache.fork()
        forked.append(key, value)
        cache.reorder([1, 0])
        expected = forked.attend(query)
        forked.reorder([])
        cache.truncate(0)
    for _ in range(3):
        cache.append(key, value)
        forked = cache.fork(1)
        forked.append(key[1:], value[1:])
        np.testing.assert_array_equal(forked.attend(query[1:]), expected[1:])
        del forked
        gc.collect()
        cache.truncate([0, 0])
    assert len(cache._store.table) == rows


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_a_fork(copied):
    cache, query, key, value = filled(5)
    other, expected = copied(cache), cache.attend(query)
    cache.truncate(0)
    for _ in range(8):  # rows are looked for, and none of the copy's taken
        cache.append(-key, -value)
        cache.truncate(0)
    np.testing.assert_array_equal(other.attend(query), expected)


def test_forks_in_threads_of_their_own():
    query, key, value = arrays(B=1, T=30)
    cache = fastattn.KVCache(1, G, K, V)
    cache.append(key, value)

    def decode(seed):
        forked = cache.fork()
        out = []
        for t in range(20):
            q, k, v = arrays(100 * seed + t, 1, 1)
            forked.append(k, v)
            out.append(forked.attend(q))
        return np.concatenate(out)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(decode, range(8)))
    for seed, out in enumerate(found):
        np.testing.assert_array_equal(out, decode(seed))


def test_one_length_cuts_sequences_of_different_lengths():
    query, key, value = arrays(T=5)
    cache, cut = fastattn.KVCache(2, G, K, V), fastattn.KVCache(2, G, K, V)
    cache.append(key, value, [2, 5])
    cut.append(key, value, [2, 3])
    cache.truncate(3)
    assert cache.lengths.tolist() == [2, 3]
    np.testing.assert_array_equal(cache.attend(query[:, :1]), cut.attend(query[:, :1]))
    cache.truncate(np.array(9))
    assert cache.lengths.tolist() == [2, 3]
    cache.truncate([0, 1])
    assert cache.lengths.tolist() == [0, 1]


QUERY, KEY, VALUE = arrays(T=3)
# Of KVCache and its methods: what is told of, and the arguments.
REFUSED = {
    "": [
        *(("batch", -1, 1, 1), ("batch", 2.0, 1, 1), ("key_heads", 1, 10**30, 1)),
        *(("head_width", 1, 1, 4097), ("value_width", 1, 1, 1, 0)),
        ("capacity", 2, 1, 1, None, "float32", MAX_POSITIONS),
        *(("dtype", 1, 1, 1, None, dtype) for dtype in ("float64", [])),
    ],
    "append": [
        *(("key", key, VALUE) for key in ([1.0], KEY[0], KEY[:1])),
        *(("value", KEY, value) for value in (VALUE.astype(float), VALUE[:, 1:])),
        *(("lengths", KEY, VALUE, lengths) for lengths in ([1, 4], [1])),
    ],
    "attend": [("query", query) for query in (QUERY[:1], QUERY[:, :, :3], QUERY[:, :, :0])],
    "reorder": [("order", order) for order in ([0, 2], [-1], [0.0], [True], [[0], [0, 1]], [2**70], 1)],
    "fork": [("order", 2)],
    "truncate": [("lengths", lengths) for lengths in ([0, 4], -1, 2.0)],
}
OPTIONS = {"lengths": -1, "scale": "1", "softcap": -1, "window": 3, "bias": np.zeros((2, 4, 3, 4), np.float32)}
OPTIONS |= {"return_weights": 1, "threads": 0}
CALLS = [(method, *row) for method, rows in REFUSED.items() for row in rows]
CALLS += [("attend", name, QUERY, {name: value}) for name, value in OPTIONS.items()]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]} {call[1]}")
def test_errors_say_what_was_expected_and_change_nothing(call):
    method, name, *given = call
    options = given.pop() if isinstance(given[-1], dict) else {}
    cache, *_ = filled()
    before = cache.attend(QUERY)
    with refused(InputError, name):
        (getattr(cache, method) if method else fastattn.KVCache)(*given, **options)
    np.testing.assert_array_equal(cache.attend(QUERY), before)
    assert cache.lengths.tolist() == [3, 3] and len(cache) == 2
