"""How a text becomes parts of tokens, and these a text: lines, languages, cuts, vocabularies, CTranslate2's map."""

import dataclasses
import shutil
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn import Translator
from fastattn.errors import CheckpointError, InputError, TokenizerError
from fastattn.spec.text_spec import LanguageTokens, TranslationText
from fastattn.text.languages import Languages, language, language_tokens
from fastattn.text.sentencepiece import SentencePiece
from fastattn.text.translation import TranslationTokenizer, VocabularyMap, split_lines
from fastattn.weights import read
from fastattn.weights.download.hub import select_files
from tests import GOLDENS
from tests.cli.commands import run, succeed
from tests.messages import refused
from tests.models.tiny_models import END, LETTERS, START, random_checkpoint, steady_ops, vocabulary
from tests.weights.ctranslate2 import cases
from tests.weights.ctranslate2 import writer as ctranslate2_writer
from tests.weights.ctranslate2.writer import random_transformer
from tests.weights.native.folders import converted

TO_GERMAN = ">>de<<"
TOLD = "no sentencepiece model lies beside this checkpoint: texts are taken as tokens separated by spaces"

INSTEAD = "put source.spm and target.spm, or sentencepiece.model for both, beside model.bin, or call translate_tokens"
WORDS = ("<unk>", "<s>", "</s>", *LETTERS)
TEXT = TranslationText(WORDS, WORDS)


def test_sentences_join_as_the_target_language_writes():
    for codes, sentences, joined in [
        (["en", ""], ["One.", "Two."], "One. Two."),
        (["en"], ["One.", "", "Two."], "One. Two."),
        (["zh", ""], ["一。", "二。"], "一。二。"),
        (["zh_Hant"], ["一。", "B"], "一。B"),
        (["jpn_Jpan"], ["あ。", "い。"], "あ。い。"),
        (["ko"], ["가.", "나."], "가. 나."),
        *(([""], list(two), "".join(two)) for two in (("ก", "ข"), ("One.", "二。"), ("一。", "Two."))),
    ]:
        for code in codes:
            text = dataclasses.replace(TEXT, target_language=code)
            assert TranslationTokenizer(text).join_sentences(sentences, text.target_language) == joined


def test_every_part_begins_with_the_target_language_and_fits_with_it():
    text = dataclasses.replace(TEXT, source_vocabulary=(*WORDS[:-1], ">>xx<<"))
    words = list(LETTERS[:8])
    (line,) = split_lines(f">>xx<< {' '.join(words)}", TranslationTokenizer(text), 4, "long")
    assert [part[0] for part in line.parts] == [">>xx<<"] * 3
    assert [token for part in line.parts for token in part[1:]] == words
    assert max(map(len, line.parts)) == 4


def test_split_lines_knows_every_line_end():
    lines = split_lines("a\rb\r\n\nc", TranslationTokenizer(TEXT), 9, "long")
    found = [(line.parts, line.untranslated, line.end) for line in lines]
    assert found == [([["a"]], "", "\r"), ([["b"]], "", "\r\n"), ([], "", "\n"), ([["c"]], "", "")]


def test_a_source_of_special_tokens_is_empty():
    sources = ["", "</s>", "<s>", "a", "<s> </s>", "</s> a", "<s> a", "a </s>", "a </s> b"]
    empty = [tokens for tokens in sources if TranslationTokenizer(TEXT).is_empty(tokens.split())]
    assert empty == ["", "</s>", "<s>", "<s> </s>", "</s> a"]


def test_pieces_are_looked_up_by_their_surface():
    tokenizer = TranslationTokenizer(TEXT)
    assert tokenizer.source_ids(["a", "nowhere", "</s>"]).tolist() == [3, 0, END]
    assert tokenizer.target_ids(["b"]) == [START, 4]
    twice = dataclasses.replace(TEXT, target_vocabulary=(*WORDS, "a"))
    assert TranslationTokenizer(twice).target_ids(["a"]) == [START, 3]
    without_start = dataclasses.replace(TEXT, decoder_start_token="<start>")
    assert TranslationTokenizer(without_start).target_ids([]) == [0]


def parts_of(text, longest, split, **changes):
    tokens = ("<unk>", "<s>", "</s>", TO_GERMAN)
    tokenizer = TranslationTokenizer(TranslationText(tokens, tokens, source_language="en", **changes))
    (line,) = split_lines(text, tokenizer, 20, split, longest)
    return line.parts


def test_what_is_cut_is_the_content_not_the_language_of_each_part():
    for longest, parts in [
        (None, [[TO_GERMAN, "One", "two."], [TO_GERMAN, "Three", "four."]]),
        (5, [[TO_GERMAN, "One", "two."], [TO_GERMAN, "Three", "four."]]),
        (4, [[TO_GERMAN, "One", "two."], [TO_GERMAN, "Three"]]),
        (3, [[TO_GERMAN, "One", "two."]]),
        (2, [[TO_GERMAN, "One"]]),
        (1, []),
    ]:
        text = f"{TO_GERMAN} One two. Three four."
        assert parts_of(text, longest, "sentences") == parts
        whole = [TO_GERMAN, *(token for part in parts for token in part[1:])]
        assert parts_of(text, longest, "long") == ([whole] if parts else [])
    for split in ("long", "sentences", "never"):
        assert parts_of(TO_GERMAN, None, split) == parts_of(f"{TO_GERMAN} ", None, split) == []
        assert parts_of(f"{TO_GERMAN} One", 3, split, add_source_eos=True, add_source_bos=True) == []


