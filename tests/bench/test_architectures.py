"""Published shapes: every engine gets the same texts and gives our vectors and scores."""

import dataclasses

import pytest

from bench.architectures import ARCHITECTURES, RERANKER, Architecture, make_texts
from bench.case import OURS
from bench.checks.architectures import make_case

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
