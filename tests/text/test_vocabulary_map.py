"""CTranslate2's vocabulary map: its parser told again letter by letter, and how a checkpoint that has one is used."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.errors import CheckpointError
from fastattn.text.translation import VocabularyMap
from fastattn.translation.translator import Translator
from fastattn.weights import read
from fastattn.weights.download.hub import needed
from fastattn.weights.native import convert
from tests.models.tiny_models import random_checkpoint, steady_ops, vocabulary
from tests.weights.ctranslate2 import cases

WORDS = ("<unk>", "<s>", "</s>", "a", "b", "c", "d", "e")
IDS = {word: i for i, word in enumerate(WORDS)}


def built(content: str, words=WORDS) -> VocabularyMap:
    text = dataclasses.replace(random_checkpoint().text, target_vocabulary=words, vocabulary_map=content.encode())
    return VocabularyMap(text, {word: i for i, word in enumerate(words)})


def naive(content: str, source: list[str]) -> list[int]:
    """As src/vocabulary_map.cc goes about it."""
    rules: list[dict[str, list[int]]] = [{}]
    for line in content.split("\n")[:-1]:
        token, key, values, target, ngram = "", "", [], False, 1
        for letter in line[:-1] if line.endswith("\r") else line:
            if letter == "\t":
                target, key, token = True, token, ""
            elif letter == " " and target:
                values.append(IDS.get(token, 0))
                token = ""
            else:
                ngram += letter == " "
                token += letter
        if token:
            values.append(IDS.get(token, 0))
        rules += [{} for _ in range(ngram - len(rules))]
        rules[ngram - 1][key] = values
    found = {0, 1, 2, *rules[0].get("", ())}
    for i in range(len(source)):
        for size in range(min(len(rules), len(source) - i)):
            found.update(rules[size].get(" ".join(source[i : i + size + 1]), ()))
    return sorted(found)


TOKENS = st.lists(st.sampled_from(["a", "b", "c", "x", "</s>"]), max_size=3)
TARGETS = st.lists(st.sampled_from([*WORDS, "y", ""]), max_size=4)
LINES = st.lists(st.tuples(TOKENS, TARGETS, st.sampled_from(["\n", "\r\n", " \n"])), max_size=12)


@settings(deadline=None)
@given(LINES, st.lists(st.sampled_from(["a", "b", "c", "x", "</s>", "a b", ""]), max_size=7))
def test_candidates_are_those_of_ctranslate2(lines, source):
    content = "".join(f"{' '.join(tokens)}\t{' '.join(targets)}{end}" for tokens, targets, end in lines)
    found = built(content).candidates(source)
    assert found.tolist() == naive(content, source) and found.dtype == np.int32


def test_what_the_letters_mean():
    read_map = built("\ta\na b\tc\na\td y\nb\te\nb\t\n")
    assert read_map.candidates([]).tolist() == [0, 1, 2, IDS["a"]]
    assert read_map.candidates(["a", "b"]).tolist() == [0, 1, 2, IDS["a"], IDS["c"], IDS["d"]]
    assert read_map.candidates(["b"]).tolist() == [0, 1, 2, IDS["a"]], "the last line of an n-gram counts"
    assert built("").candidates(["a"]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(("content", "line"), [("\ta\nb c\n", 2), ("\n", 1), ("a\tb\tc", 1), ("a\tb\n\na\tb\n", 2)])
def test_lines_of_another_form_are_named(content, line):
    with pytest.raises(CheckpointError, match=f"vmap.txt: line {line} should be source tokens, one tab"):
        built(content)


def test_it_is_used_only_when_asked_for(tmp_path: Path):
    folder = cases.build("pre-norm", tmp_path / "model")
    translator, sources = Translator(folder), cases.inputs("pre-norm")[0]
    mapped = translator.translate_tokens(sources, shortlist=True, beam_size=3)
    plain = translator.translate_tokens(sources, beam_size=3)
    assert plain == translator.translate_tokens(sources, shortlist=False, beam_size=3) != mapped
    assert not translator.default_options.shortlist
    assert list(translator.generate_tokens(sources[3], shortlist=True)) != list(translator.generate_tokens(sources[3]))
    together = translator.translate_tokens(sources * 3, shortlist=True, beam_size=3)
    assert together == mapped * 3, "each sentence has a list of its own"
    (folder / "vmap.txt").unlink()
    assert Translator(folder).translate_tokens(sources, shortlist=True, beam_size=3) == plain


def test_a_damaged_map_harms_nobody_who_does_not_ask_for_it(tmp_path: Path):
    folder = cases.build("pre-norm", tmp_path / "model")
    (folder / "vmap.txt").write_bytes(b"\xff\xfe\nno tab")
    translator, sources = Translator(folder), cases.inputs("pre-norm")[0]
    assert translator.translate_tokens(sources)
    with pytest.raises(CheckpointError, match="line 1 should be"):
        translator.translate_tokens(sources, shortlist=True)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_conversion_keeps_it(tmp_path: Path, precision: str):
    folder, sources = cases.build("pre-norm", tmp_path / "model"), cases.inputs("pre-norm")[0]
    original = read(folder)
    assert "vmap.txt" in original.details["vocabulary map"]
    (tmp_path / "out").mkdir()
    convert.write(tmp_path / "out", original, precision)
    assert read(tmp_path / "out").text == original.text
    if precision == "float32":
        options = {"shortlist": True, "beam_size": 2}
        found, expected = Translator(tmp_path / "out"), Translator(folder)
        assert found.translate_tokens(sources, **options) == expected.translate_tokens(sources, **options)


def test_packages_and_the_hub_carry_it(tmp_path: Path):
    package = tmp_path / "package"
    shutil.copytree(cases.build("pre-norm", tmp_path / "model"), package / "model")
    (package / "metadata.json").write_text('{"from_code": "ar", "to_code": "en"}')
    (package / "sentencepiece.model").write_bytes(b"pieces")
    text = read(package).text
    assert text.vocabulary_map == (package / "model" / "vmap.txt").read_bytes()  # type: ignore[union-attr]
    files = needed(["config.json", "model.bin", "shared_vocabulary.json", "vmap.txt"])
    assert files is not None and "vmap.txt" in files.first


def test_ends_and_prefixes_may_be_chosen_whatever_the_map_says():
    words = vocabulary(19)
    checkpoint = random_checkpoint(seed=3)
    checkpoint.text = dataclasses.replace(checkpoint.text, vocabulary_map=f"\t{words[5]}\n".encode())
    translator = Translator.from_checkpoint(checkpoint, ops=steady_ops, threads=1)
    options = {"beam_size": 1, "sampling_topk": 0, "sampling_temperature": 50.0, "num_hypotheses": 40, "seed": 1}
    options |= {"shortlist": True, "max_decoding_length": 6, "end_token": [words[9]], "return_end_token": True}
    (result,) = translator.translate_tokens([[words[4]]], [[words[12]]], **options)
    assert {token for tokens in result.hypotheses for token in tokens} == {*words[:3], words[5], words[9], words[12]}
