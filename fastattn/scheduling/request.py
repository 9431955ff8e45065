"""What a caller waits for: a plan, whose jobs are done in stages, and the Future of what comes of it."""

import threading
from collections.abc import Callable, Generator, Hashable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures._base import PENDING, RUNNING
from contextlib import suppress
from typing import Any

# A generator that yields lists of jobs, is sent the list of their results, and returns what the caller gets.
Plan = Generator[list[Any], list[Any], Any]


class Ticket:
    """A job that waits or is in progress.

    queue  where it waits
    seat   where it was taken
    """

    __slots__ = ("done", "job", "queue", "request", "result", "seat")

    def __init__(self, request: "Request", job: Any):
        self.request, self.job = request, job
        self.result: Any = None
        self.done = False
        self.queue: Any = None
        self.seat: Any = None

    @property
    def is_over(self) -> bool:
        """Whether nobody wants it any more: its request was cancelled, or has failed."""
        return self.request.done()


class Request(Future):
    """The Future of a plan's outcome. To cancel it works at any time, and takes its jobs out of the work at once.

    make_plan  makes the plan, anew where it has to begin again
    caller     whose request it is: callers have equal shares of what there is
    on_cancel  called with it when it was cancelled
    """

    def __init__(self, make_plan: Callable[[], Plan], caller: Hashable, on_cancel: Callable[["Request"], None]):
        super().__init__()
        self.make_plan, self.caller, self._on_cancel = make_plan, caller, on_cancel
        self.tickets: list[Ticket] = []  # of the stage that the plan is at
        self.left = 0  # of them, that are not done
        self.planner: int | None = None  # the thread that makes the plan go on, until its tickets wait
        self._plan: Plan | None = None
        self._untold = [True]

    def begin(self) -> list[Ticket]:
        """The tickets of the first stage, from the plan's beginning; none where it has come to its end."""
        self.planner = threading.get_ident()
        self._plan = self.make_plan()
        return self._advance(None)

    def go_on(self) -> list[Ticket]:
        """The tickets of the next stage, once all of this one are done; none where the plan has come to its end."""
        self.planner = threading.get_ident()
        return self._advance([ticket.result for ticket in self.tickets])

    def _advance(self, results: list[Any] | None) -> list[Ticket]:
        assert self._plan is not None
        try:
            jobs = self._plan.send(results)  # type: ignore[arg-type]  # None starts a generator
            while not jobs:
                jobs = self._plan.send([])
        except StopIteration as end:
            self._settle(self.set_result, end.value)
            jobs = []
        except Exception as error:  # noqa: BLE001  the caller's to see
            self.fail(error)
            jobs = []
        self.tickets = [Ticket(self, job) for job in jobs]
        self.left = len(jobs)
        return self.tickets

    def fail(self, error: BaseException) -> None:
        """End it with an error, unless it has ended."""
        self._settle(self.set_exception, error)

    def _settle(self, settle: Callable[[Any], None], outcome: Any) -> None:
        with suppress(InvalidStateError):  # cancelled meanwhile
            settle(outcome)

    def done(self) -> bool:
        # Without the lock: workers ask for all that they have in progress, and an interrupt might keep the lock.
        return self._state not in (PENDING, RUNNING)

    def free(self) -> None:
        """After an interrupt of this thread, which may have kept it from leaving the lock, or from waking who waits."""
        with suppress(RuntimeError):
            while True:
                self._condition.release()
        if self.done():
            with self._condition:
                self._condition.notify_all()

    def cancel(self) -> bool:
        if not self.abandon():
            return False
        self._on_cancel(self)
        return True

    def abandon(self) -> bool:
        """Cancel it, but tell no scheduler."""
        if not super().cancel():
            return False
        with suppress(IndexError):
            self._untold.pop()  # by the first of those who cancel it
            self.set_running_or_notify_cancel()  # which alone tells those who wait by concurrent.futures.wait
        return True
