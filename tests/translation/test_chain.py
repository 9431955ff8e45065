"""Two translators, the second of which translates what the first makes."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from fastattn import TokenTranslation, Translation, Translator
from fastattn.errors import CheckpointError, InputError
from fastattn.spec.text_spec import DecodingSettings, LanguageTokens, SearchRules
from fastattn.text.languages import likely_languages
from fastattn.translation.detecting import SURE, DetectingTranslator
from fastattn.weights import download, read
from tests.cli.commands import fail, run, succeed
from tests.messages import refused
from tests.translation.languages import tokens_of, told, write_folder
from tests.weights.native.folders import converted

TEXTS = ["a b", "", "c", "d a\n\nb\n"]
BAD = "\ud800"
SHORT = {"max_decoding_length": 12}  # models at random seldom end a sentence


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folders = (write_folder(tmp_path_factory.mktemp("model"), seed=seed) for seed in (5, 7))
    return [Translator(folder, "float32", threads=1) for folder in folders]


def test_a_chain_is_one_after_the_other(pair):
    first, second = pair
    expected = second.translate(first.translate(TEXTS, **SHORT), **SHORT)
    with_both = Translator.chain(first, second)
    assert with_both.translate(TEXTS, **SHORT) == list(with_both.translate_iter(iter(TEXTS), **SHORT)) == expected
    assert with_both.translate(TEXTS[0], **SHORT) == expected[0]
    assert expected[1] == "" and expected[3].count("\n") == 3
    again = Translator.chain(with_both, first)
    assert again.translate(TEXTS, **SHORT) == first.translate(expected, **SHORT)


def test_of_several_hypotheses_the_best_pairs_are_kept(pair):
    first, second = pair
    options = SHORT | {"beam_size": 3, "num_hypotheses": 3, "details": True}
    found = Translator.chain(first, second).translate(TEXTS[0], **options)
    one = first.translate(TEXTS[0], **options)
    pairs = []
    for middle, score in zip(one.hypotheses, one.scores):
        two = second.translate(middle, **options)
        pairs += [(score + more, text) for text, more in zip(two.hypotheses, two.scores)]
    best = {}
    for score, text in sorted(pairs, reverse=True):
        best.setdefault(text, score)
    assert list(best.items())[:3] == list(zip(found.hypotheses, found.scores)) and found.text == found.hypotheses[0]
    assert len(found.through) == 3 and second.translate(found.through[0], beam_size=3, **SHORT) in found.hypotheses


def test_errors_keep_their_places(pair):
    both = Translator.chain(*pair)
    results = list(both.translate_iter(["a", BAD, "c"], return_exceptions=True, **SHORT))
    assert isinstance(results[1], InputError) and results[::2] == both.translate(["a", "c"], **SHORT)
    stream = both.translate_iter(["a", BAD, "c"], **SHORT)
    assert next(stream) == results[0]
    with pytest.raises(InputError):
        next(stream)
    for option in ({"num_hypotheses": 2}, {"beam_siz": 2}, {"return_attention": True}):
        with refused(InputError, *option):
            both.translate("a", **option)


class Recorded(Translator):
    """Says what it was asked, and was made with; its two hypotheses differ from call to call of a text."""

    def __init__(self, path="", **options):
        self.path, self.made_with, self.asked, self.closed = path, options, {}, 0

    def translate_iter(self, texts, **options):
        self.asked |= options
        for number, text in enumerate(texts):
            parts = [TokenTranslation([], [[f"{number}"]], [0.0], [0.0], [0])]
            yield Translation(f"{text}+", [f"{text}+", f"{text}-"], [float(number), -0.5], parts)

    def close(self):
        self.closed += 1


def test_parts_are_those_of_the_text_that_was_chosen_and_options_come_to_every_model(monkeypatch):
    found = Translator.chain(Recorded(), Recorded()).translate("a", details=True, num_hypotheses=2)
    assert found.text == "a-+" and found.through[0] == "a-" and found.parts[0].tokens == ["1"]
    seen = []
    monkeypatch.setattr(download, "models_between", lambda *asked: seen.append(asked) or ["one", "two"])
    monkeypatch.setattr(download, "fetch", str)
    chained = Recorded.for_languages("de", "fr", quality="tiny", precision="int8")
    found = Recorded.for_languages("auto", "fr", quality="tiny", precision="int8")
    text = "Das Wetter ist heute sehr schön."
    assert found.translate(text) == f"{text}-+"  # the pair of the greatest sum
    for both in (chained, found._translators["de"]):
        assert [each.path for each in (both.first, both.second)] == ["one", "two"]
        assert both.first.made_with == both.second.made_with == {"precision": "int8"}
    assert seen == [("de", "fr", "tiny")] * 2
    found.close()
    assert both.first.closed == both.second.closed == 1


def test_what_is_of_each_text_is_of_each_of_its_hypotheses(pair):
    both, options = Translator.chain(*pair), SHORT | {"beam_size": 3, "num_hypotheses": 3, "details": True}
    texts, prefixes = ["a b", "", BAD, "c", "d a"], ["c", "d", "e", None, "c"]
    stream = both.translate_iter(texts, target_prefix=iter(prefixes), return_exceptions=True, **options)
    for text, prefix, found in zip(texts, prefixes, stream, strict=True):
        if text == BAD:
            assert isinstance(found, InputError)
        else:
            assert found == both.translate(text, target_prefix=prefix, **options)
    for wrong in (prefixes[:1], prefixes[:3], 3, {"c": 1}):
        with refused(InputError, "target_prefix"):
            both.translate(["a", "b"], target_prefix=wrong, **options)


def test_the_first_is_read_as_the_second_needs_it(pair):
    read = []
    texts = (read.append(number) or "a b c" for number in range(5000))
    stream = Translator.chain(*pair).translate_iter(texts, **SHORT)
    next(stream)
    assert len(read) < 5000
    stream.close()


GERMAN, FRENCH = "Das Wetter ist heute sehr schön.", "Il fait très beau aujourd'hui."
ENGLISH = "The weather is fine today."
CHINESE, NUMBERS = "今天天气很好，我们明天去北京开会。", "12 - 34 !"


class Named:
    """Says which model it is."""

    def __init__(self, code):
        self.code, self.calls = code, []

    def translate_iter(self, texts, *, details, return_exceptions, **options):
        assert details and return_exceptions
        self.calls.append(texts)
        return iter([Translation(f"{self.code} {options}: {text}", [text], [-1.0], []) for text in texts])


def named(target="en"):
    opened = {}

    def open_from(code):
        if code == "zh":
            raise InputError("no model from zh")
        return opened.setdefault(code, Named(code))

    return DetectingTranslator(target, open_from), opened


def test_each_text_goes_to_the_model_for_its_language():
    translator, opened = named()
    texts = [GERMAN, FRENCH, NUMBERS, "", ENGLISH, GERMAN]
    found = translator.translate(texts, details=True, beam_size=2)
    assert [one.language for one in found] == ["de", "fr", "", "", "en", "de"]
    assert [one.text for one in found[2:5]] == texts[2:5] and not found[2].sure and found[0].sure
    assert found[0].text == f"de {{'beam_size': 2}}: {GERMAN}" and opened["de"].calls == [[GERMAN, GERMAN]]
    assert translator.translate(FRENCH) == f"fr {{}}: {FRENCH}" and set(opened) == {"de", "fr"}
    (unsure,) = translator.translate(["Good morning"], details=True)
    assert not unsure.sure and unsure.language == "en"
    assert unsure.through is None
    _, unsure = translator.translate([GERMAN, "Hello Maria"], details=True)
    assert not unsure.sure and unsure.language == "de" and unsure.confidence < 0.1  # as the text before it


def test_errors_are_of_their_texts():
    translator, _ = named()
    found = list(translator.translate_iter([GERMAN, CHINESE, BAD, FRENCH], return_exceptions=True))
    assert isinstance(found[1], InputError) and isinstance(found[2], InputError) and found[3].startswith("fr")
    stream = translator.translate_iter([GERMAN, CHINESE])
    assert next(stream).startswith("de")
    with pytest.raises(InputError, match="no model from zh"):
        next(stream)


class Ranked:
    """In place of py3langid's model: texts that begin with a code are of that language, as sure as SURE or not."""

    def rank(self, text):
        code, share = text.split()[0], SURE if text.endswith("sure") else SURE - 0.01
        return [(code, share), ("en", 0.05), ("xx", 0.01)]


