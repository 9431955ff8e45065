"""How a text becomes parts of tokens: a language token on each, cuts, vocabularies without their sentencepiece."""

import dataclasses
import warnings

import numpy as np
import pytest

from fastattn.text.translation import TranslationTokenizer, split_lines
from fastattn.text_spec import TranslationText
from fastattn.translator import Translator
from tests.cli.test_cli import run, succeed
from tests.models.tiny_models import random_checkpoint, steady_ops, vocabulary
from tests.weights.ctranslate2 import writer as ctranslate2_writer
from tests.weights.ctranslate2.writer import random_transformer

TO_GERMAN = ">>de<<"
TOLD = "no sentencepiece model lies beside this checkpoint: texts are taken as tokens separated by spaces"

INSTEAD = "put source.spm and target.spm, or sentencepiece.model for both, beside model.bin, or call translate_tokens"


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
        dataclasses.replace(checkpoint, text=TranslationText(names, names)), ops=steady_ops, threads=1
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
