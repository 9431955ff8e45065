"""A pool of worker processes, and the scheduler that gives them the work of all callers.

Its jobs are chunks of plain data, such as a few texts. A worker slot is a process with a few chunks in progress, so
that it never waits for the next one; other chunks stay in the queue, where callers take turns.
"""

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastattn.errors import FastattnError, warn
from fastattn.processes.worker_process import ENDED, Answers, WorkerProcess
from fastattn.scheduling.request import Plan, Ticket, read_ahead
from fastattn.scheduling.scheduler import Scheduler
from fastattn.scheduling.state import WorkerSlot

# In progress in a process: it computes one chunk while the next waits. Small chunks of many callers share its steps.
CHUNKS, TEXTS = 2, 64
_NEWS = ["news"]  # among the answers: there are new tickets, or tickets that are over
# Texts of a chunk, where there are enough: a process has rows for whole products, and none waits at the end.
FEWEST, MOST = 16, 256
CHUNKS_EACH = 4
# Characters that a stream reads ahead: few at first, so that the first results come soon; at last for each process.
FIRST_AHEAD, LAST_AHEAD = 4096, 32768
SHORTEST = 32  # the least length that a text counts as: a stream of empty texts would be read without end

_starting = threading.Lock()


@dataclass(frozen=True)
class Chunk:
    """Work for one process.

    what      the kind of request: a key of what the module of the pool serves
    content   arguments of the request
    texts     number of texts or pairs
    length    of all texts, in any unit: longer chunks come first
    done      called when the chunk is done
    """

    what: str
    content: list[Any]
    texts: int
    length: int
    done: Callable[[], None] | None = None

    weight = 1  # as a Scheduler knows it


class ProcessPool:
    """Processes that start when they are first needed, and are replaced when they have ended.

    count      number of processes
    arguments  the first message of each: see ``child.main``
    They end when this object is closed or deleted, and with this program.
    """

    def __init__(self, count: int, arguments: list[Any]):
        self.count, self._arguments = count, arguments
        self._processes: dict[int, WorkerProcess] = {}
        self._warned: set[str] = set()
        self._end = weakref.finalize(self, _end, self._processes)

    def start(self) -> None:
        """Start all processes, which load while this program goes on."""
        for index in range(self.count):
            self.process(index)

    def process(self, index: int) -> WorkerProcess:
        with _starting:
            process = self._processes.get(index)
            if process is None or not process.is_usable:
                self.check_open()
                if process is not None:
                    process.end()
                process = self._processes[index] = WorkerProcess(self._arguments)
            return process

    def check_open(self) -> None:
        if not self._end.alive:
            raise FastattnError("the worker processes are closed")

    def close(self) -> None:
        """End the processes, and start no more. They have ended when it returns."""
        with _starting:
            self._end.detach()
        _end(self._processes)

    def warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


def pool_scheduler(pool: ProcessPool) -> Scheduler:
    """The scheduler whose slots are a pool's processes; its jobs are Chunks."""
    return Scheduler(partial(_Dispatcher, pool), pool.count, lambda _: nullcontext(), 1, pool.count)


def _after_fork_in_child() -> None:
    global _starting
    _starting = threading.Lock()  # a thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _end(processes: dict[int, WorkerProcess]) -> None:
    for process in processes.values():
        process.close()
    for process in processes.values():
        process.end()


