"""fastattn's own folder: what is converted comes back, whatever the precision; what is damaged is named."""

import dataclasses
import json
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn.checkpoint import Checkpoint, Shortlist
from fastattn.errors import CheckpointError
from fastattn.quantized import QuantizedTensor, Tensor
from fastattn.rounding import bfloat16_bits
from fastattn.text_spec import EncoderText, TranslationText
from fastattn.weights import read
from fastattn.weights.containers.json_file import is_text
from fastattn.weights.containers.safetensors import ALIGNMENT, NewTensor, read_tensors, write_tensors
from fastattn.weights.folder import Directory
from fastattn.weights.native import convert
from fastattn.weights.native.arrays import is_matrix
from fastattn.weights.native.config import FIRST_NAMES
from tests.models.specs import PARTS
from tests.models.tiny_models import VARIETIES as TINY
from tests.models.tiny_models import random_checkpoint
from tests.weights.ctranslate2 import writer
from tests.weights.mutation_subjects import sentence_transformer_files

PRECISIONS = ("float32", "bfloat16", "int8")
VARIETIES = {
    "rotary": {"rotary": True},
    "relative": {"relative_buckets": 8, "encoder_layers": 1, "decoder_layers": 1},
    "table": {"position_table": 12},
}


def translation_model(path: Path, precision: str = "float32", tied: bool = False, **shape: Any) -> Path:
    """A CTranslate2 folder; ``tied``: the projection is the target's embedding."""
    variables = writer.random_transformer(np.random.default_rng(5), **shape)
    if precision != "float32":
        variables = writer.quantize(variables, precision)
    aliases = {}
    if tied:
        for name in [name for name in variables if name.startswith("decoder/projection/weight")]:
            del variables[name]
            aliases[name] = name.replace("projection", "embeddings")
    writer.write_model(path, variables, aliases=aliases)
    writer.write_vocabularies(path, writer.vocabulary(23), writer.vocabulary(19))
    writer.write_config(path, decoder_start_token=None, add_source_eos=True)
    for name, content in (("source.spm", b"pieces"), ("target.spm", b"other pieces")):
        (path / name).write_bytes(content)
    return path


def encoder_model(path: Path) -> Path:
    """A sentence-transformers folder with a dense layer, prompts and all."""
    for name, content in sentence_transformer_files().items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def converted(checkpoint: Checkpoint, path: Path, precision: str) -> Path:
    path.mkdir()
    convert.write(path, checkpoint, precision)
    return path


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


def test_text_is_what_utf8_can_hold() -> None:
    assert is_text("") and is_text("\u00e9\U0001f600") and not is_text("a\ud800") and not is_text(3)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kept", ("float32", "int8"))
@pytest.mark.parametrize("variety", VARIETIES)
def test_a_translation_model_comes_back(tmp_path: Path, variety: str, kept: str, precision: str) -> None:
    original = read(translation_model(tmp_path / "model", kept, **VARIETIES[variety]))
    again = check_same(original, converted(original, tmp_path / "out", precision), precision)
    assert again.text == original.text
    assert again.details == {"layout version": "2", "converted from": f"ctranslate2, {kept}"} | original.details


def shortlisted(path: Path, copied: bool = False) -> Checkpoint:
    """A translation model whose source words add the target words 5 and 6, 7, nothing ..."""
    arrays = (np.array(ids, np.int32) for ids in ([0, 3], [0, 2, 3, *[3] * 21], [5, 6, 7]))
    return dataclasses.replace(read(translation_model(path)), shortlist=Shortlist(*arrays, copied=copied))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_shortlist_comes_back(tmp_path: Path, precision: str) -> None:
    original = shortlisted(tmp_path / "model")
    again = check_same(original, converted(original, tmp_path / "out", precision), precision).shortlist
    assert again is not None and original.shortlist is not None and not again.copied
    for field in ("always", "starts_V1", "targets"):
        found = getattr(again, field)
        np.testing.assert_array_equal(found, getattr(original.shortlist, field))
        assert found.dtype == np.int32
    without = dataclasses.replace(original, shortlist=None)
    assert read(converted(without, tmp_path / "without", precision)).shortlist is None


