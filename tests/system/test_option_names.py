"""A keyword argument that is not there: the name here of another library's option, or the nearest one."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

import fastattn
from fastattn.errors import InputError
from tests.system.test_texts import CALLS, made  # noqa: F401  a fixture

CLASSES = sorted({name.partition(".")[0] for name in CALLS})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("device_index", "here it is left out: all CPUs are one device"),
        ("compute_type", "here it is precision"),
        ("inter_threads", "here it is threads, the total; processes shares the work among processes"),
        ("precison", "did you mean precision[?]"),
        ("thread", "did you mean threads[?]"),
        ("anything_else", ""),
    ],
)
@pytest.mark.parametrize("kind", CLASSES)
def test_of_every_class(kind: str, name: str, told: str) -> None:
    with pytest.raises(TypeError, match=rf"^{kind}\(\) got an unexpected .* '{name}'(; )?{told}$") as caught:
        getattr(fastattn, kind)("nowhere", **{name: 1})
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"num_beams": 4}, "unknown option 'num_beams'; here it is beam_size"),
        ({"beam": 4}, "unknown option 'beam'; here it is beam_size"),
        ({"beam_sise": 4}, r"unknown option 'beam_sise'; did you mean beam_size\?"),
        ({"detials": True}, r"unknown option 'detials'; did you mean details\?"),
        ({"max_new_tokens": 9}, "unknown option 'max_new_tokens'; here it is max_decoding_length"),
        ({"max_batch_size": 9}, "unknown option 'max_batch_size'; here it is left out: batches are made for you"),
        ({"qqq": 9}, "unknown option 'qqq'; known: beam_size, .*"),
    ],
)
def test_of_a_translation(made: SimpleNamespace, options: dict, told: str) -> None:  # noqa: F811
    translator = made.Translator
    for call in (translator.translate, translator.submit, translator.translate_iter, translator.generate_tokens):
        with pytest.raises(InputError, match=f"^{told}$") as caught:
            call(["a"], **options)
        assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("method", [name for name in CALLS if not name.startswith("Translator.")])
def test_of_texts(made: SimpleNamespace, method: str) -> None:  # noqa: F811
    kind, _, name = method.partition(".")
    call = getattr(getattr(made, kind), name)
    arguments = ("w5", ["w6"]) if name == "rank" else (["w5"],)
    for option, told in (
        ("device", "here it is device, an option of the class"),
        ("max_length", "here it is (left out: the checkpoint's own|max_new_tokens, which counts the answer alone)"),
        ("qqq", ""),
    ):
        with pytest.raises(TypeError, match=rf"(argument|option) '{option}'.*{told}"):
            found = call(*arguments, **{option: 1})
            asyncio.run(found)  # of encode_async


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
