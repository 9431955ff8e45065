"""Encoder: prompts of queries and documents, vectors of other types than float32."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from fastattn import quantize_vectors
from fastattn.encoders.encoder import Encoder
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


def test_queries_and_documents_have_prompts_of_their_own() -> None:
    for prompts, default, expected in TASKS:
        encoder = _encoder(prompts=prompts, default_prompt=default)
        plain, query, document = (encoder.encode(f"{before}cat", prompt="") for before in expected)
        np.testing.assert_array_equal(encoder.encode("cat"), plain)
        np.testing.assert_array_equal(encoder.encode_query("cat"), query)
        np.testing.assert_array_equal(encoder.encode_document(["cat"]), [document])
        np.testing.assert_array_equal(encoder.encode_query("cat", prompt="on "), encoder.encode("on cat", prompt=""))
        for name in prompts:
            named = encoder.encode_document("cat", prompt_name=name, truncate_dim=5)
            np.testing.assert_array_equal(named, encoder.encode("cat", prompt_name=name)[:5])


def test_prompts_are_chosen_as_sentence_transformers_does() -> None:
    theirs, torch = pytest.importorskip("sentence_transformers"), pytest.importorskip("torch")
    for prompts, default, expected in TASKS:
        model = theirs.SentenceTransformer(modules=[torch.nn.Identity()], prompts=prompts, default_prompt_name=default)

        def chosen(inputs: str, prompt_name: Any = None, prompt: Any = None, model: Any = model, **_: Any) -> str:
            return model._resolve_prompt(prompt, prompt_name) or ""

        model.encode = chosen
        assert (model.encode("cat"), model.encode_query("cat"), model.encode_document("cat")) == expected


TEXTS = _many_texts(100)
TYPES = {"int8": np.int8, "uint8": np.uint8, "binary": np.int8, "ubinary": np.uint8}


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return _encoder(operations)


def test_vectors_of_other_types(encoder: Encoder) -> None:
    for output_dtype, options in product(TYPES, ({}, {"truncate_dim": 11, "prompt_name": "query"})):
        vectors = encoder.encode(TEXTS, **options)
        found = encoder.encode(TEXTS, output_dtype=output_dtype, **options)
        np.testing.assert_array_equal(found, quantize_vectors(vectors, output_dtype))
        assert found.dtype == TYPES[output_dtype]
        ranges = np.stack([vectors[:20].min(axis=0), vectors[:20].max(axis=0)])
        expected = quantize_vectors(vectors, output_dtype, ranges)
        options = {"output_dtype": output_dtype, "ranges": ranges, **options}
        for found in (
            encoder.encode(TEXTS, **options),
            encoder.submit(TEXTS, **options).result(),
            list(encoder.encode_iter(TEXTS, **options)),
        ):
            np.testing.assert_array_equal(found, expected)
        none = encoder.encode([], **options)
        assert none.shape == (0, expected.shape[1]) and none.dtype == expected.dtype


def test_float32_vectors_have_no_use_for_ranges(encoder: Encoder) -> None:
    ranges = np.stack([np.zeros(WIDTH), np.ones(WIDTH)])
    np.testing.assert_array_equal(encoder.encode(TEXTS, ranges=ranges), encoder.encode(TEXTS))


def test_ranges_that_no_vectors_tell(encoder: Encoder) -> None:
    for output_dtype, task in (("int8", None), ("uint8", "query")):
        for one in ("a", ["a"]):
            with pytest.raises(InputError, match=f"{output_dtype} of a single vector needs ranges"):
                encoder.encode(one, output_dtype=output_dtype, task=task)
        with pytest.raises(InputError, match=f"{output_dtype} needs ranges: vectors are yielded before"):
            encoder.encode_iter(TEXTS, output_dtype=output_dtype, task=task)
        with pytest.warns(UserWarning, match=f"{output_dtype} by the ranges of 2 vectors") as told:
            encoder.encode(["a", "the cat"], output_dtype=output_dtype, task=task)
        assert [warning.filename for warning in told] == [__file__]
