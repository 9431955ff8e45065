"""Translators on the compiled kernels, in each precision: the same bits in any company, in threads and in a child."""

import multiprocessing
import sys

import numpy as np
import pytest

from fastattn import Translator
from fastattn.errors import CheckpointError
from fastattn.spec.text_spec import TranslationText
from fastattn.weights import read
from tests.messages import refused
from tests.models.tiny_models import LETTERS, random_checkpoint
from tests.translation.languages import write_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a random model, and plenty of texts."""
    rng = np.random.default_rng(5)
    texts = [" ".join(rng.choice(LETTERS, rng.integers(1, 14))) for _ in range(40)]
    return write_folder(tmp_path_factory.mktemp("model"), seed=5), texts


@pytest.fixture(scope="module", params=["float32", "bfloat16", "int8"])
def precision(request):
    return request.param


def check_bits(path, precision, texts, alone, **options):
    """Hypotheses and scores of ``texts`` are the same together, backwards, some of them alone, and in few threads."""
    translator = Translator(path, precision)
    together = translator.translate(texts, details=True, **options)
    single = Translator(path, precision, threads=1)
    for number in alone:
        one = single.translate(texts[number], details=True, **options)
        assert (one.hypotheses, one.scores) == (together[number].hypotheses, together[number].scores)
    backwards = single.translate(texts[::-1], details=True, **options)
    assert [t.scores for t in backwards[::-1]] == [t.scores for t in together]
    shared = Translator(path, precision, threads=2).translate(texts[:3], details=True, **options)
    assert [t.scores for t in shared] == [t.scores for t in together[:3]]
    scores = translator.score(texts, [t.text for t in together])
    for number in alone:
        one = single.score(texts[number], together[number].text)
        np.testing.assert_array_equal(one.log_probs, scores[number].log_probs)
    return together


def test_the_same_bits_whatever_the_company_and_the_threads(model, precision):
    for options in ({"beam_size": 1}, {"beam_size": 3, "num_hypotheses": 3}):
        check_bits(model[0], precision, model[1], (0, 7, 39), max_decoding_length=20, **options)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_translates(model, precision):
    folder, texts = model
    translator = Translator(folder, precision)
    expected = translator.translate(texts, max_decoding_length=8)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(translator.translate(texts, max_decoding_length=8)))
    child.start()
    sender.close()
    assert receiver.poll(60), "the child hangs"
    assert receiver.recv() == expected
    child.join(60)
    assert child.exitcode == 0


# What one chooses, and what is refused ---------------------------------------------------------------------------


def test_weights_that_give_no_numbers_are_an_error_not_a_translation(precision):
    for where in ("decoder.projection.weight", "decoder.layers.0.feed_forward.norm.weight"):
        checkpoint = random_checkpoint()
        checkpoint.tensors[where][5] = np.nan
        for beam_size in (1, 2):
            with pytest.raises(CheckpointError, match="not a number|not finite"):
                Translator.from_checkpoint(checkpoint, precision).translate("▁w1", beam_size=beam_size)
    for value in (np.nan, np.inf) if precision == "int8" else ():
        checkpoint = random_checkpoint()
        checkpoint.tensors["encoder.layers.1.feed_forward.inner.weight"][5, 3] = value
        with refused(CheckpointError):
            Translator.from_checkpoint(checkpoint, "int8")


def test_a_logit_that_becomes_infinite_is_an_error_with_and_without_scores():
    checkpoint = random_checkpoint(4)
    checkpoint.tensors["decoder.projection.weight"][7, 3] = np.inf  # -inf at the first step, +inf at a later one
    translator = Translator.from_checkpoint(checkpoint, "float32")
    for details in (True, False):
        with pytest.raises(CheckpointError, match="not a number"):
            translator.translate("▁w1 ▁w5", beam_size=1, max_decoding_length=6, details=details)


@pytest.mark.parametrize("penalty", [1e-9, 1e-30, 7.63e8, 1e30])
def test_penalties_of_any_size_can_be_followed(penalty):
    options = {"repetition_penalty": penalty, "max_decoding_length": 8, "details": True}
    for beam_size in (1, 2):
        translator = Translator.from_checkpoint(random_checkpoint(), "float32")
        assert np.isfinite(translator.translate("▁w3", beam_size=beam_size, **options).scores).all()


# A real model ----------------------------------------------------------------------------------------------------


def test_a_real_int8_model_gives_the_same_bits_in_any_company(pulled):
    texts = ["我们明天去北京开会。", "你好,世界!", "这家餐馆的鱼很好吃。", "中国的首都是北京,人口超过两千万。"]
    found = check_bits(pulled("zh-en"), "auto", [*texts, "€18.10"], (0, 3, 4), beam_size=3)
    assert "Beijing" in found[0].text and "fish" in found[2].text and "capital" in found[3].text


# What translateLocally v0.0.2 writes with these models, its engine being Marian's and its sentences split.
EXPECTED = {
    "en-pt": {
        "Hello world": "Olá, mundo!",
        "The children cannot go to school because of the rain.": "As crianças não podem ir à escola por causa da "
        "chuva.",
        "How many people live in Lisbon?": "Quantas pessoas vivem em Lisboa?",
        "She said that 3,500 books were sold in 1998.": "Ela disse que 3.500 livros foram vendidos em 1998.",
        # Were it one sentence to the model, some words would be others.
        "The old bridge was closed last week. Nobody knows when it will open again. It costs two euros, but children "
        "travel free.": "A antiga ponte foi fechada na semana passada. Ninguém sabe quando vai abrir novamente. Custa "
        "dois euros, mas as crianças viajam gratuitamente.",
    },
    "pt-en": {
        "Olá mundo": "Hello world",
        "As crianças não podem ir à escola por causa da chuva.": "Children can't go to school because of the rain.",
        "A ponte velha foi fechada na semana passada.": "The old bridge was closed last week.",
        "Quantas pessoas vivem em Lisboa?": "How many people live in Lisbon?",
    },
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_firefox_model_translates_as_in_firefox_with_its_scales(pulled, name):
    checkpoint = read(pulled(name))
    assert isinstance(checkpoint.text, TranslationText) and checkpoint.spec.decoder is not None
    assert f"{checkpoint.text.source_language}-{checkpoint.text.target_language}" == name
    assert (checkpoint.spec.decoder.recurrence.kind, checkpoint.precision) == ("ssru", "int8")
    assert checkpoint.shortlist is not None
    texts = list(EXPECTED[name])
    assert Translator(pulled(name), "intgemm").translate(texts, beam_size=1) == list(EXPECTED[name].values())


def test_the_scales_of_inputs_are_used_where_asked_for_and_kept_apart_in_the_cache(pulled):
    """Log-probabilities of both kinds are near float32's, those of each row's own scale nearer."""
    pairs = list(EXPECTED["en-pt"].items())
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))

    def log_probs(precision):
        scores = Translator(pulled("en-pt"), precision).score(sources, targets)
        return np.concatenate([score.log_probs for score in scores])

    exact, rows, intgemm = (log_probs(precision) for precision in ("float32", "int8", "intgemm"))
    near, farther = (float(np.sqrt(np.mean((found - exact) ** 2))) for found in (rows, intgemm))
    assert 0 < near < farther < 0.5
    np.testing.assert_array_equal(log_probs("int8"), rows)  # from the packed weights now
    np.testing.assert_array_equal(log_probs("intgemm"), intgemm)


def test_an_unknown_word_is_written_only_where_asked_for(pulled):
    translator = Translator(pulled("en-pt"))
    unknown = translator.score_tokens([["▁Hello"]], [["<unk>"]])[0]
    assert np.isfinite(unknown.log_probs).all()
    never = {"beam_size": 1, "max_decoding_length": 3, "target_prefix": [["▁"]]}
    assert translator.translate_tokens([["▁漢"]], **never)[0].hypotheses[0].count("<unk>") == 0
