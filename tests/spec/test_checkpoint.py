"""What a precision comes to for a checkpoint."""

import dataclasses

import numpy as np

from fastattn.spec.checkpoint import resolve_precision
from fastattn.spec.quantized import QuantizedTensor
from tests.models.encoder_cases import CASES, make_checkpoint
from tests.models.tiny_models import random_checkpoint
from tests.weights.rows import rows


def _with_scales():
    checkpoint = random_checkpoint()
    shape = checkpoint.tensors["decoder.projection.weight"].shape
    tied = QuantizedTensor(np.ones(shape, np.int8), np.ones(shape[0], np.float32), input_scale=3.0)
    names = ("decoder.embedding.weight", "decoder.projection.weight")
    return dataclasses.replace(checkpoint, tensors={**checkpoint.tensors, **dict.fromkeys(names, tied)})


@rows(("asked", "arithmetic", "scale"), [("intgemm", "int8", 3.0), ("int8", "int8", None)])
def test_scales_of_inputs_are_intgemms_alone_and_tied_weights_stay_so(asked, arithmetic, scale):
    checkpoint = _with_scales()
    precision = resolve_precision(asked, checkpoint)
    assert (precision.name, precision.arithmetic, precision.variety != "") == (asked, arithmetic, scale is not None)
    tensors = precision.applied(checkpoint).tensors
    assert tensors["decoder.embedding.weight"] is tensors["decoder.projection.weight"]
    assert tensors["decoder.projection.weight"].input_scale == scale
    assert checkpoint.tensors["decoder.projection.weight"].input_scale == 3.0


@rows(("stored", "expected"), [("int8", "int8"), ("bfloat16", "float32"), ("float32", "float32")])
def test_auto_is_int8_where_the_checkpoint_holds_int8(stored, expected):
    checkpoint = dataclasses.replace(random_checkpoint(), precision=stored)
    assert resolve_precision("auto", checkpoint).name == resolve_precision("default", checkpoint).name == expected


def test_an_encoder_has_no_scales_of_inputs():
    assert resolve_precision("intgemm", make_checkpoint(CASES[0])).name == "int8"
