"""SentencePiece against what sentencepiece itself gave (goldens/make_text.py), and its refusals."""

import gc
import json
import struct
import weakref
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.errors import FastattnError, InputError, TokenizerError
from fastattn.text import spm_file
from fastattn.text.sentencepiece import SentencePiece
from tests import GOLDENS

GOLDEN = json.loads((GOLDENS / "text_sentencepiece.json").read_text(encoding="utf-8"))["models"]


@cache
def load(name):
    return SentencePiece((GOLDENS / f"text_{name}.model").read_bytes())


def field(number, value):
    """One protobuf field: bytes, a float or an int."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def varint(value):
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def piece(text, score=-1.0, kind=1):
    return field(1, field(1, text.encode()) + field(2, score) + field(3, kind))


UNKNOWN = piece("<unk>", 0.0, 2)
PLAIN = UNKNOWN + piece("\u2581", -2.0) + piece("a", -2.0) + piece("\u2581a", -1.0)


@pytest.mark.parametrize("name", GOLDEN)
def test_pieces_and_ids_equal_the_peers(name):
    model = load(name)
    for text, pieces, ids in GOLDEN[name]["texts"]:
        assert model.pieces(text) == pieces, text
        assert model.ids(text) == ids, text


@pytest.mark.parametrize("name", GOLDEN)
def test_text_of_pieces_equals_the_peers(name):
    model = load(name)
    for pieces, text in GOLDEN[name]["pieces"]:
        assert model.text(pieces) == text, pieces


def test_the_goldens_reach_every_kind_of_model():
    models = [load(name) for name in GOLDEN]
    assert {model._spm.model_type for model in models} == {1, 2, 3, 4}
    assert any(model._spm.byte_fallback for model in models)
    assert any(model._spm.treat_whitespace_as_suffix for model in models)
    assert any(not model._spm.normalizer.add_dummy_prefix for model in models)
    assert any(not model._spm.normalizer.remove_extra_whitespaces for model in models)
    assert any(4 in model._spm.types for model in models)


@pytest.mark.parametrize("name", GOLDEN)
def test_typed_control_pieces_are_text(name):
    model = load(name)
    controls = [index for index, kind in enumerate(model._spm.types) if kind == 3]
    assert controls
    text = " ".join(model.vocabulary[index] for index in controls)
    assert not set(controls) & set(model.ids(text))


def test_an_unknown_run_is_one_piece_with_its_surface():
    model = SentencePiece(PLAIN)
    assert model.pieces("a漢字a") == ["\u2581a", "漢字", "a"]
    assert model.ids("a漢字a") == [3, model.unk_id, 2]
    assert model.text(["\u2581a", "漢字", "<unk>", "a"]) == "a漢字 \u2047 a"


def test_pieces_of_a_larger_vocabulary_keep_their_spaces():
    assert SentencePiece(PLAIN).text(["\u2581new", "\u2581word", "s"]) == "new words"


def test_near_ties_are_settled_in_float32():
    # In float64 the second way is better by 1e-7; in float32 the two are equal and the first found stays.
    pieces = [("a", -1.0), ("b", -1.0), ("ab", -2.0 + 2**-23), ("abc", -3.0), ("c", -1.0)]
    model = SentencePiece(UNKNOWN + b"".join(piece(text, score) for text, score in pieces) + field(3, field(3, 0)))
    assert model.pieces("abc") == ["abc"]


@pytest.mark.parametrize("name", GOLDEN)
def test_what_needs_no_rewriting_is_told_apart_for_speed_alone(name):
    model = load(name)
    quick = model._normalizer
    plain, characters = quick._plain, [chr(code) for code in range(128)]
    assert plain.fullmatch("Some 12 words, plain ones")
    found = [quick.normalize(2 * character) for character in characters]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick, "_plain", None)
        assert [quick.normalize(2 * character) for character in characters] == found


@pytest.mark.parametrize(("less", "before"), [(2**-12, 300), (2**-9, 6000)])
def test_remembered_words_are_cut_as_the_whole_text_would_have_them(less, before):
    """Where the sum of what comes before rounds away by how much one way is worse: near ties, and far from zero."""
    pieces = [("\u2581z", -10.3), ("\u2581a", -3.1), ("b", -2.3), ("\u2581ab", -5.4 - less)]
    segment = SentencePiece(UNKNOWN + b"".join(piece(text, score) for text, score in pieces))._segment
    text = "\u2581ab" * 2 + "\u2581z" * before + "\u2581ab"
    whole = segment._search(text, 0.0)[0]
    assert whole[0] != whole[-1], "alone it would be in two pieces"
    assert segment(text) == segment(text) == whole


def test_among_equal_pairs_the_leftmost_merges_first():
    pieces = piece("a", -2.0) + piece("aa") + piece("b", -2.0) + piece("ab")
    model = SentencePiece(UNKNOWN + pieces + field(2, field(3, 2)) + field(3, field(3, 0)))
    assert model.pieces("aaa") == ["aa", "a"]
    assert model.pieces("aab") == ["aa", "b"]


def test_spaces_at_the_start_vanish_all_where_extra_ones_do_else_one():
    pieces = ["\u2581", "\u2581", "\u2581a", "\u2581"]
    assert SentencePiece(PLAIN).text(pieces) == "a "
    assert SentencePiece(PLAIN + field(3, field(4, 0))).text(pieces) == "  a "
    assert SentencePiece(PLAIN + field(3, field(3, 0) + field(4, 0))).text(pieces) == "   a "


@pytest.mark.parametrize("name", ["unigram_bytes", "bpe_bytes"])
@settings(deadline=None, max_examples=150)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581")))
def test_byte_fallback_loses_nothing(name, text):
    model = load(name)
    kept = model._spm.normalizer.remove_extra_whitespaces
    expected = " ".join(part for part in text.split(" ") if part) if kept else text
    assert model.text(model.pieces(text)) == expected


@pytest.mark.parametrize("name", ["unigram", "unigram_symbols", "unigram_suffix", "bpe", "bpe_across", "characters"])
@settings(deadline=None, max_examples=60)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_covered(name, text):
    model = load(name)
    pieces = model.pieces(text)
    assert "".join(pieces) == model._normalizer.normalize(text)
    ids = dict(zip(model.vocabulary, range(len(model.vocabulary)), strict=True))
    for surface, index in zip(pieces, model.ids(text), strict=True):
        assert index == model.unk_id or index == ids[surface]


def test_lone_surrogates_are_refused():
    with pytest.raises(InputError, match=r"lone surrogate \(U\+D800\) at character 1"):
        load("unigram").pieces("a\ud800")
    with pytest.raises(InputError, match="not int"):
        load("unigram").pieces(3)


def test_invalid_bytes_are_replaced_one_by_one():
    assert load("unigram_bytes").text(["<0xE4>", "<0xBD>", "<0x41>", "<0xC3>", "<0xA9>"]) == "\ufffd\ufffdA\u00e9"


REFUSED = {
    "no pieces": b"",
    "wants 9 bytes": varint(1 << 3 | 2) + b"\x09abc",
    "wants 1152921504606846975 bytes": varint(1 << 3 | 2) + varint(2**60 - 1),
    "ends inside a number": PLAIN + b"\x80",
    "longer than 64 bits": PLAIN + b"\x20" + b"\xff" * 11,
    "wire type 3": PLAIN + b"\x23",
    "field number 0": PLAIN + b"\x00",
    "not UTF-8": field(1, field(1, b"\xff")),
    "no piece has the type unknown": piece("a"),
    "both the unknown one": UNKNOWN + piece("<u>", 0.0, 2),
    "is defined twice": PLAIN + piece("a"),
    "piece 4 is empty": PLAIN + piece(""),
    "unknown type 9": PLAIN + piece("b", -1.0, 9),
    "has the score nan": PLAIN + piece("b", float("nan")),
    "has the score -inf": PLAIN + piece("b", float("-inf")),
    "contains a NUL": PLAIN + piece("b\0"),
    "without normal pieces": UNKNOWN,
    "model type 7 is not known": PLAIN + field(2, field(3, 7)),
    "no byte fallback": PLAIN + piece("<0x41>", 0.0, 6),
    "256 byte pieces, found 1": PLAIN + piece("<0x41>", 0.0, 6) + field(2, field(35, 1)),
    "not a byte's name": PLAIN + piece("<0x4>", 0.0, 6) + field(2, field(35, 1)),
    "is marked unused": PLAIN + piece("aa", -1.0, 5) + field(2, field(3, 2)),
    "claims a trie of 4294967295": PLAIN + field(3, field(2, b"\xff" * 12)),
    "a 4-byte float was expected": field(1, field(1, b"a") + field(2, 1)),
    "an integer was expected": field(1, field(1, b"a") + field(3, b"x")),
    "a string was expected": field(1, field(1, 7)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_followed_is_refused_in_one_line(message):
    with pytest.raises(TokenizerError) as caught:
        SentencePiece(REFUSED[message])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", GOLDEN)
def test_sentencepieces_own_layout_is_read_at_once(name):
    """All pieces are; only their specs are left to the general reader."""
    data = (GOLDENS / f"text_{name}.model").read_bytes()
    spm = spm_file.SpmFile()
    start = spm_file._read_usual_pieces(data, spm)
    assert data[start] == 2 << 3 | 2
    assert spm.pieces == load(name).vocabulary


# Pieces in the usual layout, and in others: a long text, a type's varint in two bytes, no score, another order, a field
# twice or of another kind.
RECORDS = [
    piece("b"),
    piece("c", -3.0, 4),
    piece("\x15\x18"),
    piece("\u2581" * 40),
    piece("d" * 130),
    piece("e", -1.0, 300),
    piece("f\0"),
    piece("g", float("nan")),
    piece("a"),
    field(1, field(1, b"h") + field(2, -1.0)),
    field(1, field(1, b"i")),
    field(1, field(2, -1.0) + field(1, b"j")),
    field(1, field(1, b"k") + field(2, -1.0) + field(1, b"l")),
    field(1, field(1, b"\xff") + field(2, -1.0)),
    field(1, field(1, b"m") + field(2, -1.0) + field(4, 1)),
    field(1, b""),
    field(2, field(24, 1)),
    b"\x0a",
    b"\x0a\x0e\x0a\x05",
]


def outcome(data):
    try:
        spm = spm_file.read_spm(data)
    except TokenizerError as error:
        return str(error)
    return repr(spm)


@settings(deadline=None, max_examples=300)
@given(
    chosen=st.lists(st.sampled_from(RECORDS), max_size=6),
    changes=st.lists(st.tuples(st.integers(0), st.binary(min_size=1, max_size=1)), max_size=3),
)
def test_what_is_read_at_once_equals_what_is_read_field_by_field(chosen, changes):
    data = bytearray(PLAIN + b"".join(chosen))
    for place, byte in changes:
        place %= len(data)
        data[place : place + 1] = byte
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spm_file, "_read_usual_pieces", lambda data, spm: 0)
        expected = outcome(bytes(data))
    assert outcome(bytes(data)) == expected


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_damage_never_escapes(data):
    good = (GOLDENS / "text_unigram_suffix.model").read_bytes()
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        model = SentencePiece(
            bytes(damaged[: data.draw(st.integers(0, len(good)))] if data.draw(st.booleans()) else damaged)
        )
        model.text(model.pieces("A estac\u0327a\u0303o  haha ｆｕｌｌ \u0915\u093c"))
    except FastattnError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("name", GOLDEN)
def test_memory_is_returned_at_once(name):
    model = SentencePiece((GOLDENS / f"text_{name}.model").read_bytes())
    model.pieces("a few words")
    parts = [weakref.ref(part) for part in (model, model._segment, model._normalizer)]
    gc.disable()
    try:
        del model
        assert [part() for part in parts] == [None] * 3
    finally:
        gc.enable()