def test_what_is_in_no_language_stays_and_says_nothing_of_others(monkeypatch):
    monkeypatch.setattr("fastattn.text.languages._identifier", Ranked)
    translator, opened = named("fr")
    texts = ["zxx sure", "zxx sure", "nso sure", "zxx perhaps", "fuv perhaps", "fr sure"]
    found = translator.translate(texts, details=True)
    assert [one.language for one in found] == ["", "", "ns", "", "ns", "fr"]
    assert [found[b].text for b in (0, 3, 5)] == [texts[b] for b in (0, 3, 5)] and set(opened) == {"ns"}
    assert [one.confidence for one in found] == [0, 0, SURE, 0, 0, SURE]
    assert [one.sure for one in found[2:4]] == [True, False]


def test_among_some_languages_the_likeliest_comes_first(monkeypatch):
    monkeypatch.setattr("fastattn.text.languages._identifier", Ranked)
    assert likely_languages("de sure", ("yy", "xx", "en")) == [("en", 0.05), ("xx", 0.01), ("yy", 0.0)]


def test_a_language_without_a_model_is_looked_for_once_a_stream():
    asked = []

    def open_from(code):
        asked.append(code)
        raise InputError("the list cannot be read")

    translator = DetectingTranslator("en", open_from)
    for _ in range(2):
        found = list(translator.translate_iter([GERMAN] * (2 * DetectingTranslator.window + 1), return_exceptions=True))
        assert len(found) == 2 * DetectingTranslator.window + 1 and all(isinstance(one, InputError) for one in found)
    assert asked == ["de", "de"]


