"""score_mod, mask_mod and BlockMask.from_function in fastattn.attention, against arrays of the same."""

import numpy as np
import pytest

import fastattn
from fastattn import BlockMask, attention
from fastattn.errors import InputError
from fastattn.runtime.jit import on_compile
from tests.functional.formula import attend

T, S, H = 150, 300, 4
RNG = np.random.default_rng(0)
DOCUMENTS = np.sort(RNG.integers(0, 5, S)).astype(np.int32)
SLOPES = (2.0 ** -np.arange(1, H + 1)).astype(np.float32)
LENGTHS = np.array([300, 7])


def arrays(T=T, S=S, K=24):
    shapes = ((2, T, H, K), (2, S, 2, K), (2, S, 2, 16))
    return [np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n, shape in enumerate(shapes)]


def offset_causal(b, h, t, s):
    return s <= t + 150


def sliding(b, h, t, s):
    return (s <= t + 150) & (t + 150 - s < 40)


def documents(b, h, t, s):
    return DOCUMENTS[t + 150] == DOCUMENTS[s]


def prefix(b, h, t, s):
    return s < LENGTHS[b] or s <= t + 100


def by_head(b, h, t, s):
    return s % (h + 2) == 0


MASKS = [offset_causal, sliding, documents, prefix, by_head]


def as_array(mask_mod, B=2, heads=H, T=T, S=S):
    axes = np.ogrid[:B, :heads, :T, :S]
    return np.broadcast_to(np.vectorize(mask_mod, otypes=[bool])(*axes), (B, heads, T, S))


@pytest.mark.parametrize("mask_mod", MASKS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("rows", [T, 1])
def test_a_mask_as_function_array_and_blocks_has_the_same_bits(mask_mod, rows):
    query, key, value = arrays()
    query = query[:, :rows]
    mask = as_array(mask_mod)[:, :, :rows]
    got = attention(query, key, value, mask_mod=mask_mod, return_weights=True, return_logsumexp=True)
    for options in ({"mask": mask}, {"block_mask": BlockMask.from_mask(mask, (32, 64))}):
        for one, other in zip(
            got, attention(query, key, value, **options, return_weights=True, return_logsumexp=True), strict=True
        ):
            np.testing.assert_array_equal(one, other)
    for block in (128, (40, 33)):
        blocks = BlockMask.from_function(mask_mod, 2, H, rows, S, block)
        np.testing.assert_array_equal(blocks.states_BHTS, BlockMask.from_mask(mask, block).states_BHTS)
        np.testing.assert_array_equal(attention(query, key, value, block_mask=blocks), got[0])
    np.testing.assert_allclose(got[0], attend(query, key, value, mask=mask)[0], atol=2e-6)


def test_a_function_of_scores_comes_after_the_cap_and_before_the_bias():
    query, key, value = arrays()
    bias = RNG.standard_normal((T, S)).astype(np.float32)

    def score_mod(score, b, h, t, s):
        return 2 * score + SLOPES[h] * (s - t)

    distance = SLOPES[:, None, None] * (np.arange(S) - np.arange(T)[:, None])
    expected = attend(query, key, value, softcap=3.0, bias=bias, score_mod=lambda scores: 2 * scores + distance)
    got = attention(
        query, key, value, softcap=3.0, bias=bias, score_mod=score_mod, return_weights=True, return_logsumexp=True
    )
    for one, oracle in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, oracle, rtol=2e-5, atol=5e-5)  # scores of 150


def test_functions_together():
    query, key, value = arrays()
    mask = as_array(fastattn.and_masks(offset_causal, documents))
    expected = attend(query, key, value, mask=mask, score_mod=lambda scores: 5 * np.tanh(scores / 5))[0]
    got = attention(
        query,
        key,
        value,
        score_mod=lambda score, b, h, t, s: 5 * np.tanh(score / 5),
        mask_mod=fastattn.and_masks(offset_causal, documents),
    )
    np.testing.assert_allclose(got, expected, atol=3e-6)
    either = attention(query, key, value, mask_mod=fastattn.or_masks(sliding, by_head))
    np.testing.assert_array_equal(either, attention(query, key, value, mask=as_array(sliding) | as_array(by_head)))


