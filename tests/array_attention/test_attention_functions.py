"""score_mod, mask_mod and BlockMask.from_function in fastattn.attention, against arrays of the same."""

import tracemalloc

import numpy as np
import pytest

import fastattn
from fastattn import BlockMask, attention
from fastattn.errors import InputError
from tests.array_attention.formula import attend
from tests.messages import refused
from tests.user_functions.kernels import seen

T, S, H = 150, 300, 4
RNG = np.random.default_rng(0)
DOCUMENTS = np.sort(RNG.integers(0, 5, S)).astype(np.int32)
SLOPES = (2.0 ** -np.arange(1, H + 1)).astype(np.float32)
LENGTHS = np.array([300, 7])


def arrays(T=T, S=S, K=24):
    shapes = ((2, T, H, K), (2, S, 2, K), (2, S, 2, 16))
    return [np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n, shape in enumerate(shapes)]


# Functions that differ in what they capture alone are compiled once: a kernel of attention takes seconds. So these two
# serve all tests.
def mixed_of(offset, lengths, of_query=DOCUMENTS[150:], of_key=DOCUMENTS):
    """A mask_mod with a mask of its own for each of four heads: causal, documents, a prefix, a window."""

    def mixed(b, h, t, s):
        if h == 0:
            return s <= t + offset
        if h == 1:
            return of_query[t] == of_key[s]
        if h == 2:
            return s < lengths[b] or s <= t + offset
        return (s <= t + offset) & (t + offset - s < 40)

    return mixed


def sloped(slopes):
    return lambda score, b, h, t, s: 2 * score + slopes[h] * (s - t)


mixed = mixed_of(150, LENGTHS)


def as_array(mask_mod, B=2, heads=H, T=T, S=S):
    axes = np.ogrid[:B, :heads, :T, :S]
    return np.broadcast_to(np.vectorize(mask_mod, otypes=[bool])(*axes), (B, heads, T, S))


MASK = as_array(mixed)


@pytest.mark.parametrize("rows", [T, 1])
def test_a_mask_as_function_array_and_blocks_has_the_same_bits(rows):
    query, key, value = arrays()
    query, mask = query[:, :rows], MASK[:, :, :rows]
    assert all(0 < of_head.mean() < 1 for of_head in mask.swapaxes(0, 1))
    results = {"return_weights": True, "return_logsumexp": True}
    got = attention(query, key, value, mask_mod=mixed, **results)
    for options in ({"mask": mask}, {"block_mask": BlockMask.from_mask(mask, (32, 64))}):
        for one, other in zip(got, attention(query, key, value, **options, **results), strict=True):
            np.testing.assert_array_equal(one, other)
    for block in (128, (40, 33)):
        blocks = BlockMask.from_function(mixed, 2, H, rows, S, block)
        np.testing.assert_array_equal(blocks.states_BHTS, BlockMask.from_mask(mask, block).states_BHTS)
        np.testing.assert_array_equal(attention(query, key, value, block_mask=blocks), got[0])
    np.testing.assert_allclose(got[0], attend(query, key, value, mask=mask)[0], atol=2e-6)


def test_a_function_of_scores_comes_after_the_cap_and_before_the_bias():
    query, key, value = arrays()
    bias = RNG.standard_normal((T, S)).astype(np.float32)
    distance = SLOPES[:, None, None] * (np.arange(S) - np.arange(T)[:, None])
    options = {"softcap": 3.0, "bias": bias}
    expected = attend(query, key, value, **options, mask=MASK, score_mod=lambda scores: 2 * scores + distance)
    functions = {"score_mod": sloped(SLOPES), "mask_mod": mixed}
    got = attention(query, key, value, **options, **functions, return_weights=True, return_logsumexp=True)
    for one, oracle in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, oracle, rtol=2e-5, atol=5e-5)  # scores of 150


