"""How a slot's chunks are sent to its process, by hand: as many as it has room for, and each answer to its own."""

import os
import sys
import warnings
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from fastattn.errors import FastattnError
from fastattn.processes.pool import CHUNKS, TEXTS, Chunk, _Dispatcher
from tests.processes.served import chunk, plan_of, pool_of
from tests.scheduling.by_hand import SchedulerByHand


class Asked:
    """A process that notes what it is asked for, and what of it is left."""

    is_usable = has_loaded = True

    def __init__(self) -> None:
        self.asked: dict[int, list[Any]] = {}
        self.left: list[int] = []
        self.askers_left: list[object] = []
        self.answers: Any = None

    def ask(self, asker: object, answers: Any, what: str, content: list[Any], caller: int) -> int:
        self.answers = answers
        self.asked[number := len(self.asked) + 1] = [what, *content]
        return number

    def leave(self, number: int) -> None:
        self.left.append(number)

    def leave_all(self, asker: object) -> None:
        self.askers_left.append(asker)


@pytest.fixture
def process() -> Asked:
    return Asked()


@pytest.fixture
def warned() -> list[str]:
    return []


@pytest.fixture
def scheduler(process: Asked, warned: list[str]) -> SchedulerByHand:
    pool: Any = SimpleNamespace(process=lambda index: process, check_open=lambda: None, warn=warned.append)
    return SchedulerByHand(lambda slot: _Dispatcher(pool, slot), 1, lambda count: nullcontext(), 1, 1)


@pytest.mark.parametrize(("texts", "most"), [(1, TEXTS), (TEXTS // 4, 4), (TEXTS, CHUNKS), (10 * TEXTS, CHUNKS)])
def test_a_process_has_a_few_chunks_or_many_small_ones(
    scheduler: SchedulerByHand, process: Asked, texts: int, most: int
) -> None:
    scheduler.submit(plan_of(*[Chunk("echo", [n], texts, 1) for n in range(2 * TEXTS)]), "one")
    scheduler.tick()
    assert len(process.asked) == most
    scheduler.submit(plan_of(Chunk("echo", ["newcomer"], texts, 1)), "other")
    scheduler.tick()
    assert len(process.asked) == most + 1 and process.asked[most + 1] == ["echo", "newcomer"]


def test_each_answer_goes_to_its_own_chunk(scheduler: SchedulerByHand, process: Asked, warned: list[str]) -> None:
    done: list[str] = []
    chunks = [Chunk("echo", [name], 1, 1, lambda name=name: done.append(name)) for name in "abc"]  # type: ignore[misc]
    together, alone = (scheduler.submit(plan_of(*some), name) for name, some in enumerate((chunks[:2], chunks[2:])))
    scheduler.tick()
    assert len(process.askers_left) == 1, "what an interrupt left there"
    numbers = {content: number for number, (_, content) in process.asked.items()}
    for answer in (
        [numbers["b"], "done", "of b"],
        [numbers["c"], "failed", FastattnError("no c")],
        [0, "warning", "odd"],
        [numbers["a"], "done", "of a"],
    ):
        process.answers.put(answer)
    while not together.done():
        scheduler.tick()
    assert together.result(0) == ["of a", "of b"] and done == ["b", "a"] and warned == ["odd"]
    with pytest.raises(FastattnError, match="no c"):
        alone.result(0)
    assert not scheduler.tick() and scheduler.is_at_rest


def test_what_is_cancelled_is_left_and_its_answer_is_nobodys(scheduler: SchedulerByHand, process: Asked) -> None:
    waiting = scheduler.submit(plan_of(chunk("echo", "waits")), "one")
    kept = scheduler.submit(plan_of(chunk("echo", "kept")), "other")
    scheduler.tick()
    numbers = {content: number for number, (_, content) in process.asked.items()}
    assert waiting.cancel() and not process.left
    scheduler.tick()
    assert process.left == [numbers["waits"]]
    process.answers.put([numbers["waits"], "done", "too late"])
    process.answers.put([numbers["kept"], "done", "in time"])
    while not kept.done():
        scheduler.tick()
    assert kept.result(0) == ["in time"] and waiting.cancelled()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX sessions")
def test_a_warning_is_told_once_and_a_terminals_interrupt_is_the_programs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    with pool_of(1, monkeypatch) as (pool, scheduler), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert scheduler.submit(plan_of(chunk("say"))).result(60) == [[0.5, "1"]]
        assert [str(warning.message) for warning in caught] == ["warned of"]
        assert os.getsid(pool.process(0).number) != os.getsid(0)
