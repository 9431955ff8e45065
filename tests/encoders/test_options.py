"""Encoder: prompts of queries and documents, vectors of other types than float32."""

import asyncio
import inspect

import numpy as np
import pytest

from fastattn import quantize_vectors
from fastattn.encoders.encoder import Encoder
from fastattn.encoders.vector_head import EncodeOptions, OptionChecker
from fastattn.errors import InputError
from fastattn.ops import cpu as operations
from tests.encoders.test_encoder import WIDTH, _encoder, _many_texts

TASKS = [
    # prompts, the default one, and what is put before a text, a query, a document
    ({}, None, ("", "", "")),
    ({"query": "query : ", "document": "the "}, None, ("", "query : ", "the ")),
    ({"query": "query : ", "a": "a : "}, "a", ("a : ", "query : ", "")),
    ({"document": "the ", "query": "query : "}, "query", ("query : ", "query : ", "the ")),
    ({"passage": "the ", "corpus": "a "}, None, ("", "", "")),
    ({"passage": "the ", "document": ""}, "passage", ("the ", "", "")),
]


@pytest.mark.parametrize("prompts, default, expected", TASKS)
def test_queries_and_documents_have_prompts_of_their_own(prompts: dict, default: str | None, expected: tuple) -> None:
    encoder = _encoder(prompts=prompts, default_prompt=default)
    plain, query, document = (encoder.encode(f"{before}cat", prompt="") for before in expected)
    np.testing.assert_array_equal(encoder.encode("cat"), plain)
    np.testing.assert_array_equal(encoder.encode_query("cat"), query)
    np.testing.assert_array_equal(encoder.encode_document(["cat"]), [document])
    np.testing.assert_array_equal(encoder.submit("cat", task="query").result(), query)
    np.testing.assert_array_equal(asyncio.run(encoder.encode_async(["cat"], task="document")), [document])
    np.testing.assert_array_equal(list(encoder.encode_iter(["cat"], task="query")), [query])
    np.testing.assert_array_equal(encoder.encode_query("cat", prompt="on "), encoder.encode("on cat", prompt=""))
    for name in prompts:
        named = encoder.encode_document("cat", prompt_name=name, truncate_dim=5)
        np.testing.assert_array_equal(named, encoder.encode("cat", prompt_name=name)[:5])


@pytest.mark.parametrize("prompts, default, expected", TASKS)
def test_prompts_are_chosen_as_sentence_transformers_does(prompts: dict, default: str | None, expected: tuple) -> None:
    theirs, torch = pytest.importorskip("sentence_transformers"), pytest.importorskip("torch")
    model = theirs.SentenceTransformer(modules=[torch.nn.Identity()], prompts=prompts, default_prompt_name=default)
    model.encode = lambda inputs, prompt_name=None, prompt=None, **_: model._resolve_prompt(prompt, prompt_name) or ""
    assert (model.encode("cat"), model.encode_query("cat"), model.encode_document("cat")) == expected


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return _encoder(operations)


TEXTS = _many_texts(100)
TYPES = {"int8": np.int8, "uint8": np.uint8, "binary": np.int8, "ubinary": np.uint8}


@pytest.mark.parametrize("output_dtype", TYPES)
@pytest.mark.parametrize("options", [{}, {"truncate_dim": 11, "prompt_name": "query"}], ids=["plain", "options"])
def test_vectors_of_other_types(encoder: Encoder, output_dtype: str, options: dict) -> None:
    vectors = encoder.encode(TEXTS, **options)
    found = encoder.encode(TEXTS, output_dtype=output_dtype, **options)
    np.testing.assert_array_equal(found, quantize_vectors(vectors, output_dtype))
    ranges = np.stack([vectors[:20].min(axis=0), vectors[:20].max(axis=0)])
    expected = quantize_vectors(vectors, output_dtype, ranges)
    options = {"output_dtype": output_dtype, "ranges": ranges, **options}
    assert encoder.encode(TEXTS, **options).dtype == TYPES[output_dtype]
    for found in (
        encoder.encode(TEXTS, **options),
        encoder.submit(TEXTS, **options).result(),
        list(encoder.encode_iter(TEXTS, **options)),
        np.stack([encoder.encode(text, **options) for text in TEXTS]),
    ):
        np.testing.assert_array_equal(found, expected)
    none = encoder.encode([], **options)
    assert none.shape == (0, expected.shape[1]) and none.dtype == expected.dtype


def test_float32_vectors_have_no_use_for_ranges(encoder: Encoder) -> None:
    ranges = np.stack([np.zeros(WIDTH), np.ones(WIDTH)])
    np.testing.assert_array_equal(encoder.encode(TEXTS, ranges=ranges), encoder.encode(TEXTS))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"task": "passage"}, "unknown task 'passage'; known: query, document"),
        ({"task": 3}, "unknown task 3"),
        ({"output_dtype": "int4"}, "unknown output_dtype 'int4'; known: float32, int8"),
        ({"output_dtype": np.dtype("int8")}, "unknown output_dtype dtype"),
        ({"long": np.array(["mean", "error"])}, "unknown long array"),
        ({"task": np.array(["query", "document"])}, "unknown task array"),
        ({"long": "cut"}, "unknown long 'cut'; known: truncate, mean, error"),
        ({"long": None}, "unknown long None"),
        ({"ranges": np.zeros((2, 3))}, rf"ranges of shape \(2, {WIDTH}\) are expected, got \(2, 3\)"),
        ({"ranges": "wide"}, "ranges should be floating-point"),
    ],
)
def test_options_are_looked_at_first(encoder: Encoder, options: dict, message: str) -> None:
    for call in (encoder.encode, encoder.submit, encoder.encode_iter):
        with pytest.raises(InputError, match=message):
            call(["a"], **options)


@pytest.mark.parametrize("output_dtype", ["int8", "uint8"])
@pytest.mark.parametrize("task", [None, "query"])
def test_ranges_that_no_vectors_tell(encoder: Encoder, output_dtype: str, task: str | None) -> None:
    for one in ("a", ["a"]):
        with pytest.raises(InputError, match=f"{output_dtype} of a single vector needs ranges"):
            encoder.encode(one, output_dtype=output_dtype, task=task)
    with pytest.raises(InputError, match=f"{output_dtype} needs ranges: vectors are yielded before"):
        encoder.encode_iter(TEXTS, output_dtype=output_dtype, task=task)
    with pytest.warns(UserWarning, match=f"{output_dtype} by the ranges of 2 vectors") as told:
        encoder.encode(["a", "the cat"], output_dtype=output_dtype, task=task)
    assert [warning.filename for warning in told] == [__file__]


def test_every_option_of_a_call_is_checked() -> None:
    assert list(EncodeOptions.__annotations__) == list(inspect.signature(OptionChecker.checked).parameters)[1:]
