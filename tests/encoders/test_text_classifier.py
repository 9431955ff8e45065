"""TextClassifier: labels and probabilities as transformers' pipeline gives them."""

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn.encoders.text_classifier import TextClassifier
from fastattn.models.kinds import build_model
from fastattn.ops import reference
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.weights import read
from tests.encoders.classifiers import LABELS, RERANKER, by_reference, write_classifier

slow = partial(by_reference, TextClassifier)

TEXTS = ["w5 w6 w7", "", "w40", "w5 " * 60]


def numbers(folder: Path) -> np.ndarray:
    """What the head gives of TEXTS, step by step."""
    checkpoint = read(folder)
    ids_B = HuggingFaceTokenizer(checkpoint.text.tokenizer, 40).encode(TEXTS)
    model = build_model(checkpoint, reference)
    return model.head(*model.encode(ids_B)).astype(np.float64)


def scores(found: list[list[dict[str, Any]]], labels: tuple[str, ...]) -> np.ndarray:
    """The scores by text and label, [B, F]."""
    return np.array([[{entry["label"]: entry["score"] for entry in one}[label] for label in labels] for one in found])


def test_labels_are_in_the_order_of_their_probabilities(tmp_path: Path) -> None:
    classifier = slow(write_classifier(tmp_path, LABELS))
    assert classifier.labels == ("NONE", "PLACE", "PERSON")
    assert (classifier.max_length, classifier.precision) == (40, "float32")
    found = classifier.classify(TEXTS)
    weights = np.exp(numbers(tmp_path))
    expected = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(scores(found, classifier.labels), expected, rtol=1e-5)
    for one in found:
        assert [entry["score"] for entry in one] == sorted((entry["score"] for entry in one), reverse=True)
    assert classifier.classify(TEXTS, top_k=2) == [one[:2] for one in found]
    pairs = [(TEXTS[0], TEXTS[1])]
    assert classifier.classify(pairs, top_k=2) == [one[:2] for one in classifier.classify(pairs)]
    assert [entry["label"] for entry in classifier.classify(TEXTS[0])] == [entry["label"] for entry in found[0]]
    assert classifier.classify(iter(TEXTS)) == found
    assert classifier.classify([]) == []


def test_labels_without_names_have_numbers(tmp_path: Path) -> None:
    classifier = slow(write_classifier(tmp_path, LABELS, id2label=None, num_labels=3))
    assert classifier.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_the_problem_says_what_makes_probabilities(tmp_path: Path) -> None:
    for name, problem, make in (
        (LABELS, "multi_label_classification", sigmoid),
        (LABELS, "regression", lambda x: x),
        (LABELS, "single_label_classification", softmax),
        (RERANKER, None, sigmoid),
        (RERANKER, "single_label_classification", sigmoid),
        (RERANKER, "regression", lambda x: x),
    ):
        classifier = slow(write_classifier(tmp_path, name, problem_type=problem))
        found = scores(classifier.classify(TEXTS), classifier.labels)
        np.testing.assert_allclose(found, make(numbers(tmp_path)), rtol=1e-5, err_msg=f"{name} {problem}")


@pytest.mark.filterwarnings("ignore")  # theirs
def test_labels_are_those_of_transformers(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for name, problem in product((LABELS, RERANKER), (None, "multi_label_classification", "regression")):
        folder = write_classifier(tmp_path / f"{name} {problem}", name, problem_type=problem)
        peer, classifier = transformers.pipeline("text-classification", model=str(folder), device="cpu"), slow(folder)
        for text, found in zip(TEXTS, classifier.classify(TEXTS)):
            expected = peer([text], top_k=None, truncation=True)[0]
            assert [entry["label"] for entry in found] == [entry["label"] for entry in expected]
            np.testing.assert_allclose([e["score"] for e in found], [e["score"] for e in expected], atol=1e-5)
