"""A slot: a worker, the thread that runs it, and its tickets in progress."""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from fastattn.scheduling.request import Ticket


class Worker(Protocol):
    """Does jobs, several at a time."""

    def advance(self) -> bool:
        """Take waiting tickets, as far as there is room, and do a step; False if there was nothing to do.

        What it raises is the fault of one of the tickets in progress; where there are none, it can do nothing at all.
        """

    def drop(self) -> None:
        """Leave all tickets whose requests are over."""


class SlotInterface(Protocol):
    """A worker's interface to the scheduler: where it takes tickets and returns results.

    key  (something of the scheduler's own, the index of the slot), which no other worker has meanwhile
    """

    key: tuple[object, int]

    def waiting(self) -> int:
        """How many tickets wait."""

    def newcomers(self) -> int:
        """How many callers wait and have nothing in progress."""

    def take(self, has_room: Callable[[Ticket, bool], bool]) -> list[Ticket]:
        """Take waiting tickets as long as ``has_room`` accepts them.

        has_room  (ticket, whether its caller has nothing in progress) -> whether to take it
        """

    def finish(self, ticket: Ticket, result: Any) -> None:
        """Report a job's result."""

    def fail(self, ticket: Ticket, error: BaseException) -> None:
        """Have the ticket's request end with an error, after this step. The ticket is the worker's until it is left."""

    def leave(self, ticket: Ticket) -> None:
        """Give a ticket up: its request is over."""

    def put_back(self, ticket: Ticket) -> None:
        """Have a ticket wait again, for any slot."""

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have ``wake`` called, by any thread, when there is something new: for a worker whose steps wait."""


class WorkerSlot:
    """A worker's state.

    index         its number, also that of its line in the queue
    thread        the identifier of the thread that runs the worker
    tickets       those in progress
    isolated      lists of one request's tickets, to be run without others: a step that they shared failed
    has_over      whether a request in progress may be over
    is_computing  whether that thread is the one to compute; False until a new thread has taken over from it
    is_between    whether it is between two steps, so that another thread can take over
    wake          has a worker whose step waits look for tickets
    """

    def __init__(self, index: int, thread: int):
        self.index, self.thread = index, thread
        self.tickets: dict[Ticket, None] = {}
        self.isolated: deque[list[Ticket]] = deque()
        self.has_over, self.is_computing, self.is_between = False, True, False
        self.worker: Worker | None = None
        self.wake: Callable[[], None] = _wake_nobody

    def let_go(self) -> None:
        """Free the worker's memory at once; the garbage collector would come later."""
        self.worker, self.wake = None, _wake_nobody

    @property
    def is_idle(self) -> bool:
        return not self.tickets and not self.isolated


def _wake_nobody() -> None:
    """Steps that do not wait end soon."""
