"""Models of several languages: how each is told the languages of a text, and what a call may say."""

from dataclasses import replace

import pytest

from fastattn import Translator
from fastattn.errors import CheckpointError, InputError
from fastattn.spec.text_spec import DecodingSettings, LanguageTokens, SearchRules
from fastattn.weights import read
from tests.cli.commands import fail, succeed
from tests.messages import refused
from tests.translation.languages import tokens_of, told, write_folder
from tests.weights.native.folders import converted

SHORT = {"max_decoding_length": 7}
PAIRS = [("en", "fr"), ("fr", "en"), ("en", "zh"), ("zh", "fr")]
TEXTS = ["a b c", "c d", "e f g h", "b"]
# Kind -> the source of "a b" from English to French, and the target's beginning, as CTranslate2's users write them.
WRITTEN = {
    "m2m100": (["__en__", "a", "b", "</s>"], ["__fr__"]),
    "nllb": (["eng_Latn", "a", "b", "</s>"], ["fra_Latn"]),
    "mbart50": (["en_XX", "a", "b", "</s>"], ["fr_XX"]),
    "mbart": (["a", "b", "</s>", "en_XX"], ["fr_XX"]),
    "madlad": (["<2fr>", "a", "b", "</s>"], []),
    "opus": ([">>fr<<", "a", "b", "</s>"], []),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_each_kind_of_model_is_told_the_languages_in_its_way(tmp_path, kind):
    translator = Translator(write_folder(tmp_path / "model", kind))
    source, target = WRITTEN[kind]
    (wanted,) = translator.translate_tokens([source], [target], **SHORT)
    for named in (("en", "fr"), ("eng_Latn", "French"), ("en_XX", "fr-CA")):
        found = translator.translate("a b", source_lang=named[0], target_lang=named[1], details=True, **SHORT)
        assert found.parts[0].source == source
        hidden = 0 if kind == "mbart" else len(target)
        assert found.parts[0].tokens == wanted.tokens[hidden:] and found.scores == wanted.scores
    score = translator.score("a b", "c d", "en", "fr")
    (whole,) = translator.score_tokens([source], [[*target, "c", "d"]])
    assert score.tokens == ["c", "d", "</s>"]
    assert score.log_probs.tolist() == whole.log_probs[len(whole.log_probs) - 3 :].tolist()


def test_texts_of_many_pairs_share_a_batch_and_come_out_as_alone(tmp_path):
    translator = Translator(write_folder(tmp_path / "model", "m2m100"))
    sources, targets = ([pair[side] for pair in PAIRS] for side in (0, 1))
    for beam_size in (1, 3):
        options = SHORT | {"beam_size": beam_size, "details": True}
        alone = [
            translator.translate(text, source_lang=source, target_lang=target, **options)
            for text, (source, target) in zip(TEXTS, PAIRS)
        ]
        assert len({tuple(each.scores) for each in alone}) == len(PAIRS)
        assert translator.translate(TEXTS, source_lang=sources, target_lang=targets, **options) == alone
        assert (
            list(translator.translate_iter(TEXTS, source_lang=iter(sources), target_lang=targets, **options)) == alone
        )
        assert translator.submit(TEXTS, source_lang=sources, target_lang=targets, **options).result() == alone
    texts = [each.text for each in translator.translate(TEXTS, source_lang="en", target_lang="zh", **options)]
    whole = [
        translator.score(text, target, source, wished)
        for text, target, (source, wished) in zip(TEXTS, texts, PAIRS, strict=True)
    ]
    together = translator.score(TEXTS, texts, sources, targets)
    assert [each.log_probs.tolist() for each in together] == [each.log_probs.tolist() for each in whole]


def test_what_tells_the_language_is_not_streamed(tmp_path):
    translator, seen = Translator(write_folder(tmp_path / "model", "nllb")), []
    options = SHORT | {"source_lang": "en", "target_lang": "fr"}
    tokens = translator.translate("a b", beam_size=1, details=True, callback=seen.append, **options).parts[0].tokens
    assert [step.token for step in seen][: len(tokens)] == tokens and [step.position for step in seen][:2] == [0, 1]
    assert list(translator.generate_tokens("a b", **options)) == seen


def test_defaults_are_the_callers_then_the_folders(tmp_path):
    folder = write_folder(tmp_path / "model", "m2m100")
    translator = Translator(folder, source_lang="fr", target_lang="en")
    named = translator.translate("a b", source_lang="French", target_lang="English", **SHORT)
    assert translator.translate("a b", **SHORT) == named
    other = translator.translate("a b", target_lang="zh", details=True, **SHORT)
    assert other == Translator(folder).translate("a b", source_lang="fr", target_lang="zh", details=True, **SHORT)
    assert translator.translate(["a b"] * 2, target_lang=[None, "zh"], **SHORT) == [named, other.text]
    languages = LanguageTokens(tokens_of("m2m100"), "before", "first")
    own = told(languages, source_language="en", decoding=DecodingSettings(forced_tokens=("__fr__",)))
    assert own.translate("a b", **SHORT) == told(languages).translate(
        "a b", source_lang="en", target_lang="fr", **SHORT
    )
    found = own.translate("a b", target_lang="zh", details=True, **SHORT)
    assert found == told(languages).translate("a b", source_lang="en", target_lang="zh", details=True, **SHORT)


def test_the_legacy_source_of_nllb_ends_with_its_language(tmp_path):
    folder = write_folder(tmp_path / "model", "nllb")
    (folder / "tokenizer_config.json").write_text('{"legacy_behaviour": true}')
    found = Translator(folder).translate("a b", source_lang="en", target_lang="fr", details=True, **SHORT)
    assert found.parts[0].source == ["a", "b", "</s>", "eng_Latn"]


def test_every_part_has_its_languages_around_it_and_fits_with_them():
    languages = LanguageTokens(tokens_of("nllb"), "before", "first")
    translator = told(languages, single_sentences=True)
    options = SHORT | {"source_lang": "en", "target_lang": "fr", "details": True}
    words = translator._tokenizer.text.source_vocabulary[3:9]
    text = f"{words[0]} {words[1]}. {words[2]}"
    parts = [part.source for part in translator.translate(text, **options).parts]
    assert [part[0] for part in parts] == ["eng_Latn"] * len(parts) and all(part[-1] == "</s>" for part in parts)
    limit = translator.max_source_length
    (first, *rest) = translator.translate(" ".join(words * (limit // len(words) + 1)), split="long", **options).parts
    assert rest and all(len(part.source) <= limit and part.source[0] == "eng_Latn" for part in (first, *rest))
    cut = translator.translate(" ".join(words), split="long", max_input_length=5, **options).parts
    assert [part.source for part in cut] == [["eng_Latn", *words[:3], "</s>"]]
    assert translator.translate(" \n", **options).text == " \n"


def test_prefixes_of_words_and_texts_that_tell_their_language_themselves(tmp_path):
    task = LanguageTokens({"en": "English", "fr": "French"}, prefix="translate {source} to {target}:")
    translator = told(replace(task, tokens={"en": "b", "fr": "c"}, prefix="a {source} {target} d"), add_source_eos=True)
    found = translator.translate("e f", source_lang="en", target_lang="fr", details=True, **SHORT)
    assert found.parts[0].source == ["a", "b", "c", "d", "e", "f"]
    assert translator.translate("e f", details=True, **SHORT).parts[0].source == ["e", "f"]
    with refused(InputError, "source_lang"):
        translator.translate("e f", target_lang="fr")
    opus = Translator(write_folder(tmp_path / "opus", "opus"))
    by_itself = opus.translate(">>fr<< a b", details=True, **SHORT)
    assert by_itself == opus.translate("a b", target_lang="fr", details=True, **SHORT)
    assert by_itself == opus.translate(">>fr<<a b", target_lang="zh", source_lang="de", details=True, **SHORT)
    assert by_itself == opus.translate(">>fr<< a b", source_lang="de", details=True, **SHORT)
    for text, options in ((">>fr<< a b", {"source_lang": "germn"}), ("a b", {}), ("a b", {"source_lang": "de"})):
        with refused(InputError):
            opus.translate(text, **options)


def test_languages_that_are_not_known_or_not_named(tmp_path):
    translator = Translator(write_folder(tmp_path / "model", "nllb"))
    assert translator.languages == {"eng_Latn": "English", "fra_Latn": "French", "zho_Hans": "Chinese"}
    for options in (
        *({}, {"source_lang": "en"}),
        *({"source_lang": source, "target_lang": "fr"} for source in ("engl", ["en", "fr"], [["en"]])),
        *({"source_lang": "en", "target_lang": target} for target in ("xx", "fra_Arab")),
    ):
        with refused(InputError):
            translator.translate(["a"], **options)
    with refused(InputError, "target_lang"):
        translator.translate_iter(iter([]), source_lang="en")
    languages = {"source_lang": "en", "target_lang": ["xx", "fr"]}
    results = list(translator.translate_iter(["a", "a"], return_exceptions=True, **languages, **SHORT))
    assert isinstance(results[0], InputError) and results[1]


def test_folders_whose_languages_cannot_be_are_refused(tmp_path):
    native = converted(read(write_folder(tmp_path / "model", "m2m100")), tmp_path / "native", "float32")
    config = (native / "config.json").read_text()
    for old, new in (
        ('"source": "before"', '"source": "amid"'),
        *(('"fr": "__fr__"', new) for new in ('"fr": "__xx__"', '"fr": 5')),
    ):
        (native / "config.json").write_text(config.replace(old, new))
        with refused(CheckpointError):
            Translator(native)


def test_models_of_one_pair_take_its_languages_alone():
    translator = told(None, source_language="zho", target_language="en")
    assert translator.languages == {}
    named = translator.translate("a b", source_lang="zh", target_lang="English", **SHORT)
    assert named == translator.translate("a b", **SHORT)
    for made, option in ((translator, {"target_lang": "fr"}), (told(None), {"source_lang": "en"})):
        with refused(InputError, *option):
            made.translate("a b", **option)


def test_worker_processes_and_converted_folders_know_the_languages_and_the_rules(tmp_path):
    made = read(write_folder(tmp_path / "model", "mbart"))
    made.text = replace(made.text, decoding=DecodingSettings(rules=SearchRules("true", forced_end=True)))
    folder = converted(made, tmp_path / "native", "float32")
    assert read(folder).text == made.text
    pairs = {"source_lang": [pair[0] for pair in PAIRS], "target_lang": [pair[1] for pair in PAIRS]}
    one = Translator(folder, threads=1)
    wanted = one.translate(TEXTS, details=True, **pairs, **SHORT)
    with Translator(folder, threads=1, processes=2) as translator:
        translator._pool.least = 1
        assert translator.translate(TEXTS, details=True, **pairs, **SHORT) == wanted
        assert list(translator.translate_iter(TEXTS, details=True, **pairs, **SHORT)) == wanted
        both = [each.score(TEXTS, TEXTS, *pairs.values()) for each in (translator, one)]
    assert [score.log_probs.tolist() for score in both[0]] == [score.log_probs.tolist() for score in both[1]]


def test_the_command_line_names_languages(tmp_path):
    folder = write_folder(tmp_path / "model", "nllb")
    wanted = Translator(folder).translate("a b", source_lang="en", target_lang="fr", **SHORT)
    asked = ("translate", "-m", folder, "--from", "English", "--max-length", 7)
    assert succeed(*asked, "--to", "fr", "a b") == wanted + "\n"
    assert '"source_lang": "English", "target_lang": "fr"' in succeed(*asked, "--to", "fr", "--json", "a b")
    assert "--to should be given; this model knows 3" in fail(2, *asked, "a b")
    assert "unknown language 'xx'; this model knows 3" in fail(2, *asked, "--to", "xx", "a b")
    shown = succeed("inspect", folder)
    assert "languages      3: eng_Latn (English), fra_Latn (French), zho_Hans (Chinese)" in shown
    assert "told by        eng_Latn ... </s>, the target begins with eng_Latn (for eng_Latn)" in shown
