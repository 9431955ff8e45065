"""What every class of encoders promises: the same bits in any company, near the exact ones; one line of what is bad."""

import asyncio
import importlib.util
import inspect
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
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
from fastattn.encoders import base, cross_encoder, sparse_encoder, text_classifier, token_classifier, worker
from fastattn.encoders import worker_processes as processes
from fastattn.encoders.base import EncoderBase
from fastattn.encoders.vector_head import EncodeOptions, TextVectors
from fastattn.errors import CheckpointError, InputError
from fastattn.loading.loaded_model import ModelBase
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.processes.choice import Sharing
from fastattn.spec.checkpoint import Checkpoint
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.vectors.sparse import sparse_similarity
from fastattn.weights import read
from tests.encoders.classifiers import (
    LABELS,
    MASKED,
    RERANKER,
    TOKENS,
    by_reference,
    some_pairs,
    some_texts,
    write_classifier,
    write_cross_encoder_files,
    write_masked,
    write_original,
    write_pylate,
    write_sparse,
    write_today,
)
from tests.encoders.test_encoder import SPEC, TENSORS, TEXT, WIDTH, WORDS, _encoder, _many_texts
from tests.messages import refused
from tests.weights.native.folders import converted


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


def test_similarities_of_sparse_vectors_whose_last_rows_are_empty():
    full, some = sparse([3, 5, 3], [0, 2, 3]), sparse([5, 7], [0, 2, 2, 2])
    full, some = replace(full, shape=(2, 61)), replace(some, shape=(3, 61))
    dense = full.to_dense(), some.to_dense()
    np.testing.assert_allclose(sparse_similarity(full, some, "dot"), dense[0] @ dense[1].T)
    distances = -np.linalg.norm(dense[0][:, None] - dense[1], axis=2)
    np.testing.assert_allclose(sparse_similarity(full, some, "euclidean"), distances, rtol=1e-6)


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
        ("encode count_tokens", "texts", (["a", None],), {}),
        ("encode", "batch_size", (0,), {"texts": "a"}),
        ("encode", "convert_to_numpy", (False,), {"texts": "a"}),
        ("count_tokens", "prompt_name", ("no",), {"texts": "a"}),
        ("encode_iter", "texts", ("a text",), {}),
        ("decode", "ids", ([len(WORDS) + 4], [-1]), {}),  # beside its words it has four special tokens
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
        ("classify", "texts", (["a", 5], [("a", "b"), ("c",)]), {}),
        ("classify", "top_k", (0,), {"texts": ["a"]}),
        ("classify", "show_progress_bar", ("no",), {"texts": ["a"]}),
    ],
    TokenClassifier: [
        ("classify", "aggregation", ("last",), {"texts": ["a"]}),
        ("classify", "ignore_labels", ("O",), {"texts": ["a"]}),
    ],
    MaskedLanguageModel: [
        ("fill", "texts", (["[MASK]", "w5"], "w5 " * 50 + "[MASK]"), {}),
        ("fill", "top_k", (0,), {"texts": "a [MASK]"}),
    ],
    SparseEncoder: [
        ("encode", "max_active_dims", (0,), {"texts": ["a"]}),
        ("encode", "format", ("coo",), {"texts": ["a"]}),
        ("encode", "prompt_name", ("no",), {"texts": ["a"]}),
        ("decode", "vectors", (*WRONG_SPARSE, sparse([3, 4], [0, 1, 2])), {}),
    ],
    MultiVectorEncoder: [
        ("score", "queries", (np.zeros((2, 5)), np.zeros(20)), {"documents": []}),
        ("score", "documents", (["w5"], np.zeros((3, 20))), {"queries": []}),
    ],
}


