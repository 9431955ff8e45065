"""fastattn's own folder: what is converted comes back, whatever the precision."""

import dataclasses
import json
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fastattn.spec.architecture import Convolution, Disentangled, LocalSpec, ModelSpec, Rotary
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import QuantizedTensor, Tensor
from fastattn.spec.text_spec import EncoderText
from fastattn.weights import read
from fastattn.weights.containers.safetensors import ALIGNMENT, parse, write_tensors
from fastattn.weights.folder import map_file
from fastattn.weights.native import is_matrix
from fastattn.weights.native.convert import weight_bytes
from tests.models.encoder_cases import make_tensors
from tests.models.tiny_models import random_checkpoint, stack_spec
from tests.weights.ctranslate2 import writer
from tests.weights.native.folders import converted, encoder_model, shortlisted, stored, translation_model

PRECISIONS = ("float32", "bfloat16", "int8")
VARIETIES = {
    "rotary": {"rotary": True},
    "relative": {"relative_buckets": 8, "encoder_layers": 1, "decoder_layers": 1},
    "table": {"position_table": 12},
}


def expected(name: str, tensor: Tensor, precision: str) -> np.ndarray:
    """The rules told again, slowly."""
    values = tensor.float32() if isinstance(tensor, QuantizedTensor) else tensor
    if not is_matrix(name, values.shape) or precision == "float32":
        return values
    if precision == "int8":
        if isinstance(tensor, QuantizedTensor):
            return values
        multiplier = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
        return np.rint(values / multiplier).astype(np.int8) * multiplier
    # The two bfloat16 around each value, and which is nearer; halfway the one that ends in a zero bit.
    below = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    above = ((values.view(np.uint32) & 0xFFFF0000) + 0x10000).view(np.float32)
    to_below, to_above = np.abs(values - below), np.abs(above - values)
    odd = (below.view(np.uint32) >> 16) % 2 == 1
    return np.where((to_above < to_below) | ((to_above == to_below) & odd), above, below)


def check_same(original: Checkpoint, path: Path, precision: str) -> Checkpoint:
    again = read(path)
    assert (again.format, again.precision, again.spec) == ("fastattn", precision, original.spec)
    assert set(again.tensors) == set(original.tensors)
    for name, tensor in original.tensors.items():
        found = again.tensors[name]
        matrix = is_matrix(name, tensor.shape)
        assert isinstance(found, QuantizedTensor) == (matrix and precision == "int8"), name
        values = found.float32() if isinstance(found, QuantizedTensor) else found
        np.testing.assert_array_equal(values, expected(name, tensor, precision), err_msg=name)
    return again


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kept", ("float32", "int8"))
@pytest.mark.parametrize("variety", VARIETIES)
def test_a_translation_model_comes_back(tmp_path, variety, kept, precision):
    original = read(translation_model(tmp_path / "model", kept, **VARIETIES[variety]))
    again = check_same(original, converted(original, tmp_path / "out", precision), precision)
    assert again.text == original.text
    data = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert weight_bytes(original, precision) == len(data) - 8 - int.from_bytes(data[:8], "little")
    assert again.details == {"layout version": "2", "converted from": f"ctranslate2, {kept}"} | original.details


def test_a_shortlist_comes_back(tmp_path):
    original = shortlisted(tmp_path / "model")
    again = check_same(original, converted(original, tmp_path / "out", "int8"), "int8").shortlist
    assert not again.copied
    for field in ("always", "starts_V1", "targets"):
        found = getattr(again, field)
        np.testing.assert_array_equal(found, getattr(original.shortlist, field))
        assert found.dtype == np.int32
    without = dataclasses.replace(original, shortlist=None)
    assert read(converted(without, tmp_path / "without", "int8")).shortlist is None


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_encoder_comes_back(tmp_path, precision):
    original = read(encoder_model(tmp_path / "model"))
    original.text = before = dataclasses.replace(original.text, truncation_side="left", truncate_dim=3)
    after = check_same(original, converted(original, tmp_path / "out", precision), precision).text
    assert before.prompts and before.lowercase and before.default_prompt
    assert dataclasses.replace(after, dense=()) == dataclasses.replace(before, dense=())
    ((weight, bias, activation),), ((weight_again, bias_again, activation_again),) = before.dense, after.dense
    np.testing.assert_array_equal(weight_again, weight)  # a dense layer's rounding would be all of the vector's
    np.testing.assert_array_equal(bias_again, bias)
    assert activation_again == activation


ENCODERS = {
    "local layers, types and norms of heads": stack_spec(
        layers=2, width=12, heads=2, key_heads=1, head_width=6, head_norms=True, inner_width=10, vocabulary=7,
        norm="rms", output_norms=True, positions="rotary", rotary=Rotary(6, interleaved=False),
        local=LocalSpec((1,), before=3, after=2, rotary=Rotary(4, base=50.0)), causal=True, token_types=2,
        embedding_width=8,
    ),
    "disentangled attention and a convolution": stack_spec(
        layers=1, width=12, heads=2, key_heads=2, head_width=6, inner_width=10, vocabulary=7, embedding_norm=True,
        positions="disentangled", relative_buckets=4, relative_max_distance=20,
        disentangled=Disentangled(to_content=False, norm=True), embedding_width=8, norm_after_projection=True,
        convolution=Convolution(3, "gelu"),
    ),
}  # fmt: skip


