"""Models are closed: by hand, by ``with``, twice; and say so to who uses them then."""

import gc
import weakref

import pytest

from fastattn.errors import FastattnError
from fastattn.translation.translator import Translator
from tests.encoders.test_encoder import _encoder
from tests.models.tiny_models import random_checkpoint


def _translator():
    return Translator.from_checkpoint(random_checkpoint(21), threads=1)


ONE, SEVERAL, TOKENS = ("w1",), (["w1"],), ([["w1"]],)
USES = {
    "Translator": {
        "translate": ONE, "submit": ONE, "translate_iter": SEVERAL, "generate_tokens": ONE, "translate_tokens": TOKENS,
        "score": ("w1", "w2"), "default_options": None, "precision": None, "max_source_length": None,
    },
    "Encoder": {
        "encode": ONE, "submit": ONE, "encode_iter": SEVERAL, "count_tokens": ONE, "similarity": ([1.0], [1.0]),
        "dimension": None, "prompts": None,
    },
}  # fmt: skip


def use(made, name):
    """A method with its arguments, or a property."""
    found, arguments = getattr(made, name), USES[type(made).__name__].get(name, ())
    return found if arguments is None else found(*arguments)


both = pytest.mark.parametrize("make", [_translator, _encoder])


@both
def test_what_is_closed_says_so(make):
    with make() as made:
        for name in USES[type(made).__name__]:
            use(made, name)
    for name in (*USES[type(made).__name__], "__enter__"):
        with pytest.raises(FastattnError, match=f"^this {type(made).__name__} is closed$"):
            use(made, name)
    made.close()
    with pytest.raises(AttributeError, match="object has no attribute 'translat'"):
        made.translat  # noqa: B018


@both
def test_a_closed_model_is_free_at_once(make):
    made = make()
    use(made, next(iter(USES[type(made).__name__])))
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
    translator = _translator()
    expected = translator.translate(["w1 w2", "w3"])
    future, stream = translator.submit(["w1 w2", "w3"]), translator.translate_iter(["w1 w2", "w3"])
    translator.close()
    assert future.result(60) == expected == list(stream)