def test_threads_open_one_translator(monkeypatch):
    opened, second = [], threading.Event()

    def open_from(code):
        opened.append(code)
        second.wait(0.2)  # for another that opens too
        return Named(code)

    translator = DetectingTranslator("en", open_from)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(translator.translate, [GERMAN] * 2))
    assert opened == ["de"]


def test_options_of_each_text_are_refused():
    translator, _ = named()
    for name in ("target_prefix", "source_lang", "target_lang"):
        with refused(InputError, name):
            translator.translate([GERMAN, ENGLISH], **{name: ["a", "b"]})
    assert translator.translate(GERMAN, target_prefix="a") == f"de {{'target_prefix': 'a'}}: {GERMAN}"
    for option in ({"return_attention": True}, {"num_hypotheses": 2}):
        with refused(InputError, *option):
            translator.translate(GERMAN, **option)
    for wrong in (GERMAN, 5, {GERMAN: 1}):
        with refused(InputError, "texts"):
            translator.translate_iter(wrong)
    with refused(InputError):
        Translator.for_languages("auto", 3)


def test_what_comes_before_an_error_of_the_iterable_is_translated():
    def texts():
        yield from (GERMAN, FRENCH)
        raise InputError("line 3: not UTF-8")

    stream = named()[0].translate_iter(texts(), return_exceptions=True)
    assert next(stream).startswith("de") and next(stream).startswith("fr")
    with pytest.raises(InputError, match="line 3"):
        next(stream)
    result = run("translate", "--from", "auto", "--to", "en", stdin=f"{ENGLISH}\n".encode() + b"\xff\n")
    assert (result.exit_code, result.stdout) == (2, f"{ENGLISH}\n") and "line 2" in result.stderr


def test_few_texts_are_read_ahead():
    read = []
    stream = named()[0].translate_iter(read.append(n) or GERMAN for n in range(10 * DetectingTranslator.window))
    next(stream)
    assert len(read) == DetectingTranslator.window


def test_real_models_by_themselves(pulled, monkeypatch):
    monkeypatch.setenv("FASTATTN_OFFLINE", "1")
    pulled("en-pt"), pulled("zh-en")
    found = Translator.for_languages("auto", "Portuguese").translate([ENGLISH, "Bom dia a todos os meus amigos."])
    assert found == [Translator("en-pt").translate(ENGLISH), "Bom dia a todos os meus amigos."]
    asked = ("translate", "--from", "auto", "--to", "pt", "--json")
    result = run(*asked, stdin=f"{ENGLISH}\nHello Maria\n".encode())
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["translation"] == found[0] and first["detected"]["language"] == "en"
    assert "the language of 1 of 2 lines is unsure, the first: standard input, line 2: en (" in result.stderr
    assert second["detected"]["language"] == "en" and second["detected"]["confidence"] < 0.8
    through = run(*asked, "--timeout", "600", CHINESE)  # which compiles first
    assert json.loads(through.stdout)["through"] == Translator("zh-en").translate(CHINESE), through.stderr
    for arguments in (("--from", "auto"), ("--from", "auto", "--to", "pt", "-m", "en-pt")):
        assert "--from auto finds models itself" in fail(2, "translate", *arguments, "a")


FEW = {"max_decoding_length": 7}
PAIRS = [("en", "fr"), ("fr", "en"), ("en", "zh"), ("zh", "fr")]
WORDS_OF_TEXTS = ["a b c", "c d", "e f g h", "b"]
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
    (wanted,) = translator.translate_tokens([source], [target], **FEW)
    for named in (("en", "fr"), ("eng_Latn", "French"), ("en_XX", "fr-CA")):
        found = translator.translate("a b", source_lang=named[0], target_lang=named[1], details=True, **FEW)
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
        options = FEW | {"beam_size": beam_size, "details": True}
        alone = [
            translator.translate(text, source_lang=source, target_lang=target, **options)
            for text, (source, target) in zip(WORDS_OF_TEXTS, PAIRS)
        ]
        assert len({tuple(each.scores) for each in alone}) == len(PAIRS)
        assert translator.translate(WORDS_OF_TEXTS, source_lang=sources, target_lang=targets, **options) == alone
    texts = [each.text for each in translator.translate(WORDS_OF_TEXTS, source_lang="en", target_lang="zh", **options)]
    together = translator.score(WORDS_OF_TEXTS, texts, sources, targets)
    for each, *given in zip(together, WORDS_OF_TEXTS, texts, sources, targets, strict=True):
        np.testing.assert_array_equal(each.log_probs, translator.score(*given).log_probs)


