"""Balanced int8: factors of inputs in products, in checkpoints, and what they are worth."""

from functools import partial
from itertools import product
from unittest.mock import Mock

import numpy as np
import pytest

from fastattn import Encoder
from fastattn.errors import CheckpointError
from fastattn.loading.balance import LEAST_FACTOR, LENGTH, MOST_FACTOR, input_factors
from fastattn.loading.model_cache import PackedWeights
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.ops.reference.matmul import round_to_bfloat16
from fastattn.ops.reference.project import log_softmax
from fastattn.spec.quantized import QuantizedTensor
from fastattn.spec.rounding import quantize
from fastattn.spec.tensors import check_tensors
from fastattn.weights import read
from fastattn.weights.native import convert
from tests.cli.commands import succeed
from tests.kernels.test_precision import SHAPES
from tests.loading.caches import empty_cache
from tests.messages import refused
from tests.models.encoder_cases import CASES, make_checkpoint, make_ids
from tests.models.tiny_models import random_checkpoint

CASE = {case.name: case for case in CASES}


def weight_and_factors(rng, outputs, inputs):
    values = rng.integers(-127, 128, (outputs, inputs)).astype(np.int8)
    factors = np.exp(rng.normal(0, 2, inputs)).astype(np.float32)
    return QuantizedTensor(values, np.ones(outputs, np.float32), input_factors_D=factors)


def staged(x_ND, factors_D):
    """(integers, what one of each row stands for), every step rounded to float32."""
    balanced_ND = x_ND * factors_D
    peaks_N1 = np.abs(balanced_ND).max(axis=1, keepdims=True)
    return np.rint(balanced_ND * (np.float32(127) / peaks_N1)).astype(np.int64), peaks_N1 / np.float32(127)


