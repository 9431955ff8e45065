"""Texts in any language, each to the model for its own."""

import json

import pytest

from fastattn.errors import InputError
from fastattn.translation.calls import Translation
from fastattn.translation.detecting import WINDOW, DetectingTranslator
from fastattn.translation.translator import Translator
from tests.cli.commands import fail, run

GERMAN, FRENCH, ENGLISH = (
    "Das Wetter ist heute sehr schön.",
    "Il fait très beau aujourd'hui.",
    "The weather is fine today.",
)
CHINESE, NUMBERS, BAD = "今天天气很好，我们明天去北京开会。", "12 - 34 !", "\ud800"


class Named:
    """Says which model it is."""

    def __init__(self, code):
        self.code, self.calls = code, []

    def translate_iter(self, texts, *, details, return_exceptions, **options):
        assert details and return_exceptions
        self.calls.append(texts)
        return iter([Translation(f"{self.code} {options}: {text}", [text], [-1.0], []) for text in texts])


def named(target="en"):
    opened = {}

    def open_from(code):
        if code == "zh":
            raise InputError("no model from zh")
        return opened.setdefault(code, Named(code))

    return DetectingTranslator(target, open_from), opened


def test_each_text_goes_to_the_model_for_its_language():
    translator, opened = named()
    texts = [GERMAN, FRENCH, NUMBERS, "", ENGLISH, GERMAN]
    found = translator.translate(texts, details=True, beam_size=2)
    assert [one.language for one in found] == ["de", "fr", "", "", "en", "de"]
    assert [one.text for one in found[2:5]] == texts[2:5] and not found[2].sure and found[0].sure
    assert found[0].text == f"de {{'beam_size': 2}}: {GERMAN}" and opened["de"].calls == [[GERMAN, GERMAN]]
    assert translator.translate(FRENCH) == f"fr {{}}: {FRENCH}" and set(opened) == {"de", "fr"}
    (unsure,) = translator.translate(["Good morning"], details=True)
    assert not unsure.sure and unsure.language == "en"
    _, unsure = translator.translate([GERMAN, "Hello Maria"], details=True)
    assert not unsure.sure and unsure.language == "de" and unsure.confidence < 0.1  # as the text before it


def test_errors_are_of_their_texts():
    translator, _ = named()
    found = list(translator.translate_iter([GERMAN, CHINESE, BAD, FRENCH], return_exceptions=True))
    assert isinstance(found[1], InputError) and isinstance(found[2], InputError) and found[3].startswith("fr")
    stream = translator.translate_iter([GERMAN, CHINESE])
    assert next(stream).startswith("de")
    with pytest.raises(InputError, match="no model from zh"):
        next(stream)
    with pytest.raises(InputError, match="details=True"):
        translator.translate(GERMAN, num_hypotheses=2)


def test_few_texts_are_read_ahead():
    read = []
    stream = named()[0].translate_iter(read.append(n) or GERMAN for n in range(10 * WINDOW))
    next(stream)
    assert len(read) == WINDOW


def test_real_models_by_themselves(pulled, monkeypatch):
    monkeypatch.setenv("FASTATTN_OFFLINE", "1")
    pulled("en-pt"), pulled("zh-en")
    found = Translator.for_languages("auto", "Portuguese").translate([ENGLISH, "Bom dia a todos os meus amigos."])
    assert found == [Translator("en-pt").translate(ENGLISH), "Bom dia a todos os meus amigos."]
    result = run("translate", "--from", "auto", "--to", "pt", "--json", stdin=f"{ENGLISH}\nHello Maria\n".encode())
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["translation"] == found[0] and first["detected"]["language"] == "en"
    assert "the language of 1 of 2 lines is unsure, the first: standard input, line 2: en (" in result.stderr
    assert second["detected"]["language"] == "en" and second["detected"]["confidence"] < 0.8
    for arguments in (("--from", "auto"), ("--from", "auto", "--to", "pt", "-m", "en-pt")):
        assert "--from auto finds models itself" in fail(2, "translate", *arguments, "a")
