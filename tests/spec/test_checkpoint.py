"""What a precision comes to for a checkpoint."""

import dataclasses

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.checkpoint import MAX_INT32, Checkpoint, resolve_precision
from fastattn.spec.quantized import Int4Tensor, QuantizedTensor, take
from fastattn.spec.rounding import bfloat16_bits, quantize, quantize_groups
from fastattn.spec.text_spec import EncoderText, GeneratorText, PairPrompt
from tests.messages import refused
from tests.models.encoder_cases import CASES, make_checkpoint
from tests.models.tiny_models import random_checkpoint


def _with_scales():
    checkpoint = random_checkpoint()
    shape = checkpoint.tensors["decoder.projection.weight"].shape
    tied = QuantizedTensor(np.ones(shape, np.int8), np.ones(shape[0], np.float32), input_scale=3.0)
    names = ("decoder.embedding.weight", "decoder.projection.weight")
    return dataclasses.replace(checkpoint, tensors={**checkpoint.tensors, **dict.fromkeys(names, tied)})


@pytest.mark.parametrize(("asked", "arithmetic", "scale"), [("intgemm", "int8", 3.0), ("int8", "int8", None)])
def test_scales_of_inputs_are_intgemms_alone_and_tied_weights_stay_so(asked, arithmetic, scale):
    checkpoint = _with_scales()
    precision = resolve_precision(asked, checkpoint)
    assert (precision.name, precision.arithmetic, precision.file_suffix != "") == (asked, arithmetic, scale is not None)
    tensors = precision.without_unused_scales(checkpoint).tensors
    assert tensors["decoder.embedding.weight"] is tensors["decoder.projection.weight"]
    assert tensors["decoder.projection.weight"].input_scale == scale
    assert checkpoint.tensors["decoder.projection.weight"].input_scale == 3.0
    assert resolve_precision(asked, make_checkpoint(CASES[0])).name == "int8", "an encoder has no scales of inputs"


@pytest.mark.parametrize(
    ("stored", "expected"), [("int8", "int8"), ("int4", "int4"), ("bfloat16", "float32"), ("float32", "float32")]
)
def test_auto_is_int8_where_the_checkpoint_holds_int8(stored, expected):
    checkpoint = dataclasses.replace(random_checkpoint(), precision=stored)
    assert resolve_precision("auto", checkpoint).name == resolve_precision("default", checkpoint).name == expected


def test_a_language_model_as_an_encoder():
    """Its stack is causal and ends before the projection: no cap of the logits, no bias."""
    whole = random_checkpoint(output_cap=4.0, projection_bias=True)
    stack = dataclasses.replace(whole.spec.decoder, cross_attention=False)
    tensors = {name: tensor for name, tensor in whole.tensors.items() if name.startswith("decoder.")}
    model = Checkpoint(ModelSpec("decoder", decoder=stack), tensors, GeneratorText(b"{}", end_ids=(2,)))
    encoder = model.as_encoder()
    expected = dataclasses.replace(stack, causal=True, projection_bias=False, output_cap=0.0)
    assert encoder.spec == ModelSpec("encoder", expected)
    assert encoder.text == EncoderText(b"{}", MAX_INT32, token_types=False)
    limited = dataclasses.replace(model, input=GeneratorText(b"{}", max_length=7))
    assert limited.as_encoder().text.max_length == 7
    assert "encoder.embedding.weight" in encoder.tensors
    assert not any("projection" in name for name in encoder.tensors)
    assert encoder.as_encoder() is encoder and whole.as_encoder() is whole
    reranker = model.as_reranker(3, 5, PairPrompt("", "", "", "", ""))
    difference = tensors["decoder.projection.weight"][3] - tensors["decoder.projection.weight"][5]
    np.testing.assert_array_equal(reranker.tensors["head.output.weight"], difference[None])
    assert reranker.without_head().spec == encoder.spec and "head.output.weight" in reranker.tensors


