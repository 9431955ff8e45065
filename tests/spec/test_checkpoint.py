"""What a precision comes to for a checkpoint."""

import dataclasses

import numpy as np
import pytest

from fastattn.spec.architecture import ModelSpec
from fastattn.spec.checkpoint import GREATEST, Checkpoint, resolve_precision
from fastattn.spec.quantized import QuantizedTensor
from fastattn.spec.text_spec import EncoderText, GeneratorText, PairPrompt
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
    assert (precision.name, precision.arithmetic, precision.variety != "") == (asked, arithmetic, scale is not None)
    tensors = precision.applied(checkpoint).tensors
    assert tensors["decoder.embedding.weight"] is tensors["decoder.projection.weight"]
    assert tensors["decoder.projection.weight"].input_scale == scale
    assert checkpoint.tensors["decoder.projection.weight"].input_scale == 3.0


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
    assert encoder.text == EncoderText(b"{}", GREATEST, token_types=False)
    limited = dataclasses.replace(model, input=GeneratorText(b"{}", max_length=7))
    assert limited.as_encoder().text.max_length == 7
    assert "encoder.embedding.weight" in encoder.tensors
    assert not any("projection" in name for name in encoder.tensors)
    assert encoder.as_encoder() is encoder and whole.as_encoder() is whole
    reranker = model.as_reranker(3, 5, PairPrompt("", "", "", "", ""))
    difference = tensors["decoder.projection.weight"][3] - tensors["decoder.projection.weight"][5]
    np.testing.assert_array_equal(reranker.tensors["head.output.weight"], difference[None])
    assert reranker.without_head().spec == encoder.spec and "head.output.weight" in reranker.tensors


def test_an_encoder_has_no_scales_of_inputs():
    assert resolve_precision("intgemm", make_checkpoint(CASES[0])).name == "int8"
