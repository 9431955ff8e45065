"""The fused attention kernel and the public function over it: against the oracle, and bit for bit against itself."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastattn
from bench.operations.attention import attention
from fastattn.arguments.attention import Heads, KeyIndex, RaggedBatch
from fastattn.kernels.attention.arguments import COLUMNS, KEYS, ROWS
from fastattn.ops import cpu as operations
from fastattn.simd.target import TARGET, X86_TARGETS
from tests.array_attention.formula import attend
from tests.kernels.cases import check, normal

# Lengths around the tile of rows, the panel of keys and the block of keys.
EDGES = sorted({1, 2, ROWS - 1, ROWS, ROWS + 1, COLUMNS - 1, COLUMNS, COLUMNS + 1, KEYS - 1, KEYS, KEYS + 1, 307})
EVERY_WIDTH = (1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 47, 64, 65, 80, 96, 128, 160, 256)


def test_lengths_widths_and_sizes_beyond_the_table():
    for length in EDGES:
        check(attention((length, 3), (307, length), 2, 1, 24), operations)
        check(attention((length,), (length,), 2, 2, 24, causal=True), operations)
    for width in EVERY_WIDTH:
        check(attention((9, 20), (40, 11), 2, 2, width, causal=True, offset=(20, 3)), operations)
    check(attention((150, 7), (150, 7), 8, 2, 64, causal=True), operations)
    check(attention((500,), (31,), 5, 1, 256), operations)
    for size in (1e-30, 1e8):
        check(attention((19, 30), (300, 40), 2, 1, 16, size=size), operations)


def test_bias_that_hides_whole_blocks_of_keys():
    query, key = normal(1, 1, 7, 1, 16), normal(2, 1, 2 * KEYS + 5, 1, 16)
    for first, last in ((0, KEYS + 3), (5, 2 * KEYS + 5), (KEYS, 2 * KEYS)):
        bias = np.zeros(2 * KEYS + 5, np.float32)
        bias[first:last] = -np.inf
        expected, *_ = attend(query, *2 * [np.delete(key, np.s_[first:last], axis=1)])
        np.testing.assert_allclose(fastattn.attention(query, key, key, bias=bias), expected, atol=2e-6)


def test_scores_that_grow_and_fall_along_the_keys():
    key = np.linspace(-60, 60, 3 * KEYS + 7, dtype=np.float32)[:, None] * np.ones(4, np.float32)
    value = normal(3, len(key), 4)
    for one in (key, key[::-1].copy()):
        arrays = [x[None, :, None] for x in (np.ones((2, 4), np.float32), one, value)]
        np.testing.assert_allclose(fastattn.attention(*arrays), attend(*arrays)[0], atol=2e-5)


def test_subnormal_numbers_are_dropped_in_attention_alone():
    """On x86: there a core may take 150 cycles for each sum with one, and steep biases give many."""
    tiny, zeros = np.full((40, 16), 1e-40, np.float32), np.zeros((40, 16), np.float32)
    starts = np.array([0, 40])
    key_index = KeyIndex(np.arange(40, dtype=np.int32)[None], np.full(1, 40), None)
    with operations.use_threads(1):
        whole = operations.attention(zeros, zeros, tiny, RaggedBatch(starts, starts, None), Heads(1, 1, 16))
        step = operations.attention_step(zeros[:1], zeros, tiny, key_index, Heads(1, 1, 16))
        expected = 0 if TARGET.name in X86_TARGETS else 1e-40
        for rows in (whole, step):
            np.testing.assert_allclose(rows, expected, rtol=1e-3)
        assert tiny[0, 0] * np.float32(0.5) > 0, "of this thread the calls leave subnormal numbers as they were"


def test_subnormal_results_and_operands_are_dropped():
    """Each by a bit of its own: results of normal numbers, and operands whose results are normal."""
    if TARGET.name not in X86_TARGETS:
        pytest.skip("x86")
    starts, key_index = np.array([0, 2]), KeyIndex(np.arange(2, dtype=np.int32)[None], np.full(1, 2), None)
    zeros, small = np.zeros((2, 16), np.float32), np.full((2, 16), 2e-38, np.float32)
    small[1] = 0
    tiny, great = np.full((2, 16), 1e-39, np.float32), np.full((2, 16), 1e38, np.float32)
    tiny[1] = 0
    ones = np.zeros((2, 16), np.float32)
    ones[0] = 1
    with operations.use_threads(1):
        for query, key, value, expected in ((zeros, zeros, small, 0), (great, tiny, ones, 0.5)):
            whole = operations.attention(query, key, value, RaggedBatch(starts, starts, None), Heads(1, 1, 16))
            step = operations.attention_step(query[:1], key, value, key_index, Heads(1, 1, 16))
            np.testing.assert_array_equal(whole, expected)
            np.testing.assert_array_equal(step, expected)


def test_helpers_keep_subnormal_numbers_after_attention():
    starts = np.arange(0, 65 * 64, 64)
    rows = normal(4, 64 * 64, 64)
    tiny = np.full((4096, 64), 1e-40, np.float32)
    halves = operations.pack_linear(np.full((64, 64), 0.5, np.float32), None, "float32")
    with operations.use_threads(2):
        for _ in range(30):
            operations.attention(rows, rows, rows, RaggedBatch(starts, starts, None), Heads(4, 4, 16))
            assert operations.linear(tiny, halves).all()


def test_nan_is_not_swallowed():
    query, key = normal(4, 1, 8, 1, 8), normal(5, 1, 20, 1, 8)
    for number in (np.nan, np.inf):
        query[0, 3] = number
        for softcap in (0.0, 2.0):
            out = fastattn.attention(query, key, key, softcap=softcap)[0, :, 0]
            assert np.isnan(out[3]).all() and np.isfinite(np.delete(out, 3, axis=0)).all()


def test_blocks_of_keys_that_no_row_sees_are_not_read():
    """A window costs what it keeps: numbers in the keys between the sinks and the window do not matter."""
    query, key = normal(1, 1, 9, 2, 12), normal(2, 1, 4 * KEYS, 2, 12)
    attention = partial(fastattn.attention, causal=True, offset="end", window=(29, 0), sinks=5)
    expected = attention(query, key, key)
    key[:, KEYS : 3 * KEYS] = np.nan
    np.testing.assert_array_equal(attention(query, key, key), expected)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    causal=st.booleans(),
    window=st.sampled_from([0, 1, 40]),
    softcap=st.sampled_from([0.0, 1.5]),
    threads=st.integers(1, 2),
    data=st.data(),
)
def test_a_sentence_has_the_same_bits_in_any_batch(lengths, causal, window, softcap, threads, data):
    order = data.draw(st.permutations(range(len(lengths))))
    heads = Heads(4, 2, 12, key_column=48, value_column=72, softcap=softcap)
    sentences = [normal(n, length, 96) for n, length in enumerate(lengths)]

    def run(chosen):
        rows = np.concatenate([sentences[n] for n in chosen])
        starts = np.concatenate([[0], np.cumsum([lengths[n] for n in chosen])]).astype(np.int64)
        seen_N2 = operations.seen_around(
            starts, np.diff(starts), np.zeros(1, np.int64), window - 1, 0 if causal else -1
        )
        with operations.use_threads(threads):
            out = operations.attention(rows, rows, rows, RaggedBatch(starts, starts, seen_N2, sinks=2), heads)
            return np.split(out, starts[1:-1])

    together = run(order)
    with operations.use_threads(1):
        for n, out in zip(order, together):
            np.testing.assert_array_equal(out, run([n])[0])


@settings(max_examples=25, deadline=None)
@given(
    length=st.integers(1, KEYS + 40), extra=st.integers(1, 60), seed=st.integers(0, 9), cap=st.sampled_from([0.0, 2.0])
)
def test_later_keys_and_queries_change_no_bit_of_causal_attention(length, extra, seed, cap):
    rows = normal(seed, 1, length + extra, 3, 8)
    attention = partial(fastattn.attention, causal=True, softcap=cap)
    shorter = attention(*[rows[:, :length]] * 3)
    np.testing.assert_array_equal(attention(*[rows] * 3)[:, :length], shorter)
    # a cached step: the last query alone, at its offset
    step = attention(rows[:, length - 1 : length], rows, rows, offset=length - 1)
    np.testing.assert_array_equal(step[:, 0], shorter[:, -1])


def test_padding_changes_no_bit():
    query, key, lengths = normal(1, 3, 9, 2, 16), normal(2, 3, 50, 2, 16), [0, 5, 37]
    padded = np.where((np.arange(50) < np.array(lengths)[:, None])[:, :, None, None], key, np.float32(np.nan))
    for softcap in (0.0, 0.7):
        attention = partial(fastattn.attention, query, lengths=lengths, softcap=softcap)
        np.testing.assert_array_equal(attention(padded, padded), attention(key, key))
