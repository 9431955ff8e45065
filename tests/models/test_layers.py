"""Layers by hand and by their defining properties; whole stacks are compared in test_models_encoder.py."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fastattn.errors import CheckpointError, InputError
from fastattn.layers.attention import (
    LEAST,
    Bias,
    SelfAttention,
    alibi_slopes,
    distance_numbers,
    log_buckets,
    position_bias,
    relative_buckets,
    rotary_tables,
)
from fastattn.layers.attention_inputs import WholeRows
from fastattn.layers.blocks import Embedding, FeedForward, Linear, Norm
from fastattn.layers.parameters import Parameters
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.ops.attention import Heads, KeyIndex, RaggedBatch
from fastattn.ops.reference.attention import bias_values
from fastattn.spec.architecture import Alibi, LocalSpec, PositionSpec, Rotary, StackSpec
from fastattn.spec.positions import sinusoid_table
from fastattn.spec.quantized import QuantizedTensor
from fastattn.spec.stretch import Stretch
from tests.models.encoder_cases import EncoderCase, make_checkpoint
from tests.models.tiny_models import stack_spec


def _spec(**changes: object) -> StackSpec:
    fields: dict = {
        "layers": 1, "width": 8, "heads": 2, "key_heads": 1, "head_width": 4, "inner_width": 5, "vocabulary": 7,
        "positions": "none",
    }  # fmt: skip
    return stack_spec(**fields | changes)


def _drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


class _CountingOps:
    """The reference, and how often weights were packed."""

    def __init__(self) -> None:
        self.packed = 0

    def __getattr__(self, name: str) -> object:
        return getattr(reference, name)

    linear = staticmethod(reference.linear)

    def pack_linear(self, weight: np.ndarray, bias: np.ndarray | None = None, precision: str = "float32") -> object:
        self.packed += 1
        return reference.pack_linear(weight, bias)


def test_tied_weights_are_packed_once() -> None:
    weight, ops = _drawn(7, 8), _CountingOps()
    tensors = {"encoder.embedding.weight": weight, "decoder.projection.weight": weight, "other.weight": weight.copy()}
    parameters = Parameters(tensors, ops)
    assert parameters.tensor("encoder.embedding.weight") is weight and ops.packed == 0
    first, again = Linear(parameters, "decoder.projection"), Linear(parameters, "encoder.embedding")
    assert first.keywords["packed"] is again.keywords["packed"] and ops.packed == 1
    Linear(parameters, "other")
    assert ops.packed == 2


def test_a_tied_float32_table_is_read_from_the_packed_weights_an_int8_one_is_not() -> None:
    for weight in (_drawn(7, 8), QuantizedTensor(np.ones((7, 8), np.int8), np.ones(7, np.float32))):
        parameters = Parameters({"encoder.embedding.weight": weight, "decoder.projection.weight": weight}, reference)
        table, packed = parameters.table("encoder.embedding.weight"), parameters.packed("decoder.projection")
        assert table is (weight if isinstance(weight, QuantizedTensor) else packed)


def test_one_weight_with_two_biases_is_two_layers() -> None:
    weight = _drawn(2, 2)
    tensors = {"a.weight": weight, "a.bias": np.zeros(2), "b.weight": weight, "b.bias": np.ones(2)}
    parameters = Parameters(tensors, reference)
    x = _drawn(3, 2, seed=1)
    np.testing.assert_allclose(Linear(parameters, "b")(x) - Linear(parameters, "a")(x), 1, rtol=1e-14)


@pytest.mark.parametrize("norm, mean, size", [("layer", 2.0, math.sqrt(2 / 3 + 1e-5)), ("rms", 0.0, math.sqrt(14 / 3))])
def test_norm_is_chosen_by_the_spec(norm: str, mean: float, size: float) -> None:
    layer = Norm(Parameters({"n.weight": np.ones(3)}, reference), "n", _spec(norm=norm).norms)
    np.testing.assert_allclose(layer(np.array([[1.0, 2.0, 3.0]])), [[(i - mean) / size for i in (1, 2, 3)]], rtol=1e-5)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_sinusoids_number_by_number(start: int) -> None:
    table = sinusoid_table(5, 8, start=start)
    for p in range(5):
        for i in range(4):
            angle = (p + start) / 10000 ** (i / 3)
            assert table[p, i] == pytest.approx(math.sin(angle), abs=1e-7)
            assert table[p, i + 4] == pytest.approx(math.cos(angle), abs=1e-7)


@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_sinusoids_of_narrow_and_odd_widths_are_finite(width: int) -> None:
    table = sinusoid_table(3, width)
    assert np.isfinite(table).all() and table.shape == (3, width)


@pytest.mark.parametrize("start", [0, 1])
def test_embedding_grows_its_sinusoids_and_keeps_what_it_had(start: int) -> None:
    embedding = Embedding(
        Parameters({"encoder.embedding.weight": np.zeros((7, 8), np.float32)}, reference),
        "encoder",
        _spec(positions="sinusoid", sinusoid_start=start),
    )
    few = embedding(np.zeros(3, np.int32), np.array([0, 5, 511], np.int32))
    far = embedding(np.zeros(4, np.int32), np.array([0, 5, 511, 5000], np.int32))
    np.testing.assert_array_equal(few, far[:3])
    np.testing.assert_array_equal(far, sinusoid_table(5001, 8, start=start)[[0, 5, 511, 5000]])


def test_embedding_scales_the_table_and_not_the_positions() -> None:
    tensors = {"encoder.embedding.weight": _drawn(7, 8), "encoder.positions": _drawn(4, 8, seed=1)}
    embedding = Embedding(
        Parameters(tensors, reference), "encoder", _spec(positions="table", max_positions=4, embedding_scale=3.0)
    )
    table, positions = tensors.values()
    got = embedding(np.array([6, -1, 0], np.int32), np.array([0, 3, 1], np.int32))
    np.testing.assert_allclose(got, [3 * table[6] + positions[0], positions[3], 3 * table[0] + positions[1]])
    with pytest.raises(InputError, match="4 positions, the sequence needs 5"):
        embedding(np.array([0], np.int32), np.array([4], np.int32))


def test_embedding_adds_positions_and_types_up() -> None:
    """Of an id -1 they are all there is."""
    table, positions, types = _drawn(7, 8), _drawn(5, 8, seed=1), _drawn(3, 8, seed=2)
    named = {"embedding.weight": table, "positions": positions, "token_types": types}
    spec = _spec(positions="table", max_positions=5, token_types=3, embedding_scale=2.0)
    embedding = Embedding(Parameters({f"e.{name}": one for name, one in named.items()}, reference), "e", spec)
    ids_N, positions_N = np.array([3, -1, 6, 0], np.int32), np.array([0, 1, 4, 2], np.int32)
    types_N = np.array([2, 0, 1, 1], np.int32)
    expected = np.where(ids_N[:, None] < 0, 0, 2 * table[ids_N]) + positions[positions_N]
    np.testing.assert_allclose(embedding(ids_N, positions_N), expected + types[0])
    np.testing.assert_allclose(embedding(ids_N, positions_N, types_N), expected + types[types_N])
    with pytest.raises(InputError, match="token types from 0 to 2 are known, got 3"):
        embedding(ids_N, positions_N, types_N + np.int32(1))


def _attention(spec: StackSpec, **more: np.ndarray) -> SelfAttention:
    name = "a.self_attention"
    tensors = more | {
        f"{name}.norm.weight": np.ones(8),
        f"{name}.qkv.weight": _drawn(16, 8, seed=1),
        f"{name}.output.weight": _drawn(8, 8, seed=2),
    }
    return SelfAttention(Parameters(tensors, reference), "a", 0, spec)


def _rows(positions_N: np.ndarray, causal: bool = False) -> WholeRows:
    """A sequence whose positions are as they are told to be."""
    return WholeRows(reference, np.array([0, 5]), positions_N.astype(np.int32), lambda longest: None, causal)


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    for interleaved in (False, True):
        attention = _attention(_spec(positions="rotary", rotary=Rotary(4, interleaved=interleaved)))
        x = _drawn(5, 8, seed=3)
        near = attention(x, _rows(np.arange(5)))
        far = attention(x, _rows(np.arange(900, 905)))
        np.testing.assert_allclose(near, far, rtol=1e-9)
        still = attention(x, _rows(np.zeros(5)))
        assert np.abs(near - still).max() > 1e-3


LOCAL = LocalSpec((0,), before=1, after=2, rotary=Rotary(4, base=7.0, interleaved=False))
# What is done to queries and keys: (fields, whether they are normed before they are turned or behind, the base)
CHANGED: list[tuple[dict, str, float]] = [
    ({}, "", 100.0),
    ({"layers_without": (0,)}, "", math.inf),
    ({"layers_without": (1,)}, "", 100.0),
    ({"local": LOCAL}, "", 7.0),
    ({"local": replace(LOCAL, layers=(1,))}, "", 100.0),
    ({"local": replace(LOCAL, rotary=None)}, "", 100.0),
    ({"head_norms": True}, "before", 100.0),
    ({"head_norms": True, "norms_after_positions": True}, "behind", 100.0),
]


def test_queries_and_keys_are_normed_turned_and_hidden_as_the_spec_says() -> None:
    x, weights = _drawn(5, 8, seed=3), {"query": 1 + _drawn(4, seed=4), "key": 1 + _drawn(4, seed=5)}
    norms = {f"a.self_attention.{part}_norm.weight": weight for part, weight in weights.items()}
    distance_TS = np.arange(5) - np.arange(5)[:, None]
    for fields, norm, base in CHANGED:
        spec = _spec(layers=2, positions="rotary", rotary=Rotary(4, base=100.0, interleaved=False), **fields)
        attention = _attention(spec, **norms)

        def changed(x_TK: np.ndarray, part: str, norm: str = norm, base: float = base) -> np.ndarray:
            if norm == "behind":
                return _normed(_turned(x_TK, base), weights[part])
            return _turned(_normed(x_TK, weights[part]) if norm else x_TK, base)

        rows_TE = attention.qkv(attention.entering(x))
        key_SK, contexts = changed(rows_TE[:, 8:12], "key"), []
        is_local = spec.local is not None and 0 in spec.local.layers
        for head in (0, 1):
            scores_TS = changed(rows_TE[:, 4 * head : 4 * head + 4], "query") @ key_SK.T / 2
            weights_TS = np.exp(scores_TS) * ((not is_local) | ((distance_TS >= -1) & (distance_TS <= 2)))
            contexts.append(weights_TS @ rows_TE[:, 12:] / weights_TS.sum(axis=1, keepdims=True))
        expected = np.concatenate(contexts, axis=1) @ _drawn(8, 8, seed=2).T + x
        np.testing.assert_allclose(attention(x, _rows(np.arange(5))), expected, rtol=1e-9, err_msg=str(fields))


def _normed(x_TK: np.ndarray, weight_K: np.ndarray) -> np.ndarray:
    return x_TK / np.sqrt((x_TK**2).mean(axis=1, keepdims=True) + 1e-5) * weight_K


def _turned(x_TK: np.ndarray, base: float) -> np.ndarray:
    """Two pairs by the angles t and t / sqrt(base); an endless base: none."""
    if math.isinf(base):
        return x_TK
    turned_T2 = (x_TK[:, :2] + 1j * x_TK[:, 2:]) * np.exp(
        1j * np.arange(len(x_TK))[:, None] * base ** np.array([0, -0.5])
    )
    return np.concatenate([turned_T2.real, turned_T2.imag], axis=1)


def test_rotary_linear_scaling_divides_positions() -> None:
    x = _drawn(2, 8, seed=3)
    plain = _attention(_spec(positions="rotary", rotary=Rotary(4)))
    scaled = _attention(_spec(positions="rotary", rotary=Rotary(4, scale=4.0)))
    expected, found = plain.qkv(x), scaled.qkv(x)
    (plain_rotary,), (scaled_rotary,) = plain.changes, scaled.changes
    plain_rotary(expected, np.array([1, 3], np.int32))
    scaled_rotary(found, np.array([4, 12], np.int32))
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_alibi_slopes_of_the_paper() -> None:
    np.testing.assert_allclose(alibi_slopes(8), [2.0**-i for i in range(1, 9)])
    np.testing.assert_allclose(alibi_slopes(6), [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3])


def _bias(spec: StackSpec, stack: str = "encoder", **tensors: np.ndarray) -> Bias:
    named = {f"{stack}.{name}": tensor for name, tensor in tensors.items()}
    return position_bias(Parameters({f"{stack}.embedding.weight": _drawn(7, 8)} | named, reference), stack, spec)


def test_alibi_grows_with_the_distance() -> None:
    slopes = alibi_slopes(2)
    signed = _bias(_spec(positions="alibi", alibi=Alibi()))(3)
    np.testing.assert_allclose(
        bias_values(signed, np.arange(3), 3), slopes[:, None, None] * [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]]
    )
    positive = _bias(_spec(positions="alibi", alibi=Alibi(positive_positions=True, scaled=True)))(3)
    np.testing.assert_allclose(
        bias_values(positive, np.arange(3), 3), slopes[:, None, None] / 2 * np.tile([0, 1, 2], (3, 1))
    )


def test_relative_buckets_of_known_distances() -> None:
    distance = np.array([-1000, -128, -127, -16, -9, -8, -7, -1, 0, 1, 7, 8, 12, 64, 200])
    both = [15, 15, 15, 10, 8, 8, 7, 1, 0, 17, 23, 24, 25, 30, 31]
    np.testing.assert_array_equal(relative_buckets(distance, 32, 128, True), both)
    behind = [31, 31, 31, 16, 9, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(relative_buckets(distance, 32, 128, False), behind)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("positions", ["alibi", "relative"])
def test_bias_of_a_step_is_a_row_of_the_full_bias(positions: str, stack: str) -> None:
    spec = _spec(positions=positions, relative_buckets=8, relative_max_distance=20)
    bias = _bias(spec, stack, relative_bias=_drawn(8, 2, seed=1))
    rows_NE, starts, heads = _drawn(30, 16), np.array([0, 30]), Heads(2, 2, 8)
    batch = RaggedBatch(starts, starts, reference.seen_around(starts, np.array([30]), np.zeros(1, np.int64), -1, 0))
    full = reference.attention(rows_NE, rows_NE, rows_NE, batch, heads, position_bias=bias(30))
    index_RS = np.tile(np.arange(30, dtype=np.int32), (3, 1))
    last = [29, 0, 7]
    step = reference.attention_step(
        rows_NE[last], rows_NE, rows_NE, KeyIndex(index_RS, np.array(last) + 1), heads, position_bias=bias(30)
    )
    np.testing.assert_allclose(step, full[last], rtol=1e-12)
    dense = bias_values(bias(30), np.arange(30), 30)
    assert dense.shape == (2, 30, 30)
    if positions == "relative":  # and a table of more distances says the same of these
        np.testing.assert_array_equal(bias_values(bias(2000), np.arange(30), 30), dense)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_distances_beyond_the_exact_ones_share_a_bucket_where_no_other_is_left(bidirectional: bool) -> None:
    exact, distance_L = 8, np.arange(-40, 41)
    buckets = exact * (4 if bidirectional else 2)
    found_L = relative_buckets(distance_L, buckets, exact, bidirectional)
    behind_L = np.where(-distance_L < exact, np.maximum(-distance_L, 0), 2 * exact - 1)
    ahead_L = np.where(distance_L < exact, distance_L, 2 * exact - 1) + 2 * exact
    np.testing.assert_array_equal(found_L, np.where((distance_L > 0) & bidirectional, ahead_L, behind_L))


def test_no_bias_without_such_positions() -> None:
    bias = _bias(_spec(positions="sinusoid"))
    assert bias(4) is None


@pytest.mark.parametrize("buckets, distance", [(3, 128), (0, 128), (32, 7)])
def test_relative_positions_that_cannot_be_are_a_checkpoint_error(buckets: int, distance: int) -> None:
    spec = _spec(positions="relative", relative_buckets=buckets, relative_max_distance=distance)
    with pytest.raises(CheckpointError, match="relative positions need 4 buckets"):
        _bias(spec, relative_bias=np.zeros((buckets, 2)))


def test_gated_feed_forward_multiplies_the_activated_half() -> None:
    name = "f.feed_forward"
    tensors = {
        f"{name}.inner.weight": _drawn(5, 8),
        f"{name}.inner_linear.weight": _drawn(5, 8, seed=1),
        f"{name}.outer.weight": _drawn(8, 5, seed=2),
        f"{name}.norm.weight": 1 + _drawn(8, seed=5),
    }
    residual, rows = _drawn(3, 8, seed=4), _rows(np.arange(3))
    inner, gate, outer, _ = tensors.values()
    parameters = Parameters(tensors, reference)
    x = Norm(parameters, f"{name}.norm", _spec().norms)(residual)
    gated = FeedForward(parameters, "f", _spec(gated=True))(residual, rows)
    np.testing.assert_allclose(gated, (np.maximum(x @ inner.T, 0) * (x @ gate.T)) @ outer.T + residual)
    plain = FeedForward(parameters, "f", _spec())(residual, rows)
    np.testing.assert_allclose(plain, np.maximum(x @ inner.T, 0) @ outer.T + residual)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_norm_behind_a_sublayer_takes_the_sum(norm: str) -> None:
    tensors = {
        "f.feed_forward.inner.weight": _drawn(5, 8),
        "f.feed_forward.outer.weight": _drawn(8, 5, seed=2),
        "f.feed_forward.norm.weight": 1 + _drawn(8, seed=5),
    }
    inner, outer, _ = tensors.values()
    parameters, x, spec = Parameters(tensors, reference), _drawn(3, 8, seed=3), _spec(norm=norm, pre_norm=False)
    found = FeedForward(parameters, "f", spec)(x, _rows(np.arange(3)))
    expected = Norm(parameters, "f.feed_forward.norm", spec.norms)(x + np.maximum(x @ inner.T, 0) @ outer.T)
    np.testing.assert_allclose(found, expected)


def test_causal_attention_does_not_look_ahead() -> None:
    layer, rows = _attention(_spec()), _rows(np.arange(5), causal=True)
    x = _drawn(5, 8, seed=3)
    changed = x.copy()
    changed[3:] += 1 + np.arange(8)  # which its norm does not take away
    before, after = layer(x, rows), layer(changed, rows)
    np.testing.assert_array_equal(before[:3], after[:3])
    assert np.abs(before[3:] - after[3:]).max() > 1e-3


def test_the_part_of_yarn_that_is_slowed_in_part_ends_with_the_pairs():
    short = Rotary(8, 100.0, stretch=Stretch("yarn", 4.0, 64, slow=1.0, fast=32.0))  # none turns 32 times: from pair 0
    frequencies = 100.0 ** (-np.arange(4) / 4)
    kept = 1 - np.arange(4) / 3
    expected = np.sin(frequencies * (kept + (1 - kept) / 4))
    np.testing.assert_allclose(rotary_tables(short, 2, np.float64)[1][1], expected, rtol=1e-12)
    long = Rotary(8, 100.0, stretch=Stretch("yarn", 4.0, 10**6, slow=1.0, fast=10**4))  # all turn once: up to the width
    kept = 1 - np.clip((np.arange(4) - 2) / (7 - 2), 0, 1)
    expected = np.sin(frequencies * (kept + (1 - kept) / 4))
    np.testing.assert_allclose(rotary_tables(long, 2, np.float64)[1][1], expected, rtol=1e-12)


# distance -> bucket as transformers' make_log_bucket_position gives it for 256 buckets and 512 positions
PUBLISHED = {1: 1, 127: 127, 128: 128, 129: 129, 130: 130, 200: 169, 300: 207, 400: 233, 510: 255, 511: 255, 512: 256}


def _numbers(distance: list[int], **fields: int) -> list[int]:
    return distance_numbers(np.array(distance), PositionSpec("disentangled", **fields)).tolist()


def test_buckets_are_the_published_ones() -> None:
    distance, bucket = (np.array(numbers) for numbers in zip(*PUBLISHED.items()))
    np.testing.assert_array_equal(log_buckets(distance, 256, 512), bucket)
    np.testing.assert_array_equal(log_buckets(-distance, 256, 512), -bucket)
    assert log_buckets(np.zeros(1, np.int64), 256, 512) == 0


def test_distances_beyond_the_table_share_its_first_row_and_its_last() -> None:
    assert _numbers([-512, -511, 0, 511, 512, 9999], buckets=256, max_distance=512) == [0, 1, 256, 511, 511, 511]
    assert _numbers([-9, -4, -3, 0, 2, 3, 4, 9], max_distance=4) == [0, 0, 1, 4, 6, 7, 7, 7]
    assert _numbers([-9, -2, -1, 0, 1, 2, 9], buckets=2, max_distance=4) == [1, 1, 1, 2, 3, 3, 3]


@pytest.mark.parametrize("buckets", [0, 32])
def test_more_packed_distances_change_no_bit(buckets: int) -> None:
    """A short sentence before and after longer ones, which need more distances and then reach the last of them."""
    keywords = {"layers": 1, "width": 12, "heads": 2, "key_heads": 2, "head_width": 6, "inner_width": 8}
    spec = stack_spec(
        **keywords, vocabulary=50, positions="disentangled", relative_buckets=buckets, relative_max_distance=300
    )
    model = build_model(make_checkpoint(EncoderCase("", "", spec)), operations)
    ids_B = [np.arange(n, dtype=np.int32) % 50 for n in (9, LEAST + 1, 2 * LEAST + 40, 700)]
    alone = [model.encode([ids])[0] for ids in ids_B]
    assert all(len(rows_TD) == len(ids) for rows_TD, ids in zip(alone, ids_B))
    together_ND, _ = model.encode(ids_B)
    np.testing.assert_array_equal(np.concatenate(alone), together_ND)
    fresh_ND, _ = build_model(make_checkpoint(EncoderCase("", "", spec)), operations).encode(ids_B[::-1])
    np.testing.assert_array_equal(np.concatenate(alone[::-1]), fresh_ND)