@pytest.mark.parametrize(
    "changes, fault",
    [
        ({"shortlist.starts": None}, "shortlist.starts should be there, I32 of one dimension"),
        ({"shortlist.targets": np.zeros(3, np.float32)}, "shortlist.targets should be there, I32 of one dimension"),
        ({"shortlist.always": np.zeros((1, 2), np.int32)}, "shortlist.always should be there, I32 of one dimension"),
        ({"shortlist.starts": np.zeros(23, np.int32)}, "shortlist.starts should hold 24 numbers"),
        ({"shortlist.starts": np.zeros(24, np.int32)}, "the offsets should rise from 0 to 3"),
        ({"shortlist.starts": np.array([0, 3, 2, *[3] * 21], np.int32)}, "the offsets should rise from 0 to 3"),
        ({"shortlist.targets": np.array([5, 19, 7], np.int32)}, "target id 19 is outside the vocabulary of 19 tokens"),
        ({"shortlist.always": np.array([-1], np.int32)}, "target id -1 is outside the vocabulary of 19 tokens"),
    ],
    ids=str,
)
def test_shortlists_that_do_not_fit_are_named(tmp_path: Path, changes: dict, fault: str) -> None:
    path = converted(shortlisted(tmp_path / "model"), tmp_path / "out", "float32")
    arrays = {name: tensor.array() for name, tensor in read_tensors(Directory(path), "model.safetensors").items()}
    arrays = {name: values for name, values in (arrays | changes).items() if values is not None}
    kinds = {"float32": "F32", "int32": "I32"}
    tensors = {
        name: NewTensor(kinds[values.dtype.name], values.shape, partial(np.asarray, values.copy()))
        for name, values in arrays.items()
    }
    (path / "model.safetensors").unlink()
    with (path / "model.safetensors").open("wb") as stream:
        write_tensors(stream, tensors)
    with pytest.raises(CheckpointError) as error:
        read(path)
    assert fault in str(error.value) and "\n" not in str(error.value)


def test_no_vocabulary_but_one_as_large_can_be_copied_to(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="23 source tokens cannot be copied to a target vocabulary of 19"):
        read(converted(shortlisted(tmp_path / "model", copied=True), tmp_path / "out", "int8"))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_encoder_comes_back(tmp_path: Path, precision: str) -> None:
    original = read(encoder_model(tmp_path / "model"))
    again = check_same(original, converted(original, tmp_path / "out", precision), precision)
    before, after = original.text, again.text
    assert isinstance(before, EncoderText) and isinstance(after, EncoderText)
    assert before.prompts and before.lowercase and before.default_prompt and before.dense
    for name in EncoderText.__dataclass_fields__:
        if name != "dense":
            assert getattr(after, name) == getattr(before, name), name
    for (weight, bias, activation), (weight_again, bias_again, activation_again) in zip(
        before.dense, after.dense, strict=True
    ):
        np.testing.assert_array_equal(weight_again, weight)  # a dense layer's rounding would be all of the vector's
        np.testing.assert_array_equal(bias_again, bias)
        assert activation_again == activation


