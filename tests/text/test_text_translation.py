"""How a text becomes parts of tokens, and these a text: lines, languages, cuts, vocabularies without sentencepiece."""

import dataclasses
import warnings

import numpy as np
import pytest

from fastattn.errors import TokenizerError
from fastattn.spec.text_spec import TranslationText
from fastattn.text.sentencepiece import SentencePiece
from fastattn.text.translation import TranslationTokenizer, split_lines
from fastattn.translation.translator import Translator
from tests import GOLDENS
from tests.cli.commands import run, succeed
from tests.models.tiny_models import END, LETTERS, START, random_checkpoint, steady_ops, vocabulary
from tests.weights.ctranslate2 import writer as ctranslate2_writer
from tests.weights.ctranslate2.writer import random_transformer

TO_GERMAN = ">>de<<"
TOLD = "no sentencepiece model lies beside this checkpoint: texts are taken as tokens separated by spaces"

INSTEAD = "put source.spm and target.spm, or sentencepiece.model for both, beside model.bin, or call translate_tokens"
WORDS = ("<unk>", "<s>", "</s>", *LETTERS)
TEXT = TranslationText(WORDS, WORDS)


@pytest.mark.parametrize(
    ("language", "sentences", "joined"),
    [
        ("en", ["One.", "Two."], "One. Two."),
        ("en", ["One.", "", "Two."], "One. Two."),
        ("zh", ["一。", "二。"], "一。二。"),
        ("zh_Hant", ["一。", "B"], "一。B"),
        ("jpn_Jpan", ["あ。", "い。"], "あ。い。"),
        ("ko", ["가.", "나."], "가. 나."),
        ("", ["One.", "Two."], "One. Two."),
        ("", ["一。", "二。"], "一。二。"),
        ("", ["ก", "ข"], "กข"),
        ("", ["One.", "二。"], "One.二。"),
        ("", ["一。", "Two."], "一。Two."),
    ],
)
def test_sentences_join_as_the_target_language_writes(language, sentences, joined):
    text = dataclasses.replace(TEXT, target_language=language)
    assert TranslationTokenizer(text).join_sentences(sentences) == joined


def test_every_part_begins_with_the_target_language_and_fits_with_it():
    text = dataclasses.replace(TEXT, source_vocabulary=(*WORDS[:-1], ">>xx<<"))
    words = list(LETTERS[:8])
    (line,) = split_lines(f">>xx<< {' '.join(words)}", TranslationTokenizer(text), 4, "long")
    assert [part[0] for part in line.parts] == [">>xx<<"] * 3
    assert [token for part in line.parts for token in part[1:]] == words
    assert max(map(len, line.parts)) == 4


def test_split_lines_knows_every_line_end():
    tokenizer = TranslationTokenizer(TEXT)
    lines = split_lines("a\rb\r\n\nc", tokenizer, 9, "long")
    assert [(line.parts, line.untranslated, line.end) for line in lines] == [
        ([["a"]], "", "\r"),
        ([["b"]], "", "\r\n"),
        ([], "", "\n"),
        ([["c"]], "", ""),
    ]


@pytest.mark.parametrize(
    ("tokens", "empty"),
    [
        ([], True),
        (["</s>"], True),
        (["<s>"], True),
        (["a"], False),
        (["<s>", "</s>"], True),
        (["</s>", "a"], True),
        (["<s>", "a"], False),
        (["a", "</s>"], False),
        (["a", "</s>", "b"], False),
    ],
)
def test_a_source_of_special_tokens_is_empty(tokens, empty):
    assert TranslationTokenizer(TEXT).is_empty(tokens) is empty


def test_pieces_are_looked_up_by_their_surface():
    tokenizer = TranslationTokenizer(TEXT)
    assert tokenizer.source_ids(["a", "nowhere", "</s>"]).tolist() == [3, 0, END]
    assert tokenizer.target_ids(["b"]) == [START, 4]
    twice = dataclasses.replace(TEXT, target_vocabulary=(*WORDS, "a"))
    assert TranslationTokenizer(twice).target_ids(["a"]) == [START, 3]
    without_start = dataclasses.replace(TEXT, decoder_start_token="<start>")
    assert TranslationTokenizer(without_start).target_ids([]) == [0]


def parts_of(text: str, longest: int | None, split: str, **changes: bool) -> list[list[str]]:
    tokens = ("<unk>", "<s>", "</s>", TO_GERMAN)
    tokenizer = TranslationTokenizer(TranslationText(tokens, tokens, source_language="en", **changes))
    (line,) = split_lines(text, tokenizer, 20, split, longest)
    return line.parts


