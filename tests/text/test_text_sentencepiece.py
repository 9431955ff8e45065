"""SentencePiece against what sentencepiece itself gave (goldens/make_text.py), and its refusals."""

import gc
import json
import re
import struct
import sys
import types
import weakref
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.errors import InputError, TokenizerError
from fastattn.spec.text_spec import TranslationText
from fastattn.text.sentencepiece import SentencePiece, start_early, start_loading
from fastattn.text.subword_units import MosesUnits, SubwordUnits
from tests import GOLDENS
from tests.messages import refused
from tests.text.spm_bytes import PLAIN, charsmap, field, piece, varint
from tests.weights.run_hostile import Steps

GOLDEN = json.loads((GOLDENS / "text_sentencepiece.json").read_text(encoding="utf-8"))["models"]


@cache
def load(name):
    return SentencePiece((GOLDENS / f"text_{name}.model").read_bytes())


def test_pieces_and_text_equal_the_peers():
    for name in GOLDEN:
        model = load(name)
        for text, pieces, _ in GOLDEN[name]["texts"]:
            assert model.pieces(text) == pieces, text
        for pieces, text in GOLDEN[name]["pieces"]:
            assert model.text(pieces) == text, pieces


def test_unknown_runs_and_new_pieces():
    model = SentencePiece(PLAIN)
    assert model.pieces("a漢字a") == ["\u2581a", "漢字", "a"]
    assert model.text(["\u2581a", "漢字", "<unk>", "a"]) == "a漢字 \u2047 a"
    assert model.text(["\u2581new", "\u2581word", "s"]) == "new words"
    for text in ("a\ud800", 3):
        with refused(InputError):
            model.pieces(text)


REFUSED = {
    "no pieces": b"",
    "wants 9 bytes": varint(1 << 3 | 2) + b"\x09abc",
    "wants 1152921504606846975 bytes": varint(1 << 3 | 2) + varint(2**60 - 1),
    "ends inside a number": PLAIN + b"\x80",
    "longer than 64 bits": PLAIN + b"\x20" + b"\xff" * 11,
    "wire type 3": PLAIN + b"\x23",
    "field number 0": PLAIN + b"\x00",
    "model type 7 is not known": PLAIN + field(2, field(3, 7)),
    "an integer was expected": PLAIN + field(2, field(3, b"x")),
    "a string was expected": PLAIN + field(3, 7),
    "gives more than 128 bytes": PLAIN + field(3, field(2, charsmap(1, b"b" * 129 + b"\0", True))),
    "takes more than 128 bytes": PLAIN + field(5, field(2, charsmap(ord("a"), b"b\0", False))),
    # the library's own words
    "a damaged protocol buffer": PLAIN + field(1, b"\x80"),
    "unk is not defined": piece("a"),
    "score is NaN or Inf": PLAIN + piece("b", float("nan")),
    "exceeds the input blob": PLAIN + field(3, field(2, b"\xff" * 12)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_followed_is_refused_in_one_line(message):
    """Of a model that is loaded beside at each use."""
    beside = SentencePiece(REFUSED[message], background=True)
    calls = [beside.wait, lambda: beside.pieces("a"), lambda: beside.vocabulary]
    for call in (lambda: SentencePiece(REFUSED[message]), *calls):
        with pytest.raises(TokenizerError, match=f"^[^\n]*{re.escape(message)}[^\n]*$"):
            call()


def rule_of(length):
    """A table whose one rule makes "b" of that many "a"s."""
    units, at = [0] * 256 * (length + 2), 0
    for base in range(256, 256 * (length + 1), 256):
        units[at] |= (at ^ base) << 10
        at = base ^ ord("a")
        units[at] |= ord("a")
    base = 256 * (length + 1)
    units[at] |= (at ^ base) << 10 | 1 << 8
    units[base] = 1 << 31
    trie = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(trie)) + trie + b"b\0"


def test_how_long_a_rule_may_be_and_what_is_no_utf8():
    as_it_is = field(3, 0) + field(4, 0) + field(5, 0)  # spaces are
    for number in (3, 5):
        model = SentencePiece(PLAIN + field(number, field(2, rule_of(128)) + as_it_is))
        assert (model.pieces("a" * 128) if number == 3 else [model.text(["\u2581a", *"a" * 127])]) == ["b"]
        with refused(TokenizerError, "takes more than 128 bytes"):
            SentencePiece(PLAIN + field(number, field(2, rule_of(129))))
        assert SentencePiece(PLAIN + field(number, field(2, charsmap(1, b"b" * 128 + b"\0", True))))
    model = SentencePiece(PLAIN + field(1, field(1, b"b\xff")))
    assert model.pieces("a") == ["\u2581a"]
    with refused(TokenizerError, "UTF-8"):
        assert model.vocabulary
    with refused(TokenizerError, "UTF-8"):
        SentencePiece(PLAIN + field(3, field(2, charsmap(1, b"\xff\0", True)))).pieces("a")


def test_memory_is_returned_at_once():
    model = SentencePiece((GOLDENS / "text_unigram.model").read_bytes())
    model.pieces("a few words")
    parts = [weakref.ref(part) for part in (model, model._processor)]
    gc.disable()
    try:
        del model
        assert [part() for part in parts] == [None] * 2
    finally:
        gc.enable()


def test_a_model_loaded_beside_is_the_same_model_and_without_a_thread_more_too(monkeypatch):
    model = SentencePiece((GOLDENS / "text_unigram.model").read_bytes(), background=True)
    assert model.pieces("Two threads, one model.") == load("unigram").pieces("Two threads, one model.")
    model.wait()

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("fastattn.text.sentencepiece.start_thread", refuse)
    assert SentencePiece(PLAIN, background=True).pieces("a") == ["\u2581a"]


def test_the_models_of_a_folder_are_begun_and_no_more(tmp_path):
    good = (GOLDENS / "text_unigram.model").read_bytes()
    for name, data in {"a.spm": good, "b.spm": b"no model", "c.spm": PLAIN, "model.bin": PLAIN}.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "0.spm").mkdir()
    assert start_loading(tmp_path).keys() == {good}  # the folder counts among MOST_PRELOADED
    (tmp_path / "0.spm").rmdir()
    models = start_loading(tmp_path)
    assert models.keys() == {good, b"no model"}
    assert models[good].pieces("a b") == load("unigram").pieces("a b")
    assert start_loading(tmp_path / "a.spm") == start_loading(tmp_path / "nowhere") == {}
    start_early(tmp_path)
    (tmp_path / "b.spm").unlink()
    assert [start_loading(tmp_path).keys() for _ in range(2)] == [{good, b"no model"}, {good, PLAIN}], "taken once"


