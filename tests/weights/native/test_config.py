"""The config and tensors of fastattn's own folder: older versions load, every wrong field or tensor is named."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.spec.quantized import QuantizedTensor
from fastattn.weights import read
from fastattn.weights.containers.safetensors import NewTensor, read_tensors, write_tensors
from fastattn.weights.folder import Directory
from fastattn.weights.native.config import FIRST_NAMES
from tests.encoders.classifiers import write_classifier
from tests.models.tiny_models import PARTS, random_checkpoint
from tests.models.tiny_models import VARIETIES as TINY
from tests.weights.native.folders import (
    converted,
    edit,
    encoder_model,
    ones,
    rewrite,
    set_field,
    shortlisted,
    translation_model,
)
from tests.weights.refusals import refusal


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
    assert read(converted(again, tmp_path / "again", "float32")).details["layout version"] == "2"


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
        (("precision",), "int3", "precision should be one of float32, bfloat16, int8, int4, is 'int3'"),
        (("model", "kind"), "encoder", "model.kind 'encoder' does not go with its stacks"),
        (("model", "encoder", "feed_forward", "activation"), "step", "unknown activation 'step'; known: relu"),
        (("model", "encoder", "layers"), 10**9, "1,000,000,000 layers, but "),
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
        (("files", "tokenizer"), "x.json", "files.tokenizer should be 'tokenizer.json', is 'x.json'"),
        (("files", "words"), "words.txt", "files.'words' is unknown"),
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
    set_field(folder, place, value)
    assert fault in refusal(folder)


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [("truncate_dim", 0, "at least 1, is 0"), ("truncation_side", "top", "one of right, left, is 'top'")],
)
def test_how_an_encoder_cuts_is_one_of_its_ways(tmp_path: Path, field: str, value: object, fault: str) -> None:
    folder = converted(read(encoder_model(tmp_path / "model")), tmp_path / "out", "float32")
    set_field(folder, ("text", field), value)
    assert f"text.{field} should be {fault}" in refusal(folder)


@pytest.mark.parametrize(
    "file", ("model.safetensors", "source.spm", "target.spm", "source_vocabulary.json", "target_vocabulary.json")
)
def test_a_missing_file_is_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    assert refusal(folder).endswith(f"{file}: no such file")


def test_a_config_of_someone_elses_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "format": ["fastattn"]}')
    assert "config.json: hidden_size is missing" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("[1, 2")
    assert "not JSON" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("place", "value", "fault"),
    [
        (("text", "labels"), ["a", "b"], "text.labels should be as many as the head's outputs, are 2"),
        (("text", "probabilities"), "max", "text.probabilities should be one of softmax, sigmoid, none, is 'max'"),
        (("text", "scores"), "max", "text.scores should be one of none, sigmoid, tanh, relu, is 'max'"),
        (("model", "head"), None, "text.labels should be as many as the head's outputs, are 1"),
        (("model", "head", "rows"), "all", "unknown rows of a head 'all'; known: first, last, mean, each"),
        (("model", "head", "inner_width"), 35, "head.inner.weight should be [35, 36], is [36, 36]"),
        (("model", "head", "norm"), {"kind": "rms"}, "missing head.norm.weight [36]"),
    ],
)
def test_a_wrong_head_is_refused(tmp_path: Path, place: tuple, value: object, fault: str) -> None:
    folder = converted(read(write_classifier(tmp_path / "theirs")), tmp_path / "out", "int8")
    set_field(folder, place, value)
    assert fault in refusal(folder)


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