def encoder_of(variety):
    spec = ModelSpec("encoder", ENCODERS[variety])
    return Checkpoint(spec, make_tensors(spec, 3), EncoderText(b"{}", max_length=9))


AVERAGE = {"average_inner_width": 9, "average_activation": "relu", "sinusoid_start": 0}
OTHERS = {name: partial(encoder_of, name) for name in ENCODERS} | {
    kind: partial(random_checkpoint, recurrence=kind, **AVERAGE) for kind in ("ssru", "average-attention")
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("variety", OTHERS)
def test_models_of_other_architectures_come_back(tmp_path, variety, precision):
    original = OTHERS[variety]()
    check_same(original, converted(original, tmp_path / "out", precision), precision)


def test_numbers_that_are_int8_already_are_kept(tmp_path):
    """Also those that no quantization here would give: -128, and rows that do not reach 127."""
    original = read(translation_model(tmp_path / "model", "int8"))
    name = "encoder.layers.0.feed_forward.inner.weight"
    held = original.tensors[name]
    values_FD = held.values_FD // 3
    values_FD[0, 0] = -128
    original.tensors = {**original.tensors, name: QuantizedTensor(values_FD, held.multipliers_F, 12.5)}
    first = read(converted(original, tmp_path / "once", "int8"))
    second = read(converted(first, tmp_path / "twice", "int8"))
    for again in (first.tensors[name], second.tensors[name]):
        np.testing.assert_array_equal(again.values_FD, values_FD)
        np.testing.assert_array_equal(again.multipliers_F, held.multipliers_F)
        assert again.input_scale == 12.5
    assert isinstance(read(converted(original, tmp_path / "plain", "float32")).tensors[name], np.ndarray)
    assert second.details == first.details


@pytest.mark.parametrize("precision", PRECISIONS)
def test_tied_weights_and_equal_files_are_there_once(tmp_path, precision):
    model = translation_model(tmp_path / "model", "int8", tied=True, target_vocabulary=23)
    writer.write_vocabularies(model, writer.vocabulary(23), writer.vocabulary(23))
    (model / "target.spm").write_bytes(b"pieces")
    original = read(model)
    path = converted(original, tmp_path / "out", precision)
    names = {"config.json", "model.safetensors", "source.spm", "source_vocabulary.json"}
    assert {file.name for file in path.iterdir()} == names
    again = check_same(original, path, precision)
    assert again.tensors["decoder.projection.weight"] is again.tensors["decoder.embedding.weight"]
    assert again.text == original.text
    assert again.text.target_vocabulary is again.text.source_vocabulary


@pytest.mark.parametrize("precision", (*PRECISIONS, "int4"))
def test_the_library_reads_the_same_numbers(tmp_path, precision):
    library = pytest.importorskip("safetensors")
    path = converted(read(translation_model(tmp_path / "model", width=32)), tmp_path / "out", precision)
    ours = parse(map_file(path / "model.safetensors"), "")
    expected = {name: (one.dtype, list(one.shape), bytes(one.data)) for name, one in ours.items()}
    found = library.deserialize((path / "model.safetensors").read_bytes())
    assert {name: (one["dtype"], one["shape"], bytes(one["data"])) for name, one in found} == expected


def test_arrays_lie_where_vectors_are_read_fast(tmp_path):
    shapes = {"odd": (3, 5), "even": (4, 32), "one": (1,), "none": (0, 7), "long": (640,)}
    kinds = {"I8": "i1", "BF16": "u2", "F32": "f4"}
    arrays = {f"{dtype} {name}": np.ones(shapes[name], kinds[dtype]) for name in shapes for dtype in kinds}
    tensors = {name: stored(array, name.split()[0]) for name, array in arrays.items()}
    steps = []
    with (tmp_path / "x").open("wb") as stream:
        write_tensors(stream, tensors, lambda done, total: steps.append((done, total)))
    data = (tmp_path / "x").read_bytes()
    length = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8 : 8 + length]).items():
        begin, end = entry["data_offsets"]
        itemsize = np.dtype(kinds[entry["dtype"]]).itemsize
        assert (8 + length + begin) % (itemsize if (end - begin) % ALIGNMENT else ALIGNMENT) == 0, name
    assert len(steps) == len(tensors) and steps[-1] == (len(data) - 8 - length,) * 2
    assert steps == sorted(steps)


def test_nothing_is_copied_when_a_model_is_read(tmp_path):
    checkpoint = random_checkpoint(width=256, heads=4, key_heads=4, head_width=64, inner_width=1024)
    for precision in ("float32", "int8"):
        path = converted(checkpoint, tmp_path / precision, precision)
        size = (path / "model.safetensors").stat().st_size
        read(path)  # whatever is made once
        tracemalloc.start()
        again = read(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert again.tensors and peak < size / 8, (precision, peak, size)