PROMPTS = {"query": "w11 ", "document": "w12 "}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A function from a class to one of it, on the reference operations; where there are prompts, PROMPTS."""
    folder = tmp_path_factory.mktemp("models")
    write_cross_encoder_files(write_classifier(folder / "pairs", LABELS), {"prompts": PROMPTS})
    folders = {
        CrossEncoder: folder / "pairs",
        TextClassifier: write_classifier(folder / "labels", LABELS),
        TokenClassifier: write_classifier(folder / "tokens", TOKENS),
        MaskedLanguageModel: write_masked(folder / "masked"),
        SparseEncoder: write_sparse(folder / "sparse", {"prompts": PROMPTS}),
        MultiVectorEncoder: write_today(folder / "vectors"),
    }
    known = {Encoder: _encoder()}

    def of(kind):
        if kind not in known:
            known[kind] = by_reference(kind, folders[kind])
        return known[kind]

    return of


@pytest.mark.parametrize("kind", REFUSED)
def test_bad_input_is_one_clear_line(kind, made):
    for methods, name, values, beside in REFUSED[kind]:
        for method, value in product(methods.split(), values):
            with refused(InputError):
                getattr(made(kind), method)(**beside, **{name: value})


HEADLESS = {"architectures": ["BertModel"]}
NAMELESS = {"architectures": None}
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


OUTER = "encoder.layers.0.feed_forward.outer.weight"


@pytest.mark.parametrize("poison", [np.inf, np.nan])
@pytest.mark.parametrize("name", SUBJECTS)
def test_an_output_that_is_no_number_is_an_error(name, poison, tmp_path):
    subject = SUBJECTS[name]
    made = subject.checkpoint(tmp_path)
    weight_DF = made.tensors[OUTER].copy()
    weight_DF[3, 5] = poison
    call = subject.call(replace(made, tensors={**made.tensors, OUTER: weight_DF}), "float32")
    calls = [partial(call, subject.inputs[:3])]
    if name == "Encoder":
        calls += [partial(call, subject.inputs[7]), partial(call, subject.inputs, output_dtype="ubinary")]
    for one in calls:
        with pytest.raises(CheckpointError, match="^the model's output is not a number: "):
            one()


@pytest.mark.parametrize("name", ["CrossEncoder", "Encoder", "SparseEncoder", "MultiVectorEncoder, documents"])
def test_the_tensor_that_is_at_fault_is_named(name, tmp_path):
    """By what the files hold; without them the error is the one of a model in memory."""
    subject = SUBJECTS[name]
    made = subject.checkpoint(tmp_path)
    weight_DF = made.tensors[OUTER].copy()
    weight_DF[3, 5] = np.inf
    damaged = replace(made, tensors={**made.tensors, OUTER: weight_DF})
    folder = converted(damaged, tmp_path / "damaged", "float32")
    loaded, orphan = subject.kind(folder), subject.kind(folder)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=f"output is not a number: {OUTER} holds NaN or infinity$"):
            getattr(loaded, subject.method)(subject.inputs[:3])
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="^the model's output is not a number: its weights hold"):
        getattr(orphan, subject.method)(subject.inputs[:3])


def test_the_dense_layer_that_is_at_fault_is_named(tmp_path):
    weight_ED = np.full((2, WIDTH), np.inf, np.float32)
    checkpoint = Checkpoint(SPEC, TENSORS, replace(TEXT, dense=((weight_ED, None, "none"),)))
    with pytest.raises(CheckpointError, match=": dense.0.weight holds NaN or infinity$"):
        Encoder(converted(checkpoint, tmp_path / "damaged", "float32")).encode("w5")


def test_classes_of_one_process_say_so(tmp_path):
    for kind in [*REFUSED][1:]:
        with refused(InputError, kind.__name__, "processes"):
            kind(tmp_path, processes=2)


TWO_TEXTS, TWO_PAIRS, WITH_MASK = ["w5 w6", "w7"], [("w5", "w6"), ("w7", "w8")], ["w5 [MASK]", "[MASK]"]
HABITS = {"batch_size": 7, "convert_to_numpy": True}  # of sentence-transformers' callers: they change nothing


class Record(dict[str, list[Any]]):
    """``function.parameter`` -> what arrived there, call after call."""

    def watch(self, monkeypatch, owner, name, title=""):
        real = getattr(owner, name)
        signature = inspect.signature(real)

        def noting(*given, **named):
            bound = signature.bind(*given, **named)
            bound.apply_defaults()
            for key, value in bound.arguments.items():
                self.setdefault(f"{title or name}.{key}", []).append(value)
            return real(*given, **named)

        monkeypatch.setattr(owner, name, noting)


def see(call, *arguments, **options):
    """What arrives on the way of a call, and its result."""
    record = Record()
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("encode", "encode_pairs", "encode_with_offsets", "encode_whole"):
            record.watch(monkeypatch, HuggingFaceTokenizer, name)
        for owner in (cross_encoder, text_classifier):
            record.watch(monkeypatch, owner, "apply_activation")
        record.watch(monkeypatch, token_classifier, "find_entities")
        record.watch(monkeypatch, sparse_encoder.SparseHead, "sparse_vectors")
        record.watch(monkeypatch, TextVectors, "plan")
        record.watch(monkeypatch, base.Progress, "__init__", "progress")
        result = call(*arguments, **options)
    return {**record, "result": result}


def agrees(seen, expected):
    return all(bool(value(seen[key])) if callable(value) else seen.get(key) == value for key, value in expected.items())


def begin(before):
    """Whether all texts, or the first ones of pairs, begin so."""
    return lambda found: all(
        (one if isinstance(one, str) else one[0]).startswith(before) for texts in found for one in texts
    )


SHOWN = (True, {"progress.enabled": [True]})
SIGNED = {"encode.texts": begin("w11 ")}
PROMPTED = {"task": ("query", SIGNED), "prompt_name": ("query", SIGNED), "prompt": ("w11 ", SIGNED)}
PAIRED = {"encode_pairs.pairs": begin("w11 ")}
SPARSE = {
    "max_active_dims": (2, {"sparse_vectors.most": [2]}),
    "format": ("scipy", {"result": lambda found: type(found).__name__ == "csr_matrix"}),
    "show_progress_bar": SHOWN,
}
# (class, method) -> what it is given, and of each option a value and what then arrives that did not without it.
CALLS = {
    (CrossEncoder, "predict"): (
        (TWO_PAIRS,),
        {
            "prompt_name": ("query", PAIRED),
            "prompt": ("w11 ", PAIRED),
            "activation_fn": ("tanh", {"apply_activation.name": ["tanh"]}),
            "apply_softmax": (True, {"apply_activation.name": ["none", "softmax"]}),
            "show_progress_bar": SHOWN,
        },
    ),
    (TextClassifier, "classify"): (
        (TWO_TEXTS,),
        {"top_k": (2, {"result": lambda found: [len(one) for one in found] == [2, 2]}), "show_progress_bar": SHOWN},
    ),
    (TokenClassifier, "classify"): (
        (TWO_TEXTS,),
        {
            "aggregation": ("max", {"find_entities.aggregation": ["max", "max"]}),
            "ignore_labels": (["NONE", "PLACE", "PERSON"], {"result": [[], []]}),
            "show_progress_bar": SHOWN,
        },
    ),
    (MaskedLanguageModel, "fill"): (
        (WITH_MASK,),
        {"top_k": (3, {"result": lambda found: [len(one) for one in found] == [3, 3]}), "show_progress_bar": SHOWN},
    ),
    (SparseEncoder, "encode"): ((TWO_TEXTS,), PROMPTED | SPARSE),
    (SparseEncoder, "encode_document"): (
        (TWO_TEXTS,),
        {name: PROMPTED[name] for name in ("prompt_name", "prompt")} | SPARSE,
    ),
    (MultiVectorEncoder, "encode"): ((TWO_TEXTS,), PROMPTED | {"show_progress_bar": SHOWN}),
}


def options_of(function):
    parameters = inspect.signature(function).parameters.values()
    return {one.name for one in parameters if one.default is not one.empty} - {*HABITS}


@pytest.mark.parametrize(("kind", "method"), CALLS, ids=lambda part: getattr(part, "__name__", part))
def test_each_option_of_a_call_arrives(kind, method, made):
    arguments, cases = CALLS[kind, method]
    if method == "encode" or kind not in (SparseEncoder, MultiVectorEncoder):
        assert set(cases) == options_of(getattr(kind, method))
    if not importlib.util.find_spec("scipy"):
        cases = {name: case for name, case in cases.items() if name != "format"}
    call = getattr(made(kind), method)
    plain = see(call, *arguments)
    for name, (value, expected) in cases.items():
        seen = see(call, *arguments, **{name: value})
        assert agrees(seen, expected), (name, {key: seen.get(key) for key in expected})
        assert not agrees(plain, expected), f"also without {name}"


def test_what_rank_is_given_comes_to_predict(tmp_path):
    encoder, record = by_reference(CrossEncoder, write_classifier(tmp_path, RERANKER)), Record()
    given = {
        "prompt": "w9 ", "prompt_name": None, "activation_fn": "tanh", "apply_softmax": True, "batch_size": 3,
        "show_progress_bar": False, "convert_to_numpy": True,
    }  # fmt: skip
    assert {*given} == options_of(CrossEncoder.predict) | {*HABITS}
    with pytest.MonkeyPatch.context() as monkeypatch:
        record.watch(monkeypatch, CrossEncoder, "predict")
        (best,) = encoder.rank("w5", ["w6", "w7"], top_k=1, return_documents=True, **given)
    assert {name: record[f"predict.{name}"] for name in given} == {name: [value] for name, value in given.items()}
    assert record["predict.pairs"] == [[("w5", "w6"), ("w5", "w7")]] and best["text"] in ("w6", "w7")


def test_the_options_of_a_cross_encoder_itself_arrive(monkeypatch):
    record = Record()
    monkeypatch.setattr(ModelBase, "__init__", lambda self, path, precision, threads, processes, device: None)
    record.watch(monkeypatch, ModelBase, "__init__", "made")
    encoder = CrossEncoder("folder", "int8", 3, 1, "cuda", True)
    expected = {"path": "folder", "precision": "int8", "threads": 3, "processes": 1, "device": "cuda"}
    assert {name: record[f"made.{name}"] for name in expected} == {name: [value] for name, value in expected.items()}
    assert encoder._yes_or_no is True


# An Encoder's forms of one call ------------------------------------------------------------------------------------

CATS = ["the cat", "a dog"]
RANGES = np.stack([np.full(WIDTH, -1, np.float32), np.full(WIDTH, 2, np.float32)])
# Option -> a value, and the fields of VectorOptions that it changes.
OPTIONS = {
    "task": ("document", {"prompt": "the "}),
    "prompt_name": ("other", {"prompt": "under "}),
    "prompt": ("on ", {"prompt": "on "}),
    "normalize_embeddings": (False, {"normalize": False}),
    "truncate_dim": (5, {"width": 5}),
    "pooling": (["cls", "max"], {"pooling": ("cls", "max"), "width": 2 * WIDTH}),
    "long": ("mean", {"long": "mean"}),
    "output_dtype": ("ubinary", {"output_dtype": "ubinary"}),
    "ranges": (RANGES, {"ranges_2E": RANGES.tolist()}),
}
FORMS = {
    "encode": lambda encoder, **how: encoder.encode(CATS, **how),
    "encode of one": lambda encoder, **how: encoder.encode(CATS[0], **how),
    "encode_query": lambda encoder, **how: encoder.encode_query(CATS, **how),
    "encode_document": lambda encoder, **how: encoder.encode_document(CATS, **how),
    "submit": lambda encoder, **how: encoder.submit(CATS, **how).result(),
    "submit of one": lambda encoder, **how: encoder.submit(CATS[0], **how).result(),
    "encode_async": lambda encoder, **how: asyncio.run(encoder.encode_async(CATS, **how)),
    "encode_iter": lambda encoder, **how: list(encoder.encode_iter(CATS, **how)),
}


class Pool:
    """Stands for worker processes; keeps the options that it is given, and what it would send."""

    least_texts = 1

    def __init__(self, encoder):
        self.scheduler, self._text_vectors, self.options, self.sent = encoder._scheduler, encoder._text_vectors, [], []

    def plan(self, texts, options, progress=None):
        self._note(texts, options)
        return (yield from self._text_vectors.plan(texts, options, progress))

    def stream(self, texts, options):
        listed = [text for _, text in texts]
        self._note(listed, options)
        return iter(self.scheduler.run(lambda: self._text_vectors.plan(listed, options)))

    def _note(self, texts, options):
        self.options.append(options)
        self.sent.append(processes._chunk(texts, options).content)


def fields(options):
    return {name: np.asarray(x).tolist() if isinstance(x, np.ndarray) else x for name, x in vars(options).items()}


def prompted_encoder():
    return _encoder(prompts={"query": "query : ", "document": "the ", "other": "under "})


@pytest.mark.parametrize("form", FORMS)
def test_each_option_of_a_form_arrives(form):
    assert OPTIONS.keys() == EncodeOptions.__annotations__.keys() == options_of(TextVectors.options)
    encoder = prompted_encoder()
    for pool in (None, Pool(encoder)):
        encoder._pool = pool

        def arrived(**how):
            found = see(FORMS[form], encoder, **how)["plan.options"]
            assert pool is None or pool.options.pop() is found[-1]  # noqa: B023
            assert all(fields(one) == fields(found[0]) for one in found)
            return fields(found[0])

        plain = arrived()
        task = {"encode_query": "query : ", "encode_document": "the "}.get(form, "")
        assert plain["prompt"] == task and plain["normalize"] is None and plain["long"] == "truncate"
        for name, (value, changed) in OPTIONS.items():
            if name != "task" or form not in ("encode_query", "encode_document"):  # which say it themselves
                assert arrived(**{name: value}) == plain | changed, name


def test_options_arrive_in_a_worker_process(monkeypatch):
    """But for types and ranges, which are made of all vectors together; texts that are too long are found before."""
    encoder, record = prompted_encoder(), Record()
    pool = Pool(encoder)
    monkeypatch.setattr(encoder, "_pool", pool)
    monkeypatch.setattr(worker, "Encoder", lambda path, precision, threads, processes, device: encoder)
    record.watch(monkeypatch, worker, "Encoder", "made")
    monkeypatch.setattr(processes, "ProcessPool", lambda count, arguments: None)
    monkeypatch.setattr(processes, "pool_scheduler", lambda pool: None)
    record.watch(monkeypatch, processes, "ProcessPool", "pool")
    with pytest.raises(AttributeError):  # of what stands for the processes
        encoder._make_pool(Path("folder"), "int8", "cuda", Sharing(3, 5, 7))
    assert record["pool.count"] == [3]
    ((module, *arguments),) = record["pool.arguments"]
    assert (module, Path(arguments[0]).name) == ("fastattn.encoders.worker", "folder")
    vectors = worker.serve(*arguments)["vectors"]
    made = {name: record[f"made.{name}"] for name in ("precision", "threads", "processes", "device")}
    assert made == {"precision": ["int8"], "threads": [5], "processes": [1], "device": ["cuda"]}
    for name, (value, _) in OPTIONS.items():
        expected = see(encoder.encode, CATS, **{name: value})["plan.options"][0]
        texts, plain = json.loads(json.dumps(pool.sent[-1]))
        seen = see(lambda given, how: vectors(1, given, how).result(), texts, plain)
        assert fields(seen["plan.options"][0]) == fields(expected) | {"output_dtype": "float32", "ranges_2E": None}
        assert seen["plan.texts"] == [CATS]
    encoder.encode(CATS, long="error")
    assert pool.sent[-1][1]["long"] == "truncate"


@pytest.mark.parametrize("name", ["task", "prompt_name", "prompt"])
def test_each_prompt_is_counted(name):
    encoder, (value, changed) = prompted_encoder(), OPTIONS[name]
    assert see(encoder.count_tokens, CATS, **{name: value})["encode_whole.texts"] == [
        [changed["prompt"] + text for text in CATS]
    ]


def test_progress_and_habits_of_an_encoder_arrive_or_change_nothing(made):
    encoder = _encoder()
    for wish, shown in ((True, True), (False, False), (None, False)):
        assert see(encoder.encode, CATS, show_progress_bar=wish)["progress.enabled"] == [shown]
    np.testing.assert_array_equal(encoder.encode(CATS, **HABITS), encoder.encode(CATS))
    cross = made(CrossEncoder)
    np.testing.assert_array_equal(cross.predict(TWO_PAIRS, **HABITS), cross.predict(TWO_PAIRS))
