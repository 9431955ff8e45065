"""``fastattn rerank``: what it writes, and how it fails."""

import json
from pathlib import Path

import numpy as np
import pytest

from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.ops import reference
from fastattn.weights import read
from tests.cli.commands import fail, succeed
from tests.encoders.classifiers import LABELS, write_classifier

DOCUMENTS = ["w7", "w8 w9", "", "w11\tw12", "w30"]


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CrossEncoder:
    """A random reranker, which the command gets for the folder "any"; its scores need no compiled kernel."""
    encoder = CrossEncoder.from_checkpoint(read(write_classifier(tmp_path / "any")), ops=reference)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fastattn.encoders.cross_encoder.CrossEncoder", lambda name, **options: encoder)
    return encoder


def test_a_line_for_each_document_the_best_first(encoder: CrossEncoder, tmp_path: Path) -> None:
    ranked = encoder.rank("w5 w6", DOCUMENTS, return_documents=True)
    lines = [f"{i}\t{entry['score']:.4f}\t{entry['text']}" for i, entry in enumerate(ranked, start=1)]
    assert succeed("rerank", "-m", "any", "w5 w6", *DOCUMENTS).splitlines() == lines
    (tmp_path / "documents.txt").write_text("\n".join(DOCUMENTS), encoding="utf-8")
    assert succeed("rerank", "-m", "any", "w5 w6", "-i", tmp_path / "documents.txt", "-k", 2).splitlines() == lines[:2]
    assert succeed("rerank", "-m", "any", "w5 w6", stdin="\n".join(DOCUMENTS).encode()).splitlines() == lines
    assert succeed("rerank", "-m", "any", "w5 w6") == ""


def test_json(encoder: CrossEncoder) -> None:
    ranked = encoder.rank("w5 w6", DOCUMENTS, 3)
    written = json.loads(succeed("rerank", "-m", "any", "w5 w6", "--json", "-k", 3, *DOCUMENTS))
    assert written["query"] == "w5 w6"
    for result, entry in zip(written["results"], ranked, strict=True):
        assert (result["row"], result["text"]) == (entry["corpus_id"], DOCUMENTS[entry["corpus_id"]])
        assert np.float32(result["score"]) == np.float32(entry["score"])


def test_a_score_that_is_not_finite_is_still_json(encoder: CrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    ranked = [{"corpus_id": 0, "score": float("nan"), "text": "a"}]
    monkeypatch.setattr(encoder, "rank", lambda *arguments, **options: ranked)
    written = json.loads(succeed("rerank", "-m", "any", "--json", "q", "a"), parse_constant=pytest.fail)
    assert written == {"query": "q", "results": [{"score": None, "row": 0, "text": "a"}]}


def test_failures_are_one_line(tmp_path: Path) -> None:
    assert "there is no default model to rerank with; name one with -m" in fail(2, "rerank", "q", "a")
    assert "Missing argument 'QUERY'" in fail(2, "rerank", "-m", "any")
    assert "give texts or --input, not both" in fail(2, "rerank", "-m", "any", "q", "a", "-i", "b")
    write_classifier(tmp_path / "encoder", architectures=["BertModel"])
    assert "a classifier is expected: " in fail(3, "rerank", "-m", tmp_path / "encoder", "q", "a")
    labels = write_classifier(tmp_path / "labels", LABELS)
    assert "rank needs a checkpoint with one label, this one has 3" in fail(2, "rerank", "-m", labels, "q", "a")


def test_inspect_tells_of_the_head(tmp_path: Path) -> None:
    told = succeed("inspect", write_classifier(tmp_path, LABELS))
    assert "the first row, a layer of 36 (tanh), 3 outputs: NONE, PLACE, PERSON" in " ".join(told.split())
