"""``fastattn classify``: what it writes, and how it fails."""

import json
from pathlib import Path

import numpy as np
import pytest

from fastattn.cli import classify
from fastattn.encoders.text_classifier import TextClassifier
from fastattn.ops import reference
from fastattn.weights import read
from tests.cli.commands import fail, succeed
from tests.encoders.classifiers import LABELS, TOKENS, write_classifier

TEXTS = ["w7", "w8 w9", "", "w11\tw12", "w30"]


@pytest.fixture
def classifier(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TextClassifier:
    """A random classifier, which the command gets for the folder "any"; it needs no compiled kernel."""
    classifier = TextClassifier.from_checkpoint(read(write_classifier(tmp_path / "any", LABELS)), ops=reference)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fastattn.encoders.text_classifier.TextClassifier", lambda name, **options: classifier)
    return classifier


def table(classifier: TextClassifier, count: int) -> list[str]:
    found = [[f"{e['label']}\t{e['score']:.4f}" for e in one] for one in classifier.classify(TEXTS, top_k=count)]
    return ["\t".join([*one, text]) for one, text in zip(found, TEXTS)]


def test_a_line_for_each_text(classifier: TextClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classify, "WINDOW", 2)
    lines = table(classifier, 1)
    assert succeed("classify", "-m", "any", *TEXTS).splitlines() == lines
    assert succeed("classify", "-m", "any", stdin="\n".join(TEXTS).encode()).splitlines() == lines
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    assert succeed("classify", "-m", "any", "-i", "texts.txt", "-o", "labels.tsv", "-k", 2) == ""
    assert (tmp_path / "labels.tsv").read_text(encoding="utf-8").splitlines() == table(classifier, 2)
    assert succeed("classify", "-m", "any", "--all", *TEXTS).splitlines() == table(classifier, 3)
    assert succeed("classify", "-m", "any", stdin=b"") == ""


def test_json_lines(classifier: TextClassifier) -> None:
    found = classifier.classify(TEXTS)
    written = [json.loads(line) for line in succeed("classify", "-m", "any", "--all", "--json", *TEXTS).splitlines()]
    assert [line["text"] for line in written] == TEXTS
    for line, labels in zip(written, found, strict=True):
        assert [entry["label"] for entry in line["labels"]] == [entry["label"] for entry in labels]
        assert [np.float32(entry["score"]) for entry in line["labels"]] == [entry["score"] for entry in labels]


def test_what_is_no_number_and_what_a_terminal_acts_on(
    classifier: TextClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = [{"label": "a\nb\x1b", "score": float("nan")}]
    monkeypatch.setattr(classifier, "classify", lambda texts, top_k: [labels for _ in texts])
    written = json.loads(succeed("classify", "-m", "any", "--json", "w5"), parse_constant=pytest.fail)
    assert written == {"text": "w5", "labels": [{"label": "a\nb\x1b", "score": None}]}
    assert succeed("classify", "-m", "any", "w5") == "a\\nb\\x1b\tnan\tw5\n"


def test_failures_are_one_line(tmp_path: Path) -> None:
    assert "there is no default model to classify with; name one with -m" in fail(2, "classify", "a")
    assert "give --top-k or --all, not both" in fail(2, "classify", "-m", "any", "--all", "-k", 2, "a")
    assert "give texts or --input, not both" in fail(2, "classify", "-m", "any", "a", "-i", "b")
    tokens = write_classifier(tmp_path / "tokens", TOKENS)
    assert "a classifier of texts is expected" in fail(3, "classify", "-m", tokens, "a")
    write_classifier(tmp_path / "encoder", architectures=["BertModel"])
    assert "a classifier is expected: " in fail(3, "classify", "-m", tmp_path / "encoder", "a")
