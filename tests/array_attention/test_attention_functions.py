"""score_mod, mask_mod and BlockMask.from_function in fastattn.attention, against arrays of the same."""

import numpy as np
import pytest

import fastattn
from fastattn import BlockMask, attention
from fastattn.errors import InputError
from fastattn.runtime.compiling import on_compile
from tests.array_attention.formula import attend
from tests.array_attention.test_attention_errors import refuses
from tests.user_functions.kernels import seen

T, S, H = 150, 300, 4
RNG = np.random.default_rng(0)
DOCUMENTS = np.sort(RNG.integers(0, 5, S)).astype(np.int32)
SLOPES = (2.0 ** -np.arange(1, H + 1)).astype(np.float32)
LENGTHS = np.array([300, 7])


def arrays(T=T, S=S, K=24):
    shapes = ((2, T, H, K), (2, S, 2, K), (2, S, 2, 16))
    return [np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n, shape in enumerate(shapes)]


# Functions that differ in what they capture alone are compiled once: a kernel of attention takes seconds.
def causal(offset):
    return lambda b, h, t, s: s <= t + offset


def prefix(lengths, offset):
    return lambda b, h, t, s: s < lengths[b] or s <= t + offset


def sloped(slopes):
    return lambda score, b, h, t, s: 2 * score + slopes[h] * (s - t)


def distances(slopes, T, S):
    return slopes[:, None, None] * (np.arange(S) - np.arange(T)[:, None])


offset_causal, triangle = causal(150), causal(0)


def sliding(b, h, t, s):
    return (s <= t + 150) & (t + 150 - s < 40)


def documents(b, h, t, s):
    return DOCUMENTS[t + 150] == DOCUMENTS[s]


def by_head(b, h, t, s):
    return s % (h + 2) == 0


MASKS = {
    "causal": offset_causal,
    "documents": documents,
    "prefix": prefix(LENGTHS, 100),
    "sliding": sliding,
    "by_head": by_head,
}
SLOW = "sliding", "by_head"


def as_array(mask_mod, B=2, heads=H, T=T, S=S):
    axes = np.ogrid[:B, :heads, :T, :S]
    return np.broadcast_to(np.vectorize(mask_mod, otypes=[bool])(*axes), (B, heads, T, S))


