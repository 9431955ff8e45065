"""Each argument of fastattn.attention, and all together, against the formula in float64."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fastattn
from fastattn.kernels.attention.arguments import KEYS, ROWS
from fastattn.kernels.attention.sentences import attend as attend_kernel
from fastattn.ops.cpu import on_arrays
from fastattn.simd.target import TARGET
from fastattn.spec.rounding import as_floats, bfloat16_bits
from tests.array_attention.formula import attend, check_near
from tests.kernels.cases import normal


def arrays(seed=0, B=2, T=9, S=21, H=4, G=2, K=12, V=20, size=1.0):
    return normal(seed, B, T, H, K) * np.float32(size), normal(seed + 1, B, S, G, K), normal(seed + 2, B, S, G, V)


def check(query, key, value, **options):
    given = {name: option for name, option in options.items() if option is not None}
    got = fastattn.attention(query, key, value, **given, return_weights=True, return_logsumexp=True)
    assert len(got) == 3
    check_near(got, lambda dtype: attend(query, key, value, dtype=dtype, **options))
    np.testing.assert_array_equal(fastattn.attention(query, key, value, **given), got[0])


sides = st.tuples(st.none() | st.integers(0, 12), st.none() | st.integers(0, 12))
DRAWN = {
    "lengths": st.none() | st.lists(st.integers(0, 21), min_size=2, max_size=2),
    "causal": st.booleans(),
    "offset": st.sampled_from([None, 3, "end", [-2, 15]]),
    "window": st.none() | sides,
    "sinks": st.sampled_from([None, 0, 3, 40, normal(7, 4)]),
    "scale": st.sampled_from([None, 0.0, -0.3, 2.0]),
    "softcap": st.sampled_from([0.0, 1.5]),
    "layout": st.sampled_from(["BTHK", "BHTK"]),
}


@settings(max_examples=60, deadline=None)
@given(
    options=st.fixed_dictionaries(DRAWN),
    masked=st.sampled_from(["", "full", "keys", "rows", "heads"]),
    biased=st.sampled_from(["", "full", "sentences", "keys", "rows", "heads"]),
    rows=st.sampled_from([1, 2, 9]),
    seed=st.integers(0, 5),
)
def test_arguments_together(options, masked, biased, rows, seed):
    """Queries are columns of wider rows, as of fused projections."""
    shape = {"full": (2, 4, rows, 21), "sentences": (2, 1, rows, 21)}
    shape |= {"keys": (21,), "rows": (rows, 1), "heads": (4, 1, 21)}
    options["mask"] = np.random.default_rng(seed).random(shape[masked]) < 0.6 if masked else None
    options["bias"] = normal(8, *shape[biased]) if biased else None
    query, *given = arrays(seed, T=rows)
    given = [np.concatenate([query, query], axis=3)[..., :12], *given]
    check(*(given if options["layout"] == "BTHK" else [x.swapaxes(1, 2) for x in given]), **options)


def test_rows_and_keys_around_the_tiles():
    for heads in ((1, 1), (2, 1), (4, 1), (3, 3)):
        for T, S in ((1, 1), (1, 3 * KEYS + 5), (3, KEYS), (ROWS + 1, 2 * KEYS + 1), (70, KEYS + 31)):
            given = arrays(3, 1, T, S, *heads, 40, 24)
            rng = np.random.default_rng(T + S)
            check(*given)
            check(*given, mask=rng.random((T, S)) < 0.05)
            check(*given, causal=True, offset="end", window=(50, None))
            check(*given, window=(KEYS // 2, 3), offset=S - T, sinks=5)


def test_first_keys_are_seen_on_both_sides_of_a_window():
    for options in ({}, {"causal": True}, {"lengths": [3]}, {"offset": -4}, {"lengths": [6], "offset": 2}):
        check(*arrays(0, 1, 9, 21), window=(1, 1), sinks=5, **options)


def test_narrow_numbers():
    for T in (1, 3, 40):
        for narrow in ("float16", "bfloat16"):
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
    monkeypatch.setattr(on_arrays, "TARGET", replace(TARGET, float16=False))
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


@settings(max_examples=30, deadline=None)
@example(
    lengths=[(0, 1), (1, 0)],  # a sink alone
    options={"causal": False, "window": None, "sinks": normal(7, 4), "softcap": 0.0},
    end=False,
    seed=0,
)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40)), min_size=1, max_size=4),
    options=st.fixed_dictionaries({name: DRAWN[name] for name in ("causal", "window", "sinks", "softcap")}),
    end=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_ragged_batch_is_its_sentences(lengths, options, end, seed):
    sentences = [arrays(seed + n, 1, T, S, 4, 2, 8, 8) for n, (T, S) in enumerate(lengths)]
    rows = [np.concatenate([one[n][0] for one in sentences]) for n in range(3)]
    starts = [np.cumsum([0, *(pair[n] for pair in lengths)]) for n in range(2)]
    options |= {"offset": "end" if end else None, "return_weights": True, "return_logsumexp": True}
    out, weights, logs = fastattn.attention_ragged(*rows, *starts, **options)
    assert weights.shape == (len(lengths), 4, max(t for t, _ in lengths), max(s for _, s in lengths))
    for b, one in enumerate(sentences):
        mine = slice(starts[0][b], starts[0][b + 1])
        T, S = lengths[b]
        alone = fastattn.attention(*one, **options)
        np.testing.assert_array_equal(out[mine], alone[0][0])
        np.testing.assert_array_equal(weights[b, :, :T, :S], alone[1][0])
        np.testing.assert_array_equal(logs[mine], alone[2][0].T)


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
        for block in (128, (100, 33)):
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
    first = fastattn.attention(query[:, :128], key[:, 128:256], value[:, 128:256])
    np.testing.assert_array_equal(first, expected[:, :128])
