"""Speculation: the bits of an answer without it, whoever proposes, in fewer steps."""

import functools
import gc
import time
import weakref
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.decoding import speculation
from fastattn.decoding.speculation import look_up
from fastattn.errors import FastattnError, InputError
from fastattn.generation.generator import Generator
from fastattn.models.decoder import Decoder
from fastattn.scheduling.scheduler import Scheduler
from fastattn.spec.architecture import LocalSpec
from tests.decoding.searching import calls_of_layers
from tests.generation.language_models import VOCABULARY, checkpoint, make, with_stack
from tests.generation.test_generator import STACKS as OTHERS
from tests.generation.test_generator import answers, cache_of, told
from tests.messages import refused

# Where windows are of one token the next one depends on the last one alone.
STACKS = OTHERS | {"circles": with_stack(local=LocalSpec((0, 1), before=0, after=0))}
OPTIONS = {
    "greedy": {},
    "traced": {"return_log_probs": True},
    "samples": {"sampling_temperature": 0.7, "seed": 5, "num_hypotheses": 2},
    "penalties": {"repetition_penalty": 1.1, "presence_penalty": 0.1, "no_repeat_ngram_size": 6},
    "least": {"min_new_tokens": 5, "return_log_probs": True},
}
LOGGED = {"return_log_probs": True, "details": True}
AGAIN = "the end and the end and the end"


@functools.cache
def generator_of(stack="rotary", seed=1, precision="float32"):
    return make(precision, stack=STACKS[stack], seed=seed)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_answers_are_those_without(data):
    stack, options = data.draw(st.sampled_from(list(STACKS))), data.draw(st.sampled_from(list(OPTIONS.values())))
    precision = data.draw(st.sampled_from(["float32", "int8"]))
    few = st.sampled_from(data.draw(st.lists(st.integers(2, VOCABULARY - 1), min_size=1, max_size=5)))
    prompts = data.draw(st.lists(st.lists(few, min_size=1, max_size=30), min_size=1, max_size=4))
    generator = generator_of(stack, data.draw(st.integers(1, 3)), precision)
    draft = data.draw(st.sampled_from(["prompt", generator, generator_of("rotary", 2), generator_of("positions")]))
    options = options | {"max_new_tokens": data.draw(st.integers(5, 40))}
    expected = answers(generator, prompts, **options)
    assert answers(generator, prompts, speculate=draft, **options) == expected


@pytest.fixture
def steps(monkeypatch):
    """The rows of every step that was not recorded."""
    rows, real = [], Decoder.step
    monkeypatch.setattr(Decoder, "step", lambda self, *given: rows.append(len(given[2])) or real(self, *given))
    return rows


@pytest.mark.parametrize("options", ["samples", "penalties"])
def test_the_model_is_its_own_best_draft(options, steps):
    generator = make(end_ids=())
    options = OPTIONS[options] | {"num_hypotheses": 1, "max_new_tokens": 40, "details": True}
    found = generator.generate(AGAIN, speculate=generator, **options)
    assert found.proposed == found.accepted == 33  # 3, then 7 at a time, 2 at last
    assert sum(rows > 1 for rows in steps) == 6


def test_steps_shared_with_proposals_are_recorded():
    options = {"max_new_tokens": 60, "return_log_probs": True}
    expected = [answers(make(end_ids=()), [AGAIN], **options, **own) for own in ({}, {"beam_size": 2})]
    generator = make(end_ids=())
    kinds = {"speculate": generator}, {"beam_size": 2}
    with calls_of_layers() as calls:
        asked = [generator.submit([AGAIN], details=True, caller=n, **options, **own) for n, own in enumerate(kinds)]
        assert [list(map(told, one.result())) for one in asked] == expected
    assert sum(is_recorded and len({*slots_R.tolist()}) < len(slots_R) for slots_R, is_recorded in calls) > 5


