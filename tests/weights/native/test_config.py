"""The config of fastattn's own folder: older versions load, and every wrong field is named."""

import json
from functools import partial
from pathlib import Path

import pytest

from fastattn.weights import read
from fastattn.weights.native.config import FIRST_NAMES
from tests.encoders.classifiers import write_classifier
from tests.models.tiny_models import PARTS, random_checkpoint
from tests.models.tiny_models import VARIETIES as TINY
from tests.weights.native.folders import converted, edit, encoder_model
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


def test_vectors_of_no_numbers_are_refused(tmp_path: Path) -> None:
    folder = converted(read(encoder_model(tmp_path / "model")), tmp_path / "out", "float32")
    edit(folder, lambda config: config["text"].update(truncate_dim=0))
    assert "text.truncate_dim should be at least 1, is 0" in refusal(folder)


def test_an_unknown_truncation_side_is_named(tmp_path: Path) -> None:
    folder = converted(read(encoder_model(tmp_path / "model")), tmp_path / "out", "float32")
    edit(folder, lambda config: config["text"].update(truncation_side="top"))
    assert "text.truncation_side should be one of right, left, is 'top'" in refusal(folder)


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

    def change(config: dict) -> None:
        for name in place[:-1]:
            config = config[name]
        config[place[-1]] = value

    edit(folder, change)
    assert fault in refusal(folder)
