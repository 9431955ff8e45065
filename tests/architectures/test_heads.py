"""Heads survive a conversion, and an Encoder does without them."""

import json
from pathlib import Path

import numpy as np
import pytest

from fastattn.weights import read
from fastattn.weights.native import convert
from tests.architectures.case import Case
from tests.architectures.cases import CASES
from tests.architectures.encoding import outputs
from tests.architectures.goldens import write_golden
from tests.weights.native.folders import converted

SOME = [case for case in CASES if case.name in ("bert-sequence-classification", "roberta-fill-mask")]


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_a_head_survives_a_conversion(case: Case, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    write_golden(case, tmp_path / "theirs")
    original, expected = read(tmp_path / "theirs"), outputs(tmp_path / "theirs", case, "float32")
    tied = original.tensors["head.output.weight"] is original.tensors["encoder.embedding.weight"]
    assert tied == (case.task == "fill-mask")
    for precision, least in (("float32", 1.0), ("bfloat16", 0.999), ("int8", 0.98)):
        again = read(converted(original, tmp_path / precision, precision))
        assert (again.spec, again.text) == (original.spec, original.text)
        assert (again.tensors["head.output.weight"] is again.tensors["encoder.embedding.weight"]) == tied
        found = outputs(tmp_path / precision, case, "float32")
        for output, wanted in zip(found, expected, strict=True):
            assert (output * wanted).sum() / np.linalg.norm(output) / np.linalg.norm(wanted) >= least - 1e-6
            assert precision != "float32" or np.array_equal(output, wanted)


def test_a_head_is_in_float32_whatever_the_rest_is(tmp_path: Path) -> None:
    write_golden(SOME[0], tmp_path)
    original = read(tmp_path)
    again = read(converted(original, tmp_path / "ours", "int8"))
    for name, tensor in original.tensors.items():
        if name.startswith("head."):
            np.testing.assert_array_equal(again.tensors[name], tensor)
    assert convert.weight_bytes(original, "float32") > convert.weight_bytes(original, "int8")


def test_a_head_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    for change, reason in (
        ({"architectures": ["BertModel"]}, "'BertModel' has no head that is supported; known: ForSequenceCl"),
        ({"architectures": None}, "architectures should name the model's class, is None"),
        ({"architectures": [5]}, "architectures should name the model's class, is [5]"),
        ({"id2label": None}, "tensors do not fit config.json: classifier.weight should be [2, 36], is [3, 36]"),
        ({"id2label": None, "num_labels": 5}, "classifier.weight should be [5, 36], is [3, 36]"),
        ({"id2label": {"0": "a", "2": "b", "3": "c"}}, "id2label should be a label for each number from 0"),
        ({"id2label": {"0": "a", "1": "b", "2": 3}}, "id2label should be a label for each number from 0"),
        ({"id2label": None, "num_labels": 10**12}, "classifier.weight should be [1000000000000, 36], is [3, 36]"),
        ({"id2label": {}}, "outputs should be at least 1, is 0"),
        ({"id2label": []}, "id2label should be an object"),
        ({"problem_type": "guess"}, "problem_type should be one of regression"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.Fish"}}, "activation_fn should be one of torch.nn"),
    ):
        write_golden(SOME[0], tmp_path)
        config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8")) | change
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        checkpoint = read(tmp_path)
        assert checkpoint.spec.head is None and not checkpoint.text.labels
        assert reason in checkpoint.headless and "\n" not in checkpoint.headless
        assert not [name for name in checkpoint.tensors if name.startswith("head.")]