def test_what_is_repeated_is_found():
    """A model that goes round in circles is found to, in its answer itself."""
    generator = generator_of("circles")
    plain = generator.generate(AGAIN, max_new_tokens=150, details=True, min_new_tokens=150)
    found = generator.generate(AGAIN, max_new_tokens=150, details=True, min_new_tokens=150, speculate="prompt")
    assert found.tokens == plain.tokens
    assert found.accepted > 100 and found.proposed < 150 and plain.proposed == plain.accepted == 0


def test_look_up():
    tokens_T = np.array([5, 1, 2, 3, 9, 7, 2, 3, 8, 1, 2, 3], np.int32)
    assert look_up(tokens_T, 3) == [9, 7, 2]  # [1, 2, 3] stood there, behind the later [2, 3] another
    assert look_up(tokens_T[:8], 2) == [9, 7]
    assert look_up(tokens_T[:7], 2) == []  # one token is too little
    assert look_up(np.array([4, 4, 4], np.int32), 5) == [4, 4, 4, 4, 4]
    assert look_up(np.array([1, 2, 1, 2], np.int32), 3) == [1, 2, 1]
    assert all(look_up(tokens_T[:n], 2) == [] for n in (1, 2))
    assert look_up(tokens_T, 0) == []


@pytest.mark.parametrize("draft", ["itself", "prompt"])
def test_ends_inside_a_run(draft):
    generator = generator_of("circles" if draft == "prompt" else "rotary")
    draft = generator if draft == "itself" else draft
    whole = generator.generate(AGAIN, max_new_tokens=60, min_new_tokens=60, details=True)
    accepted = 0
    for n in range(1, 40, 6):
        for options in (
            {"max_new_tokens": n},
            {"end_token": whole.tokens[n], "max_new_tokens": 60},
            {"stop": [generator._tokenizer.decode(whole.tokens[n : n + 2]) or "x", "é"], "max_new_tokens": 60},
        ):
            found = generator.generate(AGAIN, details=True, speculate=draft, **options)
            assert told(found) == told(generator.generate(AGAIN, details=True, **options))
            assert found.accepted <= len(found.tokens)
            accepted += found.accepted
    assert accepted > 25


def test_streams_and_callbacks():
    generator, steps = generator_of(), []
    for options in ({}, {"sampling_temperature": 0.8, "seed": 3}, {"stop": "e"}):
        plain = generator.generate(AGAIN, max_new_tokens=30, **options)
        for draft in ("prompt", generator):
            assert "".join(generator.stream(AGAIN, max_new_tokens=30, speculate=draft, **options)) == plain
    given = {"max_new_tokens": 30, "details": True, "callback": lambda step: steps.append(step) or len(steps) % 18 == 0}
    plain = generator.generate(AGAIN, **given)
    found = generator.generate(AGAIN, speculate=generator, **given)
    assert told(found) == told(plain) and len(found.tokens) == 18
    assert steps[:18] == steps[18:] and found.accepted


def test_callers_of_all_kinds_share_steps():
    generator, prompts = make(), [AGAIN, "x", "an apple and an apple and", "é", "the"]
    kinds = [
        {"speculate": draft, **options}
        for draft in (None, "prompt", generator, generator_of(seed=2))
        for options in ({"max_new_tokens": 25}, {"max_new_tokens": 30, "repetition_penalty": 1.2})
    ]
    expected = [answers(make(), prompts, **given | {"speculate": None}) for given in kinds]
    for _ in range(2):
        asked = [generator.submit(prompts, details=True, caller=n, **given) for n, given in enumerate(kinds)]
        assert [list(map(told, one.result(timeout=120))) for one in asked] == expected
    assert generator.generate([AGAIN] * 16, max_new_tokens=25, speculate=generator) == [expected[0][0][0]] * 16