def translator_of(words):
    checkpoint = random_checkpoint(seed=21, vocabulary=words)
    names = vocabulary(words)
    return Translator.from_checkpoint(
        dataclasses.replace(checkpoint, input=TranslationText(names, names)), ops=steady_ops, threads=1
    )


def test_texts_without_the_sentencepiece_of_the_vocabulary_are_warned_of_once():
    for call in (
        lambda made: made.translate("w1", max_decoding_length=2),
        lambda made: list(made.translate_iter(["w1"], max_decoding_length=2)),
        lambda made: list(made.generate_tokens("w1", max_decoding_length=2)),
        lambda made: made.score("w1", "w2"),
    ):
        translator = translator_of(1100)
        with pytest.warns(UserWarning, match=f"{TOLD}; {INSTEAD}") as told:
            for _ in range(2):
                call(translator)
        assert [warning.filename for warning in told] == [__file__]


def test_the_command_tells_too(tmp_path):
    variables = random_transformer(np.random.default_rng(3), source_vocabulary=1100, target_vocabulary=1100)
    ctranslate2_writer.write_model(tmp_path, variables)
    ctranslate2_writer.write_vocabularies(tmp_path, vocabulary(1100), vocabulary(1100))
    ctranslate2_writer.write_config(tmp_path)
    assert "tokens separated by spaces (no sentencepiece model" in succeed("inspect", tmp_path)
    with warnings.catch_warnings():
        warnings.resetwarnings()  # those of the suite are errors
        told = run("translate", "-m", tmp_path, "--max-length", 2, "w1", "w2")
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


MAP_WORDS = ("<unk>", "<s>", "</s>", "a", "b", "c", "d", "e")
IDS = {word: i for i, word in enumerate(MAP_WORDS)}


def built(content, words=MAP_WORDS):
    text = dataclasses.replace(random_checkpoint().text, target_vocabulary=words, vocabulary_map=content.encode())
    return VocabularyMap(text, {word: i for i, word in enumerate(words)})


def naive(content, source):
    """As src/vocabulary_map.cc goes about it."""
    rules = [{}]
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
TARGETS = st.lists(st.sampled_from([*MAP_WORDS, "y", ""]), max_size=4)
LINES = st.lists(st.tuples(TOKENS, TARGETS, st.sampled_from(["\n", "\r\n", " \n"])), max_size=12)


@settings(deadline=None, max_examples=50)
@given(LINES, st.lists(st.sampled_from(["a", "b", "c", "x", "</s>", "a b", ""]), max_size=7))
def test_candidates_are_those_of_ctranslate2(lines, source):
    content = "".join(f"{' '.join(tokens)}\t{' '.join(targets)}{end}" for tokens, targets, end in lines)
    found = built(content).candidates(source)
    assert found.tolist() == naive(content, source) and found.dtype == np.int32


def test_lines_of_another_form_are_named():
    for content in ("\ta\nb c\n", "\n", "a\tb\tc", "a\tb\n\na\tb\n"):
        with refused(CheckpointError):
            built(content)


def test_a_damaged_map_harms_nobody_who_does_not_ask_for_it(tmp_path):
    folder, sources = cases.build("pre-norm", tmp_path / "model"), cases.inputs("pre-norm")[0]
    (folder / "vmap.txt").write_bytes(b"\xff\xfe\nno tab")
    translator = Translator(folder)
    assert not translator.default_options.shortlist
    plain = translator.translate_tokens(sources)
    with refused(CheckpointError, "line 1"):
        translator.translate_tokens(sources, shortlist=True)
    (folder / "vmap.txt").unlink()
    assert Translator(folder).translate_tokens(sources, shortlist=True) == plain


def test_a_conversion_keeps_it(tmp_path):
    original = read(cases.build("pre-norm", tmp_path / "model"))
    assert "vmap.txt" in original.details["vocabulary map"]
    for precision in ("float32", "int8"):
        assert read(converted(original, tmp_path / precision, precision)).text == original.text


def test_packages_and_the_hub_carry_it(tmp_path):
    package = tmp_path / "package"
    shutil.copytree(cases.build("pre-norm", tmp_path / "model"), package / "model")
    (package / "metadata.json").write_text('{"from_code": "ar", "to_code": "en"}')
    (package / "sentencepiece.model").write_bytes(b"pieces")
    text = read(package).text
    assert text.vocabulary_map == (package / "model" / "vmap.txt").read_bytes()
    files = select_files(["config.json", "model.bin", "shared_vocabulary.json", "vmap.txt"])
    assert files is not None and "vmap.txt" in files.small_files