def test_what_tells_the_language_is_not_streamed(tmp_path):
    translator, seen = Translator(write_folder(tmp_path / "model", "nllb")), []
    options = FEW | {"source_lang": "en", "target_lang": "fr"}
    tokens = translator.translate("a b", beam_size=1, details=True, callback=seen.append, **options).parts[0].tokens
    assert [step.token for step in seen][: len(tokens)] == tokens and [step.position for step in seen][:2] == [0, 1]
    assert list(translator.generate_tokens("a b", **options)) == seen


def test_defaults_are_the_callers_then_the_folders(tmp_path):
    folder = write_folder(tmp_path / "model", "m2m100")
    translator = Translator(folder, source_lang="fr", target_lang="en")
    named = translator.translate("a b", source_lang="French", target_lang="English", **FEW)
    assert translator.translate("a b", **FEW) == named
    other = translator.translate("a b", target_lang="zh", details=True, **FEW)
    assert other == Translator(folder).translate("a b", source_lang="fr", target_lang="zh", details=True, **FEW)
    assert translator.translate(["a b"] * 2, target_lang=[None, "zh"], **FEW) == [named, other.text]
    languages = LanguageTokens(tokens_of("m2m100"), "before", "first")
    own = told(languages, source_language="en", decoding=DecodingSettings(forced_tokens=("__fr__",)))
    assert own.translate("a b", **FEW) == told(languages).translate("a b", source_lang="en", target_lang="fr", **FEW)
    found = own.translate("a b", target_lang="zh", details=True, **FEW)
    assert found == told(languages).translate("a b", source_lang="en", target_lang="zh", details=True, **FEW)


def test_the_legacy_source_of_nllb_ends_with_its_language(tmp_path):
    folder = write_folder(tmp_path / "model", "nllb")
    (folder / "tokenizer_config.json").write_text('{"legacy_behaviour": true}')
    found = Translator(folder).translate("a b", source_lang="en", target_lang="fr", details=True, **FEW)
    assert found.parts[0].source == ["a", "b", "</s>", "eng_Latn"]


def test_every_part_has_its_languages_around_it_and_fits_with_them():
    languages = LanguageTokens(tokens_of("nllb"), "before", "first")
    translator = told(languages, single_sentences=True)
    options = FEW | {"source_lang": "en", "target_lang": "fr", "details": True}
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
    found = translator.translate("e f", source_lang="en", target_lang="fr", details=True, **FEW)
    assert found.parts[0].source == ["a", "b", "c", "d", "e", "f"]
    assert translator.translate("e f", details=True, **FEW).parts[0].source == ["e", "f"]
    with refused(InputError, "source_lang"):
        translator.translate("e f", target_lang="fr")
    opus = Translator(write_folder(tmp_path / "opus", "opus"))
    by_itself = opus.translate(">>fr<< a b", details=True, **FEW)
    assert by_itself == opus.translate("a b", target_lang="fr", details=True, **FEW)
    assert by_itself == opus.translate(">>fr<<a b", target_lang="zh", source_lang="de", details=True, **FEW)
    assert by_itself == opus.translate(">>fr<< a b", source_lang="de", details=True, **FEW)
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
    results = list(translator.translate_iter(["a", "a"], return_exceptions=True, **languages, **FEW))
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
    named = translator.translate("a b", source_lang="zh", target_lang="English", **FEW)
    assert named == translator.translate("a b", **FEW)
    for made, option in ((translator, {"target_lang": "fr"}), (told(None), {"source_lang": "en"})):
        with refused(InputError, *option):
            made.translate("a b", **option)


def test_converted_folders_know_the_languages_and_the_rules(tmp_path):
    made = read(write_folder(tmp_path / "model", "mbart"))
    made.text = replace(made.text, decoding=DecodingSettings(rules=SearchRules("true", forced_end=True)))
    assert read(converted(made, tmp_path / "native", "float32")).text == made.text


def test_the_command_line_names_languages(tmp_path):
    folder = write_folder(tmp_path / "model", "nllb")
    asked = ("translate", "-m", folder, "--from", "English", "--max-length", 7)
    assert '"source_lang": "English", "target_lang": "fr"' in succeed(*asked, "--to", "fr", "--json", "a b")
    assert "--to should be given; this model knows 3" in fail(2, *asked, "a b")
    shown = succeed("inspect", folder)
    assert "languages      3: eng_Latn (English), fra_Latn (French), zho_Hans (Chinese)" in shown
    assert "told by        eng_Latn ... </s>, the target begins with eng_Latn (for eng_Latn)" in shown
