"""``fastattn classify`` and ``fastattn rerank``: what it writes, and how it fails."""

import json

import numpy as np
import pytest

from fastattn.cli import classify
from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.text_classifier import TextClassifier
from fastattn.ops import reference
from fastattn.weights import read
from tests.cli.commands import succeed
from tests.encoders.classifiers import LABELS, write_classifier

TEXTS = ["w7", "w8 w9", "", "w11\tw12", "w30"]


@pytest.fixture
def classifier(monkeypatch, tmp_path):
    """A random classifier, which the command gets for the folder "any"; it needs no compiled kernel."""
    classifier = TextClassifier.from_checkpoint(read(write_classifier(tmp_path / "any", LABELS)), ops=reference)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fastattn.encoders.text_classifier.TextClassifier", lambda name, **options: classifier)
    return classifier


def table(classifier, count):
    found = [[f"{e['label']}\t{e['score']:.4f}" for e in one] for one in classifier.classify(TEXTS, top_k=count)]
    return ["\t".join([*one, text]) for one, text in zip(found, TEXTS)]


def test_a_line_for_each_text(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(classify, "LINES_AT_ONCE", 2)
    lines = table(classifier, 1)
    assert succeed("classify", "-m", "any", *TEXTS).splitlines() == lines
    assert succeed("classify", "-m", "any", stdin="\n".join(TEXTS).encode()).splitlines() == lines
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    assert succeed("classify", "-m", "any", "-i", "texts.txt", "-o", "labels.tsv", "-k", 2) == ""
    assert (tmp_path / "labels.tsv").read_text(encoding="utf-8").splitlines() == table(classifier, 2)
    assert succeed("classify", "-m", "any", "--all", *TEXTS).splitlines() == table(classifier, 3)
    assert succeed("classify", "-m", "any", stdin=b"") == ""


def test_json_lines_and_what_a_terminal_acts_on(classifier, monkeypatch):
    found = classifier.classify(TEXTS)
    written = [json.loads(line) for line in succeed("classify", "-m", "any", "--all", "--json", *TEXTS).splitlines()]
    assert [line["text"] for line in written] == TEXTS
    for line, labels in zip(written, found, strict=True):
        assert [entry["label"] for entry in line["labels"]] == [entry["label"] for entry in labels]
        assert [np.float32(entry["score"]) for entry in line["labels"]] == [entry["score"] for entry in labels]
    labels = [{"label": "a\nb\x1b", "score": float("nan")}]
    monkeypatch.setattr(classifier, "classify", lambda texts, top_k: [labels for _ in texts])
    written = json.loads(succeed("classify", "-m", "any", "--json", "w5"), parse_constant=pytest.fail)
    assert written == {"text": "w5", "labels": [{"label": "a\nb\x1b", "score": None}]}
    assert succeed("classify", "-m", "any", "w5") == "a\\nb\\x1b\tnan\tw5\n"


@pytest.fixture
def reranker(monkeypatch, tmp_path):
    """A random reranker, which the command gets for the folder "any"; its scores need no compiled kernel."""
    reranker = CrossEncoder.from_checkpoint(read(write_classifier(tmp_path / "any")), ops=reference)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fastattn.encoders.cross_encoder.CrossEncoder", lambda name, **options: reranker)
    return reranker


def test_a_line_for_each_document_the_best_first(reranker, tmp_path):
    ranked = reranker.rank("w5 w6", TEXTS, return_documents=True)
    lines = [f"{i}\t{entry['score']:.4f}\t{entry['text']}" for i, entry in enumerate(ranked, start=1)]
    assert succeed("rerank", "-m", "any", "w5 w6", *TEXTS).splitlines() == lines
    (tmp_path / "documents.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    assert succeed("rerank", "-m", "any", "w5 w6", "-i", tmp_path / "documents.txt", "-k", 2).splitlines() == lines[:2]
    assert succeed("rerank", "-m", "any", "w5 w6", stdin="\n".join(TEXTS).encode()).splitlines() == lines
    assert succeed("rerank", "-m", "any", "w5 w6") == ""


def test_rerank_in_json(reranker, monkeypatch):
    ranked = reranker.rank("w5 w6", TEXTS, 3)
    written = json.loads(succeed("rerank", "-m", "any", "w5 w6", "--json", "-k", 3, *TEXTS))
    assert written["query"] == "w5 w6"
    for result, entry in zip(written["results"], ranked, strict=True):
        assert (result["row"], result["text"]) == (entry["corpus_id"], TEXTS[entry["corpus_id"]])
        assert np.float32(result["score"]) == np.float32(entry["score"])
    ranked = [{"corpus_id": 0, "score": float("nan"), "text": "a"}]
    monkeypatch.setattr(reranker, "rank", lambda *arguments, **options: ranked)
    written = json.loads(succeed("rerank", "-m", "any", "--json", "q", "a"), parse_constant=pytest.fail)
    assert written == {"query": "q", "results": [{"score": None, "row": 0, "text": "a"}]}


def test_inspect_tells_of_the_head(tmp_path):
    told = succeed("inspect", write_classifier(tmp_path, LABELS))
    assert "the first row, a layer of 36 (tanh), 3 outputs: NONE, PLACE, PERSON" in " ".join(told.split())