def test_numbers_that_are_int8_already_are_kept(tmp_path: Path) -> None:
    """Also those that no quantization here would give: -128, and rows that do not reach 127."""
    original = read(translation_model(tmp_path / "model", "int8"))
    name = "encoder.layers.0.feed_forward.inner.weight"
    held = original.tensors[name]
    assert isinstance(held, QuantizedTensor)
    values_FD = held.values_FD // 3
    values_FD[0, 0] = -128
    original.tensors = {**original.tensors, name: QuantizedTensor(values_FD, held.multipliers_F, 12.5)}
    first = read(converted(original, tmp_path / "once", "int8"))
    second = read(converted(first, tmp_path / "twice", "int8"))
    for again in (first.tensors[name], second.tensors[name]):
        assert isinstance(again, QuantizedTensor)
        np.testing.assert_array_equal(again.values_FD, values_FD)
        np.testing.assert_array_equal(again.multipliers_F, held.multipliers_F)
        assert again.input_scale == 12.5
    assert isinstance(read(converted(original, tmp_path / "plain", "float32")).tensors[name], np.ndarray)
    assert second.details == first.details


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("recurrence", ["ssru", "average-attention"])
def test_decoders_without_attention_come_back(tmp_path: Path, precision: str, recurrence: str) -> None:
    changes = {"average_inner_width": 9, "average_activation": "relu", "sinusoid_start": 0}
    original = random_checkpoint(recurrence=recurrence, **changes)
    again = check_same(original, converted(original, tmp_path / "out", precision), precision)
    decoder = again.spec.decoder
    assert decoder is not None and decoder.recurrence is not None
    assert (decoder.recurrence.kind, decoder.positions.start, decoder.recurrence.inner_width) == (recurrence, 0, 9)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_tied_weights_and_equal_files_are_there_once(tmp_path: Path, precision: str) -> None:
    model = translation_model(tmp_path / "model", "int8", tied=True, target_vocabulary=23)
    writer.write_vocabularies(model, writer.vocabulary(23), writer.vocabulary(23))
    (model / "target.spm").write_bytes(b"pieces")
    original = read(model)
    path = converted(original, tmp_path / "out", precision)
    assert sorted(file.name for file in path.iterdir()) == [
        "config.json",
        "model.safetensors",
        "source.spm",
        "source_vocabulary.json",
    ]
    again = check_same(original, path, precision)
    assert again.tensors["decoder.projection.weight"] is again.tensors["decoder.embedding.weight"]
    assert again.text == original.text
    assert isinstance(again.text, TranslationText)
    assert again.text.target_vocabulary is again.text.source_vocabulary


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_library_reads_the_same_numbers(tmp_path: Path, precision: str) -> None:
    library = pytest.importorskip("safetensors")
    original = read(translation_model(tmp_path / "model"))
    path = converted(original, tmp_path / "out", precision)
    tensors = read(path).tensors
    data = (path / "model.safetensors").read_bytes()
    found = {name: (entry["dtype"], entry["shape"], entry["data"]) for name, entry in library.deserialize(data)}
    for name, tensor in tensors.items():
        dtype, shape, raw = found.pop(name)
        assert tuple(shape) == tensor.shape
        if isinstance(tensor, QuantizedTensor):
            assert (dtype, bytes(raw)) == ("I8", tensor.values_FD.tobytes())
            assert found.pop(f"{name}.multiplier") == ("F32", [tensor.shape[0]], tensor.multipliers_F.tobytes())
        elif is_matrix(name, tensor.shape) and precision == "bfloat16":
            assert (dtype, bytes(raw)) == ("BF16", bfloat16_bits(tensor).tobytes())
        else:
            assert (dtype, bytes(raw)) == ("F32", tensor.tobytes())
    assert not found


def test_arrays_lie_where_vectors_are_read_fast(tmp_path: Path) -> None:
    shapes = {"odd": (3, 5), "even": (4, 32), "one": (1,), "none": (0, 7), "long": (640,)}
    tensors = {
        f"{dtype} {name}": NewTensor(dtype, shape, lambda shape=shape, kind=kind: np.ones(shape, kind))  # type: ignore[misc]
        for name, shape in shapes.items()
        for dtype, kind in (("I8", np.int8), ("BF16", np.uint16), ("F32", np.float32))
    }
    steps: list[tuple[int, int]] = []
    with (tmp_path / "x").open("wb") as stream:
        write_tensors(stream, tensors, lambda done, total: steps.append((done, total)))
    data = (tmp_path / "x").read_bytes()
    length = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8 : 8 + length]).items():
        begin, end = entry["data_offsets"]
        itemsize = {"I8": 1, "BF16": 2, "F32": 4}[entry["dtype"]]
        assert (8 + length + begin) % (itemsize if (end - begin) % ALIGNMENT else ALIGNMENT) == 0, name
    assert len(steps) == len(tensors) and steps[-1] == (len(data) - 8 - length,) * 2
    assert steps == sorted(steps)


