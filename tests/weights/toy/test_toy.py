"""An exporter that was added by the steps of docs/architecture.md: its models work as those they were written from."""

import json
from pathlib import Path

import pytest

from fastattn import weights
from fastattn.translation.translator import Translator
from tests import import_table, test_imports
from tests.models.tiny_models import random_checkpoint
from tests.weights import toy
from tests.weights.refusals import refuses
from tests.weights.toy.writer import write

SENTENCES = [["▁w3"], ["▁w4", "▁w9", "▁w4"], ["▁w15", "▁w1", "▁w8", "▁w2", "▁w11"]]


@pytest.fixture(autouse=True)
def added(monkeypatch):
    monkeypatch.setattr(weights, "EXPORTERS", weights.EXPORTERS | {"toy": lambda: toy})


def original():
    return random_checkpoint(5, projection_bias=True)


def test_it_translates_as_the_checkpoint_that_it_was_written_from(tmp_path):
    options = {"beam_size": 3, "num_hypotheses": 3, "length_penalty": 0.5, "max_decoding_length": 12}
    ours, theirs = (
        [(result.hypotheses, result.scores) for result in translator.translate_tokens(SENTENCES, **options)]
        for translator in (Translator.from_checkpoint(original()), Translator(write(tmp_path, original())))
    )
    assert ours == theirs and any(hypotheses[0] for hypotheses, _ in ours)


def test_files_that_do_not_fit(tmp_path):
    config = json.loads((write(tmp_path, original()) / "toy.json").read_text(encoding="utf-8"))
    renamed, turned = "encoder/0/look/k/weight", "encoder/0/think/in/weight"
    shapes = {"extra" if name == renamed else name: shape for name, shape in config["arrays"].items()}
    for changes in ({"arrays": shapes | {turned: [24, 16]}}, {"words": ["<unk>"]}, {"layers": 10**9}, {"arrays": {}}):
        refuses(write(tmp_path, original(), **changes))


def test_it_imports_what_an_exporter_may(monkeypatch):
    monkeypatch.setitem(import_table.WEIGHTS, "toy", import_table.READING)
    source = Path(toy.__file__).read_text(encoding="utf-8")
    assert test_imports.forbidden("fastattn.weights.toy", source) == []
    assert test_imports.forbidden("fastattn.weights.toy", f"{source}\nimport fastattn.weights.marian") != []
