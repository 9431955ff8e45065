"""A keyword argument that is not there: the name here of another library's option, or the nearest one."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

import fastattn
from fastattn.errors import InputError
from tests.system.test_texts import CALLS, KINDS, made  # noqa: F401  a fixture

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
def test_of_every_class_and_its_methods(made: SimpleNamespace, kind: str) -> None:  # noqa: F811
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


def test_of_a_translation(made: SimpleNamespace) -> None:  # noqa: F811
    translator = made.Translator
    for option, told in OF_TRANSLATIONS.items():
        for call in (translator.translate, translator.submit, translator.translate_iter, translator.generate_tokens):
            with pytest.raises(InputError, match=f"^unknown option '{option}'{told}$") as caught:
                call(["a"], **{option: 1})
            assert isinstance(caught.value, TypeError)


def test_of_vectors(made: SimpleNamespace) -> None:  # noqa: F811
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
