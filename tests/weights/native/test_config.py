"""The config and tensors of fastattn's own folder: older versions load, every wrong field or tensor is named."""

import json
from functools import partial

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.spec.quantized import QuantizedTensor
from fastattn.weights import read
from fastattn.weights.native import VERSION_1_NAMES
from tests.encoders.classifiers import write_classifier
from tests.messages import refused
from tests.models.tiny_models import PARTS, random_checkpoint
from tests.models.tiny_models import VARIETIES as TINY
from tests.weights.native.folders import (
    converted,
    edit,
    encoder_model,
    filled,
    rewrite,
    set_field,
    shortlisted,
    stored,
    translation_model,
)
from tests.weights.refusals import refuses

MODELS = {
    "translator": lambda path: read(translation_model(path, tied=True)), "shortlist": shortlisted,
    "encoder": lambda path: read(encoder_model(path)), "classifier": lambda path: read(write_classifier(path)),
}  # fmt: skip


def folder_of(kind, path):
    return converted(MODELS[kind](path / "model"), path / "out", "int8")


@pytest.fixture
def folder(tmp_path):
    return folder_of("translator", tmp_path)


def test_a_folder_written_before_the_youngest_fields_loads(folder):
    new = read(folder)

    def change(config):
        del config["copied"], config["text"]["single_sentences"]
        for stack in ("encoder", "decoder"):
            del config["model"][stack]["recurrence"], config["model"][stack]["positions"]["start"]

    edit(folder, change)
    old = read(folder)
    assert (old.spec, old.text) == (new.spec, new.text)


def as_first_version(config):
    """The fields of a stack's parts side by side, by the names that they had."""
    config["version"] = 1
    for stack in config["model"].values():
        if isinstance(stack, dict):
            recurrence = stack.pop("recurrence")
            stack["autoregression"] = "self-attention" if recurrence is None else recurrence["kind"]
            fields = {name: stack.pop(name) for name in PARTS if name in stack} | {"recurrence": recurrence or {}}
            for name, (part, field) in VERSION_1_NAMES.items():
                if field in fields[part]:
                    stack.setdefault(name, fields[part][field])


@pytest.mark.parametrize("variety", ["pre-norm", "rotary", "alibi", "relative", "table", "average", "recurrent"])
def test_a_folder_of_the_first_version_loads(tmp_path, variety):
    original = random_checkpoint(**TINY[variety], alignment_layer=0, alignment_heads=2)
    folder = converted(original, tmp_path / "out", "float32")
    edit(folder, as_first_version)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["model"]["decoder"]["heads"] == 4 and "attention" not in config["model"]["decoder"]
    again = read(folder)
    assert again.spec == original.spec and again.details["layout version"] == "1"
    assert read(converted(again, tmp_path / "again", "float32")).details["layout version"] == "2"


def test_a_damaged_folder_of_the_first_version_is_refused(folder):
    edit(folder, as_first_version)
    edit(folder, lambda config: config["model"]["encoder"].update(heads=True, attention=5))
    refuses(folder)
    for wrong in ("x", {"kind": "encoder", "encoder": 3}, None):
        edit(folder, partial(dict.update, model=wrong))
        refuses(folder)


WRONG = [
    ("colour", "red"), ("model.encoder.width", "16"), ("model.encoder.attention.heads", True),
    ("model.decoder.norms.epsilon", 1e300), ("text.add_source_bos", 1),
]  # fmt: skip


def test_all_wrong_fields_are_named_at_once(folder):
    for place, value in WRONG:
        set_field(folder, place.split("."), value)
    edit(folder, lambda config: (config.pop("details"), config["model"]["decoder"].pop("layers")))
    refuses(folder)


