"""Arguments of attention on arrays that do not fit are refused in one line."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import fastattn
from fastattn import BlockMask
from fastattn.array_attention.attention import additive_attention
from fastattn.errors import InputError, OutOfMemoryError
from tests.array_attention.test_attention_arguments import arrays
from tests.messages import refused

X, V = np.zeros((2, 3, 4, 8), np.float32), np.ones((4, 8), np.float32)
ONE = np.ones((1, 1), int)
ROWS, HUGE, OF_4_KEYS = (X.reshape(6, 4, 8),) * 3, -(10**5000), BlockMask(ONE, 3, 4)
TENSOR = SimpleNamespace(dtype="torch.bfloat16", detach=None)  # as much of torch's as a message looks at


# Option -> values of it; of several options: all that is given.
UNFIT = {
    "layout": ["BSHD", ["BTHK"]],
    "query": [
        X[0],
        X[:, :, :0],
        X.astype(np.float64),
        dict.fromkeys(("query", "key", "value"), np.empty((1 << 40, 0, 1, 8), np.float32)),
    ],
    "key": [X.astype(np.float16), X[:1], X.tolist(), TENSOR, {"key": X[:, :, :3], "value": X[:, :, :3]}],
    "value": [X[:, :2], X.tolist()],
    "window": [3, (HUGE, 0), (-1, 0)],
    "lengths": [np.full(2, 9), [1, 2, 3], [1, 4], [1.0, 2.0], [[1], [2, 3]], np.uint64(2**64 - 1)],
    "causal": ["no"],
    "offset": [{"offset": "start", "causal": True}],
    "threads": [np.ones((9, 9)), {"query": X[:0], "key": X[:0], "value": X[:0], "threads": 0}],
    "sinks": [HUGE, -1, np.zeros(3, np.float32), 1.5],
    "scale": [float("nan"), float("inf"), 10**400, "0.5", True],
    "softcap": [-1, float("nan")],
    "mask": [np.ones((3, 3), np.float32), np.ones((3, 4), bool), TENSOR, X[0, 0]],
    "bias": [*(np.zeros(shape, np.float32) for shape in ((2, 4, 3, 4), (1, 2, 4, 3, 3))), np.zeros(3)],
    "block_mask": [3, *(BlockMask(np.ones(shape, int), 3, 3) for shape in ((3, 1, 1, 1), (2, 1, 1))), OF_4_KEYS],
    "out": [np.zeros((2, 3, 4, 9), np.float32), X, X[:, ::-1], np.broadcast_to(np.float32(0), X.shape)],
    "score_mod": [3],
    "return_weights": ["no"],
    "return_logsumexp": [1],
}


@pytest.mark.parametrize("name", UNFIT)
def test_unfit_arguments_are_told(name):
    for value in UNFIT[name]:
        change = value if isinstance(value, dict) else {name: value}
        with refused(InputError, name) as raised:
            fastattn.attention(**{"query": X, "key": X, "value": X, **change})
        assert len(str(raised.value)) < 300


starts = partial(fastattn.attention_ragged, *ROWS)
from_function = partial(BlockMask.from_function, lambda b, h, t, s: s)
OTHERS = [
    *(("vector", additive_attention, (X, X, X, vector)) for vector in (V[:1, :1], V.astype(np.float64), 3)),
    ("query", additive_attention, (*[X.astype(np.float16)] * 3, V)),
    *(("query_starts", starts, (wrong, [0, 6])) for wrong in ([0, 3, 2, 6], [0.0, 6.0], [], [[0], [1, 6]])),
    *(("key_starts", starts, ([0, 6], wrong)) for wrong in ([0, 7], [0, 3, 6])),
    *(("block", BlockMask, (ONE, 3, 3, block)) for block in (2.5, (True, 3))),
    ("queries", BlockMask, (ONE, "3", 3)),
    *(("states", BlockMask, (states, 3, 3)) for states in ([[1], [1, 2]], np.ones((1, 2), int), 3 * ONE)),
    ("H", from_function, (1, 1.5, 3, 3)),
    *(("block", from_function, sizes) for sizes in ((*[np.int64(1 << 40)] * 2, 3, 3), (0, 1, 1 << 50, 1))),
    ("queries", from_function, (0, 1, 1 << 70, 1)),
]


@pytest.mark.parametrize("name, call, given", OTHERS, ids=[row[0] for row in OTHERS])
def test_unfit_vectors_starts_and_blocks_are_told(name, call, given):
    with refused(InputError, name):
        call(*given)


@pytest.mark.parametrize("name", ["bias", "mask", "sinks", "block_mask", "vector"])
def test_a_result_in_the_place_of_what_is_read_is_told(name):
    memory = np.zeros(5 * 16 * 4, np.uint8)
    floats, rows = memory.view(np.float32), arrays(0, 1, 4, 4, 1, 1, 16, 16)
    option = {
        "bias": floats[32:48].reshape(4, 4),
        "mask": memory.view(bool)[:4],
        "sinks": floats[63:64],
        "block_mask": BlockMask(memory[:16].reshape(4, 4), 4, 4, (1, 1)),
        "vector": floats[48:64].reshape(1, 16),
    }[name]
    with refused(InputError, "out", f"some of {name}'s"):
        attention = additive_attention if name == "vector" else fastattn.attention
        attention(*rows, **{name: option}, out=floats[: 4 * 16].reshape(1, 4, 1, 16))


def test_a_result_whose_numbers_have_one_place_is_told():
    rows, memory = arrays(0, 2, 4, 4, 2, 2, 8, 8), np.zeros(2 * 4 * 2 * 8, np.float32)
    whole = memory.reshape(2, 4, 2, 8)
    for strides in ((256, 0, 32, 4), (256, 64, 28, 4)):
        with refused(InputError, "out", "strides"):
            fastattn.attention(*rows, out=np.lib.stride_tricks.as_strided(whole, whole.shape, strides))
    expected, odd = fastattn.attention(*rows), np.full((2, 7, 2, 8), np.nan, np.float32)
    for view in (odd[:, ::2], whole[::-1], whole[:, ::-1, ::-1]):
        np.testing.assert_array_equal(fastattn.attention(*rows, out=view), expected)
    assert np.isnan(odd[:, 1::2]).all()
    single = np.lib.stride_tricks.as_strided(whole[:1, ::-1], (1, 4, 2, 8), (0, -64, 32, 4))  # no axis to step along
    np.testing.assert_array_equal(fastattn.attention(*(x[:1] for x in rows), out=single), expected[:1])


def test_arrays_of_more_than_all_memory_are_told():
    for queries, keys, options in (
        ((1 << 10, 1 << 30, 1, 8), (1 << 10, 1, 1, 8), {}),
        ((1, 1 << 20, 1 << 9, 1), (1, 1 << 40, 1, 1), {"return_weights": True}),
    ):
        with refused(OutOfMemoryError, "not enough memory"):
            fastattn.attention(*(np.broadcast_to(np.float32(1), shape) for shape in (queries, keys, keys)), **options)


ELSEWHERE = "softmax_scale", "compute_type", "sofcap", "colour"
UNKNOWN = {
    fastattn.attention: ((X, X, X), (*ELSEWHERE, "is_causal")),
    fastattn.attention_ragged: ((*ROWS, [0, 6], [0, 6]), ("layout", "additive_vector", "vector_HD")),
    additive_attention: ((X, X, X, V), ("scale", "additive_vector", "colour")),
    fastattn.KVCache(2, 4, 8).attend: ((X,), ("sofcap", "causal")),
}


@pytest.mark.parametrize("function", UNKNOWN, ids=lambda function: function.__name__)
def test_unknown_options_are_told_and_what_they_are_called_here(function):
    given, names = UNKNOWN[function]
    for name in names:
        with refused(TypeError, f"{function.__name__}() got an unexpected keyword argument '{name}'"):
            function(*given, **{name: 1})
