"""Two translators, the second of which translates what the first makes."""

import json
import threading

import numpy as np
import pytest

from fastattn import TokenTranslation, Translation, Translator
from fastattn.errors import InputError
from fastattn.text.detecting import likely_languages
from fastattn.translation.chain import TranslatorByLanguage
from fastattn.translation.detecting import SURE, WINDOW, DetectingTranslator
from fastattn.weights import download
from tests.cli.commands import fail, run
from tests.messages import refused
from tests.translation.test_translator_kernels import WORDS
from tests.weights.ctranslate2 import writer

TEXTS = ["a b", "", "c", "d a\n\nb\n"]
BAD = "\ud800"
SHORT = {"max_decoding_length": 12}  # models at random seldom end a sentence


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    made = []
    for seed in (5, 7):
        folder = tmp_path_factory.mktemp("model")
        model = writer.random_transformer(np.random.default_rng(seed), source_vocabulary=19, target_vocabulary=19)
        writer.write_model(folder, model)
        writer.write_vocabularies(folder, ("<unk>", "<s>", "</s>", *WORDS))
        writer.write_config(folder)
        made.append(Translator(folder, "float32", threads=1))
    return made


def test_a_chain_is_one_after_the_other(pair):
    first, second = pair
    expected = second.translate(first.translate(TEXTS, **SHORT), **SHORT)
    with_both = Translator.chain(first, second)
    assert with_both.translate(TEXTS, **SHORT) == list(with_both.translate_iter(iter(TEXTS), **SHORT)) == expected
    assert with_both.translate(TEXTS[0], **SHORT) == expected[0]
    assert expected[1] == "" and expected[3].count("\n") == 3
    again = Translator.chain(with_both, first)
    assert again.translate(TEXTS, **SHORT) == first.translate(expected, **SHORT)


def test_details_have_the_text_between_and_the_sum_of_scores(pair):
    first, second = pair
    for text in TEXTS:
        one = first.translate(text, details=True, beam_size=2, **SHORT)
        two = second.translate(one.text, details=True, beam_size=2, **SHORT)
        both = Translator.chain(first, second).translate(text, details=True, beam_size=2, **SHORT)
        assert (both.text, both.through) == (two.text, [one.text])
        assert both.scores == [one.scores[0] + two.scores[0]]


def test_of_several_hypotheses_the_best_pairs_are_kept(pair):
    first, second = pair
    options = SHORT | {"beam_size": 3, "num_hypotheses": 3, "details": True}
    found = Translator.chain(first, second).translate(TEXTS[0], **options)
    pairs = [
        (score + more, text)
        for middle, score in zip(*vars_of(first.translate(TEXTS[0], **options)))
        for text, more in zip(*vars_of(second.translate(middle, **options)))
    ]
    best = {}
    for score, text in sorted(pairs, reverse=True):
        best.setdefault(text, score)
    assert list(best.items())[:3] == list(zip(found.hypotheses, found.scores)) and found.text == found.hypotheses[0]
    assert len(found.through) == 3 and second.translate(found.through[0], beam_size=3, **SHORT) in found.hypotheses


def vars_of(translation):
    return translation.hypotheses, translation.scores


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


class Recorded(TranslatorByLanguage):
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
    for both in (chained, found._open["de"]):
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

    def texts():
        for number in range(5000):
            read.append(number)
            yield "a b c"

    stream = Translator.chain(*pair).translate_iter(texts(), **SHORT)
    next(stream)
    assert len(read) < 5000
    stream.close()


GERMAN, FRENCH, ENGLISH = (
    "Das Wetter ist heute sehr schön.",
    "Il fait très beau aujourd'hui.",
    "The weather is fine today.",
)
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
    monkeypatch.setattr("fastattn.text.detecting._identifier", Ranked)
    translator, opened = named("fr")
    texts = ["zxx sure", "zxx sure", "nso sure", "zxx perhaps", "fuv perhaps", "fr sure"]
    found = translator.translate(texts, details=True)
    assert [one.language for one in found] == ["", "", "ns", "", "ns", "fr"]
    assert [found[b].text for b in (0, 3, 5)] == [texts[b] for b in (0, 3, 5)] and set(opened) == {"ns"}
    assert [one.confidence for one in found] == [0, 0, SURE, 0, 0, SURE]
    assert [one.sure for one in found[2:4]] == [True, False]


def test_among_some_languages_the_likeliest_comes_first(monkeypatch):
    monkeypatch.setattr("fastattn.text.detecting._identifier", Ranked)
    assert likely_languages("de sure", ("yy", "xx", "en")) == [("en", 0.05), ("xx", 0.01), ("yy", 0.0)]


def test_a_language_without_a_model_is_looked_for_once_a_stream():
    asked = []

    def open_from(code):
        asked.append(code)
        raise InputError("the list cannot be read")

    translator = DetectingTranslator("en", open_from)
    for _ in range(2):
        found = list(translator.translate_iter([GERMAN] * (2 * WINDOW + 1), return_exceptions=True))
        assert len(found) == 2 * WINDOW + 1 and all(isinstance(one, InputError) for one in found)
    assert asked == ["de", "de"]


def test_threads_open_one_translator(monkeypatch):
    opened, second = [], threading.Event()

    def open_from(code):
        opened.append(code)
        second.wait(0.2)  # for another that opens too
        return Named(code)

    translator = DetectingTranslator("en", open_from)
    threads = [threading.Thread(target=translator.translate, args=(GERMAN,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
    stream = named()[0].translate_iter(read.append(n) or GERMAN for n in range(10 * WINDOW))
    next(stream)
    assert len(read) == WINDOW


def test_real_models_by_themselves(pulled, monkeypatch):
    monkeypatch.setenv("FASTATTN_OFFLINE", "1")
    pulled("en-pt"), pulled("zh-en")
    found = Translator.for_languages("auto", "Portuguese").translate([ENGLISH, "Bom dia a todos os meus amigos."])
    assert found == [Translator("en-pt").translate(ENGLISH), "Bom dia a todos os meus amigos."]
    result = run("translate", "--from", "auto", "--to", "pt", "--json", stdin=f"{ENGLISH}\nHello Maria\n".encode())
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["translation"] == found[0] and first["detected"]["language"] == "en"
    assert "the language of 1 of 2 lines is unsure, the first: standard input, line 2: en (" in result.stderr
    assert second["detected"]["language"] == "en" and second["detected"]["confidence"] < 0.8
    asked = ("translate", "--from", "auto", "--to", "pt", "--timeout", "600", "--json")
    through = run(*asked, CHINESE)  # which compiles first
    assert json.loads(through.stdout)["through"] == Translator("zh-en").translate(CHINESE), through.stderr
    assert fail(2, "translate", "--from", "auto", "--to", "pt", "-b", "0", ENGLISH).startswith("--beam-size should be")
    for arguments in (("--from", "auto"), ("--from", "auto", "--to", "pt", "-m", "en-pt")):
        assert "--from auto finds models itself" in fail(2, "translate", *arguments, "a")
