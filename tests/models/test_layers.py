"""Layers by hand and by their defining properties; whole stacks are compared in test_models_encoder.py."""

import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from fastattn.arguments.attention import Heads, KeyIndex, RaggedBatch
from fastattn.errors import CheckpointError, InputError
from fastattn.layers.attention import (
    LEAST_LENGTH,
    Bias,
    SelfAttention,
    alibi_slopes,
    distance_numbers,
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
from fastattn.ops.reference.attention import bias_values
from fastattn.spec.architecture import Alibi, LocalSpec, PositionSpec, Rotary, StackSpec, Stretch
from fastattn.spec.positions import sinusoid_table
from fastattn.spec.quantized import QuantizedTensor
from tests.messages import refused
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


def test_tied_weights_are_packed_once() -> None:
    packed: list = []

    def pack(*given):
        packed.append(reference.pack_linear(*given))
        return packed[-1]

    ops = SimpleNamespace(**vars(reference) | {"pack_linear": pack})
    weight = _drawn(7, 8)
    tensors = {"encoder.embedding.weight": weight, "decoder.projection.weight": weight, "other.weight": weight.copy()}
    parameters = Parameters(tensors, ops)
    assert parameters.tensor("encoder.embedding.weight") is weight and not packed
    first, again = Linear(parameters, "decoder.projection"), Linear(parameters, "encoder.embedding")
    assert first.keywords["packed"] is again.keywords["packed"] and len(packed) == 1
    Linear(parameters, "other")
    assert len(packed) == 2
    # a tied table is read from the packed weights, but for one of int8
    assert parameters.table("encoder.embedding.weight") is packed[0]
    rounded = QuantizedTensor(np.ones((7, 8), np.int8), np.ones(7, np.float32))
    tied = dict.fromkeys(("encoder.embedding.weight", "decoder.projection.weight"), rounded)
    assert Parameters(tied, reference).table("encoder.embedding.weight") is rounded


def test_one_weight_with_two_biases_is_two_layers() -> None:
    weight = _drawn(2, 2)
    tensors = {"a.weight": weight, "a.bias": np.zeros(2), "b.weight": weight, "b.bias": np.ones(2)}
    parameters = Parameters(tensors, reference)
    x = _drawn(3, 2, seed=1)
    np.testing.assert_allclose(Linear(parameters, "b")(x) - Linear(parameters, "a")(x), 1, rtol=1e-14)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_sinusoids_number_by_number_and_an_embedding_that_grows_them(start: int) -> None:
    angle = (np.arange(5)[:, None] + start) / 10000 ** (np.arange(4) / 3)
    expected = np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
    np.testing.assert_allclose(sinusoid_table(5, 8, start=start), expected, atol=1e-7)
    tensors = {"encoder.embedding.weight": np.zeros((7, 8), np.float32)}
    spec = _spec(positions="sinusoid", sinusoid_start=start)
    embedding, places = Embedding(Parameters(tensors, reference), "encoder", spec), [0, 5, 511, 5000]
    few, far = (embedding(np.zeros(n, np.int32), np.array(places[:n], np.int32)) for n in (3, 4))
    np.testing.assert_array_equal(few, far[:3])
    np.testing.assert_array_equal(far, sinusoid_table(5001, 8, start=start)[places])


@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_sinusoids_of_narrow_and_odd_widths_are_finite(width: int) -> None:
    table = sinusoid_table(3, width)
    assert np.isfinite(table).all() and table.shape == (3, width)


def test_embedding_scales_the_table_and_adds_positions_and_types_up() -> None:
    """Of an id -1 they are all there is."""
    table, positions, types = _drawn(7, 8), _drawn(5, 8, seed=1), _drawn(3, 8, seed=2)
    named = {"embedding.weight": table, "positions": positions, "token_types": types}
    ids_N, positions_N = np.array([3, -1, 6, 0], np.int32), np.array([0, 1, 4, 2], np.int32)
    types_N = np.array([2, 0, 1, 1], np.int32)
    expected = np.where(ids_N[:, None] < 0, 0, 2 * table[ids_N]) + positions[positions_N]
    for token_types, first in ((0, 0), (3, types[0])):
        spec = _spec(positions="table", max_positions=5, token_types=token_types, embedding_scale=2.0)
        embedding = Embedding(Parameters({f"e.{name}": one for name, one in named.items()}, reference), "e", spec)
        np.testing.assert_allclose(embedding(ids_N, positions_N), expected + first)
    np.testing.assert_allclose(embedding(ids_N, positions_N, types_N), expected + types[types_N])
    with refused(InputError, "token types"):
        embedding(ids_N, positions_N, types_N + np.int32(1))
    with refused(InputError, "5 positions"):
        embedding(ids_N, positions_N + np.int32(1))


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

        rows_TE = attention.qkv(attention.input_of(x))
        key_SK, contexts = changed(rows_TE[:, 8:12], "key"), []
        is_local = spec.local is not None and 0 in spec.local.layers
        for head in (0, 1):
            scores_TS = changed(rows_TE[:, 4 * head : 4 * head + 4], "query") @ key_SK.T / 2
            weights_TS = np.exp(scores_TS) * ((not is_local) | ((distance_TS >= -1) & (distance_TS <= 2)))
            contexts.append(weights_TS @ rows_TE[:, 12:] / weights_TS.sum(axis=1, keepdims=True))
        expected = np.concatenate(contexts, axis=1) @ _drawn(8, 8, seed=2).T + x
        for first in (0, 900 * (norm != "behind")):  # the distance alone counts, beyond the tables' first size too
            found = attention(x, _rows(np.arange(first, first + 5)))
            np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=str(fields))