def test_captured_values_that_change_compile_nothing():
    query, key, value = arrays(9, 20)
    table = np.zeros((H, 20), np.float32)

    def score_mod(score, b, h, t, s):
        return score + table[h, s]

    attention(query, key, value, score_mod=score_mod)
    compiled = []
    on_compile(compiled.append)
    for seed in range(3):
        table[...] = np.random.default_rng(seed).standard_normal(table.shape)
        got = attention(query, key, value, score_mod=score_mod)
        expected = attend(query, key, value, bias=table[None, :, None])[0]
        np.testing.assert_allclose(got, expected, atol=2e-6)
    assert not compiled


def test_a_ragged_batch_counts_positions_within_its_sentences():
    rows = [x[0, :30] for x in arrays(30, 30)]
    starts = np.array([0, 11, 11, 30])

    def mask_mod(b, h, t, s):
        return (s <= t) & (s + b != 3)

    got = fastattn.attention_ragged(*rows, starts, starts, mask_mod=mask_mod)
    for b, (first, stop) in enumerate(zip(starts[:-1], starts[1:])):
        if first < stop:
            at = np.arange(stop - first)
            mask = (at <= at[:, None]) & (at + b != 3)
            alone = attention(*(x[None, first:stop] for x in rows), mask=mask)
            np.testing.assert_array_equal(got[first:stop], alone[0])


def test_a_second_mask_beside_a_block_mask_is_refused():
    query, key, value = arrays()
    blocks = BlockMask.from_function(offset_causal, 1, 1, T, S)
    with pytest.raises(InputError, match="mask_mod: expected none beside a block_mask made of another"):
        attention(query, key, value, block_mask=blocks, mask_mod=sliding)


@pytest.mark.parametrize(
    "sizes, message",
    [
        ((1, 1, -1, 3), "queries: expected a number from 0 on, got -1"),
        ((1, 1.5, 3, 3), "H: expected a number from 0 on, got 1.5"),
        ((1 << 20, 1 << 20, 3, 3), "block: expected one so large that there are at most"),
        ((1 << 20, 1 << 20, 3, 0), "block: expected one so large that there are at most"),
    ],
)
def test_unfit_sizes_of_blocks_are_told(sizes, message):
    with pytest.raises(InputError) as raised:
        BlockMask.from_function(offset_causal, *sizes)
    assert message in str(raised.value)


@pytest.mark.parametrize("block", [64, (100, 32)])
@pytest.mark.parametrize("state", [0, 2])
def test_blocks_that_hide_or_show_more_than_their_function(block, state):
    query, key, value = arrays(T=S)
    sides = (block, block) if isinstance(block, int) else block
    states = np.where(RNG.random((-(-S // sides[0]), -(-S // sides[1]))) < 0.4, state, 1)
    decided = states.repeat(sides[0], axis=0).repeat(sides[1], axis=1)[:S, :S]
    mask = np.where(decided == 1, as_array(triangle, 1, 1, S)[0, 0], decided == 2)
    got = attention(query, key, value, block_mask=BlockMask(states, S, S, block, triangle))
    np.testing.assert_array_equal(got, attention(query, key, value, mask=mask))


def triangle(b, h, t, s):
    return s <= t


@pytest.mark.parametrize(
    "mask_mod",
    [lambda b, h, t, s: s % 3, lambda b, h, t, s: 1, lambda b, h, t, s: LENGTHS[1] - s, lambda b, h, t, s: 0.5 * b],
)
def test_a_number_as_a_mask_hides_where_it_is_zero(mask_mod):
    query, key, value = arrays(9, 20)
    expected = attention(query, key, value, mask=as_array(mask_mod, T=9, S=20))
    np.testing.assert_array_equal(attention(query, key, value, mask_mod=mask_mod), expected)
    states = BlockMask.from_function(mask_mod, 2, H, 9, 20, 8).states_BHTS
    np.testing.assert_array_equal(states, BlockMask.from_mask(as_array(mask_mod, T=9, S=20), 8).states_BHTS)
