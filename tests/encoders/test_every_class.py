"""What every class of encoders promises: the same bits in any company, near the exact ones; one line of what is bad."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fastattn.encoders import sparse_encoder
from fastattn.encoders.base import EncoderBase
from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.encoder import Encoder
from fastattn.encoders.masked_language_model import MaskedLanguageModel
from fastattn.encoders.multi_vector_encoder import MultiVectorEncoder
from fastattn.encoders.sparse_encoder import SparseEncoder
from fastattn.encoders.text_classifier import TextClassifier
from fastattn.encoders.token_classifier import TokenClassifier
from fastattn.errors import CheckpointError, InputError
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.checkpoint import Checkpoint
from fastattn.vectors.sparse import SparseVectors
from fastattn.weights import read
from tests.encoders.classifiers import (
    LABELS,
    MASKED,
    TOKENS,
    some_pairs,
    some_texts,
    write_classifier,
    write_masked,
    write_sparse,
)
from tests.encoders.classifiers import write_original, write_pylate, write_today
from tests.encoders.test_encoder import SPEC, TENSORS, TEXT, WIDTH, _many_texts


class Subject(NamedTuple):
    """A class, what makes a checkpoint in a folder, its method that takes texts, some of them, and options."""

    kind: type[EncoderBase]
    checkpoint: Callable[[Path], Checkpoint]
    method: str
    inputs: list[Any]
    options: dict[str, Any] = {}

    def call(self, checkpoint: Checkpoint, precision: str, threads: int | None = None, ops: Any = operations) -> Any:
        """The method of one of a checkpoint."""
        made = self.kind.from_checkpoint(checkpoint, precision, threads, ops)
        return partial(getattr(made, self.method), **self.options)


TEXTS, PAIRS = some_texts(120, 20), some_pairs(80)
WITH_MASKS = [f"[MASK] {text} {'[MASK]' * (number == 7)}" for number, text in enumerate(some_texts(80, 19, 1))]


def of(write, **how):
    return lambda folder: read(write(folder, **how))


SUBJECTS = {
    "Encoder": Subject(Encoder, lambda folder: Checkpoint(SPEC, TENSORS, TEXT), "encode", _many_texts(100)),
    "CrossEncoder": Subject(CrossEncoder, of(write_classifier), "predict", PAIRS),
    "TextClassifier": Subject(TextClassifier, of(write_classifier, name=LABELS), "classify", TEXTS),
    "TextClassifier, pairs": Subject(TextClassifier, of(write_classifier, name=LABELS), "classify", PAIRS),
    "TokenClassifier": Subject(
        TokenClassifier, of(write_classifier, name=TOKENS), "classify", TEXTS, {"ignore_labels": ()}
    ),
    "MaskedLanguageModel": Subject(MaskedLanguageModel, of(write_masked), "fill", WITH_MASKS),
    "SparseEncoder": Subject(SparseEncoder, of(write_masked), "encode", TEXTS),
    "MultiVectorEncoder, queries": Subject(MultiVectorEncoder, of(write_today), "encode_query", TEXTS),
    "MultiVectorEncoder, documents": Subject(MultiVectorEncoder, of(write_pylate), "encode_document", TEXTS),
}


def sparse(indices, indptr, width=61):
    data = np.ones(len(indices), np.float32)
    return SparseVectors(data, np.array(indices, np.int32), np.array(indptr), (1, width))


def bits(result):
    """A result as what ``==`` compares, text by text."""
    if isinstance(result, SparseVectors):
        return [[part.tolist() for part in result.row(number)] for number in range(len(result))]
    if isinstance(result, np.ndarray | np.generic):
        return result.tolist()
    return [bits(one) if isinstance(one, np.ndarray) else one for one in result]


def numbers(result):
    """All numbers of a result, in order."""
    if isinstance(result, SparseVectors):
        return numbers(result.to_dense())
    if isinstance(result, np.ndarray):
        return np.ravel(result).tolist()
    return [result["score"]] if isinstance(result, dict) else [number for one in result for number in numbers(one)]


NEAR = {"float32": 1e-5, "bfloat16": 0.05, "int8": 0.15}  # of the greatest number


@pytest.mark.parametrize("name", SUBJECTS)
def test_neighbours_and_threads_change_no_bit(name, tmp_path, monkeypatch):
    monkeypatch.setattr(sparse_encoder, "MOST_NUMBERS", 100)
    subject = SUBJECTS[name]
    checkpoint, inputs = subject.checkpoint(tmp_path), subject.inputs
    exact = np.array(numbers(subject.call(checkpoint, "float32", ops=reference)(inputs)))
    order = np.random.default_rng(0).permutation(len(inputs)).tolist()
    for precision, near in NEAR.items():
        call = subject.call(checkpoint, precision)
        result = call(inputs)
        found = bits(result)
        assert len(found) == len(inputs)
        assert bits(call([inputs[i] for i in order])) == [found[i] for i in order]
        for i in (0, 7):
            assert bits(call([inputs[i]])) == [found[i]]
            assert name == "TextClassifier, pairs" or bits(call(inputs[i])) in (found[i], [found[i]])
        assert bits(subject.call(checkpoint, precision, 1)(inputs)) == found
        with ThreadPoolExecutor(3) as threads:
            assert all(bits(one) == found for one in threads.map(call, [inputs] * 3))
        off = np.abs(numbers(result) - exact).max() / np.abs(exact).max()
        assert off <= near, precision
        assert precision == "float32" or off > 1e-5, "as near as that, yet not the same"


NO_TEXT = "texts must be a str or several, got int"
NO_TRUTH = "show_progress_bar"
# Of each class what its calls refuse: the method, its arguments, the one line.
REFUSED = {
    Encoder: [
        ("encode", {"texts": 3}, NO_TEXT),
        ("encode", {"texts": ["a", None]}, "number 1 is NoneType"),
        ("encode", {"texts": b"bytes"}, "texts must be a str or several, got bytes"),
        ("encode", {"texts": "a", "batch_size": 0}, "batch_size must be at least 1, got 0"),
        ("encode", {"texts": "a", "convert_to_numpy": False}, "convert_to_numpy must be True: vectors are NumPy"),
        ("count_tokens", {"texts": 3}, NO_TEXT),
        ("count_tokens", {"texts": ["a", None]}, "number 1 is NoneType"),
        ("count_tokens", {"texts": "a", "prompt_name": "no"}, "unknown prompt_name 'no'"),
        ("encode_iter", {"texts": "a text"}, "texts must be an iterable of str, got str"),
        ("encode_iter", {"texts": 3}, "texts must be an iterable of str, got int"),
        *(
            (method, {"texts": ["a"], option: value}, message)
            for method in ("encode", "submit", "encode_iter")
            for option, value, message in (
                ("pooling", "median", "unknown pooling 'median'; known: cls, max"),
                ("pooling", [], "unknown pooling"),
                ("pooling", 5, "pooling must be a str or several, got 5"),
                ("pooling", [["mean"]], "pooling must be a str or several"),
                ("truncate_dim", 0, "truncate_dim must be at least 1, got 0"),
                ("truncate_dim", "3", "truncate_dim must be a whole number, got '3'"),
                ("truncate_dim", 2.5, "truncate_dim must be a whole number, got 2.5"),
                ("truncate_dim", True, "truncate_dim must be a whole number, got True"),
                ("prompt", b"query", "prompt must be a str, got bytes"),
                ("prompt", ["query"], "prompt must be a str, got list"),
                ("prompt_name", "passage", "unknown prompt_name 'passage'; known: query, empty"),
                ("prompt_name", "", "unknown prompt_name ''; known: query, empty"),
                ("prompt_name", 3, "prompt_name must be a str, got int"),
                ("normalize_embeddings", "no", "normalize_embeddings must be True, False or None, got 'no'"),
                ("task", "passage", "unknown task 'passage'; known: query, document"),
                ("task", 3, "unknown task 3"),
                ("task", np.array(["query", "document"]), "unknown task array"),
                ("output_dtype", "int4", "unknown output_dtype 'int4'; known: float32, int8"),
                ("output_dtype", np.dtype("int8"), "unknown output_dtype dtype"),
                ("long", np.array(["mean", "error"]), "unknown long array"),
                ("long", "cut", "unknown long 'cut'; known: truncate, mean, error"),
                ("long", None, "unknown long None"),
                ("ranges", np.zeros((2, 3)), rf"ranges of shape \(2, {WIDTH}\) are expected, got \(2, 3\)"),
                ("ranges", "wide", "ranges should be floating-point"),
            )
        ),
    ],
    CrossEncoder: [
        *(
            ("predict", {"pairs": pairs}, message)
            for pairs, message in (
                ("w5", "pairs must be a pair of str or several, got str"),
                (5, "pairs must be a pair of str or several, got int"),
                (np.array("w5"), "pairs must be a pair of str or several, got ndarray"),
                (["a", "b", "c"], r"a pair must be two str, number 0 is \['a', 'b', 'c'\]"),
                (["a"], r"a pair must be two str, number 0 is \['a'\]"),
                ([("a", "b"), "cd"], "a pair must be two str, number 1 is 'cd'"),
                ([("a", "b"), ("c", None)], "a pair must be two str, number 1 holds a NoneType"),
                ([("a", "b"), 3], "a pair must be two str, number 1 is 3"),
            )
        ),
        ("predict", {"pairs": [], "activation_fn": np.array(["none", "tanh"])}, "unknown activation_fn array"),
        ("predict", {"pairs": [], "activation_fn": "softplus"}, "unknown activation_fn 'softplus'; known: none, sig"),
        ("predict", {"pairs": [], "apply_softmax": 3}, "apply_softmax"),
        ("predict", {"pairs": [], "batch_size": 0}, "batch_size must be at least 1, got 0"),
        ("predict", {"pairs": [], "convert_to_numpy": False}, "convert_to_numpy must be True: scores are NumPy arrays"),
        ("predict", {"pairs": [], "prompt": 5}, "prompt must be a str, got int"),
        ("predict", {"pairs": [], "prompt_name": "no"}, "unknown prompt_name 'no'; known: query, document"),
        ("predict", {"pairs": [], "show_progress_bar": "yes"}, NO_TRUTH),
        ("rank", {"query": "w5", "documents": ["w6"]}, "rank needs a checkpoint with one label, this one has 3; use"),
    ],
    TextClassifier: [
        ("classify", {"texts": 5}, NO_TEXT),
        ("classify", {"texts": ["a", 5]}, "texts must be str, number 1 is int"),
        ("classify", {"texts": ["a"], "top_k": 0}, "top_k must be at least 1, got 0"),
        ("classify", {"texts": ["a"], "show_progress_bar": "no"}, NO_TRUTH),
        ("classify", {"texts": [("a", "b"), ("c",)]}, "a pair must be two str, number 1 is"),
    ],
    TokenClassifier: [
        ("classify", {"texts": 5}, NO_TEXT),
        (
            "classify",
            {"texts": ["a"], "aggregation": "last"},
            "unknown aggregation 'last'; known: none, simple, first, average, max",
        ),
        ("classify", {"texts": ["a"], "ignore_labels": "O"}, "ignore_labels must be several str, got 'O'"),
    ],
    MaskedLanguageModel: [
        ("fill", {"texts": 5}, NO_TEXT),
        ("fill", {"texts": "a [MASK]", "top_k": 0}, "top_k must be at least 1, got 0"),
        ("fill", {"texts": ["[MASK]", "w5"]}, r"text number 1 has no \[MASK\]$"),
        ("fill", {"texts": "w5 " * 50 + "[MASK]"}, r"text number 0 has no \[MASK\] within its first 40 tokens"),
    ],
    SparseEncoder: [
        ("encode", {"texts": 5}, NO_TEXT),
        ("encode", {"texts": ["a"], "max_active_dims": 0}, "max_active_dims must be at least 1, got 0"),
        ("encode", {"texts": ["a"], "format": "coo"}, "unknown format 'coo'; known: csr, scipy"),
        ("encode", {"texts": ["a"], "prompt_name": "no"}, "unknown prompt_name 'no'"),
        *(
            ("decode", {"vectors": vectors}, message)
            for vectors, message in (
                (np.zeros((2, 61)), "sparse vectors are expected, as encode returns them, got ndarray"),
                (sparse([3], [0, 1], 60), "sparse vectors of 61 columns are expected, got 60"),
                (sparse([61], [0, 1]), "sparse vectors of 61 columns have one numbered 61"),
                (sparse([3], [0, 2]), "the arrays of sparse vectors do not fit each other"),
                (sparse([3, 4], [0, 1, 2]), "the arrays of sparse vectors do not fit each other"),
            )
        ),
    ],
    MultiVectorEncoder: [
        ("encode", {"texts": 5}, NO_TEXT),
        *(
            ("score", {"queries": queries, "documents": documents}, message)
            for queries, documents, message in (
                (np.zeros((2, 5)), [], r"queries must be float arrays \[tokens, 20\], number 0 is float64 \[2, 5\]"),
                (np.zeros(20), [], r"queries must be a list of arrays \[tokens, 20\], got an array \[20\]"),
                ([], ["w5"], r"documents must be float arrays \[tokens, 20\], number 0 is str"),
                ([], np.zeros((3, 20)), r"documents must be a list of arrays"),
            )
        ),
    ],
}


@pytest.mark.parametrize("kind", REFUSED)
def test_bad_input_is_one_clear_line(kind, made):
    model = made(kind)
    for method, arguments, message in REFUSED[kind]:
        with pytest.raises(InputError, match=message) as caught:
            getattr(model, method)(**arguments)
        assert "\n" not in str(caught.value)


HEADLESS = {"architectures": ["BertModel"]}
NAMELESS = {"architectures": None}
# Of each class the checkpoints that it refuses: a writer of one, and the line.
OTHERS = {
    Encoder: [
        (of(write_sparse), "made for sparse vectors: use fastattn.SparseEncoder"),
        (of(write_today), "made for a vector a token: use fastattn.MultiVectorEncoder"),
        (of(write_pylate), "made for a vector a token: use fastattn.MultiVectorEncoder"),
        (of(write_original), "made for a vector a token: use fastattn.MultiVectorEncoder"),
    ],
    CrossEncoder: [
        (of(write_classifier, **HEADLESS), "^a classifier is expected: .*'BertModel' has no head"),
        (of(write_classifier, name=TOKENS), "is expected, the checkpoint's head is for each token$"),
        (
            lambda path: of(write_classifier)(path).without_head(),
            "^a classifier is expected: the checkpoint has no head$",
        ),
    ],
    TextClassifier: [
        (of(write_classifier, name=TOKENS), "head is for each token"),
        (of(write_classifier, name=TOKENS, **NAMELESS), "architectures should name"),
    ],
    TokenClassifier: [
        (of(write_classifier, name=LABELS), "the checkpoint's head is another"),
        (of(write_classifier, name=TOKENS, **NAMELESS), "a classifier of tokens is expected: .* architectures should"),
        (of(write_classifier, name=MASKED), "the checkpoint's head is another"),
    ],
    MaskedLanguageModel: [
        (of(write_classifier, name=LABELS), "a masked language model is expected: .* does not predict tokens"),
        (of(write_masked, **HEADLESS), "a masked language model is expected: .*'BertModel' has no head"),
    ],
    SparseEncoder: [
        (of(write_classifier, name=LABELS), "does not predict tokens"),
        (of(write_classifier, name=TOKENS), "does not predict tokens"),
        (of(write_masked, **HEADLESS), "for sparse vectors is expected: .*'BertModel' has no head"),
    ],
    MultiVectorEncoder: [(of(write_classifier, name=LABELS), "made for a vector a token is expected")],
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_checkpoints_are_refused(kind, tmp_path):
    for number, (checkpoint, message) in enumerate(OTHERS[kind]):
        with pytest.raises(CheckpointError, match=message):
            kind.from_checkpoint(checkpoint(tmp_path / str(number)), ops=reference)


def test_classes_of_one_process_say_so(tmp_path):
    for kind in REFUSED.keys() - {Encoder}:
        with pytest.raises(InputError, match=f"{kind.__name__} computes in this process alone: processes should be 1"):
            kind(tmp_path, processes=2)
