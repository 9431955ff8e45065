"""What each layer and head of a decoder looks at, and the pictures of it."""

import json
import re
from html import unescape

import numpy as np
import pytest

from fastattn import TokenTranslation, Translation, Translator
from fastattn.errors import InputError
from fastattn.translation.alignment import WordLink, pharaoh, units, word_links
from tests.cli.commands import fail, run
from tests.messages import refused
from tests.serve.test_page import browser

TEXT = "My brother bought a new car."


@pytest.fixture(scope="module")
def translator(pulled):
    with Translator(pulled("en-pt"), "float32", threads=1, processes=1) as made:
        yield made


def test_they_are_the_attention_that_a_translation_returns(translator):
    """The model aligns by the first head of its last layer."""
    answer = translator.translate(TEXT, details=True, return_attention=True, beam_size=1)
    (part,) = answer.parts
    looks = translator.looks(TEXT, answer.text)
    layers, heads, T, S = looks.weights_LHTS.shape
    assert (T, S) == (len(part.tokens) + 1, len(part.source) + 1) and min(layers, heads) > 1
    assert looks.target == [*part.tokens, "</s>"] and looks.source == [*part.source, "</s>"]
    np.testing.assert_allclose(looks.weights_LHTS[-1, 0, :-1, :-1], part.attention[0], atol=2e-5)
    np.testing.assert_allclose(looks.weights_LHTS.sum(axis=-1), 1, atol=1e-5)


def test_a_page_has_each_layer_and_head_and_a_terminal_lines(translator):
    looks = translator.looks(TEXT, "Meu irm\u00e3o comprou um carro novo.")
    page = looks.plot().html
    layers, heads, T, S = looks.weights_LHTS.shape
    names = [f"layer {n}, head {h}" for n in range(layers) for h in range(heads)]
    assert re.findall("<option>(.*?)</option>", page)[1:] == names
    assert json.loads(unescape(re.search('data-rows="([^"]*)"', page)[1])) == looks.target
    lines = looks.plot().to_text(0).split("\n")
    assert len(lines) == 1 + T + 1 + S and lines[-S] == f"   0 {looks.source[0]}"
    assert all(line.strip().startswith(token) for line, token in zip(lines[1:], looks.target))
    for source, target in (("", "a"), ("a", "")):
        with refused(InputError):
            translator.looks(source, target)


def test_the_command_line(pulled, tmp_path):
    arguments = ("translate", "-m", str(pulled("en-pt")), "--show-attention")
    for name, begun in (("a.html", "<!DOCTYPE html>"), ("a.svg", "<svg")):
        assert run(*arguments, tmp_path / name, TEXT).exit_code == 0
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begun)
    shown = run(*arguments, "-", TEXT).stdout
    assert shown.startswith("Meu irm\u00e3o comprou um carro novo.\n") and "\u2588" in shown
    assert run(*arguments[:3], "--alignments", TEXT).stdout.endswith(" ||| 0-0 1-1 2-2 3-3 4-5 5-4\n")


WRONG = {
    ("a.png",): "wants a name that ends in .html or .svg",
    ("a.html", "b"): "is for one TEXT and one model",
    ("a.html", "--keep", "x"): "is for one TEXT and one model",
    ("no/a.html",): "the folder no does not exist",
}


def test_what_is_wrong(pulled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, message in WRONG.items():
        assert message in fail(2, "translate", "-m", str(pulled("en-pt")), "--show-attention", *arguments, TEXT)


@pytest.mark.slow
def test_the_page_in_a_browser(translator, tmp_path):
    """Each cell tells its weight, of the head that was picked; no error, nothing from elsewhere."""
    looks = translator.looks(TEXT, "Meu irm\u00e3o comprou um carro novo.")
    looks.plot().save(tmp_path / "a.html")
    with browser(900) as driver:
        from selenium.webdriver.common.keys import Keys
        from selenium.webdriver.support.ui import Select

        driver.get((tmp_path / "a.html").as_uri())
        canvas, output = (driver.find_element("css selector", name) for name in ("canvas", "output"))
        picker = Select(driver.find_element("css selector", "select"))
        layers, heads, T, S = looks.weights_LHTS.shape
        assert len(picker.options) == 1 + layers * heads
        for layer, head in ((0, 0), (layers - 1, heads - 1)):
            picker.select_by_visible_text(f"layer {layer}, head {head}")
            canvas.send_keys(*[Keys.ARROW_UP] * (T + 1), *[Keys.ARROW_LEFT] * (S + 1))
            for t in range(T):
                for s in range(S):
                    told = re.match(r"(\S+) \(row .(.*)., column .(.*).\)", output.text)
                    assert (told[2], told[3]) == (looks.target[t], looks.source[s])
                    assert abs(float(told[1]) - looks.weights_LHTS[layer, head, t, s]) < 1e-3
                    canvas.send_keys(Keys.ARROW_RIGHT)
                canvas.send_keys(Keys.ARROW_DOWN, *[Keys.ARROW_LEFT] * S)
        assert driver.get_log("browser") == []


def translation(source, target, attention, text=None):
    part = TokenTranslation(source, [target], [0.0], [0.0], [len(target)], [np.array(attention, np.float32)])
    shown = text or "".join(target).replace("\u2581", " ").strip()
    return Translation(shown, [shown], [0.0], [part])


def test_words_of_several_pieces_and_signs():
    found = translation(["\u2581big", "\u2581dog", "s", "."], ["\u2581c\u00e3", "es", "\u2581grandes", "."],
                        [[0.1, 0.6, 0.3, 0], [0, 0.2, 0.8, 0], [0.6, 0.1, 0, 0.3], [0, 0, 0.2, 0.8]])  # fmt: skip
    links = list(word_links("big dogs.", found))
    assert links == [((4, 8), (0, 4), True), ((0, 3), (5, 12), True), ((8, 9), (12, 13), True)]
    assert pharaoh("big dogs.", found.text, links) == "0-1 1-0"


def test_what_all_look_at_counts_less():
    """A word that two look at goes to the one that has no other; the other link is not mutual."""
    found = translation(["\u2581a", "\u2581b"], ["\u2581x", "\u2581y"], [[0.9, 0.1], [0.5, 0.45]])
    assert list(word_links("a b", found)) == [((0, 1), (0, 1), True), ((2, 3), (2, 3), True)]
    both = translation(["\u2581a", "\u2581b"], ["\u2581x", "\u2581y"], [[0.9, 0.1], [0.8, 0.05]])
    assert [link.mutual for link in word_links("a b", both)] == [True, False]
    assert pharaoh("a b", "x y", word_links("a b", both)) == "0-0"


def test_units_of_scripts_without_blanks_and_no_attention():
    assert list(word_links("a", Translation("x", ["x"], [0.0], []))) == []
    assert units("ab \u4f60\u597d, c") == [(0, 2), (3, 4), (4, 5), (5, 6), (7, 8)]
    assert pharaoh("\u4f60\u597d a", "b", [WordLink((0, 2), (0, 1))]) == "0-0 1-0"


def test_a_chain_composes(pulled, translator):
    chain = Translator.chain(Translator(pulled("pt-en"), threads=1, processes=1), translator)
    text = "O governo decidiu ontem adiar a reuni\u00e3o."
    found = chain.translate(text, details=True, return_attention=True)
    assert found.text == text and found.first.text == found.through[0]
    assert pharaoh(text, text, word_links(text, found)) == "0-0 1-1 2-2 3-3 4-4 5-5 6-6"
