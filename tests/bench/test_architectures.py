"""Published shapes: files of them are read; every engine gets the same texts and gives our vectors and scores."""

import dataclasses
from dataclasses import replace

import pytest

from bench import decoder_shapes
from bench.architectures import ARCHITECTURES, RERANKER, Architecture, make_texts
from bench.case import OURS
from bench.checks.architectures import make_case
from fastattn.weights import read

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2}


def test_texts_have_two_special_tokens_beside_their_words():
    assert [len(text.split()) for text in make_texts(3, 32)] == [30] * 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["AutoModel", "JinaBert", RERANKER])
def test_engines_agree(kind, tmp_path):
    for library in ("torch", "transformers", "onnxscript", "onnxruntime", "openvino", "nncf"):
        pytest.importorskip(library)
    from bench.architecture_engines import Subject

    base = ARCHITECTURES["jina-v2-base" if kind == "JinaBert" else "bge-base"]
    config = base.config | SIZES | ({"num_labels": 1} if kind == RERANKER else {})
    small: Architecture = dataclasses.replace(base, config=config, kind=kind)
    subject = Subject(small, tmp_path, (2, 3))
    texts = make_texts(3, 9)
    given = list(zip(texts, texts[::-1])) if kind == RERANKER else texts
    # Scores of so narrow a model of random weights are near 0: int8 has none of their digits.
    for precision in ("float32",) if kind == RERANKER else ("float32", "int8"):
        case, absent = make_case(subject, given, 9, 1, precision)
        assert not absent
        results = {name: next(iter(side.calls.values()))() for name, side in case.sides.items()}
        assert len(results) == (4 if precision == "float32" else 3)
        for name in set(results) - {OURS}:
            agrees, difference = case.agree(results[OURS], results[name])
            assert agrees, f"{precision}, {name}: {difference}"


def test_tokens_are_distinct_and_made_by_their_merges():
    tokens, merges = decoder_shapes._vocabulary(70_000)
    assert len(set(tokens)) == len(tokens) == 70_000
    known = set(tokens)
    assert all(known.issuperset([*merge.split(" "), merge.replace(" ", "")]) for merge in merges)


@pytest.mark.parametrize("shape", [decoder_shapes.QWEN3, decoder_shapes.HY_MT], ids=lambda shape: shape.name)
def test_a_written_file_is_read(shape, tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    monkeypatch.setattr(decoder_shapes, "cache_root", lambda: tmp_path)
    small = replace(shape, layers=2, width=256, heads=2, key_heads=1, inner=256, words=300)
    checkpoint = read(small.path)
    assert checkpoint.precision == "int4" and checkpoint.spec.decoder.layers == 2
    assert checkpoint.spec.decoder.vocabulary == 300
