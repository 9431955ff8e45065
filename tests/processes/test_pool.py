"""Among how many processes work is shared, and how it is cut into chunks."""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from typing import Any

import pytest

from fastattn.processes.choice import (
    LEAST_TEXTS,
    LEAST_THREADS,
    LOCK_SHARES,
    WANTED,
    Sharing,
    chosen_processes,
    rate_under_lock,
    sharing,
)
from fastattn.processes.pool import Chunk, dealt, stream
from fastattn.scheduling.request import Request
from tests.scheduling.by_hand import SchedulerByHand


class Echo:
    """A worker that gives back what a chunk has."""

    def __init__(self, slot: Any):
        self._slot = slot

    def advance(self) -> bool:
        tickets = self._slot.take(lambda ticket, newcomer: True)
        for ticket in tickets:
            self._slot.finish(ticket, ticket.job.content)
        return bool(tickets)

    def drop(self) -> None: ...


class OneIsDone(SchedulerByHand):
    """Of what is begun the first request alone is done."""

    def __init__(self) -> None:
        super().__init__(Echo, 1, lambda count: nullcontext(), 1, 1)
        self.begun: list[Request] = []

    def start(self, *arguments: Any) -> Request:
        self.begun.append(super().start(*arguments))
        if len(self.begun) == 1:
            self.finish_all()
        return self.begun[-1]


def chunk(items: list[str]) -> Chunk:
    return Chunk("echo", items, len(items), sum(map(len, items)))


def test_a_stream_of_empty_texts_is_read_only_ahead() -> None:
    read = []

    def source() -> Iterator[tuple[int, str]]:
        while len(read) < 10_000:
            read.append(1)
            yield 0, ""

    assert list(islice(stream(OneIsDone(), 2, source(), chunk), 3)) == ["", "", ""]
    assert len(read) < 1000


def test_a_stream_that_is_left_goes_no_further() -> None:
    scheduler = OneIsDone()
    results = stream(scheduler, 2, ((100, f"text {n}") for n in range(1000)), chunk)
    assert next(results) == "text 0"
    results.close()  # type: ignore[attr-defined]
    first, *others = scheduler.begun
    assert first.done() and others and all(other.cancelled() for other in others)
    scheduler.finish_all()
    assert scheduler.is_at_rest


def test_chunks_hold_every_text_once() -> None:
    """Chunks of 16 texts or more where that gives every process one, of 256 at most, and some for each process."""
    numbers = {0: 0, 1: 1, 2: 2, 8: 8, 15: 8, 128: 8, 160: 10, 500: 32, 8192: 32, 8193: 33, 20_000: 79}
    for texts, number in numbers.items():
        chunks = dealt([n % 50 for n in range(texts)], 8)
        assert sorted(place for chunk in chunks for place in chunk) == list(range(texts))
        assert len(chunks) == number, texts
        sizes = [len(chunk) for chunk in chunks]
        assert not sizes or max(sizes) - min(sizes) <= 1
    first, second = dealt([5, 1, 4, 2], 2)
    assert (first, second) == ([0, 3], [2, 1]), "each has longer ones and shorter ones"


def test_processes_are_chosen_for_many_threads_and_light_models() -> None:
    light, heavy = 1 << 20, 1 << 26
    assert all(chosen_processes(threads, light) == 1 for threads in range(1, LEAST_THREADS))
    assert chosen_processes(64, light) > chosen_processes(64, heavy) > chosen_processes(8, heavy) >= 1
    for threads in (LEAST_THREADS, 16, 64):
        for weights, share in ((light, LOCK_SHARES[0][1]), (heavy, LOCK_SHARES[1][1]), (LOCK_SHARES[0][0], 0.25)):
            each = -(-threads // chosen_processes(threads, weights))
            assert rate_under_lock(1.0, share, each) >= WANTED * each, "threads keep their speed"
    assert chosen_processes(LEAST_THREADS, light) > 1
    assert sharing(4, None, 9, light) == Sharing(4, 2, 1) and sharing(4, None, 2, light).threads == 1
    assert sharing(None, None, 2, light).processes == 1
    assert sharing(4, None, 8, light) == sharing(4, 2, 2, light)
    assert sharing(None, None, 16, light).least == LEAST_TEXTS * chosen_processes(16, light)


def test_the_rate_under_a_lock_is_between_its_limits() -> None:
    assert rate_under_lock(1.0, 0.0, 8) == 8
    assert rate_under_lock(1.0, 1.0, 8) == pytest.approx(1.0)
    rates = [rate_under_lock(1.0, 0.2, threads) for threads in (1, 2, 8, 64)]
    assert rates == sorted(rates) and rates[0] == 1 and rates[-1] == pytest.approx(5)
