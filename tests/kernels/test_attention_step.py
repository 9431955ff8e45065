"""One cached step: against the oracle, against the prefill kernel, and insensitive to where the keys lie."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.operations.attention import attention_step
from fastattn.arguments.attention import Heads, KeyIndex
from fastattn.kernels.attention.arguments import GROUP_ROWS
from fastattn.kernels.attention.step import VALUE_KEYS
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.simd.target import LANES
from tests.kernels.cases import check, normal

EDGES = sorted({0, 1, LANES - 1, LANES, LANES + 1, VALUE_KEYS - 1, VALUE_KEYS, VALUE_KEYS + 1, 131})
HEADS = Heads(4, 2, 11, value_column=22)


def test_lengths_widths_and_sizes_beyond_the_table():
    for length in EDGES:
        check(attention_step((length, 3, 0, length), 4, 2, 32, bias=True), operations)
    for width in (1, 3, 7, 8, 9, 16, 31, 32, 33, 40, 63, 64, 72, 100, 128, 256):
        check(attention_step((5, 12), 2, 1, width), operations)
    for size in (1e-30, 1e8):
        check(attention_step((20, 7), 2, 2, 16, size=size), operations)
    check(attention_step(tuple(range(1, 200)), 2, 2, 8), operations)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    seed=st.integers(0, 99),
    softcap=st.sampled_from([0.0, 0.9]),
)
def test_neither_places_nor_neighbours_change_a_bit(lengths, seed, softcap):
    """The same keys in shuffled rows of a larger cache, other rows around, and garbage past each row's length."""
    rng = np.random.default_rng(seed)
    rows, longest = len(lengths), max(lengths)
    query_RE, cache_ME = normal(seed, rows, 44), normal(seed + 1, 60, 44)
    index_RS = rng.integers(0, 60, (rows, longest)).astype(np.int32)
    bias_RHS = normal(seed + 2, rows, 4, longest)
    lengths_R, heads = np.array(lengths, np.int64), HEADS._replace(softcap=softcap)
    seen = KeyIndex(index_RS, lengths_R)
    out_RF = operations.attention_step(query_RE, cache_ME, cache_ME, seen, heads, bias_NHS=bias_RHS)

    places = rng.permutation(90)[:60].astype(np.int32)
    elsewhere_ME = np.full((90, 44), np.nan, np.float32)
    elsewhere_ME[places] = cache_ME
    moved_RS = np.full((rows, longest + 3), 2**31 - 1, np.int32)
    longer_RHS = np.full((rows, 4, longest + 3), np.nan, np.float32)
    for r, length in enumerate(lengths):
        moved_RS[r, :length] = places[index_RS[r, :length]]
        longer_RHS[r, :, :length] = bias_RHS[r, :, :length]
    for r in range(rows):
        alone = slice(r, r + 1)
        got = operations.attention_step(
            query_RE[alone], elsewhere_ME, elsewhere_ME, KeyIndex(moved_RS[alone], lengths_R[alone]), heads,
            bias_NHS=longer_RHS[alone],
        )  # fmt: skip
        np.testing.assert_array_equal(got[0], out_RF[r])


@settings(max_examples=40, deadline=None)
@given(
    parents=st.lists(st.integers(0, 20), min_size=2, max_size=2 * GROUP_ROWS + 3),
    width=st.sampled_from([7, 11, 64, 100]),
    additive=st.booleans(),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_rows_that_share_keys_give_what_they_give_alone(parents, width, additive, seed, data):
    """Each row branches off an earlier one, as beams do: at its start, within it, at its end or nowhere."""
    rng = np.random.default_rng(seed)
    rows, longest = len(parents), 40
    index_RS = rng.permutation(rows * longest).astype(np.int32).reshape(rows, longest)
    lengths_R = np.array(data.draw(st.lists(st.sampled_from([0, 1, 5, 17, 33, 40]), min_size=rows, max_size=rows)))
    for r, parent in enumerate(parents[1:], 1):
        shared = data.draw(st.sampled_from([0, 1, 3, 4, LANES, LANES + 1, longest]))
        index_RS[r, :shared] = index_RS[parent % r, :shared]
        if shared == longest:
            lengths_R[r] = lengths_R[parent % r]
    heads = Heads(4, 2, width, value_column=2 * width)
    query_RE, cache_ME = normal(seed, rows, 4 * width), normal(seed + 1, rows * longest, 4 * width)
    bias_RHS, vector_HK = normal(seed + 2, rows, 4, longest), normal(seed, 4, width) if additive else None

    def run(chosen):
        seen, weights_RHS = KeyIndex(index_RS[chosen], lengths_R[chosen]), np.empty_like(bias_RHS[chosen])
        out_RF = operations.attention_step(
            query_RE[chosen], cache_ME, cache_ME, seen, heads,
            bias_NHS=bias_RHS[chosen], weights_NHS=weights_RHS, vector_HK=vector_HK,
        )  # fmt: skip
        return out_RF, weights_RHS

    together = run(slice(None))
    for r in range(rows):
        for one, other in zip(run(slice(r, r + 1)), together, strict=True):
            np.testing.assert_array_equal(one[0], other[r])


def test_heads_of_int8_with_their_scales():
    for width in (3, 16, 64):
        heads, rows = Heads(4, 2, width, value_column=2 * width), GROUP_ROWS + 1
        values_NE, query_RE = normal(1, 40, 5 * width), normal(2, rows, 4 * width)
        values_NE[3, width : 2 * width] = 0
        places = np.random.default_rng(3).permutation(50)[:40].astype(np.int32)
        tables = [ops.empty_table(50, 4 * (width + 4), np.dtype(np.int8)) for ops in (operations, reference)]
        for ops, table_ME in zip((operations, reference), tables):
            ops.write_rows(table_ME, places, values_NE, width, width)
        seen = KeyIndex(np.tile(places, (rows, 1)), np.array([40, 39, 17, 0, 40], np.int64))
        found, expected = (
            ops.attention_step(query_RE, table_ME, table_ME, seen, heads)
            for ops, table_ME in zip((operations, reference), tables)
        )
        np.testing.assert_allclose(found, expected, atol=2e-5)
        table_ME = values_NE[np.argsort(places), width:]
        ranked = seen._replace(index_RS=np.argsort(np.argsort(seen.index_RS)))
        exact = reference.attention_step(query_RE, table_ME, table_ME, ranked, heads)
        assert 0 < np.abs(found - exact).max() < 0.05
        for r in range(rows):
            alone = KeyIndex(seen.index_RS[r : r + 1], seen.stops_N[r : r + 1])
            got = operations.attention_step(query_RE[r : r + 1], tables[0], tables[0], alone, heads)
            np.testing.assert_array_equal(got[0], found[r])
        values_NE[7, 2 * width] = np.nan
        operations.write_rows(tables[0], places, values_NE, width, width)
        assert np.isnan(operations.attention_step(query_RE, tables[0], tables[0], seen, heads)[0]).any()
