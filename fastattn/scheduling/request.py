"""Requests, which are Futures of plans with jobs in stages; and the queue of waiting jobs, fair to callers."""

import os
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from concurrent.futures import Future, InvalidStateError
from concurrent.futures._base import PENDING, RUNNING
from contextlib import suppress
from typing import Any

from fastattn.errors import FastattnError

# A generator that yields lists of jobs, gets the list of their results, and returns the caller's result. A plan that
# has much to do before its jobs are known may yield None, and gets []: then other plans have their turn.
Plan = Generator[list[Any] | None, list[Any], Any]


class Ticket:
    """A job that waits or is in progress.

    queue     the queue in which the job waits, else None
    slot      the slot at which the job is in progress, else None
    was_lost  whether a worker's process ended while it had the job: another worker tries the job once more, alone
    """

    __slots__ = ("is_done", "job", "queue", "request", "result", "slot", "was_lost")

    def __init__(self, request: "Request", job: Any):
        self.request, self.job = request, job
        self.result: Any = None
        self.is_done = self.was_lost = False
        self.queue: Any = None
        self.slot: Any = None

    @property
    def is_over(self) -> bool:
        """Whether the ticket's request was cancelled, or has failed."""
        return self.request.error is not None or self.request.done()


class Request(Future):
    """The Future of a plan's outcome. It can be cancelled at any time: then its jobs are given up at once.

    make_plan  makes the plan; called once more if the request has to begin again
    caller     whoever asks: callers get equal shares
    on_cancel  called with the request when it is cancelled
    on_wait    called with the request before a thread waits for it
    """

    def __init__(
        self,
        make_plan: Callable[[], Plan],
        caller: Hashable,
        on_cancel: Callable[["Request"], None],
        on_wait: Callable[["Request"], None],
    ):
        super().__init__()
        self.make_plan, self.caller, self._on_cancel, self._on_wait = make_plan, caller, on_cancel, on_wait
        self.tickets: list[Ticket] = []  # of the plan's present stage
        self.unfinished = 0  # how many tickets are not done
        self.planner: int | None = None  # the thread that runs the plan, until the stage's tickets are in the queue
        self.error: BaseException | None = None  # ends the request when its plan would continue
        self._plan: Plan | None = None
        self._to_notify = [True]  # emptied by the thread that tells waiting threads of the cancellation
        self._process = os.getpid()

    def continue_plan(self) -> list[Ticket]:
        """Begin or continue the plan; returns the tickets of the next stage, [] if the plan ends or pauses."""
        self.planner = threading.get_ident()
        jobs: list[Any] | None = []
        if self.error is not None:
            self.fail(self.error)
            return []
        try:
            if self._plan is None:
                self._plan, results = self.make_plan(), None  # None starts a generator
            else:
                results = [ticket.result for ticket in self.tickets]
            jobs = self._plan.send(results)  # type: ignore[arg-type]
            while jobs is not None and not jobs:
                jobs = self._plan.send([])
        except StopIteration as end:
            with suppress(InvalidStateError):  # cancelled meanwhile
                self.set_result(end.value)
        except BaseException as error:
            if is_interrupt(error):
                raise
            self.fail(error)
        self.tickets = [Ticket(self, job) for job in jobs or ()]
        self.unfinished = len(self.tickets)
        return self.tickets

    def restart(self) -> None:
        """Have the next ``continue_plan`` begin the plan anew."""
        self.planner = self._plan = None
        self.tickets, self.unfinished = [], 0

    def fail(self, error: BaseException) -> None:
        """End the request with an error, unless it has ended."""
        with suppress(InvalidStateError):  # cancelled meanwhile
            self.set_exception(error)

    def done(self) -> bool:
        # Without the lock: workers ask often, and an interrupt might prevent the lock's release.
        return self._state not in (PENDING, RUNNING)

    def free_lock(self) -> None:
        """Release the lock and wake waiting threads, where an interrupt of this thread prevented both."""
        with suppress(RuntimeError):
            while True:
                self._condition.release()
        if self.done():
            with self._condition:
                self._condition.notify_all()

    def result(self, timeout: float | None = None) -> Any:
        self._before_waiting()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._before_waiting()
        return super().exception(timeout)

    def _before_waiting(self) -> None:
        if not self.done():
            if self._process != os.getpid():
                raise FastattnError("what a process had begun when it was forked goes on there alone: ask for it again")
            self._on_wait(self)

    def cancel(self) -> bool:
        if not self.abandon():
            return False
        self._on_cancel(self)
        return True

    def abandon(self) -> bool:
        """Cancel the request without telling the scheduler."""
        if self._process != os.getpid():  # a thread of the parent process may hold the lock
            return self.cancelled()
        if not super().cancel():
            return False
        with suppress(IndexError):
            self._to_notify.pop()  # succeeds for the first thread that cancels the request
            self.set_running_or_notify_cancel()  # else concurrent.futures.wait would not end
        return True


