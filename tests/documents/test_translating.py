"""Documents through translators of several kinds, and the forms that names tell."""

import pytest

from fastattn import Translator, translate_document
from fastattn.documents.forms import FORMS, form_of
from fastattn.errors import InputError
from tests.documents.backwards import Backwards


@pytest.mark.parametrize(
    "name, form",
    [("a.html", "html"), ("b/a.HTM", "html"), ("a.vtt", "srt"), ("a.xlf", "xliff"), ("a.tar.md", "md"),
     ("a.text", "txt"), ("html", None), ("a.doc", None), (".md", None), ("a", None), ("", None),
     ("a.ndjson", "jsonl")],
)  # fmt: skip
def test_the_form_of_a_name(name, form):
    assert form_of(name) == form and (form is None or form in FORMS)


def test_texts_are_translated_once():
    translator = Backwards()
    page = b"<p>one two</p><p> one two </p><p>3</p><p><b>x y</b> z</p>"
    assert translate_document(translator, page, "html") == b"<p>two one</p><p> two one </p><p>3</p><p>z <b>y x</b></p>"
    assert translator.seen == ["one two", "x y z"]


class Blind(Backwards):
    """Has no attention to return."""

    returns_attention = False

    def translate_iter(self, texts, *, details=False, **options):
        assert "return_attention" not in options
        return super().translate_iter(texts, details=details)


def test_without_attention_words_are_taken_to_stay_in_order():
    assert translate_document(Blind(), b"<p>one <b>two</b> six</p>", "html") == b"<p>six <b>two</b> one</p>"


def test_txt_keeps_blanks_and_line_ends():
    data = b"\xef\xbb\xbfone two\r\n\r\n  three four  \n\tfive\n\n 6 \nseven eight"
    expected = b"\xef\xbb\xbftwo one\r\n\r\n  four three  \n\tfive\n\n 6 \neight seven"
    assert translate_document(Backwards(), data, "txt") == expected


def test_a_real_model(pulled):
    """Tags go with the words, whatever their order becomes; the pieces of a text stay together."""
    with Translator(pulled("en-pt"), threads=2, processes=1) as translator:
        page = b"<ul><li>The <b>red</b> house.</li><li>My brother bought a <i>new <u>car</u></i>, see http://a.org/x.</li></ul>"
        found = translate_document(translator, page, "html").decode()
        assert "<li>A casa <b>vermelha</b>.</li>" in found
        assert "<i><u>carro</u> novo</i>" in found and "http://a.org/x" in found
        assert translate_document(translator, b"# The *red* house\n", "md").decode() == "# A casa *vermelha*\n"
        with pytest.raises(InputError, match="form of document"):
            translate_document(translator, b"", "pdf")