def _normed(x_TK: np.ndarray, weight_K: np.ndarray) -> np.ndarray:
    return x_TK / np.sqrt((x_TK**2).mean(axis=1, keepdims=True) + 1e-5) * weight_K


def _turned(x_TK: np.ndarray, base: float) -> np.ndarray:
    """Two pairs by the angles t and t / sqrt(base); an endless base: none."""
    if math.isinf(base):
        return x_TK
    angles_T2 = np.arange(len(x_TK))[:, None] * base ** np.array([0, -0.5])
    turned_T2 = (x_TK[:, :2] + 1j * x_TK[:, 2:]) * np.exp(1j * angles_T2)
    return np.concatenate([turned_T2.real, turned_T2.imag], axis=1)


def _bias(spec: StackSpec, stack: str = "encoder", **tensors: np.ndarray) -> Bias:
    named = {f"{stack}.{name}": tensor for name, tensor in tensors.items()}
    return position_bias(Parameters({f"{stack}.embedding.weight": _drawn(7, 8)} | named, reference), stack, spec)


def test_alibi_grows_with_the_distance() -> None:
    slopes = alibi_slopes(2)
    for alibi, distance_TS in (
        (Alibi(), np.arange(3) - np.arange(3)[:, None]),
        (Alibi(positive_positions=True, scaled=True), np.tile([0, 0.5, 1], (3, 1))),
    ):
        bias = _bias(_spec(positions="alibi", alibi=alibi))(3)
        np.testing.assert_allclose(bias_values(bias, np.arange(3), 3), slopes[:, None, None] * distance_TS)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("positions", ["alibi", "relative"])
def test_bias_of_a_step_is_a_row_of_the_full_bias(positions: str, stack: str) -> None:
    spec = _spec(positions=positions, relative_buckets=8, relative_max_distance=20)
    bias = _bias(spec, stack, relative_bias=_drawn(8, 2, seed=1))
    rows_NE, starts, heads = _drawn(30, 16), np.array([0, 30]), Heads(2, 2, 8)
    batch = RaggedBatch(starts, starts, reference.seen_around(starts, np.array([30]), np.zeros(1, np.int64), -1, 0))
    full = reference.attention(rows_NE, rows_NE, rows_NE, batch, heads, position_bias=bias(30))
    last = [29, 0, 7]
    index = KeyIndex(np.tile(np.arange(30, dtype=np.int32), (3, 1)), np.array(last) + 1)
    step = reference.attention_step(rows_NE[last], rows_NE, rows_NE, index, heads, position_bias=bias(30))
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


