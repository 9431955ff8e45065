"""What every class of an encoder with a head promises: the same bits in any company, one line of what is refused."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fastattn.encoders.base import EncoderBase
from fastattn.encoders.masked_language_model import MaskedLanguageModel
from fastattn.encoders.sparse_encoder import SparseEncoder
from fastattn.encoders.text_classifier import TextClassifier
from fastattn.encoders.token_classifier import TokenClassifier
from fastattn.errors import CheckpointError, InputError
from fastattn.ops import cpu as operations
from fastattn.weights import read
from tests.encoders.classifiers import LABELS, TOKENS, by_reference, some_texts, write_classifier, write_masked

WITH_MASKS = [f"[MASK] {text} {'[MASK]' * (number == 7)}" for number, text in enumerate(some_texts(80, 19, 1))]
# Class -> a writer of its folders, its method that takes texts, texts for it, and how many results they have at least.
CLASSES: dict[type[EncoderBase], tuple[Callable[..., Path], str, list[str], int]] = {
    TextClassifier: (partial(write_classifier, name=LABELS), "classify", some_texts(80), 80),
    TokenClassifier: (partial(write_classifier, name=TOKENS), "classify", some_texts(80), 81),
    MaskedLanguageModel: (write_masked, "fill", WITH_MASKS, 80),
    SparseEncoder: (write_masked, "encode", [], 0),
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("kind", [TextClassifier, TokenClassifier, MaskedLanguageModel])
def test_neighbours_and_threads_change_no_bit(kind: type[EncoderBase], precision: str, tmp_path: Path) -> None:
    write, method, texts, least = CLASSES[kind]
    checkpoint = read(write(tmp_path))
    call = getattr(kind.from_checkpoint(checkpoint, precision, ops=operations), method)
    found = call(texts)
    assert sum(map(len, found)) >= least
    assert call(texts[::-1]) == found[::-1]
    assert call(texts[7]) == found[7]
    assert getattr(kind.from_checkpoint(checkpoint, precision, 1, operations), method)(texts) == found


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        *((kind, {"texts": 5}, "texts must be a str or several, got int") for kind in CLASSES),
        (TextClassifier, {"texts": ["a", 5]}, "texts must be str, number 1 is int"),
        (TextClassifier, {"texts": ["a"], "top_k": 0}, "top_k must be at least 1, got 0"),
        (TextClassifier, {"texts": ["a"], "show_progress_bar": "no"}, "show_progress_bar"),
        (
            TokenClassifier,
            {"texts": ["a"], "aggregation": "last"},
            "unknown aggregation 'last'; known: none, simple, first, average, max",
        ),
        (TokenClassifier, {"texts": ["a"], "ignore_labels": "O"}, "ignore_labels must be several str, got 'O'"),
        (MaskedLanguageModel, {"texts": "a [MASK]", "top_k": 0}, "top_k must be at least 1, got 0"),
        (MaskedLanguageModel, {"texts": ["[MASK]", "w5"]}, r"text number 1 has no \[MASK\]$"),
        (
            MaskedLanguageModel,
            {"texts": "w5 " * 50 + "[MASK]"},
            r"text number 0 has no \[MASK\] within its first 40 tokens",
        ),
        (SparseEncoder, {"texts": ["a"], "max_active_dims": 0}, "max_active_dims must be at least 1, got 0"),
        (SparseEncoder, {"texts": ["a"], "format": "coo"}, "unknown format 'coo'; known: csr, scipy"),
        (SparseEncoder, {"texts": ["a"], "prompt_name": "query"}, "unknown prompt_name 'query'"),
    ],
)
def test_bad_input_is_one_clear_line(kind: Any, arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    write, method, _, _ = CLASSES[kind]
    with pytest.raises(InputError, match=message):
        getattr(by_reference(kind, write(tmp_path)), method)(**arguments)


@pytest.mark.parametrize(
    ("kind", "name", "config", "message"),
    [
        (TextClassifier, TOKENS, {}, "head is for each token"),
        (TextClassifier, TOKENS, {"architectures": None}, "architectures should name"),
        (TokenClassifier, LABELS, {}, "the checkpoint's head is another"),
        (
            TokenClassifier,
            TOKENS,
            {"architectures": None},
            "a classifier of tokens is expected: .* architectures should name",
        ),
        (TokenClassifier, "bert-fill-mask", {}, "the checkpoint's head is another"),
        (MaskedLanguageModel, LABELS, {}, "a masked language model is expected: .* does not predict tokens"),
        (
            MaskedLanguageModel,
            "",
            {"architectures": ["BertModel"]},
            "a masked language model is expected: .*'BertModel' has no head",
        ),
        (SparseEncoder, LABELS, {}, "does not predict tokens"),
        (SparseEncoder, TOKENS, {}, "does not predict tokens"),
        (
            SparseEncoder,
            "",
            {"architectures": ["BertModel"]},
            "for sparse vectors is expected: .*'BertModel' has no head",
        ),
    ],
)
def test_other_checkpoints_are_refused(kind: Any, name: str, config: dict, message: str, tmp_path: Path) -> None:
    folder = write_classifier(tmp_path, name, **config) if name else write_masked(tmp_path, **config)
    with pytest.raises(CheckpointError, match=message):
        by_reference(kind, folder)


@pytest.mark.parametrize("kind", CLASSES)
def test_classes_of_one_process_say_so(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{kind.__name__} computes in this process alone: processes should be 1"):
        kind(tmp_path, processes=2)
