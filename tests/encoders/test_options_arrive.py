"""Each option of each call of the encoder classes arrives, with its value, where it has its effect."""

import asyncio
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn import (
    CrossEncoder,
    MaskedLanguageModel,
    MultiVectorEncoder,
    SparseEncoder,
    TextClassifier,
    TokenClassifier,
)
from fastattn.encoders import base, cross_encoder, sparse_encoder, text_classifier, token_classifier, worker
from fastattn.encoders import worker_processes as processes
from fastattn.encoders.vector_head import EncodeOptions, OptionChecker, VectorPlans
from fastattn.loading.loaded_model import ModelBase
from fastattn.processes.choice import Sharing
from fastattn.text.huggingface import HuggingFaceTokenizer
from tests.encoders.classifiers import RERANKER, by_reference, write_classifier
from tests.encoders.test_encoder import WIDTH, _encoder

TEXTS, PAIRS, MASKED = ["w5 w6", "w7"], [("w5", "w6"), ("w7", "w8")], ["w5 [MASK]", "[MASK]"]
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
            record.watch(monkeypatch, owner, "activated")
        record.watch(monkeypatch, token_classifier, "find_entities")
        record.watch(monkeypatch, sparse_encoder.SparseHead, "rows")
        record.watch(monkeypatch, VectorPlans, "plan")
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
    "max_active_dims": (2, {"rows.most": [2]}),
    "format": ("scipy", {"result": lambda found: type(found).__name__ == "csr_matrix"}),
    "show_progress_bar": SHOWN,
}
# (class, method) -> what it is given, and of each option a value and what then arrives that did not without it.
CALLS = {
    (CrossEncoder, "predict"): (
        (PAIRS,),
        {
            "prompt_name": ("query", PAIRED),
            "prompt": ("w11 ", PAIRED),
            "activation_fn": ("tanh", {"activated.name": ["tanh"]}),
            "apply_softmax": (True, {"activated.name": ["none", "softmax"]}),
            "show_progress_bar": SHOWN,
        },
    ),
    (TextClassifier, "classify"): (
        (TEXTS,),
        {"top_k": (2, {"result": lambda found: [len(one) for one in found] == [2, 2]}), "show_progress_bar": SHOWN},
    ),
    (TokenClassifier, "classify"): (
        (TEXTS,),
        {
            "aggregation": ("max", {"find_entities.aggregation": ["max", "max"]}),
            "ignore_labels": (["NONE", "PLACE", "PERSON"], {"result": [[], []]}),
            "show_progress_bar": SHOWN,
        },
    ),
    (MaskedLanguageModel, "fill"): (
        (MASKED,),
        {"top_k": (3, {"result": lambda found: [len(one) for one in found] == [3, 3]}), "show_progress_bar": SHOWN},
    ),
    (SparseEncoder, "encode"): ((TEXTS,), PROMPTED | SPARSE),
    (SparseEncoder, "encode_document"): (
        (TEXTS,),
        {name: PROMPTED[name] for name in ("prompt_name", "prompt")} | SPARSE,
    ),
    (MultiVectorEncoder, "encode"): ((TEXTS,), PROMPTED | {"show_progress_bar": SHOWN}),
}


def options_of(function):
    parameters = inspect.signature(function).parameters.values()
    return {one.name for one in parameters if one.default is not one.empty} - {*HABITS}


@pytest.mark.parametrize(("kind", "method"), CALLS, ids=lambda part: getattr(part, "__name__", part))
def test_each_option_of_a_call_arrives(kind, method, made):
    arguments, cases = CALLS[kind, method]
    if method == "encode" or kind not in (SparseEncoder, MultiVectorEncoder):
        assert set(cases) == options_of(getattr(kind, method))
    if "format" in cases and not has_scipy():
        cases = {name: case for name, case in cases.items() if name != "format"}
    call = getattr(made(kind), method)
    plain = see(call, *arguments)
    for name, (value, expected) in cases.items():
        seen = see(call, *arguments, **{name: value})
        assert agrees(seen, expected), (name, {key: seen.get(key) for key in expected})
        assert not agrees(plain, expected), f"also without {name}"


def has_scipy():
    try:
        import scipy.sparse  # noqa: F401
    except ImportError:
        return False
    return True


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

    least = 1

    def __init__(self, encoder):
        self.scheduler, self._plans, self.options, self.sent = encoder._scheduler, encoder._plans, [], []

    def plan(self, texts, options, progress=None):
        self._note(texts, options)
        return (yield from self._plans.plan(texts, options, progress))

    def stream(self, texts, options):
        listed = [text for _, text in texts]
        self._note(listed, options)
        return iter(self.scheduler.run(lambda: self._plans.plan(listed, options)))

    def _note(self, texts, options):
        self.options.append(options)
        self.sent.append(processes._chunk(texts, options).content)


def fields(options):
    return {name: np.asarray(x).tolist() if isinstance(x, np.ndarray) else x for name, x in vars(options).items()}


def prompted_encoder():
    return _encoder(prompts={"query": "query : ", "document": "the ", "other": "under "})


@pytest.mark.parametrize("form", FORMS)
def test_each_option_of_a_form_arrives(form):
    assert OPTIONS.keys() == EncodeOptions.__annotations__.keys() == options_of(OptionChecker.checked)
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
    np.testing.assert_array_equal(cross.predict(PAIRS, **HABITS), cross.predict(PAIRS))
