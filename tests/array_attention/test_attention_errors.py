"""Arguments of fastattn.attention that do not fit are refused in one line."""

from functools import partial

import numpy as np
import pytest

import fastattn
from fastattn.array_attention.attention import additive_attention
from fastattn.errors import InputError, OutOfMemoryError
from tests.array_attention.test_attention_arguments import arrays


def refuses(call, message):
    with pytest.raises(InputError) as raised:
        call()
    assert message in str(raised.value) and "\n" not in str(raised.value) and len(str(raised.value)) < 300


X = np.zeros((2, 3, 4, 8), np.float32)


UNFIT = [
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
    (
        {"block_mask": fastattn.BlockMask(np.ones((3, 1, 1, 1)).astype(int), 3, 3)},
        "block_mask: expected one for batch 2",
    ),
    (
        {"block_mask": fastattn.BlockMask(np.ones((2, 1, 1)).astype(int), 3, 3)},
        "4 heads, 3 queries and 3 keys, got one",
    ),
    ({"out": np.zeros((2, 3, 4, 9), np.float32)}, "out: expected an array of float32 (2, 3, 4, 8), got float32"),
    ({"out": X}, "out: expected memory of its own, got some of query's"),
    ({"out": X[:, ::-1]}, "out: expected memory of its own, got some of query's"),
    ({"out": np.broadcast_to(np.float32(0), X.shape)}, "out: expected an array that is writeable"),
    ({"score_mod": 3}, "score_mod: expected a function"),
    ({"return_logsumexp": 1}, "return_logsumexp must be True or False, got 1"),
    ({"query": X[0]}, "query: expected four axes"),
    ({"key": X[:1]}, "key: expected batch 2 and head width 8 as in the query, got shape (1, 3, 4, 8)"),
    ({"value": X[:, :2]}, "value: expected the key's shape (2, 3, 4, 8), got (2, 2, 4, 8)"),
    ({"key": X[:, :, :3], "value": X[:, :, :3]}, "divides the query's 4, got 3"),
    ({"lengths": [1, 2, 3]}, "lengths: expected an integer or 2 of them"),
    ({"lengths": [1, 4]}, "lengths: expected 0 to 3, the number of keys, got [1, 4]"),
    ({"lengths": [1.0, 2.0]}, "lengths: expected an integer or 2 of them, got float64"),
    ({"lengths": [[1], [2, 3]]}, "lengths: expected an integer or 2 of them, got nested lists"),
    ({"lengths": np.uint64(2**64 - 1)}, "lengths: expected 0 to 3, the number of keys, got ["),
    ({"causal": "no"}, "causal must be True or False, got 'no'"),
    ({"return_weights": "no"}, "return_weights must be True or False, got 'no'"),
    ({"scale": float("nan")}, "scale: expected a finite number, got nan"),
    ({"scale": float("inf")}, "scale: expected a finite number, got inf"),
    ({"scale": 10**400}, "scale: expected a finite number, got inf"),
    ({"scale": "0.5"}, "scale: expected a finite number, got str"),
    ({"scale": True}, "scale: expected a finite number, got bool"),
    ({"softcap": -1}, "softcap: expected a number above 0, or 0 for none, got -1.0"),
    ({"softcap": float("nan")}, "softcap: expected a finite number, got nan"),
    ({"query": X[:, :, :0]}, "query: expected at least one head, got none"),
    ({"bias": np.zeros((2, 4, 3, 4), np.float32)}, "bias: expected a shape that broadcasts to (2, 4, 3, 3)"),
    ({"bias": np.zeros((1, 2, 4, 3, 3), np.float32)}, "bias: expected a shape that broadcasts"),
    ({"bias": np.zeros(3)}, "bias: expected a NumPy array of float32, got float64"),
]


def test_unfit_arguments_are_told():
    for change, message in UNFIT:
        refuses(partial(fastattn.attention, **{"query": X, "key": X, "value": X, **change}), message)


def test_a_result_in_the_place_of_what_is_read_is_told():
    for name in ("bias", "mask", "sinks", "block_mask", "vector"):
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
    expected, odd = fastattn.attention(*rows), np.zeros((2, 7, 2, 8), np.float32)
    for view in (odd[:, ::2], whole[::-1], whole.transpose(1, 0, 2, 3).reshape(2, 4, 2, 8), whole[:, ::-1, ::-1]):
        np.testing.assert_array_equal(fastattn.attention(*rows, out=view), expected)
    single = np.lib.stride_tricks.as_strided(whole[:1, ::-1], (1, 4, 2, 8), (0, -64, 32, 4))  # no axis to step along
    np.testing.assert_array_equal(fastattn.attention(*(x[:1] for x in rows), out=single), expected[:1])


def broadcast(*shape):
    return np.broadcast_to(np.float32(1), shape)