def test_int8_rounds_each_row_by_its_greatest() -> None:
    rows = np.array([[1.0, -2.0, 0.5], [0, 0, 0], [1e-45, -1e-45, 0], [3e38, 1.0, -3e38]], np.float32)
    made = quantize(rows, "x")
    np.testing.assert_array_equal(made.values_FD, [[64, -127, 32], [0, 0, 0], [0, 0, 0], [127, 0, -127]])
    np.testing.assert_array_equal(made.multipliers_F, np.float32([2 / 127, 0, 0, np.float32(3e38) / np.float32(127)]))
    rng = np.random.default_rng(0)
    for scale in (1e-43, 1e-40, 1.0, 1e37):
        weight_FD = (rng.normal(size=(40, 50)) * scale).astype(np.float32)
        made = quantize(weight_FD, "x")
        assert np.abs(made.values_FD.astype(int)).max() <= 127
        steps = np.abs(made.float32() - weight_FD) / np.maximum(made.multipliers_F, np.float32(1e-45))[:, None]
        assert steps.max() < (0.5001 if scale > 1e-42 else 127)


def test_int4_keeps_what_16_numbers_hold() -> None:
    rng = np.random.default_rng(1)
    values_FE = rng.integers(0, 256, (7, 48)).astype(np.uint8)
    values_FE[:, ::16], values_FE[:, 1::16] = 0xF0, 0x0F  # both ends in each group
    scales_FG, minima_FG = (rng.integers(1, 9, (7, 3)).astype(np.float16) / 8 for _ in range(2))
    stored = Int4Tensor(values_FE, scales_FG, -minima_FG)
    made = quantize_groups(stored.float32(), "x")
    for one, other in zip(vars(made).values(), vars(stored).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    numbers_FGI = np.stack([values_FE.reshape(7, 3, 16) & 15, values_FE.reshape(7, 3, 16) >> 4], axis=2)
    expected = numbers_FGI.reshape(7, 3, 32) * scales_FG[..., None].astype(np.float32) - minima_FG[..., None]
    np.testing.assert_array_equal(stored.float32(), expected.reshape(7, 96))
    np.testing.assert_array_equal(take(stored, np.array([3, -1])).float32(), [expected.reshape(7, 96)[3], np.zeros(96)])
    assert stored.shape == (7, 96) and stored.size == 7 * 96


def test_int4_is_nearer_than_the_whole_range_alone() -> None:
    weight_FD = np.random.default_rng(2).standard_normal((40, 128)).astype(np.float32)
    groups_NI = weight_FD.reshape(-1, 32)
    least, most = groups_NI.min(axis=1, keepdims=True), groups_NI.max(axis=1, keepdims=True)
    plain = np.rint((groups_NI - least) / (most - least) * 15) / 15 * (most - least) + least
    made = quantize_groups(weight_FD, "x").float32()
    assert np.square(made - weight_FD).mean() < 0.95 * np.square(plain.reshape(40, 128) - weight_FD).mean()
    np.testing.assert_array_equal(quantize_groups(np.full((2, 32), 0.5, np.float32), "x").float32(), 0.5)
    assert quantize_groups(np.empty((0, 64), np.float32), "x").shape == (0, 64)


@pytest.mark.parametrize(("rounded", "great"), [(quantize, -np.inf), (quantize_groups, -1e5)])
def test_what_fewer_bits_cannot_hold_is_named(rounded, great) -> None:
    weight_FD = np.ones((5, 96), np.float32)
    for bad in (np.nan, np.inf, great):
        weight_FD[4, 95] = bad
        with refused(CheckpointError, "w.weight"):
            rounded(weight_FD, "w.weight")


def test_bfloat16_rounds_to_nearest_even() -> None:
    def rounded(*bits: int) -> list[int]:
        return bfloat16_bits(np.array(bits, np.uint32).view(np.float32)).tolist()

    assert rounded(0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001) == [0x3F80, 0x3F80, 0x3F82, 0x3F81]
    assert rounded(0xBF808000, 0xBF818000, 0x80000000, 0x00000001) == [0xBF80, 0xBF82, 0x8000, 0]
    assert rounded(0x7F7FFFFF, 0x7F800000, 0xFF800000) == [0x7F80, 0x7F80, 0xFF80]  # the greatest becomes infinity
    for nan in (0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001):
        assert (rounded(nan)[0] & 0x7FFF) > 0x7F80
