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
from tests.translation.test_translator import _translator

Call = Callable[[Any, Any], Any]
# Each public method with the place that takes texts.
PLAIN = {
    "Translator": "translate submit translate_iter translate_tokens generate_tokens",
    "Encoder": "encode encode_query encode_document submit encode_iter count_tokens",
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


NO_LISTS = [
    ({"cat": "a", "dog": "b"}, r"got dict; give its values\(\)"),
    (b"cat", r"got bytes; decode\(\) makes a str"),
    ({"cat", "dog"}, "got set, which has no order; give a list"),
    (Table(), "got Table; give one column of it"),
    (np.array("cat"), "got ndarray$"),
    (5, "got int$"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_list_of_texts_is_refused(made, kind):
    for name, call in (*CALLS.items(), *OTHER_PLACES.items()):
        if name.partition(".")[0] == kind:
            for texts, told in NO_LISTS:
                with pytest.raises(InputError, match=f"must be .*{told}") as caught:
                    call(getattr(made, kind), texts)
                assert "\n" not in str(caught.value), name


def test_bytes_among_texts_say_what_to_do(made):
    for call in (made.Translator.translate, made.Encoder.encode, made.SparseEncoder.encode):
        with pytest.raises(InputError, match=r"texts must be str, number 1 is bytes; decode\(\) makes a str"):
            call(["a", b"b"])
    with pytest.raises(InputError, match=r"a text must be a str, got bytes; decode\(\) makes a str"):
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
        with pytest.raises(InputError, match=f"{next(iter(option))} should be"):
            made.Translator.translate("a", **option)


def test_what_is_pickled_says_what_to_do_instead(made):
    for kind in KINDS:
        told = f"^this ({kind}|Generator) cannot be pickled or copied: give the other process its path"
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=told):
                attempt(getattr(made, kind))


OF_CLASSES = {
    "device_index": "here it is left out: all CPUs are one device",
    "compute_type": "here it is precision",
    "inter_threads": "here it is threads, the total; processes shares the work among processes",
    "precison": "did you mean precision[?]",
    "thread": "did you mean threads[?]",
    "anything_else": "",
}
OF_TRANSLATIONS = {
    "num_beams": "; here it is beam_size",
    "beam": "; here it is beam_size",
    "beam_sise": r"; did you mean beam_size\?",
    "detials": r"; did you mean details\?",
    "max_new_tokens": "; here it is max_decoding_length",
    "max_batch_size": "; here it is left out: batches are made for you",
    "qqq": "; known: beam_size, .*",
}
OF_METHODS = {
    "device": "here it is device, an option of the class",
    "max_length": "here it is (left out: the checkpoint's own|max_new_tokens, which counts the answer alone)",
    "qqq": "",
}


@pytest.mark.parametrize("kind", KINDS)
def test_of_every_class_and_its_methods(made: SimpleNamespace, kind: str) -> None:
    for option, told in OF_CLASSES.items():
        with pytest.raises(TypeError, match=rf"^{kind}\(\) got an unexpected .* '{option}'(; )?{told}$") as caught:
            getattr(fastattn, kind)("nowhere", **{option: 1})
        assert isinstance(caught.value, InputError)
    for method in [name for place, _, name in (call.partition(".") for call in CALLS) if place == kind != "Translator"]:
        arguments = ("w5", ["w6"]) if method == "rank" else (["w5"],)
        for option, told in OF_METHODS.items():
            with pytest.raises(TypeError, match=rf"(argument|option) '{option}'.*{told}"):
                found = getattr(getattr(made, kind), method)(*arguments, **{option: 1})
                asyncio.run(found)  # of encode_async


def test_of_a_translation(made: SimpleNamespace) -> None:
    translator = made.Translator
    for option, told in OF_TRANSLATIONS.items():
        for call in (translator.translate, translator.submit, translator.translate_iter, translator.generate_tokens):
            with pytest.raises(InputError, match=f"^unknown option '{option}'{told}$") as caught:
                call(["a"], **{option: 1})
            assert isinstance(caught.value, TypeError)


def test_of_vectors(made: SimpleNamespace) -> None:
    with pytest.raises(TypeError, match=r"encode\(\) .*'normalize'; here it is normalize_embeddings"):
        made.Encoder.encode(["a"], normalize=True)
    with pytest.raises(TypeError, match=r"encode\(\) .*'normalise_embeddings'; did you mean normalize_embeddings\?"):
        made.Encoder.encode(["a"], normalise_embeddings=True)
    with pytest.raises(TypeError, match=r"encode\(\) .*'precision'; here it is output_dtype"):
        made.Encoder.encode(["a"], precision="int8")
    with pytest.raises(TypeError, match=r"classify\(\) .*'aggregation_strategy'; here it is aggregation"):
        made.TokenClassifier.classify("a", aggregation_strategy="simple")
    with pytest.raises(TypeError, match=r"quantize_vectors\(\) .*'precision'; here it is output_dtype"):
        fastattn.quantize_vectors(np.ones((2, 8)), precision="int8")
