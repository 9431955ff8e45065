"""Texts in capitals, and placeholders in lines."""

import pytest

from fastattn import Translator
from fastattn.translation.capitals import CapitalsTranslator, is_failed, is_in_capitals
from fastattn.translation.glossary import GlossaryTranslator
from tests.documents.backwards import Backwards

TEXT = "WHICH COOKIES AND WHICH TRACKERS DO WE USE?"


@pytest.fixture(scope="module")
def translator(pulled):
    with Translator(pulled("en-pt"), threads=1) as translator:
        yield translator


def test_a_text_on_which_the_model_fails(translator):
    careful = CapitalsTranslator(translator)
    (answer,) = careful.translate([TEXT])
    assert answer == translator.translate("Which cookies and which trackers do we use?").upper()
    assert is_failed(TEXT, translator.translate(TEXT)) and not is_failed(TEXT, answer)
    details = careful.translate(TEXT, details=True)
    assert details.text == details.hypotheses[0] == answer and all(
        token == token.upper() for token in details.parts[0].source
    )


def test_others_have_the_models_bits(translator):
    texts = ["Good morning.", "NASA", "It is OK.", ""]
    assert CapitalsTranslator(translator).translate(texts) == translator.translate(texts)


class Parrot(Backwards):
    """Leaves capitals as they are, and answers in small letters what is in small letters."""

    def translate_iter(self, texts, **options):
        for text in texts:
            said = text if text.isupper() else " ".join(f"x{word}" for word in text.split())
            yield from super().translate_iter([said], **options)


def test_names_stay_in_capitals():
    parrot = Parrot()
    CapitalsTranslator(parrot).translate(["The NASA is old.", "THE NASA BUILDS"])
    assert parrot.seen[-1].split() == ["xThe", "xNASA", "xbuilds"]


def test_what_is_in_capitals():
    assert is_in_capitals("AB CD 1") and not any(map(is_in_capitals, ("AB", "AB Cd", "1 2", "")))


def test_placeholders_of_lines(translator):
    keeping = GlossaryTranslator(translator, {"house": "moradia"}, [], True)
    answer = keeping.translate("The %NAME% house of {user-name} is at http://a.org/x.")
    assert all(piece in answer for piece in ("%NAME%", "{user-name}", "http://a.org/x", "moradia"))
    plain = ["Good morning.", "a"]
    assert keeping.translate(plain) == translator.translate(plain)
    message = keeping.translate("{n, plural, one {# house} other {# old houses}}")
    assert message.startswith("{n, plural, one {# ") and "} other {# " in message and "old" not in message
