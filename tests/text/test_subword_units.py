"""Units of words, against the rule told again: the pair that comes first in the codes is merged wherever it is."""

import random
import sys
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.errors import InputError, TokenizerError
from fastattn.spec.text_spec import TranslationText
from fastattn.text.subword_units import SubwordUnits
from fastattn.text.words import WordsAndUnits
from tests.weights.run_hostile import Steps


def told_again(word: str, codes: list[tuple[str, str]], apart: bool) -> list[str]:
    if len(word) == 1:
        return [word]
    units = [*word, "</w>"] if apart else [*word[:-1], word[-1] + "</w>"]
    while True:
        pairs = [pair for pair in zip(units, units[1:]) if pair in codes]
        if not pairs:
            break
        first, i, merged = min(pairs, key=codes.index), 0, []
        while i < len(units):
            is_pair = tuple(units[i : i + 2]) == first
            merged.append("".join(first) if is_pair else units[i])
            i += 1 + is_pair
        units = merged
    units = [unit.removesuffix("</w>") for unit in units if unit != "</w>"]
    return [unit + "@@" for unit in units[:-1]] + units[-1:]


@pytest.mark.parametrize("form", ["#version: 0.2", "", "#version: 0.1", "fastBPE"])
@settings(deadline=None, max_examples=20)
@given(drawn=st.randoms(use_true_random=False))
def test_random_codes_in_any_order(form: str, drawn: random.Random) -> None:
    apart = form in ("", "#version: 0.1")
    symbols = ["a", "b", "c", "</w>"] if apart else ["a", "b", "c", "a</w>", "b</w>", "c</w>"]
    codes: list[tuple[str, str]] = []
    for _ in range(12):
        pair = (drawn.choice([one for one in symbols if "<" not in one]), drawn.choice(symbols))
        codes.append(pair)
        symbols.append("".join(pair))
    drawn.shuffle(codes)  # training never writes such, and they are followed too
    lines = [" ".join(pair) + (" 7" if form == "fastBPE" else "") for pair in codes]
    head = [form] if form.startswith("#") else []
    units = SubwordUnits("\n".join([*head, *lines, ""]).encode())
    words = ["".join(drawn.choices("abc", k=drawn.randint(1, 12))) for _ in range(20)]
    expected = [unit for word in words for unit in told_again(word, codes, apart)]
    assert units.pieces("  ".join(words)) == expected
    assert units.text(expected) == " ".join(words)


def test_a_word_without_end_takes_no_square_of_its_length() -> None:
    units, steps = SubwordUnits(b"#version: 0.2\na b\nab ab\nabab abab\n"), []
    for length in (2000, 8000):
        with Steps(float("inf")) as counted:
            assert len(units.pieces("ab" * length)) == length // 4 + 3
        steps.append(counted.count)
    assert steps[1] < 6 * steps[0]


def test_other_spaces_part_units_afterwards() -> None:
    assert SubwordUnits(b"#version: 0.2\na b\n").pieces("ab\u00a0ab \r\n") == ["ab@@", "@@", "a@@", "b"]


def test_files_that_are_none() -> None:
    for data, said in [
        (b"\xff", "BPE codes: not UTF-8 at byte 0"),
        (b"#version: 0.3\na b\n", "version '0.3' is not known"),
        (b"#version: 0.2\na b\na\n", "line 3 should be two units, is 'a'"),
        (b"a b c d\n", "line 1 should be two units"),
    ]:
        with pytest.raises(TokenizerError, match=said):
            SubwordUnits(data)


def test_half_a_surrogate_pair() -> None:
    with pytest.raises(InputError, match="lone surrogate"):
        SubwordUnits(b"a b\n").pieces("\ud800")


@pytest.mark.parametrize(("words", "said"), [("argos", "n t0 ("), ("fairseq", "t1 (")])
def test_words_by_moses(monkeypatch: pytest.MonkeyPatch, words: str, said: str) -> None:
    """Which of sacremoses' rules are asked for, in which languages."""
    moses = types.ModuleType("sacremoses")

    class Tool:
        def __init__(self, language: str):
            self.language = language

        def normalize(self, text: str) -> str:
            return f"n {text}"

        def tokenize(self, text: str, aggressive_dash_splits: bool, return_str: bool) -> str:
            return text.replace("x", f"t{int(aggressive_dash_splits)} ({self.language}")

        def detokenize(self, tokens: list[str]) -> str:
            return f"{self.language}:{'+'.join(tokens)}"

    vars(moses).update(MosesPunctNormalizer=Tool, MosesTokenizer=Tool, MosesDetokenizer=Tool)
    monkeypatch.setitem(sys.modules, "sacremoses", moses)
    text = TranslationText((), (), words=words, source_language="de", target_language="en")
    both = WordsAndUnits(SubwordUnits(b"#version: 0.2\n( d\n"), text)
    assert both.pieces("x") == [*said.replace("t", "t@@ ").replace("(", "(d@@ e").split()]
    assert both.text(["a@@", "b", "c"]) == "en:ab+c"


def test_words_without_moses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(TokenizerError, match="pip install sacremoses"):
        WordsAndUnits(SubwordUnits(b"a b\n"), TranslationText((), (), words="argos")).pieces("a")
