"""The time that a search may take: whose it is, that it ends the search, and that no other text is touched.

The clock is the test's own: a step takes a second.
"""

from dataclasses import replace
from functools import partial
from itertools import count

import pytest

from fastattn.decoding import worker
from fastattn.decoding.jobs import Job, allowances
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.service import search_plan
from fastattn.errors import FastattnError, SearchTimeout
from fastattn.translation.translator import Translator
from tests.decoding.searching import by_hand
from tests.models.tiny_models import START, random_checkpoint, random_model, random_sources, steady_ops, vocabulary

WORDS = vocabulary(19)[3:]
TEXTS = [" ".join(WORDS[(7 * number + i) % 16] for i in range(1 + number % 5)) for number in range(12)]


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch):
    ticks = count()
    monkeypatch.setattr(worker, "monotonic", lambda: float(next(ticks)))


def _translator(threads: int = 1) -> Translator:
    return Translator.from_checkpoint(random_checkpoint(seed=21), ops=steady_ops, threads=threads)


VARIETIES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 3, "num_hypotheses": 2},
    "samples": {"beam_size": 1, "sampling_topk": 5, "num_hypotheses": 3, "seed": 2},
    "alternatives": {"return_alternatives": True, "num_hypotheses": 2},
    "biased": {"prefix_bias_beta": 0.3, "target_prefix": WORDS[2]},
}


@pytest.mark.parametrize("name", VARIETIES)
def test_the_other_texts_stay_as_they_are(name: str):
    translator = _translator(1 + list(VARIETIES).index(name) % 2)
    options = VARIETIES[name] | {"details": True, "max_decoding_length": 20}
    expected = translator.translate(TEXTS, **options)
    for timeout in (0.5, 2.5):
        results = list(translator.translate_iter(TEXTS, return_exceptions=True, timeout=timeout, **options))
        late = [isinstance(result, SearchTimeout) for result in results]
        assert any(late) or timeout > 1
        assert [result for result, is_late in zip(results, late) if not is_late] == [
            result for result, is_late in zip(expected, late) if not is_late
        ]
    assert any(late) < len(late), "some are never late"
    assert list(translator.translate_iter(TEXTS, return_exceptions=True, timeout=1000, **options)) == expected


def test_a_late_text_is_one_error_and_what_came_before_is_given_out():
    translator = _translator()
    options = {"beam_size": 1, "min_decoding_length": 9, "max_decoding_length": 9}
    message = "the search took longer than the timeout of 3 s"
    for call in (
        lambda: translator.translate(WORDS[0], timeout=3, **options),
        lambda: translator.translate_tokens([[WORDS[0]]], timeout=3, **options),
        lambda: list(translator.generate_tokens(WORDS[0], timeout=3, **options)),
        lambda: list(translator.translate_iter([WORDS[0]], timeout=3, **options)),
    ):
        with pytest.raises(FastattnError, match=message):
            call()
    stream = translator.translate_iter(["", "", WORDS[0]], timeout=3, **options)
    assert [next(stream), next(stream)] == ["", ""]
    with pytest.raises(SearchTimeout):
        next(stream)


def test_a_text_has_its_time_for_all_its_parts():
    """Five sentences of five steps each, two at a time or one after the other."""
    translator, text = _translator(), "\n".join(WORDS[:5])
    options = {"beam_size": 1, "min_decoding_length": 6, "max_decoding_length": 6}
    translator.translate(WORDS[0], timeout=7, **options)
    assert translator.translate(text, timeout=35, **options)
    with pytest.raises(SearchTimeout):
        translator.translate("\n".join(WORDS), timeout=2, **options)
    steps = []
    with pytest.raises(SearchTimeout):
        for step in translator.generate_tokens(text, timeout=11, **options):
            steps.append(step.part)
    assert {*steps} >= {0, 1} and {*steps} != {*range(5)}


def test_neighbours_cost_nothing():
    """Alone each of them needs five steps; in a batch of many the steps are shared."""
    translator = _translator()
    options = {"beam_size": 1, "min_decoding_length": 6, "max_decoding_length": 6}
    texts = list(WORDS) * 3
    with pytest.raises(SearchTimeout):
        translator.translate(WORDS[0], timeout=2, **options)
    assert translator.translate(texts, timeout=2, **options) == translator.translate(texts, **options)


@pytest.mark.parametrize("timeout", [None, 1000])
@pytest.mark.parametrize("beam_size", [1, 2])
def test_other_callers_cost_nothing(timeout: float | None, beam_size: int):
    """Whether they have a timeout or none, and whether their beams are of the same size."""
    model, (source,) = random_model(seed=21, ops=steady_ops), random_sources(1)
    scheduler, short = by_hand(model, 1), DecodingOptions(1, min_decoding_length=6, max_decoding_length=6, timeout=2)

    def ask(caller: int, options: DecodingOptions):
        job = Job(source, [START], (), options, allowance=allowances([0], options).get(0))
        return scheduler.submit(partial(search_plan, [job], model.sizes), caller)

    alone = ask(0, short)
    scheduler.finish_all()
    requests = [ask(n, short if n == 3 else replace(short, beam_size=beam_size, timeout=timeout)) for n in range(6)]
    scheduler.finish_all()
    assert not alone.result(0)[0] and all(request.result(0)[0] for request in requests)