class Queue:
    """Waiting tickets, each caller's in order. Callers take turns; callers with nothing in progress come first.

    A caller has a line for each slot. The caller's tickets go to the lines in turn, so that every slot gets long and
    short jobs alike; a slot whose line is empty takes from the caller's other lines.
    """

    def __init__(self, slots: int):
        self._slots = slots
        self._lines_of: OrderedDict[Hashable, list[deque[Ticket]]] = OrderedDict()  # by caller, like the next two
        self._waiting_of: Counter[Hashable] = Counter()  # how many tickets
        self._in_progress_of: Counter[Hashable] = Counter()
        self.waiting = 0  # tickets of all callers

    def add(self, tickets: Iterable[Ticket], slots: int) -> None:
        """Add tickets at the end of their callers' first ``slots`` lines, in turn."""
        for n, ticket in enumerate(tickets):
            lines = self._lines_of.get(ticket.request.caller)
            if lines is None:
                lines = self._lines_of[ticket.request.caller] = [deque() for _ in range(self._slots)]
            lines[n % slots].append(ticket)
            ticket.queue = self
            self._waiting_of[ticket.request.caller] += 1
            self.waiting += 1

    def newcomers(self) -> list[Hashable]:
        """The waiting callers with nothing in progress."""
        return [caller for caller in self._lines_of if caller not in self._in_progress_of]

    def take(self, line: int, limit: int, has_room: Callable[[Ticket, bool], bool]) -> list[Ticket]:
        """Take up to ``limit`` tickets: first one of each caller with nothing in progress, then in turn.

        has_room  (ticket, whether its caller has nothing in progress) -> whether to take the ticket
        """
        tickets: list[Ticket] = []
        newcomers = deque(self.newcomers())
        while self._lines_of and len(tickets) < limit:
            caller = newcomers[0] if newcomers else next(iter(self._lines_of))
            line_tickets = self._line(caller, line)
            if has_room(line_tickets[0], bool(newcomers)):
                tickets.append(line_tickets.popleft())
                self._remove(tickets[-1])
                self.count_begun(tickets[-1])
                if newcomers:
                    newcomers.popleft()
                elif caller in self._lines_of:
                    self._lines_of.move_to_end(caller)
            elif newcomers:
                newcomers.clear()
            else:
                break
        return tickets

    def _line(self, caller: Hashable, line: int) -> deque[Ticket]:
        """A line of the caller that begins with a waiting ticket: the line of this number unless it is empty."""
        lines = self._lines_of[caller]
        if lines[line] and lines[line][0].queue is self:
            return lines[line]
        for tickets in (lines[line], *lines):
            while tickets and tickets[0].queue is not self:  # ``drop`` has removed the ticket from the queue
                tickets.popleft()
            if tickets:
                return tickets
        raise AssertionError("a caller in the queue has a ticket that waits")

    def _remove(self, ticket: Ticket) -> None:
        """Note that a ticket no longer waits."""
        ticket.queue = None
        self.waiting -= 1
        caller = ticket.request.caller
        self._waiting_of[caller] -= 1
        if not self._waiting_of[caller]:
            del self._waiting_of[caller], self._lines_of[caller]

    def count_begun(self, ticket: Ticket) -> None:
        self._in_progress_of[ticket.request.caller] += 1

    def count_ended(self, ticket: Ticket) -> None:
        caller = ticket.request.caller
        self._in_progress_of[caller] -= 1
        if not self._in_progress_of[caller]:
            del self._in_progress_of[caller]

    def drop(self, tickets: Iterable[Ticket]) -> list[Ticket]:
        """Remove tickets from the queue; returns those that were in it."""
        dropped = [ticket for ticket in tickets if ticket.queue is self]
        for ticket in dropped:
            self._remove(ticket)  # the ticket stays in its line, which may be long, until its turn comes
        return dropped


def read_ahead(
    source: Iterator[tuple[int, Any]], most: int, most_items: int | None = None, least_length: int = 0
) -> tuple[list[Any], int, Exception | None]:
    """(items of a source of (length, item), the sum of lengths, the StopIteration or error of the source, or None).

    most, most_items  reading stops at this sum of lengths, or at so many items
    least_length      what a shorter item adds to the sum
    """
    items: list[Any] = []
    total = 0
    while total < most and (most_items is None or len(items) < most_items):
        try:
            length, item = next(source)
        except Exception as error:  # noqa: BLE001  the caller raises the error again, behind earlier results
            return items, total, error
        items.append(item)
        total += max(least_length, length)
    return items, total, None


def is_interrupt(error: BaseException) -> bool:
    """Whether an error comes from a signal to the main thread, which may arrive anywhere in the thread's work."""
    return not isinstance(error, Exception) and threading.current_thread() is threading.main_thread()


async def await_result(submit: Callable[..., Future], caller: Hashable) -> Any:
    """The result of ``submit(caller=caller)`` for asyncio; with None the task is the caller."""
    import asyncio  # 25 ms; callers that await have imported it already

    return await asyncio.wrap_future(submit(caller=asyncio.current_task() if caller is None else caller))
