"""What CTranslate2's translate_batch takes too: prefixes, end tokens, longest inputs, its names of precisions."""

import contextlib
import dataclasses

import numpy as np
import pytest

from fastattn.errors import InputError
from fastattn.ops import cpu as operations
from fastattn.text.translation import TranslationTokenizer
from fastattn.translation.translator import Translator
from tests.models.tiny_models import END
from tests.translation.test_translator import SHORT, VOCABULARY, _checkpoint, _translator

WORDS = tuple("abcdefghijklmnop")


def test_none_among_prefixes_is_none():
    translator = _translator()
    plain = translator.translate(["a b", "c", "d e"], **SHORT)
    begun = translator.translate(["a b", "c", "d e"], target_prefix=[None, "m", ""], **SHORT)
    assert begun[0] == plain[0] and begun[1].startswith("m ") and begun[2] == plain[2]
    alongside = translator.translate_iter(iter(["a b", "c", "d e"]), target_prefix=iter([None, "m", ""]), **SHORT)
    assert list(alongside) == begun
    first, second = translator.translate_tokens([["a"], ["b"]], iter([None, ["k", "l"]]), **SHORT)
    assert first == translator.translate_tokens([["a"]], **SHORT)[0] and second.tokens[:2] == ["k", "l"]
    assert translator.translate_tokens([["a"], ["b"]], [None, None], **SHORT) == translator.translate_tokens(
        [["a"], ["b"]], **SHORT
    )


def test_prefixes_are_read_alongside_the_texts():
    translator, read = _translator(), []

    def prefixes():
        for number in range(5000):
            read.append(number)
            yield "m"

    stream = translator.translate_iter(("a" for _ in range(5000)), target_prefix=prefixes(), beam_size=1, **SHORT)
    assert next(stream).startswith("m ") and len(read) < 1000
    stream.close()


def test_another_token_ends_a_translation():
    translator = _translator()
    (plain,) = translator.translate_tokens([["a", "b"]], min_decoding_length=6, **SHORT)
    third = plain.tokens[2]
    for token in (third, VOCABULARY.index(third), [third], np.array([VOCABULARY.index(third), END])):
        (ended,) = translator.translate_tokens([["a", "b"]], beam_size=1, end_token=token, **SHORT)
        (kept,) = translator.translate_tokens(
            [["a", "b"]], beam_size=1, end_token=token, return_end_token=True, return_attention=True, **SHORT
        )
        assert third not in ended.tokens and kept.tokens[: len(ended.tokens)] == ended.tokens
        assert set(kept.tokens[len(ended.tokens) :]) <= {third, "</s>"}
        assert kept.attention[0].shape == (len(kept.tokens), 2)
    text = translator.translate("a b", beam_size=1, end_token=third, return_end_token=True, min_decoding_length=0)
    assert "</s>" not in text
    assert translator.translate("a b", return_end_token=True, **SHORT) == translator.translate("a b", **SHORT)
    assert translator.translate("a b", end_token="</s>", **SHORT) == translator.translate(
        "a b", end_token=None, **SHORT
    )


def test_a_source_is_cut_after_so_many_tokens():
    translator = _translator({"add_source_bos": True, "add_source_eos": True})
    long, cut = [["a", "b", "c", "d", "e"], ["f"]], [["a", "b", "c"], ["f"]]
    expected = translator.translate_tokens(cut, **SHORT)
    assert translator.translate_tokens(long, max_input_length=5, **SHORT) == expected
    assert translator.translate_tokens(long, max_input_length=0, **SHORT) == translator.translate_tokens(long, **SHORT)
    assert translator.translate("a b c d e", max_input_length=5, **SHORT) == translator.translate("a b c", **SHORT)
    assert list(translator.translate_iter(["a b c d e\nf"], max_input_length=5, **SHORT)) == [
        translator.translate("a b c\nf", **SHORT)
    ]
    assert translator.translate(["a b"], max_input_length=1, **SHORT) == [""]
    assert list(translator.generate_tokens("a b c d", max_input_length=4)) == list(translator.generate_tokens("a b"))


