"""Two translators, the second of which translates what the first makes."""

import numpy as np
import pytest

from fastattn.errors import InputError
from fastattn.translation.calls import TokenTranslation, Translation
from fastattn.translation.chain import TranslatorByLanguage
from fastattn.translation.translator import Translator
from fastattn.weights import download
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
    assert (
        isinstance(results[1], InputError)
        and results[0] == both.translate("a", **SHORT)
        and results[2] == both.translate("c", **SHORT)
    )
    stream = both.translate_iter(["a", BAD, "c"], **SHORT)
    assert next(stream) == results[0]
    with pytest.raises(InputError):
        next(stream)
    with pytest.raises(InputError, match="details=True"):
        both.translate("a", num_hypotheses=2)
    with pytest.raises(InputError, match="beam_siz"):
        both.translate("a", beam_siz=2)


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


def test_parts_are_those_of_the_text_that_was_chosen():
    found = Translator.chain(Recorded(), Recorded()).translate("a", details=True, num_hypotheses=2)
    assert found.text == "a-+" and found.through[0] == "a-" and found.parts[0].tokens == ["1"]


def test_options_and_quality_come_to_every_model(monkeypatch):
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
        with pytest.raises(
            InputError, match="target_prefix (should be one str, or one for each text|must be a str or)"
        ):
            both.translate(["a", "b"], target_prefix=wrong, **options)
    with pytest.raises(InputError, match="return_attention needs details=True"):
        both.translate("a", return_attention=True)


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
