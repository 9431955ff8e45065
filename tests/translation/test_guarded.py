"""Loops are found, decoded again, and marked; all else is as it was."""

import pytest

from fastattn import FastattnError, Translator
from fastattn.translation.guarded import GuardedTranslator, loops, what_is_wrong
from fastattn.translation.streamed import StreamedTranslator
from tests.cli.commands import run
from tests.documents.backwards import Backwards


def test_how_often():
    for text, count in [
        ("", 0),
        ("no no no no", 0),
        ("No no no no no", 5),
        ("a b a b a b a b", 0),
        ("x a b a b a b a b a b y", 5),
        ("a b c d " * 6, 6),
        ("a b c d e " * 9, 0),  # of five words
        ("ab, ab, ab, ab, ab, c", 5),
        ("hahahahahaha", 6),
        ("\u597d\u597d", 0),
        ("\u5f88\u597d" * 7, 7),
        ("one two three four five six seven eight", 0),
        ("........ -------- 1111111111", 0),
    ]:
        assert loops(text) == count


def test_what_is_wrong():
    assert what_is_wrong("hello", "no no no no no") == "loop"
    assert what_is_wrong("no no no no no", "n\u00e3o n\u00e3o n\u00e3o n\u00e3o n\u00e3o") == ""
    assert what_is_wrong("hello", "a1 a2 " * 4 + " ".join(map(str, range(50)))) == "length"
    assert what_is_wrong("hello", "ol\u00e1") == ""
    apart = "".join(map(chr, range(0x4E00, 0x4E00 + 101)))
    assert (what_is_wrong("hello", apart[:100]), what_is_wrong("hello", apart)) == ("", "length")


class Looping(Backwards, StreamedTranslator):
    """Says one thing five times, unless it may not repeat as few tokens as the text has words."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def translate_iter(self, texts, *, details=False, no_repeat_ngram_size=0, **options):
        for text in texts:
            if text == "refuse":
                yield FastattnError("no")
                continue
            self.sizes.append(no_repeat_ngram_size)
            heavy = not 0 < no_repeat_ngram_size <= len(text.split())
            (found,) = super().translate_iter(["la la la la la" if heavy else text], details=details, **options)
            yield found

    def close(self):
        pass


def test_it_is_decoded_again_until_it_is_none():
    translator = Looping()
    guarded = GuardedTranslator(translator)
    assert guarded.translate("one two") == "two one" and translator.sizes == [0, 3, 2]
    found = guarded.translate("one two", details=True)
    assert found.remarks == ("loop",) and found.text == "two one"
    assert guarded.translate("", details=True).text == "la la la la la"  # the best there is
    translator.sizes.clear()
    assert guarded.translate("one", no_repeat_ngram_size=5) == "la la la la la" and translator.sizes == [5]
    mixed = list(guarded.translate_iter(["one", "refuse", "two"], return_exceptions=True))
    assert mixed[0] == "one" and isinstance(mixed[1], FastattnError) and mixed[2] == "two"


@pytest.fixture(scope="module")
def translator(pulled):
    with Translator(pulled("en-pt"), threads=2, processes=1) as made:
        yield made


def test_real_loops(translator):
    texts = ["a" * 30, "?!" * 12, "BCD " * 9 + "x", "\u4f60\u597d " * 3, "Good morning."]
    plain, found = translator.translate(texts), translator.guarded().translate(texts, details=True)
    assert any(what_is_wrong(text, one) for text, one in zip(texts, plain))
    assert not any(what_is_wrong(text, one.text) == "loop" for text, one in zip(texts, found))
    assert found[-1].text == plain[-1] and not hasattr(found[-1], "remarks")


def test_the_command_line_marks_them(translator, pulled):
    text = "BCD " * 9 + "x"
    marked = what_is_wrong(text, translator.translate(text))
    done = run("translate", "-m", str(pulled("en-pt")), "--guard", "--json", text, "Good morning.")
    assert done.exit_code == 0 and ("remarks" in done.stdout) == bool(marked)
    assert ("may be no translation" in done.stderr) == bool(marked)