def test_no_bias_without_such_positions_and_none_that_cannot_be() -> None:
    assert _bias(_spec(positions="sinusoid"))(4) is None
    for buckets, distance in ((3, 128), (0, 128), (32, 7)):
        spec = _spec(positions="relative", relative_buckets=buckets, relative_max_distance=distance)
        with refused(CheckpointError, "4 buckets"):
            _bias(spec, relative_bias=np.zeros((buckets, 2)))


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_feed_forward_is_gated_and_normed_as_the_spec_says(norm: str) -> None:
    """The norm behind a sublayer takes the sum."""
    drawn = {"inner": _drawn(5, 8), "inner_linear": _drawn(5, 8, seed=1), "outer": _drawn(8, 5, seed=2)}
    drawn |= {"norm": 1 + _drawn(8, seed=5)}
    parameters = Parameters({f"f.feed_forward.{name}.weight": one for name, one in drawn.items()}, reference)
    inner, gate, outer, _ = drawn.values()
    residual, rows = _drawn(3, 8, seed=4), _rows(np.arange(3))
    normed = Norm(parameters, "f.feed_forward.norm", _spec(norm=norm).norms)
    for gated, before in product((False, True), (False, True)):
        x = normed(residual) if before else residual
        inner_NF = np.maximum(x @ inner.T, 0) * (x @ gate.T if gated else 1)
        expected = inner_NF @ outer.T + residual
        found = FeedForward(parameters, "f", _spec(gated=gated, norm=norm, pre_norm=before))(residual, rows)
        np.testing.assert_allclose(found, expected if before else normed(expected))


def test_the_part_of_yarn_that_is_slowed_in_part_ends_with_the_pairs():
    for length, fast, kept in (
        (64, 32.0, 1 - np.arange(4) / 3),  # none turns 32 times: from pair 0
        (10**6, 10**4, 1 - np.clip((np.arange(4) - 2) / (7 - 2), 0, 1)),  # all turn once: up to the width
    ):
        rotary = Rotary(8, 100.0, stretch=Stretch("yarn", 4.0, length, slow=1.0, fast=fast))
        expected = np.sin(100.0 ** (-np.arange(4) / 4) * (kept + (1 - kept) / 4))
        np.testing.assert_allclose(rotary_tables(rotary, 2, np.float64)[1][1], expected, rtol=1e-12)


def test_distances_beyond_the_table_share_its_first_row_and_its_last() -> None:
    for distance, fields, expected in (
        ([-512, -511, 0, 511, 512, 9999], {"buckets": 256, "max_distance": 512}, [0, 1, 256, 511, 511, 511]),
        ([-9, -4, -3, 0, 2, 3, 4, 9], {"max_distance": 4}, [0, 0, 1, 4, 6, 7, 7, 7]),
        ([-9, -2, -1, 0, 1, 2, 9], {"buckets": 2, "max_distance": 4}, [1, 1, 1, 2, 3, 3, 3]),
    ):
        assert distance_numbers(np.array(distance), PositionSpec("disentangled", **fields)).tolist() == expected


@pytest.mark.parametrize("buckets", [0, 32])
def test_more_packed_distances_change_no_bit(buckets: int) -> None:
    """A short sentence before and after longer ones, which need more distances and then reach the last of them."""
    sizes = {"width": 12, "key_heads": 2, "head_width": 6, "inner_width": 8, "vocabulary": 50}
    spec = _spec(**sizes, positions="disentangled", relative_buckets=buckets, relative_max_distance=300)
    model = build_model(make_checkpoint(EncoderCase("", spec)), operations)
    ids_B = [np.arange(n, dtype=np.int32) % 50 for n in (9, LEAST_LENGTH + 1, 2 * LEAST_LENGTH + 40, 700)]
    alone = [model.encode([ids])[0] for ids in ids_B]
    assert all(len(rows_TD) == len(ids) for rows_TD, ids in zip(alone, ids_B))
    together_ND, _ = model.encode(ids_B)
    np.testing.assert_array_equal(np.concatenate(alone), together_ND)
    fresh_ND, _ = build_model(make_checkpoint(EncoderCase("", spec)), operations).encode(ids_B[::-1])
    np.testing.assert_array_equal(np.concatenate(alone[::-1]), fresh_ND)