def test_ends_and_prefixes_may_be_chosen_whatever_the_map_says():
    words = vocabulary(19)
    checkpoint = random_checkpoint(seed=3)
    checkpoint.text = dataclasses.replace(checkpoint.text, vocabulary_map=f"\t{words[5]}\n".encode())
    translator = Translator.from_checkpoint(checkpoint, ops=steady_ops, threads=1)
    options = {"beam_size": 1, "sampling_topk": 0, "sampling_temperature": 50.0, "num_hypotheses": 40, "seed": 1}
    options |= {"shortlist": True, "max_decoding_length": 6, "end_token": [words[9]], "return_end_token": True}
    (result,) = translator.translate_tokens([[words[4]]], [[words[12]]], **options)
    assert {token for tokens in result.hypotheses for token in tokens} == {*words[:3], words[5], words[9], words[12]}


NLLB = "eng_Latn fra_Latn zho_Hans zho_Hant kas_Arab kas_Deva srp_Cyrl heb_Hebr als_Latn npi_Deva nob_Latn nno_Latn"
M2M = "en fr zh sr he sq ne no ns jv"
MBART = "en_XX fr_XX zh_CN he_IL pt_XX"


def test_a_language_is_found_by_every_usual_name():
    for codes, asked, code in [
        (NLLB, "en eng eng_Latn ENG_LATN en_XX en-GB English english __en__", "eng_Latn"),
        (NLLB, "zh zho Chinese zh_CN zho_Hans cmn_Hans", "zho_Hans"),
        (NLLB, "zh-TW zh-Hant zho_Hant zh-Hant-TW zh-MO chi_HK ZHO-HANT-hk", "zho_Hant"),
        (NLLB, "zh-Hans-CN zh-SG", "zho_Hans"),
        ("srp_Cyrl srp_Latn", "sr-Latn-RS sr_Latn", "srp_Latn"),
        ("srp_Cyrl srp_Latn", "sr-Cyrl-RS srp_Cyrl", "srp_Cyrl"),
        (NLLB, "ks_Deva kas_Deva", "kas_Deva"),
        (NLLB, "iw he Hebrew", "heb_Hebr"),
        (NLLB, "sq Albanian alb", "als_Latn"),
        (NLLB, "no nb Norwegian", "nob_Latn"),
        (NLLB, "nn Norwegian_Nynorsk", "nno_Latn"),
        (M2M, "en eng eng_Latn en_XX English __en__", "en"),
        (M2M, "srp_Cyrl sr-RS", "sr"),
        (M2M, "nso nso_Latn", "ns"),
        (M2M, "jw jav_Latn Javanese", "jv"),
        (MBART, "en eng_Latn en_US English", "en_XX"),
        (MBART, "pt pt_BR por_Latn", "pt_XX"),
        ("pt_PT pt pt_BR", "por Portuguese pt_AO", "pt"),
        ("xx_new other", "XX-NEW xx_new", "xx_new"),
        ("de de_AT", "de-1996", "de"),  # four digits are no script
    ]:
        languages = Languages({each: f"__{each}__" for each in codes.split()})
        found = {name: languages.code(name.replace("n_N", "n N")) for name in asked.split()}
        assert found == dict.fromkeys(asked.split(), code)


def test_another_language_is_refused_with_those_that_may_be_meant():
    for asked in ("ks", "sr_Latn", "Frensh", "zz", ""):
        with refused(InputError, asked):
            Languages({each: each for each in NLLB.split()}).code(asked)


def test_the_forms_of_tokens_tell_the_model_and_its_names_are_of_one_table():
    assert language("ckb").name == "Central Kurdish" and language("zho_Hant").chinese == "繁体中文"
    assert Languages({"kmr_Latn": "", "toki": ""}).names == {"kmr_Latn": "Northern Kurdish", "toki": "toki"}
    for tokens, told in [
        ("__en__ __ast__", LanguageTokens({"en": "__en__", "ast": "__ast__"}, "before", "first")),
        ("eng_Latn fra_Latn", LanguageTokens({"eng_Latn": "eng_Latn", "fra_Latn": "fra_Latn"}, "before", "first")),
        ("en_XX fr_XX", LanguageTokens({"en_XX": "en_XX", "fr_XX": "fr_XX"}, "before", "first")),
        ("<2en> <2ta_Latn> <2back_x>", LanguageTokens({"en": "<2en>", "ta_Latn": "<2ta_Latn>"}, prefix="{target}")),
        (">>por<< >>pt_br<<", LanguageTokens({"por": ">>por<<", "pt_br": ">>pt_br<<"}, prefix="{target}")),
        (">>por<<", None),
        ("__en__ <2en> de_DE", None),
        ("_e <s> >> << <2> de_de DE_DE", None),
    ]:
        assert language_tokens(["<unk>", "▁a", "</s>", *tokens.split()]) == told
