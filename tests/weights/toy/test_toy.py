"""An exporter that was added by the steps of docs/architecture.md: its models work as those they were written from."""

import json
from pathlib import Path

import numpy as np
import pytest

from fastattn import weights
from fastattn.errors import CheckpointError
from fastattn.translation.translator import Translator
from tests import import_table, test_imports
from tests.models.tiny_models import random_checkpoint, vocabulary
from tests.weights import toy
from tests.weights.toy.writer import write

SENTENCES = [["▁w3"], ["▁w4", "▁w9", "▁w4"], ["▁w15", "▁w1", "▁w8", "▁w2", "▁w11"]]


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "EXPORTERS", weights.EXPORTERS | {"toy": lambda: toy})


def original():
    return random_checkpoint(5, projection_bias=True)


def test_it_translates_as_the_checkpoint_that_it_was_written_from(tmp_path: Path) -> None:
    ours, theirs = Translator.from_checkpoint(original(), threads=1), Translator(write(tmp_path, original()), threads=1)
    for options in ({"beam_size": 1}, {"beam_size": 3, "num_hypotheses": 3, "length_penalty": 0.5}):
        expected = ours.translate_tokens(SENTENCES, max_decoding_length=12, **options)
        found = theirs.translate_tokens(SENTENCES, max_decoding_length=12, **options)
        assert [(result.hypotheses, result.scores) for result in found] == [
            (result.hypotheses, result.scores) for result in expected
        ]
    assert any(result.hypotheses[0] for result in found)


def test_its_tensors_are_those_that_were_written(tmp_path: Path) -> None:
    found, expected = weights.read(write(tmp_path, original())), original()
    assert found.format == "toy" and found.spec == expected.spec
    assert found.text.target_vocabulary == vocabulary(19)
    for name, tensor in expected.tensors.items():
        np.testing.assert_array_equal(found.tensors[name], tensor, err_msg=name)
    assert set(found.tensors) == set(expected.tensors)


def test_what_does_not_fit_is_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, original())
    config = json.loads((tmp_path / "toy.json").read_text(encoding="utf-8"))
    names = ("encoder/0/look/k/weight", "encoder/0/think/in/weight")
    shapes = {"extra" if name == names[0] else name: shape for name, shape in config["arrays"].items()}
    shapes[names[1]] = [24, 16]
    with pytest.raises(CheckpointError) as caught:
        weights.read(write(tmp_path, original(), arrays=shapes))
    problems = f"missing {names[0]} [16, 16]; unexpected extra [16, 16]; {names[1]} should be [16, 24], is [24, 16]"
    assert str(caught.value) == f"{tmp_path / 'toy.floats'}: arrays do not fit toy.json: {problems}"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"heads": 3}, "width should be a multiple of heads 3, is 16"),
        ({"words": [1]}, "words should be strings, </s> and <unk> among them, is .1."),
        ({"words": ["<unk>"]}, "words should be strings, </s> and <unk> among them, is .'<unk>'."),
        ({"layers": 10**9}, "1000000000 layers, but "),
        ({"arrays": {"encoder/words": [1 << 30, 16]}}, "ends at byte 68719476736, the file at "),
        ({"arrays": {"encoder/words": []}}, "the arrays take 4 bytes, the file has "),
    ],
)
def test_files_that_are_damaged(tmp_path: Path, changes: dict, fault: str) -> None:
    with pytest.raises(CheckpointError, match=fault) as caught:
        weights.read(write(tmp_path, original(), **changes))
    assert "\n" not in str(caught.value)


def test_it_imports_what_an_exporter_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(import_table.WEIGHTS, "toy", import_table.READING)
    source = Path(toy.__file__).read_text(encoding="utf-8")
    assert test_imports.forbidden("fastattn.weights.toy", source) == []
    assert test_imports.forbidden("fastattn.weights.toy", f"{source}\nimport fastattn.weights.marian") != []