class _Dispatcher:
    """The worker of a scheduler's slot: sends chunks to its process, and takes the answers.

    The chunks of a process that ended are done again by any process, one at a time: only a chunk that ends a second
    process fails. If a process ends before it has loaded, that counts against no chunk, but the slot fails.
    """

    def __init__(self, pool: ProcessPool, slot: WorkerSlot):
        self._pool, self._slot = pool, slot
        self._sent: dict[int, Ticket] = {}
        self._answers: Answers[list[Any]] = Answers()
        slot.wake = lambda: self._answers.put(_NEWS)
        self._take_process()

    def _take_process(self) -> None:
        """Take the slot's process, or a new one if it has ended."""
        self._process = self._pool.process(self._slot.key[1])
        self._process.cancel_all(self._slot.key)
        self._answers = Answers()  # the process before may have put ENDED several times
        self._answers.put(_NEWS)  # tickets may have come meanwhile

    def advance(self) -> bool:
        if not self._sent and not self._process.is_usable:
            self._take_process()
        for ticket in self._slot.take(self._room()):
            job, caller = ticket.job, hash(ticket.request.caller)
            number = self._process.request(self._slot.key, self._answers, job.what, job.content, caller)
            self._sent[number] = ticket
        if not self._sent:
            return False
        answer = self._answers.get()
        if answer is ENDED:
            self._lose()
        elif answer is not _NEWS:
            number, kind, content = answer
            if kind == "warning":
                self._pool.warn(content)
            elif number in self._sent:  # else it was cancelled meanwhile
                ticket = self._sent.pop(number)
                if kind == "failed":
                    self._fail(ticket, content)
                else:
                    if ticket.job.done is not None:
                        ticket.job.done()
                    self._slot.finish(ticket, content)
        return True

    def _room(self) -> Callable[[Ticket, bool], bool]:
        sent = self._sent.values()
        chunks, texts = len(sent), sum(ticket.job.texts for ticket in sent)
        alone = any(ticket.lost for ticket in sent)

        def has_room(ticket: Ticket, newcomer: bool) -> bool:
            nonlocal chunks, texts, alone
            chunks, texts, alone = chunks + 1, texts + ticket.job.texts, alone or ticket.lost
            if alone:
                return chunks == 1
            return newcomer or chunks <= CHUNKS or texts <= TEXTS

        return has_room

    def drop(self) -> None:
        for number in [number for number, ticket in self._sent.items() if ticket.is_over]:
            self._process.cancel(number)
            self._slot.release(self._sent.pop(number))

    def _lose(self) -> None:
        error, has_begun = self._process.fail(), self._process.has_loaded
        tickets, self._sent = list(self._sent.values()), {}
        for ticket in tickets:
            if has_begun and ticket.lost:
                self._fail(ticket, error)
            else:
                ticket.lost |= has_begun
                self._slot.put_back(ticket)
        self._pool.check_open()
        if not has_begun:
            raise error

    def _fail(self, ticket: Ticket, error: FastattnError) -> None:
        self._slot.fail(ticket, error)
        self._slot.release(ticket)


def chunk_numbers(lengths: Sequence[int], processes: int) -> list[list[int]]:
    """The numbers of the texts of each chunk; all chunks get long and short texts, and take about the same time."""
    count = len(lengths)
    if not count:
        return []
    chunks = min(CHUNKS_EACH * processes, -(-count // FEWEST))
    chunks = max(chunks, min(processes, count), -(-count // MOST))
    longest_first = sorted(range(count), key=lambda number: -lengths[number])
    return [longest_first[chunk::chunks] for chunk in range(chunks)]


def plan_chunks(lengths: Sequence[int], processes: int, make_chunk: Callable[[list[int]], Chunk]) -> Plan:
    """A plan whose result is the list of the texts' results.

    make_chunk  numbers of texts -> the chunk that computes them in this order
    """
    chunks = chunk_numbers(lengths, processes)
    results: list[Any] = [None] * len(lengths)
    for numbers, chunk_results in zip(chunks, (yield [make_chunk(numbers) for numbers in chunks])):
        for number, result in zip(numbers, chunk_results):
            results[number] = result
    return results


def stream(
    scheduler: Scheduler, processes: int, source: Iterator[tuple[int, Any]], make_chunk: Callable[[list[Any]], Chunk]
) -> Iterator[Any]:
    """Yield the results of the items of ``source`` in order, with enough items in progress for every process.

    source  yields (length, item); an error that it raises is raised again after the results before it. An item that is
            a FastattnError is its own result
    Closing the iterator cancels the items in progress.
    """
    in_progress: deque[tuple[Future, int]] = deque()
    ahead, most, failure = 0, FIRST_AHEAD, None
    try:
        while True:
            while failure is None and ahead < most:
                enough = max(1, most // (2 * processes))
                items, length, failure = read_ahead(source, enough, MOST, SHORTEST)
                in_progress.append((scheduler.start(partial(_plan, items, make_chunk)), length))
                ahead += length
            if not in_progress:
                break
            yield from in_progress[0][0].result()
            ahead, most = ahead - in_progress.popleft()[1], min(2 * most, LAST_AHEAD * processes)
    finally:
        for future, _ in in_progress:
            future.cancel()
    if not isinstance(failure, StopIteration):
        assert failure is not None
        raise failure


def _plan(items: list[Any], make_chunk: Callable[[list[Any]], Chunk]) -> Plan:
    texts = [item for item in items if not isinstance(item, FastattnError)]
    answers: Iterator[Any] = iter(())
    if texts:
        (results,) = yield [make_chunk(texts)]
        answers = iter(results)
    return [item if isinstance(item, FastattnError) else next(answers) for item in items]
