"""A pool of worker processes, and the scheduler that gives them the work of all callers.

The scheduler's jobs are chunks of plain data, such as a few texts. A worker slot is a process with a few chunks in
progress, so that the process never waits for a chunk; all other chunks stay in the queue, where callers take turns.
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

# A process has at most CHUNK_LIMIT chunks in progress, of which one waits while one is computed, or more small ones,
# which share steps, with at most TEXT_LIMIT texts in all.
CHUNK_LIMIT, TEXT_LIMIT = 2, 64
_TICKETS_CHANGED = ["news"]  # stands among the answers for tickets that have arrived or are over
# Texts of a chunk: enough rows for efficient products, but so few that all processes end at about the same time.
FEWEST_TEXTS, MOST_TEXTS = 16, 256
CHUNKS_PER_PROCESS = 4
# Characters that ``stream_results`` reads ahead: few at first, for early results; at last so many for each process.
FIRST_READ_AHEAD, LAST_READ_AHEAD = 4096, 32768
LEAST_LENGTH = 32  # what a shorter text counts; else empty texts would be read ahead without end

_starting = threading.Lock()


@dataclass(frozen=True)
class Chunk:
    """Work for one process.

    kind      of the request: a name under which the module in the worker process serves requests
    content   arguments of the request
    texts     how many texts or pairs the chunk has
    length    of all texts together, in any unit; longer chunks are computed first
    on_done   called when the chunk is done
    """

    kind: str
    content: list[Any]
    texts: int
    length: int
    on_done: Callable[[], None] | None = None

    weight = 1  # the work that the Scheduler counts for this job


class ProcessPool:
    """Processes that start when they are first needed, and are replaced after they have ended.

    count      how many processes
    arguments  the first message to each process: see ``child.main``
    The processes end when this object is closed or deleted, or when this program ends.
    """

    def __init__(self, count: int, arguments: list[Any]):
        self.count, self._arguments = count, arguments
        self._processes: dict[int, WorkerProcess] = {}
        self._warned: set[str] = set()
        self._end_processes = weakref.finalize(self, _end_processes, self._processes)

    def start(self) -> None:
        """Start all processes, which load the model while this program goes on."""
        for index in range(self.count):
            self.process(index)

    def process(self, index: int) -> WorkerProcess:
        """The process of this index, a new one if it has not started or is not usable."""
        with _starting:
            process = self._processes.get(index)
            if process is None or not process.is_usable:
                self.check_open()
                if process is not None:
                    process.end()
                process = self._processes[index] = WorkerProcess(self._arguments)
            return process

    def check_open(self) -> None:
        if not self._end_processes.alive:
            raise FastattnError("the worker processes are closed")

    def close(self) -> None:
        """End the processes, wait until they have ended, and start no more."""
        with _starting:
            self._end_processes.detach()
        _end_processes(self._processes)

    def warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


def pool_scheduler(pool: ProcessPool) -> Scheduler:
    """The scheduler whose slots are a pool's processes; its jobs are Chunks."""
    return Scheduler(partial(_Dispatcher, pool), pool.count, lambda _: nullcontext(), 1, pool.count)


def _after_fork_in_child() -> None:
    global _starting
    _starting = threading.Lock()  # a thread of the parent may have held the lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _end_processes(processes: dict[int, WorkerProcess]) -> None:
    for process in processes.values():
        process.close()
    for process in processes.values():
        process.end()