@pytest.mark.parametrize(
    "mask_mod",
    [pytest.param(one, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, one in MASKS.items()],
)
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
    distance = distances(SLOPES, T, S)
    expected = attend(query, key, value, softcap=3.0, bias=bias, score_mod=lambda scores: 2 * scores + distance)
    got = attention(
        query, key, value, softcap=3.0, bias=bias, score_mod=sloped(SLOPES), return_weights=True, return_logsumexp=True
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


@pytest.mark.slow
def test_either_of_two_masks():
    query, key, value = arrays()
    either = attention(query, key, value, mask_mod=fastattn.or_masks(sliding, by_head))
    np.testing.assert_array_equal(either, attention(query, key, value, mask=as_array(sliding) | as_array(by_head)))


def test_captured_values_that_change_compile_nothing():
    query, key, value = arrays(9, 20)
    slopes = np.zeros(H, np.float32)
    score_mod = sloped(slopes)
    attention(query, key, value, score_mod=score_mod)
    compiled = []
    on_compile(compiled.append)
    for seed in range(3):
        slopes[...] = np.random.default_rng(seed).standard_normal(H)
        distance = distances(slopes, 9, 20)
        got = attention(query, key, value, score_mod=score_mod)
        expected = attend(query, key, value, score_mod=lambda scores: 2 * scores + distance)[0]  # noqa: B023
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)
    assert not compiled


def test_a_ragged_batch_counts_positions_within_its_sentences():
    rows = [x[0, :30] for x in arrays(30, 30)]
    starts = np.array([0, 11, 11, 30])
    lengths = np.array([5, 1, 2])
    got = fastattn.attention_ragged(*rows, starts, starts, mask_mod=prefix(lengths, -2))
    for b, (first, stop) in enumerate(zip(starts[:-1], starts[1:])):
        if first < stop:
            at = np.arange(stop - first)
            mask = (at < lengths[b]) | (at <= at[:, None] - 2)
            alone = attention(*(x[None, first:stop] for x in rows), mask=mask)
            np.testing.assert_array_equal(got[first:stop], alone[0])


def test_a_second_mask_beside_a_block_mask_is_refused():
    query, key, value = arrays()
    blocks = BlockMask.from_function(offset_causal, 1, 1, T, S)
    for one in (blocks, BlockMask.from_mask(np.ones((T, S), bool)), BlockMask(np.ones((2, 3), int), T, S)):
        with pytest.raises(
            InputError, match="mask_mod: expected none beside a block_mask, but the one that it was made"
        ):
            attention(query, key, value, block_mask=one, mask_mod=sliding)
    attention(query, key, value, block_mask=blocks, mask_mod=offset_causal)


@pytest.mark.parametrize(
    "sizes, message",
    [
        ((1, 1, -1, 3), "queries: expected a number from 0 to 2**60, got -1"),
        ((1, 1.5, 3, 3), "H: expected a number from 0 to 2**60, got 1.5"),
        ((1 << 20, 1 << 20, 3, 3), "block: expected one so large that there are at most"),
        ((np.int64(1 << 40), np.int64(1 << 40), 3, 3), "block: expected one so large that there are at most"),
        ((0, 1, 1 << 50, 1), "block: expected one so large that there are at most"),
        ((0, 1, 1 << 70, 1), "queries: expected a number from 0 to 2**60, got 1180591620717411303424"),
    ],
)
def test_unfit_sizes_of_blocks_are_told(sizes, message):
    refuses(lambda: BlockMask.from_function(offset_causal, *sizes), message)


@pytest.mark.parametrize("seen, same", [(True, causal(T + S)), (False, causal(-T - S))])
def test_blocks_have_the_last_word_where_a_function_is_the_same_everywhere(seen, same):
    """A tile has blocks in several states: what the function says of all its keys counts for some of them only."""
    query, key, value = arrays()
    states = np.array([[0, 2, 1], [1, 0, 2], [2, 1, 0]])
    shown = np.where(states == 1, seen, states == 2).repeat(64, axis=0)[:T].repeat(128, axis=1)[:, :S]
    blocks = BlockMask(states, T, S, (64, 128), mask_mod=same)
    np.testing.assert_array_equal(
        attention(query, key, value, block_mask=blocks), attention(query, key, value, mask=shown)
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((np.ones((1, 1), int), 3, 3, 2.5), "block: expected (queries, keys) from 1 to 1048576, got 2.5"),
        ((np.ones((1, 1), int), 3, 3, (True, 3)), "block: expected (queries, keys) from 1 to 1048576, got (True, 3)"),
        ((np.ones((1, 1), int), "3", 3), "queries: expected a number from 0 to 2**60, got '3'"),
        ((np.ones((1, 1), int), 3, 3.0), "keys: expected a number from 0 to 2**60, got 3.0"),
        (([[1], [1, 2]], 3, 3), "states: expected blocks (1, 1), got nested lists"),
        ((np.ones((1, 2), int), 3, 3), "states: expected blocks (1, 1) in the last axes, got shape (1, 2)"),
        ((np.full((1, 1), 3), 3, 3), "states: expected 0 (none are seen), 1 (some are) or 2 (all are)"),
    ],
)
def test_unfit_blocks_are_told(arguments, message):
    refuses(lambda: BlockMask(*arguments), message)


@pytest.mark.parametrize(
    "change", [{"block": (1, 1)}, {"queries": 2 * T}, {"states_BHTS": np.ones((1, 1, 1, 1), np.uint8)}]
)
def test_blocks_that_were_changed_are_told(change):
    blocks = BlockMask(np.ones((2, 3), int), T, S)
    for name, value in change.items():
        setattr(blocks, name, value)
    query, key, value = arrays(T=blocks.queries)
    with pytest.raises(InputError, match="block_mask: expected states, queries, keys and block as they were made"):
        attention(query, key, value, block_mask=blocks)


def test_rows_of_blocks_take_no_memory_each():
    """But a piece of scratch for each thread."""
    blocks = BlockMask.from_function(triangle, 1, 1, 1 << 27, 1, block=(1, 1))
    assert (blocks.states_BHTS == 2).all()


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


@pytest.mark.parametrize(
    "mask_mod",
    [lambda b, h, t, s: 0.5 * b, lambda b, h, t, s: s % 3, lambda b, h, t, s: 1, lambda b, h, t, s: LENGTHS[1] - s],
)
def test_a_number_as_a_mask_hides_where_it_is_zero(mask_mod, request):
    mask = as_array(mask_mod, T=9, S=20)
    states = BlockMask.from_function(mask_mod, 2, H, 9, 20, 8).states_BHTS
    np.testing.assert_array_equal(states, BlockMask.from_mask(mask, 8).states_BHTS)
    np.testing.assert_array_equal(seen(mask_mod, 9, 20, 1, 3), mask[1, 3])
    if request.node.callspec.indices["mask_mod"] == 0:  # attention asks in the same way
        query, key, value = arrays(9, 20)
        expected = attention(query, key, value, mask=mask)
        np.testing.assert_array_equal(attention(query, key, value, mask_mod=mask_mod), expected)