@pytest.mark.parametrize(
    ("longest", "parts"),
    [
        (None, [[TO_GERMAN, "One", "two."], [TO_GERMAN, "Three", "four."]]),
        (5, [[TO_GERMAN, "One", "two."], [TO_GERMAN, "Three", "four."]]),
        (4, [[TO_GERMAN, "One", "two."], [TO_GERMAN, "Three"]]),
        (3, [[TO_GERMAN, "One", "two."]]),
        (2, [[TO_GERMAN, "One"]]),
        (1, []),
    ],
)
def test_what_is_cut_is_the_content_not_the_language_of_each_part(longest, parts):
    text = f"{TO_GERMAN} One two. Three four."
    assert parts_of(text, longest, "sentences") == parts
    whole = [TO_GERMAN, *(token for part in parts for token in part[1:])]
    assert parts_of(text, longest, "long") == ([whole] if parts else [])


@pytest.mark.parametrize("split", ["long", "sentences", "never"])
def test_nothing_but_a_language_is_not_translated(split):
    assert parts_of(TO_GERMAN, None, split) == parts_of(f"{TO_GERMAN} ", None, split) == []
    assert parts_of(f"{TO_GERMAN} One", 3, split, add_source_eos=True, add_source_bos=True) == []


def translator_of(words: int) -> Translator:
    checkpoint = random_checkpoint(seed=21, vocabulary=words)
    names = vocabulary(words)
    return Translator.from_checkpoint(
        dataclasses.replace(checkpoint, input=TranslationText(names, names)), ops=steady_ops, threads=1
    )


@pytest.mark.parametrize("asked", ["translate", "translate_iter", "generate_tokens", "score"])
def test_texts_without_the_sentencepiece_of_the_vocabulary_are_warned_of_once(asked):
    translator = translator_of(1100)
    options = {} if asked == "score" else {"max_decoding_length": 2}
    arguments = {"translate_iter": (["w1"],), "score": ("w1", "w2")}.get(asked, ("w1",))
    with pytest.warns(UserWarning, match=f"{TOLD}; {INSTEAD}") as told:
        for _ in range(2):
            result = getattr(translator, asked)(*arguments, **options)
            list(result) if asked in ("translate_iter", "generate_tokens") else None
    assert [warning.filename for warning in told] == [__file__]


def test_the_command_tells_too(tmp_path):
    variables = random_transformer(np.random.default_rng(3), source_vocabulary=1100, target_vocabulary=1100)
    ctranslate2_writer.write_model(tmp_path, variables)
    ctranslate2_writer.write_vocabularies(tmp_path, vocabulary(1100), vocabulary(1100))
    ctranslate2_writer.write_config(tmp_path)
    lacking = "tokens separated by spaces (no sentencepiece model lies beside this checkpoint)\n"
    assert f"tokenizer      {lacking}" in succeed("inspect", tmp_path)
    with warnings.catch_warnings():
        warnings.resetwarnings()  # those of the suite are errors
        told = run("translate", "-m", tmp_path, "--max-length", 2, "w1", "w2")
    assert told.exit_code == 0 and told.stdout.count("\n") == 2
    assert [line for line in told.stderr.splitlines() if "compiling" not in line] == [f"fastattn: {TOLD}; {INSTEAD}"]


def test_tokens_and_small_vocabularies_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator_of(1100).translate_tokens([["▁w1"]], max_decoding_length=2)
        translator_of(1100).score_tokens([["▁w1"]], [["▁w2"]])
        translator_of(900).translate("▁w1", max_decoding_length=2)


def test_models_that_are_being_loaded_are_not_loaded_again():
    source, target = ((GOLDENS / f"text_{name}.model").read_bytes() for name in ("unigram", "bpe"))
    models = {bytes(bytearray(target)): SentencePiece(target), b"of another": SentencePiece(target)}
    text = dataclasses.replace(TEXT, source_model=source, target_model=target)
    tokenizer = TranslationTokenizer(text, models)
    tokenizer.wait()
    pieces = SentencePiece(source).pieces("a b")
    assert tokenizer.source_tokens("a b") == pieces
    assert tokenizer._target_model is models[target] and tokenizer._source_model not in models.values()


def test_what_is_wrong_with_a_model_is_told_while_the_translator_is_made():
    checkpoint = random_checkpoint()
    checkpoint = dataclasses.replace(checkpoint, input=dataclasses.replace(checkpoint.text, target_model=b"none"))
    with pytest.raises(TokenizerError, match="sentencepiece model"):
        Translator.from_checkpoint(checkpoint, ops=steady_ops)
