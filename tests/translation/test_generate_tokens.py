"""Tokens from an iterator: the same that a callback sees, no work ahead of the caller, faults where they happen."""

import dataclasses
import threading
from types import SimpleNamespace

import pytest

from fastattn import Step
from fastattn.errors import InputError
from fastattn.ops import cpu as operations
from fastattn.translation.translator import Translator
from tests.models.tiny_models import random_checkpoint, steady_ops, vocabulary

WORDS = vocabulary(19)
SOURCE = [WORDS[i] for i in (4, 9, 3, 12)]
SHORT = {"max_decoding_length": 7}
VARIETIES = {
    "greedy": {},
    "penalties": {"repetition_penalty": 1.8, "no_repeat_ngram_size": 2, "min_decoding_length": 5},
    "samples": {"sampling_topk": 0, "sampling_temperature": 3.0, "num_hypotheses": 3, "seed": 5},
    "coldest samples": {"sampling_topk": 4, "sampling_temperature": 0, "num_hypotheses": 3},
    "another end": {"end_token": [WORDS[5], WORDS[6]], "return_end_token": True},
    "prefix": {"target_prefix": [WORDS[8], WORDS[6]]},
}


def build(ops=steady_ops, threads=1, **text) -> Translator:
    checkpoint = random_checkpoint(seed=47, sharpness=2.0)
    checkpoint.text = dataclasses.replace(checkpoint.text, **text)
    return Translator.from_checkpoint(checkpoint, ops=ops, threads=threads)


@pytest.mark.parametrize("ops", [steady_ops, operations], ids=["reference", "kernels"])
@pytest.mark.parametrize("name", VARIETIES)
def test_the_tokens_are_those_of_a_callback(name, ops):
    translator, options, seen = build(ops), dict(VARIETIES[name]), []
    prefix = options.pop("target_prefix", None)
    steps = list(translator.generate_tokens(SOURCE, prefix, **options, **SHORT))
    told = options | SHORT | {"beam_size": 1, "callback": seen.append}
    (result,) = translator.translate_tokens([SOURCE], [prefix], **told)
    assert steps == seen and all(isinstance(step, Step) for step in steps) and len(steps) > 1
    for number in {step.hypothesis for step in steps}:
        tokens = [step.token for step in steps if step.hypothesis == number]
        if tokens[-1] == "</s>":
            tokens.pop()
        assert tokens in result.hypotheses
        assert [step.is_last for step in steps if step.hypothesis == number][-1]


def test_a_texts_parts_come_one_after_the_other():
    translator = build(single_sentences=True)
    text = f"{WORDS[4]} {WORDS[5]}\n\n{WORDS[6]}"
    steps = list(translator.generate_tokens(text, WORDS[9], **SHORT))
    details = translator.translate(text, target_prefix=WORDS[9], details=True, beam_size=1, **SHORT)
    assert [step.part for step in steps] == sorted(step.part for step in steps)
    for part, translated in enumerate(details.parts):
        tokens = [step.token for step in steps if step.part == part]
        assert tokens[: len(translated.tokens)] == translated.tokens and set(tokens[len(translated.tokens) :]) <= {
            "</s>"
        }
    assert steps[0].token == WORDS[9] and steps[0].log_probability == 0
    assert list(translator.generate_tokens("")) == list(translator.generate_tokens([])) == []


def counting(fails_at: int | None = None) -> tuple[SimpleNamespace, list[int]]:
    """Operations that count the projections of a step, and perhaps fail at one."""
    counted: list[int] = []

    def project(*arguments, **options):
        counted.append(threading.get_ident())
        if len(counted) == fails_at:
            raise MemoryError("no room")
        return steady_ops.project_top_k(*arguments, **options)

    return SimpleNamespace(**vars(steady_ops) | {"project_top_k": project}), counted


def test_who_asks_for_no_more_has_ended_the_work():
    ops, counted = counting()
    translator, threads = build(ops), threading.active_count()
    steps = translator.generate_tokens(SOURCE, min_decoding_length=50, max_decoding_length=60)
    assert not counted, "nothing is done before it is asked for"
    next(steps), next(steps)
    assert len(counted) == 2 and threading.active_count() == threads
    steps.close()
    assert len(counted) == 2 and list(steps) == [] and set(counted) == {threading.get_ident()}


def test_a_fault_reaches_the_caller():
    ops, counted = counting(fails_at=3)
    steps = build(ops).generate_tokens(SOURCE, min_decoding_length=9)
    next(steps), next(steps)
    with pytest.raises(MemoryError, match="no room"):
        next(steps)
    assert list(steps) == [] and len(counted) == 3


def test_what_the_caller_computes_in_between_has_its_own_threads():
    translator = build(operations, threads=1)
    for _ in translator.generate_tokens(SOURCE, **SHORT):
        assert operations.current_threads() == operations.thread_limit()


def test_what_is_refused_is_refused_at_once():
    for options, message in [
        ({"beam_size": 2}, "generate_tokens needs beam_size=1, and neither prefix_bias_beta nor return_alternatives"),
        ({"prefix_bias_beta": 0.5}, "needs beam_size=1"),
        ({"return_alternatives": True}, "needs beam_size=1"),
        ({"callback": print}, "takes no callback"),
        ({"beam": 1}, "unknown option 'beam'"),
        ({"target_prefix": "a b"}, r"target_prefix\[0\] must be a list of tokens, got str"),
    ]:
        with pytest.raises(InputError, match=message):
            build().generate_tokens(SOURCE, **options)


def test_a_text_takes_a_text_before_it():
    with pytest.raises(InputError, match="a target prefix should be a str or None, not list"):
        build().generate_tokens(WORDS[4], [WORDS[5]])
