"""Streams cut into chunks: what is read ahead, and what goes on when one is left."""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from typing import Any

from fastattn.processes.pool import Chunk, stream
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