def test_rows_times_factors_are_rounded_as_numpy_does():
    """Every sum is below 2**24, so that it is exact."""
    for rows, outputs, inputs in SHAPES:
        rng = np.random.default_rng(rows * outputs + inputs)
        weight, x = weight_and_factors(rng, outputs, inputs), rng.standard_normal((rows, inputs), np.float32)
        integers, units_N1 = staged(x, weight.input_factors_D)
        expected = (integers @ weight.values_FD.T.astype(np.int64)).astype(np.float32) * units_N1
        for threads in (1, 2):
            with operations.use_threads(threads):
                found = operations.linear(x, operations.pack_linear(weight, None, "int8"))
            np.testing.assert_array_equal(found, expected, err_msg=f"{rows} x {inputs} x {outputs}")
        oracle = reference.linear(x.astype(np.float64), reference.pack_linear(weight, None, "int8"))
        np.testing.assert_allclose(oracle, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("inputs", [64, 67])
def test_projections_and_picks_take_factors_too(inputs):
    rng = np.random.default_rng(inputs)
    weight, x = weight_and_factors(rng, 300, inputs), rng.standard_normal((7, inputs), np.float32)
    weight.multipliers_F[:] = 1e-3
    integers, units_N1 = staged(x, weight.input_factors_D)
    expected = log_softmax((integers @ weight.values_FD.T).astype(np.float32) * units_N1 * np.float32(1e-3))
    packed = operations.pack_linear(weight, None, "int8")
    np.testing.assert_allclose(operations.project_all(x, packed), expected, atol=1e-4)
    best, ids = operations.project_top_k(x, packed, 3)
    np.testing.assert_allclose(best, np.take_along_axis(expected, ids.astype(np.int64), axis=1), atol=1e-4)
    everything = operations.select_outputs(operations.pack_rows(weight, packed), np.arange(300, dtype=np.int32))
    np.testing.assert_allclose(operations.project_all(x, [everything] * 7), expected, atol=1e-4)


def test_the_matrix_is_the_product_of_values_multipliers_and_factors():
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((50, 33), np.float32)
    weight[:, 5] /= 100
    factors = np.ones(33, np.float32)
    factors[5] = 1 / 64
    plain, balanced = quantize(weight, "w"), quantize(weight, "w", factors)
    expected = balanced.values_FD.astype(np.float32) * balanced.multipliers_F[:, None] * factors
    np.testing.assert_array_equal(balanced.float32(), expected)
    error, before = (np.abs(matrix.float32() - weight) for matrix in (balanced, plain))
    assert (error <= (balanced.multipliers_F[:, None] * factors) * 0.501).all()
    assert error[:, 5].max() < before[:, 5].max() / 30
    x = np.eye(33, dtype=np.float32)
    for ops in (operations, reference):  # in another precision there is nothing but the matrix
        np.testing.assert_array_equal(ops.linear(x, ops.pack_linear(balanced)), expected.T)
        rounded = round_to_bfloat16(expected)
        np.testing.assert_array_equal(ops.linear(x, ops.pack_linear(balanced, None, "bfloat16")), rounded.T)


def test_what_is_not_a_number_stays_none():
    weight = QuantizedTensor(np.ones((5, 40), np.int8), np.ones(5, np.float32), None, np.full(40, 0.3, np.float32))
    packed = operations.pack_linear(weight, None, "int8")
    for fault, place in product((np.nan, np.inf, -np.inf), (0, 39)):
        x = np.ones((3, 40), np.float32)
        x[1, place] = fault
        found = operations.linear(x, packed)
        assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all(), (fault, place)


def test_factors_that_no_matrix_can_have_and_a_table_has_none():
    wrong = [([1, 1, 1, bad], None) for bad in (0, -1, np.nan, np.inf)]
    for factors, scale in (([1, 1, 1, 1], 2.0), ([1, 1, 1], None), *wrong):
        with refused(CheckpointError):
            QuantizedTensor(np.ones((2, 4), np.int8), np.ones(2, np.float32), scale, np.array(factors, np.float32))
    checkpoint = make_checkpoint(CASE["t5"])
    table = quantize(checkpoint.tensors["encoder.embedding.weight"], "table", np.ones(24, np.float32))
    with refused(CheckpointError, "encoder.embedding.weight"):
        check_tensors(checkpoint.spec, {**checkpoint.tensors, "encoder.embedding.weight": table}, "here")


def uneven(case):
    """A checkpoint whose norms make three columns thirty times as large, for weights that are as much smaller there."""
    checkpoint = make_checkpoint(case)
    columns = [1, 7, case.spec.width - 2]
    for name, tensor in checkpoint.tensors.items():
        if name.endswith(("norm.weight", "norm.bias")) and "layers" in name:
            tensor[columns] *= 30
        elif name.endswith(("qkv.weight", "inner.weight", "inner_linear.weight")):
            tensor[:, columns] /= 30
    return checkpoint


def hidden(case, checkpoint, precision, factors=dict):
    return build_model(checkpoint, operations, precision, None, factors).encode(make_ids(case))[0]


# Where the norm is last, its columns weigh in the residual too, which no product rounds.
@pytest.mark.parametrize(("name", "most"), [("bert-40", 0.75), ("mbart", 0.2), ("t5", 0.2), ("t5-gated", 0.2)])
def test_balanced_products_are_closer_to_float32(name, most):
    case = CASE[name]
    checkpoint = uneven(case)
    exact = hidden(case, checkpoint, "float32")
    plain, balanced = (
        np.abs(hidden(case, checkpoint, "int8", factors) - exact).mean()
        for factors in (dict, partial(input_factors, checkpoint, operations))
    )
    assert balanced < most * plain


def test_factors_are_of_the_encoders_products_behind_a_norm():
    case = CASE["t5-gated"]
    found = input_factors(uneven(case), operations)
    kinds = ("self_attention.qkv", "feed_forward.inner", "feed_forward.inner_linear")
    assert list(found) == [f"encoder.layers.{i}.{kind}.weight" for i in range(2) for kind in kinds]
    for factors in found.values():
        assert factors.shape == (20,) and factors.dtype == np.float32
        assert LEAST_FACTOR <= factors.min() and factors.max() <= MOST_FACTOR
        assert sorted(np.argsort(factors)[:3]) == [1, 7, 18]  # the large columns are made smaller
    with operations.use_threads(1):
        again = input_factors(uneven(case), operations)
    for name, factors in found.items():
        np.testing.assert_array_equal(again[name], factors)


def test_a_translation_models_encoder_is_balanced_and_its_decoder_is_not_and_few_positions_are_enough():
    found = input_factors(random_checkpoint(), reference)
    assert found and all(name.startswith("encoder.") for name in found)
    assert CASE["mbart"].spec.positions.limit < LENGTH and input_factors(make_checkpoint(CASE["mbart"]), operations)


def test_columns_of_nothing_have_factors_too():
    checkpoint = make_checkpoint(CASE["bert-40"])
    layer = "encoder.layers.1"
    checkpoint.tensors[f"{layer}.feed_forward.inner.weight"][:, 3] = 0
    for part in ("weight", "bias"):
        checkpoint.tensors[f"{layer}.self_attention.norm.{part}"][4] = 0
    found = input_factors(checkpoint, operations)[f"{layer}.feed_forward.inner.weight"]
    assert (found[3], found[4]) == (np.float32(LEAST_FACTOR), np.float32(MOST_FACTOR))


def test_layers_that_are_kept_need_no_factors(tmp_path, monkeypatch):
    empty_cache(tmp_path, monkeypatch)
    (tmp_path / "weights").write_bytes(b"of a checkpoint")
    case = CASE["bert-odd"]
    checkpoint, rows = uneven(case), []
    factors = Mock(wraps=partial(input_factors, checkpoint, operations))
    for _ in range(2):
        kept = PackedWeights([tmp_path / "weights"], "int8")
        rows.append(build_model(checkpoint, operations, "int8", kept, factors).encode(make_ids(case))[0])
        kept.save()
        assert factors.call_count == 1
    np.testing.assert_array_equal(*rows)
    np.testing.assert_array_equal(rows[0], hidden(case, checkpoint, "int8", factors))


def stored(folder, checkpoint, precision, **how):
    folder.mkdir()
    convert.write(folder, checkpoint, precision, **how)
    return read(folder)


def test_a_converted_checkpoint_gives_the_same_bits(tmp_path):
    """As one that is made int8 when it is loaded, with its table; and its numbers survive a second conversion."""
    case = CASE["mbart"]
    checkpoint = uneven(case)
    factors = input_factors(checkpoint, operations)
    once = stored(tmp_path / "once", checkpoint, "int8", factors=factors)
    assert input_factors(once, None) == {}, "it needs no operations"
    twice = stored(tmp_path / "twice", once, "int8", factors={})
    wide = stored(tmp_path / "wide", once, "float32").tensors
    checkpoint.tensors["encoder.embedding.weight"] = once.tensors["encoder.embedding.weight"]
    expected = hidden(case, checkpoint, "int8", lambda: factors)
    for found in (once, twice):
        np.testing.assert_array_equal(hidden(case, found, "int8"), expected)
    for name, factors_D in factors.items():
        held = once.tensors[name]
        np.testing.assert_array_equal(held.input_factors_D, factors_D)
        np.testing.assert_array_equal(wide[name], held.float32())
        step = held.multipliers_F[:, None] * factors_D
        assert (np.abs(held.float32() - checkpoint.tensors[name]) <= step * 0.501).all()


# Short and long, plain and odd; without balance four are below 0.99.
SENTENCES = [
    "A man is eating food.", "The committee will meet again on Thursday to vote on the revised budget.",
    "Water boils at 100 degrees Celsius at sea level.", "no", "???", "Zwei Hunde spielen im Schnee.",
    "Well, to be honest, I am not so sure that this is what you wanted to ask.", "I guess so, but it depends.",
    "In short, yes: you can do that, if and only if both of them agree.", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10",
    "She sold the car, which she had bought only a year before, to a friend of her brother's.",
    "Since you do not say what it is for, I can only give you a general answer.",
    "As for myself, I have never tried this, so take it with a grain of salt.",
]  # fmt: skip


def test_minilm_in_int8_is_close_to_float32_also_when_the_command_converts_it(pulled, tmp_path):
    model, out = pulled("minilm"), tmp_path / "out"
    succeed("convert", model, out, "-p", "int8")
    exact = Encoder(model, "float32").encode(SENTENCES)
    for encoder in (Encoder(model, "int8"), Encoder(out)):
        cosines = (exact * encoder.encode(SENTENCES)).sum(axis=1)
        assert cosines.min() > 0.99 and cosines.mean() > 0.996, cosines
    factors = input_factors(read(model), operations)
    held = {name: tensor for name, tensor in read(out).tensors.items() if isinstance(tensor, QuantizedTensor)}
    assert len(factors) == 12
    for name, tensor in held.items():
        np.testing.assert_array_equal(tensor.input_factors_D, factors.get(name))