@pytest.mark.parametrize("options", ["greedy", "penalties"])
def test_rows_of_what_was_wrong_are_free_again(options, monkeypatch):
    monkeypatch.setattr(speculation, "MOST_CHUNK", 4)  # the draft reads prompts in pieces
    generator, drafts = make(end_ids=()), []
    real = speculation.Draft.__init__
    monkeypatch.setattr(speculation.Draft, "__init__", lambda self, *given: drafts.append(self) or real(self, *given))
    given = OPTIONS[options] | {"max_new_tokens": 60, "details": True}
    plain = generator.generate([AGAIN, "x"], **given)
    found = generator.generate([AGAIN, "x"], speculate=generator_of(seed=2), **given)
    assert list(map(told, found)) == list(map(told, plain))
    assert sum(one.proposed - one.accepted for one in found) > 20
    cache = cache_of(generator)
    assert cache.target.rows - cache.target.free_count == cache.kept_rows and cache.slots == 0
    (draft,) = drafts
    assert draft.cache.target.rows - draft.cache.target.free_count <= sum(one.prompt_length + 60 for one in found)


def test_wrong_speculation():
    closed, given = make(), checkpoint()
    closed.close()
    text = replace(given.text, tokenizer=given.text.tokenizer.replace(b'"nd"', b'"dn"').replace(b'"n","d"', b'"d","n"'))
    for error, options, named in [
        (InputError, {"speculate": "prompt", "beam_size": 2}, "beam_size"),
        (InputError, {"speculate": "draft"}, "draft"),
        (InputError, {"speculate": 3}, "3"),
        (InputError, {"speculate": "prompt", "top_log_probs": 1, **LOGGED}, "top_log_probs"),
        (InputError, {"prompt_lookup_num_tokens": 3}, 'speculate="prompt"'),
        (InputError, {"speculate": Generator.from_checkpoint(replace(given, input=text))}, "vocabulary"),
        (FastattnError, {"speculate": closed}, "closed"),
    ]:
        with refused(error, named):
            generator_of().generate("x", **options)


@pytest.mark.parametrize("more", [-2, 7])
def test_a_draft_may_have_more_or_fewer_rows_of_padding(more):
    rows = VOCABULARY + 2
    generator, draft = (make(stack=with_stack(vocabulary=count), end_ids=()) for count in (rows, rows + more))
    prompts, given = [[2, rows - 1], [5, 6], [7, 8], [9, 10]], {"max_new_tokens": 60}
    biased = {"logit_bias": {rows - 1: 2.0, 9: -1.0}, "sampling_temperature": 0.8, "seed": 3}
    for options in (given, given | biased):
        assert answers(generator, prompts, speculate=draft, **options) == answers(generator, prompts, **options)
    chosen = max(max(tokens) for _, tokens, *_ in answers(draft, prompts[1:], **given))
    assert chosen >= rows or more < 0  # padding is chosen here as often as anything


def test_a_closed_draft_is_let_go():
    generator, draft = make(stack=STACKS["rotary"], seed=1), make(stack=STACKS["rotary"], seed=2)
    generator.generate([2, 3, 4], speculate=draft, max_new_tokens=8)
    held = weakref.ref(draft._service.model)
    draft.close()
    del draft
    for _ in range(500):  # a worker thread may have it a moment longer
        gc.collect()
        if held() is None:
            break
        time.sleep(0.01)
    assert held() is None


def test_steps_shared_with_proposals_do_not_fail(monkeypatch):
    failed, real = [], Scheduler._isolate
    monkeypatch.setattr(Scheduler, "_isolate", lambda self, *given: failed.append(given) or real(self, *given))
    generator, given = generator_of("circles"), {"max_new_tokens": 150, "min_new_tokens": 150, "details": True}
    asked = [
        generator.submit(AGAIN, caller=n, **given, **own)
        for n, own in enumerate(({"speculate": "prompt"}, {"beam_size": 2}))
    ]
    found = [one.result() for one in asked]
    assert found[0].accepted > 100 and not failed
