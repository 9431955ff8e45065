"""What is no list of texts, and an option that there is not, is refused in one line by each public method."""

import asyncio
import copy
import inspect
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fastattn
from fastattn.errors import InputError
from fastattn.ops import reference
from fastattn.weights import read
from tests.encoders.classifiers import LABELS, TOKENS, write_classifier, write_masked, write_sparse, write_today
from tests.encoders.test_encoder import _encoder
from tests.generation.language_models import make
from tests.messages import refused
from tests.translation.test_translator import _translator

Call = Callable[[Any, Any], Any]
# Each public method with the place that takes texts.
PLAIN = {
    "Translator": "translate submit translate_iter translate_tokens generate_tokens",
    "Encoder": "encode encode_query encode_document submit encode_iter encode_tokens count_tokens",
    "Generator": "generate submit generate_iter score",
    "LanguageModelTranslator": "translate submit translate_iter",
    "CrossEncoder": "predict count_pair_tokens",
    "TextClassifier": "classify count_pair_tokens",
    "TokenClassifier": "classify",
    "MaskedLanguageModel": "fill",
    "SparseEncoder": "encode encode_query encode_document",
    "MultiVectorEncoder": "encode encode_query encode_document",
}
CALLS: dict[str, Call] = {
    f"{kind}.{name}": lambda made, texts, name=name: getattr(made, name)(texts)
    for kind, names in PLAIN.items()
    for name in names.split()
} | {
    "Translator.translate_async": lambda made, texts: asyncio.run(made.translate_async(texts)),
    "Translator.score": lambda made, texts: made.score(texts, ["a"]),
    "Translator.score_tokens": lambda made, texts: made.score_tokens(texts, [["a"]]),
    "Encoder.encode_async": lambda made, texts: asyncio.run(made.encode_async(texts)),
    "Generator.generate_async": lambda made, texts: asyncio.run(made.generate_async(texts)),
    "CrossEncoder.rank": lambda made, texts: made.rank("w5", texts),
}
OTHER_PLACES: dict[str, Call] = {
    "Translator.translate": lambda made, texts: made.translate(["a", "b"], target_prefix=texts),
    "Translator.translate_iter": lambda made, texts: made.translate_iter(["a", "b"], target_prefix=texts),
    "Translator.translate_tokens": lambda made, texts: made.translate_tokens([["a"]], texts),
    "Translator.score": lambda made, texts: made.score(["a"], texts),
    "Translator.score_tokens": lambda made, texts: made.score_tokens([["a"]], texts),
}
KINDS = sorted({name.partition(".")[0] for name in CALLS})
TEXTS = {"texts", "prompts", "pairs", "documents", "source", "sources"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One of each public class that takes texts."""
    written = {
        fastattn.CrossEncoder: lambda folder: write_classifier(folder),
        fastattn.TextClassifier: lambda folder: write_classifier(folder, LABELS),
        fastattn.TokenClassifier: lambda folder: write_classifier(folder, TOKENS),
        fastattn.MaskedLanguageModel: write_masked,
        fastattn.SparseEncoder: write_sparse,
        fastattn.MultiVectorEncoder: write_today,
    }
    made = {
        kind.__name__: kind.from_checkpoint(read(write(tmp_path_factory.mktemp(kind.__name__))), ops=reference)
        for kind, write in written.items()
    }
    generator = make(ops=reference)
    made |= {"LanguageModelTranslator": fastattn.LanguageModelTranslator(generator, "de", "en", prompt="alma")}
    return SimpleNamespace(Translator=_translator(), Encoder=_encoder(), Generator=generator, **made)


def test_every_public_method_that_takes_texts_is_here():
    classes = [getattr(fastattn, name) for name in fastattn.__all__ if inspect.isclass(getattr(fastattn, name))]
    found = {
        f"{kind.__name__}.{name}"
        for kind in classes
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and TEXTS & set(inspect.signature(method).parameters)
    }
    assert found - {"MultiVectorEncoder.score"} == set(CALLS)  # which takes vectors


class Table:
    """As a DataFrame: it has two axes, and iterating gives the names of its columns."""

    ndim = 2

    def __iter__(self):
        return iter(["w5", "w6"])


NO_LISTS = {"cat": "a", "dog": "b"}, b"cat", {"cat", "dog"}, Table(), np.array("cat"), 5


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_list_of_texts_is_refused(made, kind):
    for name, call in (*CALLS.items(), *OTHER_PLACES.items()):
        if name.partition(".")[0] == kind:
            for texts in NO_LISTS:
                with refused(InputError, " must be ", type(texts).__name__):
                    call(getattr(made, kind), texts)


def test_bytes_among_texts_say_what_to_do(made):
    for call in (made.Translator.translate, made.Encoder.encode, made.SparseEncoder.encode):
        with refused(InputError, "number 1 is bytes"):
            call(["a", b"b"])
    with refused(InputError, "bytes"):
        list(made.Translator.translate_iter([b"a"]))


def test_every_iterable_in_an_order_is_taken(made):
    texts = ["a b", "c"]
    expected = made.Translator.translate(texts, max_decoding_length=4)
    named = dict.fromkeys(texts)
    for same in (tuple(texts), iter(texts), (text for text in texts), np.array(texts), named.keys()):
        assert made.Translator.translate(same, max_decoding_length=4) == expected
    pairs = np.array([["w5", "w6"], ["w7", "w8"]])
    np.testing.assert_array_equal(made.CrossEncoder.predict(pairs), made.CrossEncoder.predict(pairs.tolist()))


def test_single_tokens_that_end_are_a_list_in_any_order_but_no_bytes(made):
    assert made.Translator.translate("a", end_token={"</s>"}) == made.Translator.translate("a", end_token="</s>")
    for option in ({"end_token": b"</s>"}, {"end_token": {"</s>": 2}}, {"suppress_sequences": {"a": 1}}):
        with refused(InputError, *option):
            made.Translator.translate("a", **option)


def test_what_is_pickled_says_what_to_do_instead(made):
    for kind in KINDS:
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with refused(TypeError, "cannot be pickled or copied"):
                attempt(getattr(made, kind))


OF_CLASSES = "device_index compute_type inter_threads precison thread anything_else"
OF_METHODS = "device max_length qqq"
OF_TRANSLATIONS = "num_beams beam beam_sise detials max_new_tokens max_batch_size qqq"
OF_ONE = {
    "Encoder.encode": "normalize normalise_embeddings precision",
    "TokenClassifier.classify": "aggregation_strategy",
}


@pytest.mark.parametrize("kind", KINDS)
def test_options_that_there_are_not(made: SimpleNamespace, kind: str) -> None:
    for option in OF_CLASSES.split():
        with refused(TypeError, f"{kind}()", f"'{option}'") as caught:
            getattr(fastattn, kind)("nowhere", **{option: 1})
        assert isinstance(caught.value, InputError)
    usual = OF_TRANSLATIONS if kind == "Translator" else OF_METHODS
    for name in (name for name in CALLS if name.startswith(f"{kind}.")):
        method = name.partition(".")[2]
        arguments = ("w5", ["w6"]) if method in ("rank", "score", "score_tokens") else (["w5"],)
        for option in f"{usual} {OF_ONE.get(name, '')}".split():
            with refused(TypeError, f"'{option}'") as caught:
                asyncio.run(getattr(getattr(made, kind), method)(*arguments, **{option: 1}))  # of encode_async
            assert isinstance(caught.value, InputError) or "()" in str(caught.value)


def test_options_of_functions_on_vectors() -> None:
    with refused(TypeError, "quantize_vectors()", "'precision'"):
        fastattn.quantize_vectors(np.ones((2, 8)), precision="int8")
