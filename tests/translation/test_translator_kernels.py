"""Translators on the compiled kernels, in each precision: the same bits in any company, in threads and in a child."""

import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fastattn import Translator
from fastattn.errors import CheckpointError, InputError
from fastattn.spec.checkpoint import PRECISIONS
from fastattn.spec.quantized import QuantizedTensor
from tests.models.tiny_models import random_checkpoint
from tests.weights.ctranslate2 import writer

WORDS = tuple("abcdefghijklmnop")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a random model, and plenty of texts."""
    rng = np.random.default_rng(5)
    folder = tmp_path_factory.mktemp("model")
    writer.write_model(folder, writer.random_transformer(rng, source_vocabulary=19, target_vocabulary=19))
    writer.write_vocabularies(folder, ("<unk>", "<s>", "</s>", *WORDS))
    writer.write_config(folder)
    return folder, [" ".join(rng.choice(WORDS, rng.integers(1, 14))) for _ in range(40)]


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


@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 3, "num_hypotheses": 3}], ids=str)
def test_the_same_bits_whatever_the_company_and_the_threads(model, precision, options):
    check_bits(model[0], precision, model[1], (0, 7, 39), max_decoding_length=20, **options)


def test_several_threads_may_call_at_once(model, precision):
    (folder, texts), options = model, {"beam_size": 2, "max_decoding_length": 12}
    translator = Translator(folder, precision)
    expected = translator.translate(texts, **options)
    with ThreadPoolExecutor(8) as callers:
        results = list(callers.map(lambda number: translator.translate(texts[number:], **options), range(8)))
    assert all(result == expected[number:] for number, result in enumerate(results))


def _translate_in_child(connection, translator, texts):
    connection.send(translator.translate(texts, max_decoding_length=8))
    connection.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_translates(model, precision):
    folder, texts = model
    translator = Translator(folder, precision)
    expected = translator.translate(texts, max_decoding_length=8)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_translate_in_child, args=(sender, translator, texts))
    child.start()
    sender.close()
    assert receiver.poll(60), "the child hangs"
    assert receiver.recv() == expected
    child.join(60)
    assert child.exitcode == 0


# What one chooses, and what is refused ---------------------------------------------------------------------------


def scores_of(checkpoint, precision):
    options = {"beam_size": 3, "num_hypotheses": 3, "max_decoding_length": 6, "details": True}
    translator = Translator.from_checkpoint(checkpoint, precision, threads=1)
    return translator.translate("▁w1 ▁w5 ▁w2", **options).scores


def quantized_checkpoint():
    """random_checkpoint with its matrices in int8, as a file of that precision gives them."""
    checkpoint = random_checkpoint()
    rng = np.random.default_rng(1)
    for name, tensor in checkpoint.tensors.items():
        if tensor.ndim == 2:
            values_FD = rng.integers(-127, 128, tensor.shape).astype(np.int8)
            checkpoint.tensors[name] = QuantizedTensor(values_FD, np.full(len(tensor), 0.004, np.float32))
    checkpoint.precision = "int8"
    return checkpoint


def test_auto_is_int8_for_what_is_int8_else_float32():
    for checkpoint, chosen in ((random_checkpoint(), "float32"), (quantized_checkpoint(), "int8")):
        scores = {precision: scores_of(checkpoint, precision) for precision in PRECISIONS}
        assert scores.pop("auto") == scores[chosen]
        assert len({str(values) for values in scores.values()}) == 3, "each precision rounds in its own way"
        for values in scores.values():
            np.testing.assert_allclose(values, scores["float32"], atol=0.1)


@pytest.mark.parametrize("wrong", ["float8", "INT8", "", None, 8])
def test_an_unknown_precision_is_one_clear_line(wrong):
    with pytest.raises(InputError) as raised:
        Translator.from_checkpoint(random_checkpoint(), precision=wrong)
    assert str(raised.value) == f"unknown precision {wrong!r}; known: float32, bfloat16, int8, intgemm, auto"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_cannot_be_int8(value):
    checkpoint = random_checkpoint()
    checkpoint.tensors["encoder.layers.1.feed_forward.inner.weight"][5, 3] = value
    with pytest.raises(CheckpointError, match="values that are not finite; int8 cannot hold them"):
        Translator.from_checkpoint(checkpoint, "int8")


@pytest.mark.parametrize("where", ["decoder.projection.weight", "decoder.layers.0.feed_forward.norm.weight"])
@pytest.mark.parametrize("beam_size", [1, 2])
def test_weights_that_give_no_numbers_are_an_error_not_a_translation(where, precision, beam_size):
    checkpoint = random_checkpoint()
    checkpoint.tensors[where][5] = np.nan
    with pytest.raises(CheckpointError, match="not a number|not finite"):
        Translator.from_checkpoint(checkpoint, precision).translate("▁w1", beam_size=beam_size)


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
        result = Translator.from_checkpoint(random_checkpoint(), "float32").translate(
            "▁w3", beam_size=beam_size, **options
        )
        assert np.isfinite(result.scores).all()


# A real model ----------------------------------------------------------------------------------------------------

# Each with words of which the translation should have one.
CHINESE = {
    "我们明天去北京开会。": ("Beijing",),
    "你好,世界!": ("Hello", "Hi", "hello"),
    "他昨天买了三本书。": ("three books",),
    "这家餐馆的鱼很好吃。": ("fish",),
    "她的弟弟在上海的一家银行工作。": ("bank",),
    "今天下午三点有一场足球比赛。": ("football", "soccer"),
    "请把门关上,外面很冷。": ("door",),
    "中国的首都是北京,人口超过两千万。": ("capital",),
    "科学家发现了一种新的治疗方法。": ("cientists",),
    "火车晚点了,所以我们错过了会议的开头。": ("train",),
    "尽管下着大雨,孩子们还是在公园里玩到了天黑,后来他们的父母才带着雨伞来接他们回家。": ("rain",),
}


@pytest.mark.parametrize("beam", [1, 3])
def test_a_real_int8_model_gives_the_same_bits_in_any_company(pulled, beam):
    check_bits(pulled("zh-en"), "auto", list(CHINESE), (0, 3, 10), beam_size=beam)


@pytest.mark.parametrize("chosen", ["int8", "bfloat16"])
def test_a_real_model_says_in_fewer_bits_what_it_says_in_float32(pulled, chosen):
    exact, texts = Translator(pulled("zh-en"), "float32"), list(CHINESE)
    found = Translator(pulled("zh-en"), chosen).translate(texts, beam_size=4)
    for text, words in zip(found, CHINESE.values()):
        assert any(word in text for word in words), (text, words)
    best = exact.translate(texts, beam_size=4)
    # In float32 they are as probable as its own, or nearly.
    for score, own in zip(exact.score(texts, found), exact.score(texts, best)):
        assert score.log_probs.mean() > own.log_probs.mean() - 0.1