def told_again(word, codes, apart):
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
def test_random_codes_in_any_order(form, drawn):
    apart = form in ("", "#version: 0.1")
    symbols = ["a", "b", "c", "</w>"] if apart else ["a", "b", "c", "a</w>", "b</w>", "c</w>"]
    codes = []
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


def test_a_word_without_end_takes_no_square_of_its_length():
    units, steps = SubwordUnits(b"#version: 0.2\na b\nab ab\nabab abab\n"), []
    for length in (2000, 8000):
        with Steps(float("inf")) as counted:
            assert len(units.pieces("ab" * length)) == length // 4 + 3
        steps.append(counted.count)
    assert steps[1] < 6 * steps[0]


def test_what_cannot_be_followed_and_spaces_that_part_units_afterwards():
    for data in (b"\xff", b"#version: 0.3\na b\n", b"#version: 0.2\na b\na\n", b"a b c d\n"):
        with refused(TokenizerError):
            SubwordUnits(data)
    units = SubwordUnits(b"#version: 0.2\na b\n")
    assert units.pieces("ab\u00a0ab \r\n") == ["ab@@", "@@", "a@@", "b"]
    with refused(InputError):
        units.pieces("\ud800")


@pytest.mark.parametrize(("words", "said"), [("argos", "n t0 ("), ("fairseq", "t1 (")])
def test_words_by_moses(monkeypatch, words, said):
    """Which of sacremoses' rules are asked for, in which languages."""
    moses = types.ModuleType("sacremoses")

    class Tool:
        def __init__(self, language):
            self.language = language

        def normalize(self, text):
            return f"n {text}"

        def tokenize(self, text, aggressive_dash_splits, return_str):
            return text.replace("x", f"t{int(aggressive_dash_splits)} ({self.language}")

        def detokenize(self, tokens):
            return f"{self.language}:{'+'.join(tokens)}"

    vars(moses).update(MosesPunctNormalizer=Tool, MosesTokenizer=Tool, MosesDetokenizer=Tool)
    monkeypatch.setitem(sys.modules, "sacremoses", moses)
    text = TranslationText((), (), words=words, source_language="de", target_language="en")
    both = MosesUnits(SubwordUnits(b"#version: 0.2\n( d\n"), text)
    assert both.pieces("x") == [*said.replace("t", "t@@ ").replace("(", "(d@@ e").split()]
    assert both.text(["a@@", "b", "c"]) == "en:ab+c"


def test_words_without_moses(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(TokenizerError, match="pip install sacremoses"):
        MosesUnits(SubwordUnits(b"a b\n"), TranslationText((), (), words="argos")).pieces("a")