ROTARY = {"width": 3, "base": 0, "interleaved": False, "scale": 1}
EMBEDDING = "decoder.embedding.weight"
# Kind of model -> (a field, a wrong value).
FIELDS = {
    "translator": [
        ("version", 3), ("precision", "int3"), ("model.kind", "encoder"), ("model.encoder.layers", 10**9),
        ("model.encoder.layers", 10**10), ("model.encoder.feed_forward.activation", "step"),
        ("model.encoder.cross_attention", True), ("model.decoder.alignment.layer", 7),
        ("model.decoder.positions.limit", -1), ("model.decoder.positions.rotary", ROTARY),
        ("model.decoder.positions.rotary", {"base": 2}), ("model.encoder.feed_forward.inner_width", 25),
        ("files.source_model", "../source.spm"), ("files.source_model", "target.spm"), ("files.tokenizer", "x.json"),
        ("files.words", "words.txt"), ("files", {}), ("dense", ["none"]), ("tied", {"decoder.projection.weight": "x"}),
        ("tied", {"encoder.embedding.weight": EMBEDDING}), ("tied", {"\n": EMBEDDING}), ("tied", {}),
        ("text.unk_token", "nothing"), ("text.eos_token", "▁w18"),
    ],
    "encoder": [("text.truncate_dim", 0), ("text.truncation_side", "top")],
    "classifier": [
        ("text.labels", ["a", "b"]), ("text.probabilities", "max"), ("text.scores", "max"), ("model.head", None),
        ("model.head.rows", "all"), ("model.head.inner_width", 35), ("model.head.norm", {"kind": "rms"}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", FIELDS)
def test_each_wrong_field_is_named(tmp_path, kind):
    folder = folder_of(kind, tmp_path)
    right = (folder / "config.json").read_bytes()
    for place, value in FIELDS[kind]:
        set_field(folder, place.split("."), value)
        refuses(folder)
        (folder / "config.json").write_bytes(right)
    read(folder)


def test_a_missing_file_is_named(folder, tmp_path):
    for name in ("model.safetensors", "source.spm", "target.spm", "source_vocabulary.json", "target_vocabulary.json"):
        (folder / name).rename(tmp_path / name)
        refuses(folder, f"{name}: no such file")
        (tmp_path / name).rename(folder / name)


def test_a_config_of_someone_elses_is_not_taken(tmp_path):
    for text in ('{"model_type": "bert", "format": ["fastattn"]}', "[1, 2"):
        (tmp_path / "config.json").write_text(text)
        refuses(tmp_path)


WEIGHT, NORM = "encoder.layers.1.feed_forward.outer.weight", "encoder.final_norm.weight"
MULTIPLIER, SCALE, FACTORS = (f"{WEIGHT}.{end}" for end in ("multiplier", "input_scale", "input_factors"))
ALWAYS, STARTS, TARGETS = (f"shortlist.{name}" for name in ("always", "starts", "targets"))
# Kind of model -> tensors in place of its own; None: left out.
TENSORS = {
    "translator": [
        {WEIGHT: None}, {MULTIPLIER: None}, {MULTIPLIER: filled("F32", 24)}, {MULTIPLIER: filled("I8", 16)},
        {WEIGHT: filled("F32", 16, 24)}, {SCALE: filled("F32", 2)}, {SCALE: filled("I8", 1)},
        {SCALE: stored(np.zeros(1, np.float32))}, {FACTORS: filled("F32", 16)}, {FACTORS: filled("I8", 24)},
        {FACTORS: filled("F32", 24), SCALE: filled("F32", 1)}, {f"{NORM}.input_scale": filled("F32", 1)},
        {"extra": filled("F32", 2)}, {NORM: filled("I8", 16)}, {NORM: filled("F32", 17)},
    ],
    "encoder": [
        {"dense.0.weight": filled("F32", 5)}, {"dense.0.bias": filled("F32", 6)},
        {"dense.1.weight": filled("F32", 5, 5)},
    ],
    "shortlist": [
        {STARTS: None}, {TARGETS: stored(np.zeros(3, np.float32))}, {ALWAYS: stored(np.zeros((1, 2), np.int32))},
        {STARTS: stored(np.zeros(23, np.int32))}, {STARTS: stored(np.zeros(24, np.int32))},
        {STARTS: stored(np.array([0, 3, 2, *[3] * 21], np.int32))},
        {TARGETS: stored(np.array([5, 19, 7], np.int32))}, {ALWAYS: stored(np.array([-1], np.int32))},
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_that_do_not_fit_are_named(tmp_path, kind):
    folder = folder_of(kind, tmp_path)
    right = (folder / "model.safetensors").read_bytes()
    for changes in TENSORS[kind]:
        rewrite(folder, changes)
        refuses(folder)
        (folder / "model.safetensors").write_bytes(right)
    rewrite(folder, {})
    read(folder)


def test_positions_are_int8_only_where_they_are_tied_to_an_int8_table(tmp_path):
    """A table of positions is a matrix too, which nothing would read as int8."""
    rows = 19  # of the table of the decoder's embeddings
    folder = converted(read(translation_model(tmp_path / "model", position_table=rows)), tmp_path / "out", "int8")
    assert isinstance(read(folder).tensors["encoder.positions"], np.ndarray)
    rewrite(folder, {"decoder.positions": filled("I8", rows, 16)})
    refuses(folder)
    rewrite(folder, {"decoder.positions": None})
    edit(folder, lambda config: config["tied"].update({"decoder.positions": EMBEDDING}))
    tensors = read(folder).tensors
    table = tensors[EMBEDDING]
    assert isinstance(table, QuantizedTensor)
    np.testing.assert_array_equal(tensors["decoder.positions"], table.float32())


def test_no_vocabulary_but_one_as_large_can_be_copied_to(tmp_path):
    with refused(CheckpointError, "23", "19"):
        read(converted(shortlisted(tmp_path / "model", copied=True), tmp_path / "out", "int8"))
