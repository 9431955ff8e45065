"""A request: the Future of a plan, whose jobs are done in stages."""

import threading
from collections.abc import Callable, Generator, Hashable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures._base import PENDING, RUNNING
from contextlib import suppress
from typing import Any

# A generator that yields lists of jobs, is sent the list of their results, and returns the caller's result.
Plan = Generator[list[Any], list[Any], Any]


class Ticket:
    """A job that waits or is in progress.

    queue  the queue in which it waits
    seat   the seat that took it
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
        """Whether its request was cancelled, or has failed."""
        return self.request.done()


class Request(Future):
    """The Future of a plan's outcome. It can be cancelled at any time, which removes its jobs from the work at once.

    make_plan  makes the plan; called again where the request has to begin again
    caller     who asks: callers get equal shares
    on_cancel  called with the request when it is cancelled
    """

    def __init__(self, make_plan: Callable[[], Plan], caller: Hashable, on_cancel: Callable[["Request"], None]):
        super().__init__()
        self.make_plan, self.caller, self._on_cancel = make_plan, caller, on_cancel
        self.tickets: list[Ticket] = []  # of the stage that the plan is at
        self.left = 0  # how many of them are not done
        self.planner: int | None = None  # the thread that runs the plan, until its tickets are in the queue
        self._plan: Plan | None = None
        self._untold = [True]

    def begin(self) -> list[Ticket]:
        """Start the plan: the tickets of its first stage, [] if it has ended."""
        self.planner = threading.get_ident()
        self._plan = self.make_plan()
        return self._advance(None)

    def go_on(self) -> list[Ticket]:
        """Continue the plan once this stage is done: the tickets of the next one, [] if the plan has ended."""
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
        """End the request with an error, unless it has ended."""
        self._settle(self.set_exception, error)

    def _settle(self, settle: Callable[[Any], None], outcome: Any) -> None:
        with suppress(InvalidStateError):  # cancelled meanwhile
            settle(outcome)

    def done(self) -> bool:
        # Without the lock: workers ask often, and an interrupt might leave the lock held.
        return self._state not in (PENDING, RUNNING)

    def free(self) -> None:
        """Release the lock and wake waiting threads, which an interrupt of this thread may have prevented."""
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
        """Cancel the request without telling the scheduler."""
        if not super().cancel():
            return False
        with suppress(IndexError):
            self._untold.pop()  # by the first of those who cancel it
            self.set_running_or_notify_cancel()  # which alone tells those who wait by concurrent.futures.wait
        return True


async def awaited(submit: Callable[..., Future], caller: Hashable) -> Any:
    """The result of ``submit(caller=caller)`` for asyncio; a caller of None is the task."""
    import asyncio  # 25 ms; callers that await have imported it already

    return await asyncio.wrap_future(submit(caller=asyncio.current_task() if caller is None else caller))
