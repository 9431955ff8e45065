"""What every class of encoders promises: the same bits in any company, near the exact ones; one line of what is bad."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fastattn import (
    CrossEncoder,
    Encoder,
    MaskedLanguageModel,
    MultiVectorEncoder,
    SparseEncoder,
    SparseVectors,
    TextClassifier,
    TokenClassifier,
)
from fastattn.encoders import sparse_encoder
from fastattn.encoders.base import EncoderBase
from fastattn.errors import CheckpointError, InputError
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights import read
from tests.encoders.classifiers import (
    LABELS,
    MASKED,
    TOKENS,
    some_pairs,
    some_texts,
    write_classifier,
    write_masked,
    write_original,
    write_pylate,
    write_sparse,
    write_today,
)
from tests.encoders.test_encoder import SPEC, TENSORS, TEXT, _many_texts
from tests.messages import refused


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


# Of each class what its calls refuse: the method, its arguments, the one line.
# Options of an Encoder's calls, and values that they do not take.
WRONG = {
    "pooling": ("median", [], 5, [["mean"]]),
    "truncate_dim": (0, "3", 2.5, True),
    "prompt": (b"query", ["query"]),
    "prompt_name": ("passage", "", 3),
    "normalize_embeddings": ("no",),
    "task": ("passage", 3, np.array(["query", "document"])),
    "output_dtype": ("int4", np.dtype("int8")),
    "long": (np.array(["mean", "error"]), "cut", None),
    "ranges": (np.zeros((2, 3)), "wide"),
}
WRONG_PAIRS = ("w5", 5, np.array("w5"), ["a", "b", "c"], ["a"], [("a", "b"), "cd"], [("a", "b"), ("c", None)])
WRONG_SPARSE = np.zeros((2, 61)), sparse([3], [0, 1], 60), sparse([61], [0, 1]), sparse([3], [0, 2])
# Of each class what its calls refuse: the methods, an argument of each, values of it, and the arguments beside it.
REFUSED: dict[type[EncoderBase], list[tuple[str, str, tuple[Any, ...], dict[str, Any]]]] = {
    Encoder: [
        ("encode count_tokens", "texts", (3, ["a", None], b"bytes"), {}),
        ("encode", "batch_size", (0,), {"texts": "a"}),
        ("encode", "convert_to_numpy", (False,), {"texts": "a"}),
        ("count_tokens", "prompt_name", ("no",), {"texts": "a"}),
        ("encode_iter", "texts", ("a text", 3), {}),
        *(("encode submit encode_iter", option, values, {"texts": ["a"]}) for option, values in WRONG.items()),
    ],
    CrossEncoder: [
        ("predict", "pairs", (*WRONG_PAIRS, [("a", "b"), 3]), {}),
        ("predict", "activation_fn", (np.array(["none", "tanh"]), "softplus"), {"pairs": []}),
        ("predict", "apply_softmax", (3,), {"pairs": []}),
        ("predict", "batch_size", (0,), {"pairs": []}),
        ("predict", "convert_to_numpy", (False,), {"pairs": []}),
        ("predict", "prompt", (5,), {"pairs": []}),
        ("predict", "prompt_name", ("no",), {"pairs": []}),
        ("predict", "show_progress_bar", ("yes",), {"pairs": []}),
        ("rank", "documents", (["w6"],), {"query": "w5"}),
    ],
    TextClassifier: [
        ("classify", "texts", (5, ["a", 5], [("a", "b"), ("c",)]), {}),
        ("classify", "top_k", (0,), {"texts": ["a"]}),
        ("classify", "show_progress_bar", ("no",), {"texts": ["a"]}),
    ],
    TokenClassifier: [
        ("classify", "texts", (5,), {}),
        ("classify", "aggregation", ("last",), {"texts": ["a"]}),
        ("classify", "ignore_labels", ("O",), {"texts": ["a"]}),
    ],
    MaskedLanguageModel: [
        ("fill", "texts", (5, ["[MASK]", "w5"], "w5 " * 50 + "[MASK]"), {}),
        ("fill", "top_k", (0,), {"texts": "a [MASK]"}),
    ],
    SparseEncoder: [
        ("encode", "texts", (5,), {}),
        ("encode", "max_active_dims", (0,), {"texts": ["a"]}),
        ("encode", "format", ("coo",), {"texts": ["a"]}),
        ("encode", "prompt_name", ("no",), {"texts": ["a"]}),
        ("decode", "vectors", (*WRONG_SPARSE, sparse([3, 4], [0, 1, 2])), {}),
    ],
    MultiVectorEncoder: [
        ("encode", "texts", (5,), {}),
        ("score", "queries", (np.zeros((2, 5)), np.zeros(20)), {"documents": []}),
        ("score", "documents", (["w5"], np.zeros((3, 20))), {"queries": []}),
    ],
}


@pytest.mark.parametrize("kind", REFUSED)
def test_bad_input_is_one_clear_line(kind, made):
    for methods, name, values, beside in REFUSED[kind]:
        for method, value in product(methods.split(), values):
            with refused(InputError):
                getattr(made(kind), method)(**beside, **{name: value})


HEADLESS = {"architectures": ["BertModel"]}
NAMELESS = {"architectures": None}
# Of each class the checkpoints that it refuses: a writer of one, and the line.
# Of each class what writes checkpoints that it refuses.
OTHERS: dict[type[EncoderBase], list[Callable[[Path], Checkpoint]]] = {
    Encoder: [of(write_sparse), of(write_today), of(write_pylate), of(write_original)],
    CrossEncoder: [
        of(write_classifier, **HEADLESS),
        of(write_classifier, name=TOKENS),
        lambda path: of(write_classifier)(path).without_head(),
    ],
    TextClassifier: [of(write_classifier, name=TOKENS), of(write_classifier, name=TOKENS, **NAMELESS)],
    TokenClassifier: [
        of(write_classifier, name=LABELS),
        of(write_classifier, name=TOKENS, **NAMELESS),
        of(write_classifier, name=MASKED),
    ],
    MaskedLanguageModel: [of(write_classifier, name=LABELS), of(write_masked, **HEADLESS)],
    SparseEncoder: [*(of(write_classifier, name=name) for name in (LABELS, TOKENS)), of(write_masked, **HEADLESS)],
    MultiVectorEncoder: [of(write_classifier, name=LABELS)],
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_checkpoints_are_refused(kind, tmp_path):
    for number, checkpoint in enumerate(OTHERS[kind]):
        with refused(CheckpointError):
            kind.from_checkpoint(checkpoint(tmp_path / str(number)), ops=reference)


def test_classes_of_one_process_say_so(tmp_path):
    for kind in [*REFUSED][1:]:
        with refused(InputError, kind.__name__, "processes"):
            kind(tmp_path, processes=2)