class _Dispatcher:
    """The worker of a scheduler's slot: sends chunks to the slot's process, and takes the answers.

    Chunks whose process ended are computed again by any process, one at a time, and only a chunk that ends a second
    process fails. The end of a process that had not loaded its model counts against no chunk, but the slot fails.
    """

    def __init__(self, pool: ProcessPool, slot: WorkerSlot):
        self._pool, self._slot = pool, slot
        self._tickets: dict[int, Ticket] = {}  # in progress, by the numbers of their requests
        self._answers: Answers[list[Any]] = Answers()
        slot.wake = lambda: self._answers.put(_TICKETS_CHANGED)
        self._take_process()

    def _take_process(self) -> None:
        """Take the slot's process, or a new process if the old one has ended."""
        self._process = self._pool.process(self._slot.key[1])
        self._process.cancel_all(self._slot.key)
        self._answers = Answers()  # the old queue may hold several ENDED of the previous process
        self._answers.put(_TICKETS_CHANGED)  # tickets may have arrived meanwhile

    def advance(self) -> bool:
        if not self._tickets and not self._process.is_usable:
            self._take_process()
        for ticket in self._slot.take(self._capacity()):
            job, caller = ticket.job, hash(ticket.request.caller)
            number = self._process.request(self._slot.key, self._answers, job.kind, job.content, caller)
            self._tickets[number] = ticket
        if not self._tickets:
            return False
        answer = self._answers.get()
        if answer is ENDED:
            self._handle_end()
        elif answer is not _TICKETS_CHANGED:
            number, kind, content = answer
            if kind == "warning":
                self._pool.warn(content)
            elif number in self._tickets:  # if not, the chunk was cancelled meanwhile
                ticket = self._tickets.pop(number)
                if kind == "failed":
                    self._fail(ticket, content)
                else:
                    if ticket.job.on_done is not None:
                        ticket.job.on_done()
                    self._slot.finish(ticket, content)
        return True

    def _capacity(self) -> Callable[[Ticket, bool], bool]:
        tickets = self._tickets.values()
        chunks, texts = len(tickets), sum(ticket.job.texts for ticket in tickets)
        has_suspect = any(ticket.was_lost for ticket in tickets)  # a chunk whose process ended

        def has_room(ticket: Ticket, is_newcomer: bool) -> bool:
            nonlocal chunks, texts, has_suspect
            chunks, texts, has_suspect = chunks + 1, texts + ticket.job.texts, has_suspect or ticket.was_lost
            if has_suspect:
                return chunks == 1
            return is_newcomer or chunks <= CHUNK_LIMIT or texts <= TEXT_LIMIT

        return has_room

    def drop(self) -> None:
        for number in [number for number, ticket in self._tickets.items() if ticket.is_over]:
            self._process.cancel(number)
            self._slot.release(self._tickets.pop(number))

    def _handle_end(self) -> None:
        error, has_loaded = self._process.fail(), self._process.has_loaded
        tickets, self._tickets = list(self._tickets.values()), {}
        for ticket in tickets:
            if has_loaded and ticket.was_lost:
                self._fail(ticket, error)
            else:
                ticket.was_lost |= has_loaded
                self._slot.put_back(ticket)
        self._pool.check_open()
        if not has_loaded:
            raise error

    def _fail(self, ticket: Ticket, error: FastattnError) -> None:
        self._slot.fail(ticket, error)
        self._slot.release(ticket)


def chunk_indices(lengths: Sequence[int], processes: int) -> list[list[int]]:
    """The indices of each chunk's texts. All chunks get long and short texts, so that they take about the same time."""
    count = len(lengths)
    if not count:
        return []
    chunks = min(CHUNKS_PER_PROCESS * processes, -(-count // FEWEST_TEXTS))
    chunks = max(chunks, min(processes, count), -(-count // MOST_TEXTS))
    longest_first = sorted(range(count), key=lambda number: -lengths[number])
    return [longest_first[chunk::chunks] for chunk in range(chunks)]


def plan_chunks(lengths: Sequence[int], processes: int, make_chunk: Callable[[list[int]], Chunk]) -> Plan:
    """A plan that returns the list of all texts' results.

    make_chunk  indices of texts -> the chunk that computes these texts in this order
    """
    chunks = chunk_indices(lengths, processes)
    results: list[Any] = [None] * len(lengths)
    for numbers, chunk_results in zip(chunks, (yield [make_chunk(numbers) for numbers in chunks])):
        for number, result in zip(numbers, chunk_results):
            results[number] = result
    return results


def stream_results(
    scheduler: Scheduler, processes: int, source: Iterator[tuple[int, Any]], make_chunk: Callable[[list[Any]], Chunk]
) -> Iterator[Any]:
    """Yield the results of the items of ``source`` in order, with enough items in progress for every process.

    source  yields (length, item). Its error is raised here after all earlier results. An item that is a FastattnError
            is its own result
    Closing the returned iterator cancels the items in progress.
    """
    in_progress: deque[tuple[Future, int]] = deque()
    length_ahead, most_ahead, source_end = 0, FIRST_READ_AHEAD, None  # the source ends by a StopIteration or an error
    try:
        while True:
            while source_end is None and length_ahead < most_ahead:
                chunk_length = max(1, most_ahead // (2 * processes))
                items, length, source_end = read_ahead(source, chunk_length, MOST_TEXTS, LEAST_LENGTH)
                in_progress.append((scheduler.start(partial(_plan_items, items, make_chunk)), length))
                length_ahead += length
            if not in_progress:
                break
            yield from in_progress[0][0].result()
            length_ahead -= in_progress.popleft()[1]
            most_ahead = min(2 * most_ahead, LAST_READ_AHEAD * processes)
    finally:
        for future, _ in in_progress:
            future.cancel()
    if not isinstance(source_end, StopIteration):
        assert source_end is not None
        raise source_end


def _plan_items(items: list[Any], make_chunk: Callable[[list[Any]], Chunk]) -> Plan:
    texts = [item for item in items if not isinstance(item, FastattnError)]
    results: Iterator[Any] = iter((yield [make_chunk(texts)])[0] if texts else ())
    return [item if isinstance(item, FastattnError) else next(results) for item in items]