def test_nothing_is_copied_when_a_model_is_read(tmp_path: Path) -> None:
    checkpoint = random_checkpoint(width=256, heads=4, key_heads=4, head_width=64, inner_width=1024)
    for precision in ("float32", "int8"):
        path = converted(checkpoint, tmp_path / precision, precision)
        size = (path / "model.safetensors").stat().st_size
        read(path)  # whatever is made once
        tracemalloc.start()
        again = read(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < size / 8, (precision, peak, size)
        assert again.tensors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return converted(read(translation_model(tmp_path / "model", tied=True)), tmp_path / "out", "int8")


def edit(folder: Path, change: Any) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change(config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_another_version_is_refused(folder: Path) -> None:
    edit(folder, lambda config: config.update(version=3, new="things"))
    assert refusal(folder).endswith("config.json: version 3 of fastattn's folders is not known; known: 1, 2")


def test_a_folder_written_before_the_youngest_fields_loads(folder: Path) -> None:
    new = read(folder)

    def change(config: dict) -> None:
        del config["copied"], config["text"]["single_sentences"]
        for stack in ("encoder", "decoder"):
            del config["model"][stack]["recurrence"], config["model"][stack]["positions"]["start"]

    edit(folder, change)
    old = read(folder)
    assert (old.spec, old.text) == (new.spec, new.text)


def as_first_version(config: dict) -> None:
    """The fields of a stack's parts side by side, by the names that they had."""
    config["version"] = 1
    for stack in config["model"].values():
        if isinstance(stack, dict):
            recurrence = stack.pop("recurrence")
            stack["autoregression"] = "self-attention" if recurrence is None else recurrence["kind"]
            fields = {name: stack.pop(name) for name in PARTS if name in stack} | {"recurrence": recurrence or {}}
            for name, (part, field) in FIRST_NAMES.items():
                if field in fields[part]:
                    stack.setdefault(name, fields[part][field])


@pytest.mark.parametrize("variety", ["pre-norm", "rotary", "alibi", "relative", "table", "average", "recurrent"])
def test_a_folder_of_the_first_version_loads(tmp_path: Path, variety: str) -> None:
    original = random_checkpoint(**TINY[variety], alignment_layer=0, alignment_heads=2)
    folder = converted(original, tmp_path / "out", "float32")
    edit(folder, as_first_version)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["model"]["decoder"]["heads"] == 4 and "attention" not in config["model"]["decoder"]
    again = read(folder)
    assert again.spec == original.spec and again.details["layout version"] == "1"


def test_a_damaged_folder_of_the_first_version_is_refused(folder: Path) -> None:
    edit(folder, as_first_version)
    edit(folder, lambda config: config["model"]["encoder"].update(heads=True, attention=5))
    assert "model.encoder.attention.heads should be an integer of 32 bits, is True" in refusal(folder)
    for wrong in ("x", {"kind": "encoder", "encoder": 3}, None):
        edit(folder, partial(dict.update, model=wrong))
        refusal(folder)


def test_all_wrong_fields_are_named_at_once(folder: Path) -> None:
    def change(config: dict) -> None:
        del config["details"]
        config["colour"] = "red"
        config["model"]["encoder"]["width"] = "16"
        config["model"]["encoder"]["attention"]["heads"] = True
        config["model"]["decoder"]["norms"]["epsilon"] = 1e300
        config["text"]["add_source_bos"] = 1
        del config["model"]["decoder"]["layers"]

    edit(folder, change)
    message = refusal(folder)
    for fault in (
        "details is missing",
        "'colour' is unknown",
        "model.encoder.width should be an integer of 32 bits, is '16'",
        "model.encoder.attention.heads should be an integer of 32 bits, is True",
        "model.decoder.norms.epsilon should be a number of float32, is 1e+300",
        "text.add_source_bos should be true or false, is 1",
        "model.decoder.layers is missing",
    ):
        assert fault in message, (fault, message)


@pytest.mark.parametrize(
    "place, value, fault",
    [
        (("precision",), "int4", "precision should be one of float32, bfloat16, int8, is 'int4'"),
        (("model", "kind"), "encoder", "model.kind 'encoder' does not go with its stacks"),
        (("model", "encoder", "feed_forward", "activation"), "step", "unknown activation 'step'; known: relu"),
        (("model", "encoder", "layers"), 10**9, "1000000000 layers, but "),
        (("model", "encoder", "layers"), 10**10, "should be an integer of 32 bits"),
        (("model", "encoder", "cross_attention"), True, "cross_attention should be the decoder's"),
        (("model", "decoder", "alignment", "layer"), 7, "model.decoder.alignment.layer and alignment.heads do not fit"),
        (("model", "decoder", "positions", "limit"), -1, "model.decoder.positions.limit should not be negative"),
        (
            ("model", "decoder", "positions", "rotary"),
            {"width": 3, "base": 0, "interleaved": False, "scale": 1},
            "above zero",
        ),
        (("model", "decoder", "positions", "rotary"), {"base": 2}, "decoder.positions.rotary.width is missing"),
        (("model", "encoder", "feed_forward", "inner_width"), 25, "tensors do not fit the architecture"),
        (("files", "source_model"), "../source.spm", "files.source_model should be 'source.spm', is '../source.spm'"),
        (("files", "source_model"), "target.spm", "files.source_model should be 'source.spm', is 'target.spm'"),
        (("files", "source_model"), "/etc/passwd", "files.source_model should be 'source.spm', is '/etc/passwd'"),
        (("files", "tokenizer"), "tokenizer.json", "files.'tokenizer' is unknown"),
        (("files",), {}, "files.source_vocabulary is missing; files.target_vocabulary is missing"),
        (("dense",), ["none"], "dense layers follow an encoder"),
        (("tied",), {"decoder.projection.weight": "x"}, "'decoder.projection.weight' cannot be tied to 'x'"),
        (("tied",), {"encoder.embedding.weight": "decoder.embedding.weight"}, "cannot be tied to"),
        (("tied",), {"\n": "decoder.embedding.weight"}, "'\\n' cannot be tied to"),
        (("tied",), {}, "missing decoder.projection.weight"),
        (("text", "unk_token"), "nothing", "the source vocabulary lacks 'nothing'"),
        (("text", "eos_token"), "▁w18", "the target vocabulary lacks "),
    ],
)
def test_each_wrong_field_is_named(folder: Path, place: tuple[str, ...], value: object, fault: str) -> None:
    def change(config: dict) -> None:
        for key in place[:-1]:
            config = config[key]
        config[place[-1]] = value

    edit(folder, change)
    assert fault in refusal(folder)


@pytest.mark.parametrize(
    "file", ("model.safetensors", "source.spm", "target.spm", "source_vocabulary.json", "target_vocabulary.json")
)
def test_a_missing_file_is_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    assert refusal(folder).endswith(f"{file}: no such file")


def rewrite(folder: Path, change: Any) -> None:
    """Change the tensors of a folder's file, by name as NewTensors."""

    def kept(tensor: Any) -> NewTensor:
        kind = {"F32": "<f4", "BF16": "<u2", "I8": "i1"}[tensor.dtype]
        values = np.frombuffer(bytes(tensor.data), kind).reshape(tensor.shape)
        return NewTensor(tensor.dtype, tensor.shape, lambda: values)

    tensors = {name: kept(tensor) for name, tensor in read_tensors(Directory(folder), "model.safetensors").items()}
    change(tensors)
    with (folder / "changed").open("wb") as stream:
        write_tensors(stream, tensors)
    (folder / "changed").replace(folder / "model.safetensors")


def ones(dtype: str, *shape: int) -> NewTensor:
    return NewTensor(dtype, shape, lambda: np.ones(shape, {"F32": "f4", "I8": "i1", "BF16": "u2"}[dtype]))


WEIGHT = "encoder.layers.1.feed_forward.outer.weight"
NOTHING = NewTensor("F32", (1,), lambda: np.zeros(1, np.float32))


@pytest.mark.parametrize(
    "changes, fault",
    [
        ({WEIGHT: None}, f"missing {WEIGHT} [16, 24]; unexpected {WEIGHT}.multiplier [16]"),
        ({f"{WEIGHT}.multiplier": None}, f"{WEIGHT}.multiplier should be there, F32 [16]"),
        ({f"{WEIGHT}.multiplier": ones("F32", 24)}, f"{WEIGHT}.multiplier should be there, F32 [16]"),
        ({f"{WEIGHT}.multiplier": ones("I8", 16)}, f"{WEIGHT}.multiplier should be there, F32 [16]"),
        ({WEIGHT: ones("F32", 16, 24)}, f"unexpected {WEIGHT}.multiplier [16]"),
        ({f"{WEIGHT}.input_scale": ones("F32", 2)}, f"{WEIGHT}.input_scale should be F32 [1]"),
        ({f"{WEIGHT}.input_scale": ones("I8", 1)}, f"{WEIGHT}.input_scale should be F32 [1]"),
        ({f"{WEIGHT}.input_scale": NOTHING}, f"{WEIGHT}: an input scale should be a number from 1e-30"),
        ({f"{WEIGHT}.input_factors": ones("F32", 16)}, f"{WEIGHT}.input_factors should be F32 [24]"),
        ({f"{WEIGHT}.input_factors": ones("I8", 24)}, f"{WEIGHT}.input_factors should be F32 [24]"),
        (
            {f"{WEIGHT}.input_factors": ones("F32", 24), f"{WEIGHT}.input_scale": ones("F32", 1)},
            f"{WEIGHT}: inputs have a scale or factors, not both",
        ),
        ({"encoder.final_norm.weight.input_scale": ones("F32", 1)}, "unexpected encoder.final_norm.weight.input_scale"),
        ({"extra": ones("F32", 2)}, "unexpected extra [2]"),
        ({"encoder.final_norm.weight": ones("I8", 16)}, "encoder.final_norm.weight should be F32 or BF16, is I8"),
        ({"encoder.final_norm.weight": ones("F32", 17)}, "encoder.final_norm.weight should be [16], is [17]"),
    ],
)
def test_tensors_that_do_not_fit_are_named(folder: Path, changes: dict, fault: str) -> None:
    def change(tensors: dict) -> None:
        tensors.update(changes)
        for name in [name for name, tensor in tensors.items() if tensor is None]:
            del tensors[name]

    rewrite(folder, lambda tensors: None)
    read(folder)
    rewrite(folder, change)
    assert fault in refusal(folder)


def test_positions_are_never_int8(tmp_path: Path) -> None:
    """A table of positions is a matrix too, which nothing would read as int8."""
    original = read(translation_model(tmp_path / "model", position_table=12))
    folder = converted(original, tmp_path / "out", "int8")
    assert isinstance(read(folder).tensors["encoder.positions"], np.ndarray)
    rewrite(folder, lambda tensors: tensors.update({"encoder.positions": ones("I8", 12, 16)}))
    assert "encoder.positions should be F32 or BF16, is I8" in refusal(folder)


def test_positions_that_are_tied_to_an_int8_table_are_its_numbers(tmp_path: Path) -> None:
    rows = 19  # of the table of the decoder's embeddings
    folder = converted(read(translation_model(tmp_path / "model", position_table=rows)), tmp_path / "out", "int8")
    rewrite(folder, lambda tensors: tensors.pop("decoder.positions"))
    edit(folder, lambda config: config["tied"].update({"decoder.positions": "decoder.embedding.weight"}))
    tensors = read(folder).tensors
    table = tensors["decoder.embedding.weight"]
    assert isinstance(table, QuantizedTensor)
    np.testing.assert_array_equal(tensors["decoder.positions"], table.float32())


def test_dense_layers_that_do_not_fit_are_named(tmp_path: Path) -> None:
    original = read(encoder_model(tmp_path / "model"))
    for number, (changes, fault) in enumerate(
        (
            ({"dense.0.weight": ones("F32", 5)}, "dense.0.weight should be there, [outputs, inputs]"),
            ({"dense.0.bias": ones("F32", 6)}, "dense.0.bias should be [5], is [6]"),
            ({"dense.1.weight": ones("F32", 5, 5)}, "unexpected dense.1.weight [5, 5]"),
        )
    ):
        folder = converted(original, tmp_path / f"out{number}", "int8")
        rewrite(folder, lambda tensors, changes=changes: tensors.update(changes))
        assert fault in refusal(folder)


def test_a_config_of_someone_elses_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "format": ["fastattn"]}')
    assert "config.json: hidden_size is missing" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("[1, 2")
    assert "not JSON" in refusal(tmp_path)
