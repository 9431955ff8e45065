"""Which words look at which: links of one model and of two, and Pharaoh's form of them."""

import numpy as np
import pytest

from fastattn import Translator
from fastattn.translation.alignment import WordLink, pharaoh, units, word_links
from fastattn.translation.calls import TokenTranslation, Translation
from tests.cli.commands import run


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


def test_without_attention_there_are_none():
    assert list(word_links("a", Translation("x", ["x"], [0.0], []))) == []


def test_units_of_scripts_without_blanks():
    assert units("ab \u4f60\u597d, c") == [(0, 2), (3, 4), (4, 5), (5, 6), (7, 8)]
    assert pharaoh("\u4f60\u597d a", "b", [WordLink((0, 2), (0, 1))]) == "0-0 1-0"


@pytest.fixture(scope="module")
def translators(pulled):
    with Translator(pulled("pt-en"), threads=1, processes=1) as first, Translator(pulled("en-pt"), threads=1) as second:
        yield first, second


def test_a_chain_composes(translators):
    chain = Translator.chain(*translators)
    text = "O governo decidiu ontem adiar a reuni\u00e3o."
    found = chain.translate(text, details=True, return_attention=True)
    assert found.text == text and found.first.text == found.through[0]
    assert pharaoh(text, text, word_links(text, found)) == "0-0 1-1 2-2 3-3 4-4 5-5 6-6"
    several = chain.translate(text, details=True, num_hypotheses=2, beam_size=2)
    assert all(isinstance(one, str) for one in several.through)


TEXT = "My brother bought a new car."


def test_the_command_line(pulled):
    arguments = ("translate", "-m", str(pulled("en-pt")), "--alignments")
    assert run(*arguments, TEXT).stdout == "Meu irm\u00e3o comprou um carro novo. ||| 0-0 1-1 2-2 3-3 4-5 5-4\n"
    assert '"alignment": "0-0 1-1 2-2 3-3 4-5 5-4"' in run(*arguments, "--json", TEXT).stdout