def test_a_ragged_batch_counts_positions_within_its_sentences():
    rows = [x[0, :30] for x in arrays(30, 30)]
    starts = np.array([0, 11, 11, 30])
    mask_mod = mixed_of(-2, np.array([5, 1, 2]), of_query=DOCUMENTS[::9].copy(), of_key=DOCUMENTS[::9].copy())
    mask = as_array(mask_mod, 3, H, 19, 19)
    got = fastattn.attention_ragged(*rows, starts, starts, mask_mod=mask_mod)
    for b, (first, stop) in enumerate(zip(starts[:-1], starts[1:])):
        if first < stop:
            own = mask[b, :, : stop - first, : stop - first]
            alone = attention(*(x[None, first:stop] for x in rows), mask=own)
            np.testing.assert_array_equal(got[first:stop], alone[0])


def test_a_second_mask_beside_a_block_mask_is_refused():
    query, key, value = arrays()
    blocks = BlockMask.from_function(mixed, 1, 1, T, S)
    for one in (blocks, BlockMask.from_mask(np.ones((T, S), bool)), BlockMask(np.ones((2, 3), int), T, S)):
        with refused(InputError, "mask_mod"):
            attention(query, key, value, block_mask=one, mask_mod=lambda b, h, t, s: s <= t)
    attention(query, key, value, block_mask=blocks, mask_mod=mixed)


def test_blocks_that_were_changed_are_told():
    for change in ({"block": (1, 1)}, {"queries": 2 * T}, {"states_BHTS": np.ones((1, 1, 1, 1), np.uint8)}):
        blocks = BlockMask(np.ones((2, 3), int), T, S)
        for name, value in change.items():
            setattr(blocks, name, value)
        query, key, value = arrays(T=blocks.queries)
        with refused(InputError, "block_mask"):
            attention(query, key, value, block_mask=blocks)


def test_rows_of_blocks_take_no_memory_each():
    later = mixed_of(0, LENGTHS)
    BlockMask.from_function(later, 1, 1, 3, 1, block=(1, 1))  # compiled
    tracemalloc.start()
    blocks = BlockMask.from_function(later, 1, 1, 1 << 22, 1, block=(1, 1))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (blocks.states_BHTS == 2).all() and most < 3 * blocks.states_BHTS.nbytes


# A function that shows all, none or some; and blocks that hide or show all beside those that leave it to the function.
@pytest.mark.parametrize("offset, state", [(2 * S, None), (-2 * S, None), (0, 0), (0, 2)])
def test_blocks_have_the_last_word(offset, state):
    """A tile has blocks in several states: what the function says of all its keys counts for some of them only."""
    query, key, value = arrays(T=S)
    function = mixed_of(offset, LENGTHS, of_query=DOCUMENTS)
    mask = as_array(function, T=S)
    for sides in ((64, 128), (64, 64), (100, 32)):
        drawn = RNG.random((-(-S // sides[0]), -(-S // sides[1])))
        states = (3 * drawn).astype(int) if state is None else np.where(drawn < 0.4, state, 1)
        decided = states.repeat(sides[0], axis=0).repeat(sides[1], axis=1)[:S, :S]
        got = attention(query, key, value, block_mask=BlockMask(states, S, S, sides, function))
        shown = np.where(decided == 1, mask, decided == 2)
        np.testing.assert_array_equal(got, attention(query, key, value, mask=shown))


def whole_number(b, h, t, s):
    return s % 3 if h == 0 else 1 if h == 1 else LENGTHS[1] - s if h == 2 else 0


@pytest.mark.parametrize("mask_mod", [whole_number, lambda b, h, t, s: 0.5 * b], ids=["whole", "float"])
def test_a_number_as_a_mask_hides_where_it_is_zero(mask_mod):
    mask = as_array(mask_mod, T=9, S=20)
    states = BlockMask.from_function(mask_mod, 2, H, 9, 20, 8).states_BHTS
    np.testing.assert_array_equal(states, BlockMask.from_mask(mask, 8).states_BHTS)
    for h in range(H):
        np.testing.assert_array_equal(seen(mask_mod, 9, 20, 1, h), mask[1, h])


def test_a_mask_may_compare_subnormal_numbers():
    query, key, value = arrays(8, 64)
    weight_S = np.full(64, 1e-40, np.float32)
    found = attention(query, key, value, mask_mod=lambda b, h, t, s: weight_S[s] > 0)
    np.testing.assert_array_equal(found, attention(query, key, value))
