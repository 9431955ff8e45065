"""Models are closed: by hand, by ``with``, twice; and say so to who uses them then."""

import gc
import weakref

import pytest

from fastattn.encoders.encoder import Encoder
from fastattn.errors import FastattnError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.translation.translator import Translator
from tests.encoders.test_encoder import SPEC, TENSORS, TEXT
from tests.models.tiny_models import random_checkpoint

MAKE = {
    "Translator": lambda: Translator.from_checkpoint(random_checkpoint(21), threads=1),
    "Encoder": lambda: Encoder.from_checkpoint(Checkpoint(SPEC, TENSORS, TEXT), threads=1),
}
USES = {
    "Translator": [
        lambda made: made.translate("w1"),
        lambda made: made.submit("w1"),
        lambda made: made.translate_iter(["w1"]),
        lambda made: made.generate_tokens("w1"),
        lambda made: made.translate_tokens([["w1"]]),
        lambda made: made.score("w1", "w2"),
        lambda made: made.default_options,
        lambda made: made.precision,
        lambda made: made.max_source_length,
    ],
    "Encoder": [
        lambda made: made.encode("cat"),
        lambda made: made.encode(["cat"]),
        lambda made: made.submit("cat"),
        lambda made: made.encode_iter(["cat"]),
        lambda made: made.count_tokens("cat"),
        lambda made: made.similarity([1.0], [1.0]),
        lambda made: made.dimension,
        lambda made: made.prompts,
    ],
}


@pytest.mark.parametrize("name", MAKE)
def test_what_is_closed_says_so(name):
    with MAKE[name]() as made:
        for use in USES[name]:
            use(made)
    for use in (*USES[name], lambda made: made.__enter__()):
        with pytest.raises(FastattnError, match=f"^this {name} is closed$"):
            use(made)
    made.close()
    assert not hasattr(made, "no_such_thing")


@pytest.mark.parametrize("name", MAKE)
def test_a_closed_model_is_free_at_once(name):
    made = MAKE[name]()
    USES[name][0](made)
    model = weakref.ref(made._loaded.model)
    gc.freeze()  # to look through what others have left would take seconds
    gc.disable()
    try:
        made.close()
        gc.collect()
        assert model() is None
    finally:
        gc.enable()
        gc.unfreeze()


def test_what_is_in_progress_ends_as_ever():
    translator = MAKE["Translator"]()
    expected = translator.translate(["w1 w2", "w3"])
    future, stream = translator.submit(["w1 w2", "w3"]), translator.translate_iter(["w1 w2", "w3"])
    translator.close()
    assert future.result(60) == expected == list(stream)


def test_names_that_there_are_not_are_told_as_ever():
    with pytest.raises(AttributeError, match="'Translator' object has no attribute 'translat'"):
        MAKE["Translator"]().translat  # noqa: B018