def test_a_line_is_cut_before_it_is_split():
    words = " ".join(WORDS[i % 16] for i in range(40))
    short = _translator(positions="table", max_positions=8)
    details = short.translate(words, details=True, max_input_length=19, **SHORT)
    assert [token for part in details.parts for token in part.source] == words.split()[:19]
    assert short.translate(words, split="never", max_input_length=8, **SHORT) == short.translate(
        " ".join(words.split()[:8]), **SHORT
    )
    assert short.translate_tokens([words.split()], max_input_length=8, **SHORT)[0].source == words.split()[:8]


def test_an_end_that_is_there_outlives_the_cut():
    for tokens, longest, changes, kept in [
        ("a b c d </s>", 3, {}, "a b </s>"),
        ("a b c </s> k", 4, {}, "a b </s> k"),
        ("a b c </s> k", 1, {}, "a"),
        ("a b c d </s>", 3, {"add_source_eos": True}, "a b"),
        ("a b c d", 4, {"add_source_bos": True}, "a b c"),
        ("a b", 1, {"add_source_bos": True, "add_source_eos": True}, ""),
        ("a b", None, {}, "a b"),
    ]:
        text = dataclasses.replace(_checkpoint().text, **changes)
        assert TranslationTokenizer(text).cut(tokens.split(), longest) == kept.split()


def test_ends_and_lengths_that_are_refused():
    for options, message in [
        ({"end_token": "nowhere"}, "'nowhere' is no token of the target vocabulary"),
        ({"end_token": 19}, "end_token should hold tokens, or ids from 0 to 18; got 19"),
        ({"end_token": -1}, "end_token should hold tokens, or ids from 0 to 18; got -1"),
        ({"end_token": [True]}, "end_token should hold tokens, or ids from 0 to 18; got True"),
        ({"end_token": []}, "end_token should be at least one token"),
        ({"end_token": 2.5}, "end_token should be a token, an id, or a list of them, got 2.5"),
        ({"max_input_length": -1}, "max_input_length should be a whole number, at least 0; got -1"),
        ({"max_input_length": "5"}, "max_input_length should be a whole number, at least 0; got '5'"),
    ]:
        with pytest.raises(InputError, match=f"^{message}$"):
            _translator().translate("a", **options)


@pytest.mark.parametrize(
    ("asked", "runs", "remark"),
    [
        ("auto", "float32", None),
        ("default", "float32", None),
        ("bfloat16", "bfloat16", None),
        ("int8_float32", "int8", None),
        ("intgemm", "intgemm", None),
        ("float16", "float32", "'float16' runs as 'float32', which"),
        ("int16", "float32", "'int16' runs as 'float32', which"),
        ("int8_float16", "int8", "'int8_float16' runs as 'int8', all but its products as float32"),
        ("int8_bfloat16", "int8", "'int8_bfloat16' runs as 'int8', all but its products as float32"),
    ],
)
def test_ctranslate2s_names_of_precisions(asked, runs, remark):
    checkpoint = _checkpoint()
    with contextlib.nullcontext() if remark is None else pytest.warns(UserWarning, match=remark) as told:
        translator = Translator.from_checkpoint(checkpoint, asked, ops=operations)
    assert translator.precision == runs
    if told:
        assert [warning.filename for warning in told] == [__file__]
    plain = Translator.from_checkpoint(checkpoint, runs, ops=operations)
    assert translator.translate("a b c", **SHORT) == plain.translate("a b c", **SHORT)


def test_a_precision_follows_the_file():
    checkpoint = dataclasses.replace(_checkpoint(), precision="int8")
    assert [Translator.from_checkpoint(checkpoint, name).precision for name in ("auto", "default")] == ["int8"] * 2
    for wrong in (None, ["int8"], "float8"):
        with pytest.raises(InputError, match="unknown precision"):
            Translator.from_checkpoint(checkpoint, wrong)