TOO_LARGE = [
    ((1 << 10, 1 << 30, 1, 8), (1 << 10, 1, 1, 8), {}, "not enough memory for a result of shape (1024, 1073741824"),
    ((1, 1, 1, 8), (1, 1 << 50, 1, 8), {}, "not enough memory for a copy of shape (1, 1125899906842624, 1, 8)"),
    ((1, 1 << 20, 1 << 9, 1), (1, 1 << 40, 1, 1), {"return_weights": True}, "not enough memory for weights of"),
]


def test_arrays_of_more_than_all_memory_are_told():
    """Broadcast arrays take none themselves."""
    for query, key, options, message in TOO_LARGE:
        with pytest.raises(OutOfMemoryError) as raised:
            fastattn.attention(broadcast(*query), broadcast(*key), broadcast(*key), **options)
        assert message in str(raised.value)


def test_a_batch_without_queries_may_not_be_of_any_size():
    empty = np.empty((1 << 40, 0, 1, 8), np.float32)
    with pytest.raises(InputError, match="query: expected a batch of at most 67108864, got 1099511627776"):
        fastattn.attention(empty, empty, empty)


V = np.ones((4, 8), np.float32)


VECTORS = [
    (X, V[:1, :1], "vector: expected an array of float32 (4, 8), got float32 (1, 1)"),
    (X, V.astype(np.float64), "vector: expected an array of float32 (4, 8), got float64 (4, 8)"),
    (X, 3, "vector: expected an array of float32 (4, 8), got int"),
    (X.astype(np.float16), V, "query: expected float32 for additive attention, got float16"),
]


def test_unfit_vectors_of_additive_attention_are_told():
    for query, vector, message in VECTORS:
        refuses(partial(additive_attention, query, query, query, vector), message)


def test_unknown_options_are_told():
    rows = X.reshape(6, 4, 8), X.reshape(6, 4, 8), X.reshape(6, 4, 8), [0, 6], [0, 6]
    for name in ("layout", "additive_vector", "vector_HD"):
        with pytest.raises(TypeError, match=rf"attention_ragged\(\) got an unexpected keyword argument '{name}'"):
            fastattn.attention_ragged(*rows, **{name: V})
    for name in ("scale", "additive_vector", "colour"):
        with pytest.raises(TypeError, match=rf"additive_attention\(\) got an unexpected keyword argument '{name}'"):
            additive_attention(X, X, X, V, **{name: 1.0})


FLOATS = "expected a NumPy array of float32, float16 or bfloat16 (or its bits, uint16)"


class Tensor:
    """As much of a tensor of torch's as a message looks at."""

    dtype = "torch.bfloat16"

    def detach(self):
        raise AssertionError("it is not read")


OTHER_TYPES = [
    ({"query": X.astype(np.float64)}, f"query: {FLOATS}, got float64; write query.astype(np.float32)"),
    ({"key": X.tolist()}, f"key: {FLOATS}, got list; write np.asarray(key, np.float32)"),
    ({"key": Tensor()}, "(or its bits, uint16), got Tensor; write key.float().numpy(force=True)"),
    ({"value": X.tolist()}, "(or its bits, uint16), got list; write np.asarray(value, np.float32)"),
    ({"bias": X[0, 0].astype(int)}, "bias: expected a NumPy array of float32, got int64; write bias.astype(np.f"),
    ({"mask": Tensor()}, "mask: expected a NumPy array of bool, got Tensor; write mask.float().numpy(force=True)"),
    (
        {"mask": X[0, 0]},
        "mask: expected a NumPy array of bool, got float32; write mask != 0, or bias=mask where it",
    ),
]


def test_arrays_of_other_types_are_told_what_to_write():
    for change, message in OTHER_TYPES:
        refuses(partial(fastattn.attention, **{"query": X, "key": X, "value": X, **change}), message)


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
            ("compute_type", "; here it is left out: it is the arrays' own, computed in float32"),
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


STARTS = [
    (([0, 3, 2, 6], [0, 1, 2, 6]), "query_starts: expected ascending numbers from 0 to 6"),
    (([0, 6], [0, 7]), "key_starts: expected ascending numbers from 0 to 6"),
    (([0, 6], [0, 3, 6]), "key_starts: expected 2 numbers, as query_starts has, got 3"),
    (([0.0, 6.0], [0, 6]), "query_starts: expected integers"),
    (([], [0, 6]), "query_starts: expected integers"),
    (([[0], [1, 6]], [0, 6]), "query_starts: expected integers, one more than sentences, got nested lists"),
]


def test_unfit_starts_are_told():
    for starts, message in STARTS:
        refuses(partial(fastattn.attention_ragged, *(X.reshape(6, 4, 8),) * 3, *starts), message)
