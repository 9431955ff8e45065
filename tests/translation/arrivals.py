"""What arrives at the decoding loop: the jobs of a call, none of which is searched for."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fastattn import DecodingOptions, Step
from fastattn.decoding.search import Job
from fastattn.scheduling.scheduler import Scheduler

STEP = Step(0, 0, 0, 0, 3, "", -0.5, False)


class Arrived(Exception):
    """Ends a call whose jobs are noted."""


def jobs_of(call: Callable[..., Any], *arguments: Any, **options: Any) -> list[Job]:
    """The jobs with which a call comes to the loop."""
    seen: list[Job] = []

    def note(jobs: Any, sizes: Any) -> None:
        seen.extend(jobs)
        raise Arrived

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastattn.decoding.search.check_jobs", note)
        with pytest.raises(Arrived):
            call(*arguments, **options)
    return seen


def awaited(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What the coroutine, or the first piece of the asynchronous iterator, that ``call`` makes gives."""

    async def run() -> Any:
        made = call(*arguments, **options)
        return await (anext(made) if hasattr(made, "__anext__") else made)

    return asyncio.run(run())


def check_callers(submit: Callable[..., Any], of_async: Callable[..., Any]) -> None:
    """A call is the caller's that it names, else the thread's, and of asyncio the task's."""
    seen: list[Any] = []

    def note(scheduler: Scheduler, make_plan: Any, caller: Any = None) -> Any:
        seen.append(caller)
        raise Arrived

    async def run() -> list[Any]:
        for given in ({}, {"caller": "b"}):
            with pytest.raises(Arrived):
                await of_async("a", **given)
        return [asyncio.current_task(), "b"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "submit", note)
        for given in ({}, {"caller": "a"}):
            with pytest.raises(Arrived):
                submit(**given)
        assert seen == [None, "a"]
        assert asyncio.run(run()) == seen[2:]


SAMPLED = {"beam_size": 1, "sampling_topk": 5}
# Options that calls of all kinds have: another value than the default, and what it needs beside it.
COMMON: dict[str, tuple[Any, dict[str, Any]]] = {
    "beam_size": (3, {}),
    "patience": (2.5, {}),
    "num_hypotheses": (3, SAMPLED),
    "length_penalty": (0.25, {}),
    "word_penalty": (0.75, {}),
    "repetition_penalty": (1.5, {}),
    "presence_penalty": (0.5, {}),
    "frequency_penalty": (0.125, {}),
    "no_repeat_ngram_size": (4, {}),
    "end_token": (5, {}),
    "sampling_topk": (7, {"beam_size": 1}),
    "sampling_topp": (0.625, SAMPLED),
    "sampling_minp": (0.0625, SAMPLED),
    "sampling_temperature": (1.75, SAMPLED),
    "seed": (11, SAMPLED),
    "timeout": (90.0, {}),
    "callback": (print, {"beam_size": 1}),
}
# Those of a Translator's calls beside them.
SEARCH: dict[str, tuple[Any, dict[str, Any]]] = COMMON | {
    "coverage_penalty": (0.375, {}),
    "min_decoding_length": (6, {}),
    "max_decoding_length": (9, {}),
    "max_length_factor": (3.5, {}),
    "max_input_length": (4, {}),
    "disable_unk": (True, {}),
    "suppress_sequences": (["a b", "c"], {}),
    "prefix_bias_beta": (0.5, {}),
    "return_alternatives": (True, {}),
    "min_alternative_expansion_prob": (0.25, {"return_alternatives": True}),
    "shortlist": (False, {}),
    "return_end_token": (True, {}),
    "return_scores": (False, {}),
    "return_attention": (True, {}),
    "replace_unknowns": (True, {}),
}


def check_options(jobs: list[Job], default: DecodingOptions, options: dict[str, Any], **fields: Any) -> None:
    """Jobs have these options, ``fields`` where they have other names or values, and otherwise the default."""
    expected = replace(default, **{**options, **fields, "callback": None})
    assert jobs
    for job in jobs:
        assert job.options.callback is not None or options.get("callback") is None, options
        assert replace(job.options, callback=None) == expected, options
        assert (job.allowance and job.allowance.seconds) == options.get("timeout"), options
