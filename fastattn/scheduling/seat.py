"""A place to compute at: a worker, and what it has in progress."""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from fastattn.scheduling.request import Ticket


class Worker(Protocol):
    """Does jobs, several at a time."""

    def advance(self) -> bool:
        """Take what waits, as far as there is room, and a step; False where there was nothing to do."""

    def drop(self) -> None:
        """Leave all tickets that are over."""


class Desk(Protocol):
    """What a worker has of the scheduler."""

    def waiting(self) -> int:
        """How many tickets wait."""

    def newcomers(self) -> int:
        """How many callers wait with nothing in progress."""

    def take(self, has_room: Callable[[Ticket, bool], bool]) -> list[Ticket]:
        """Tickets that wait, as long as there is room.

        ``has_room`` says so of a ticket, and whether its caller is one with nothing in progress; what it accepts is
        taken.
        """

    def finish(self, ticket: Ticket, result: Any) -> None:
        """The job is done."""

    def fail(self, ticket: Ticket, error: BaseException) -> None:
        """The job's request ends with an error, and the ticket is left."""

    def leave(self, ticket: Ticket) -> None:
        """Nobody wants the ticket any more."""


class Seat:
    """
    line      its number, and its line in the queue
    thread    the identifier of the thread that computes here
    tickets   in progress here
    alone     tickets of one request each that are to be in progress without others: a step that they shared failed
    has_over  whether something in progress here may be over
    is_computing  whether the thread is at it: what it calls then, it calls in the middle of a step
    """

    def __init__(self, line: int, thread: int):
        self.line, self.thread = line, thread
        self.tickets: dict[Ticket, None] = {}
        self.alone: deque[list[Ticket]] = deque()
        self.has_over = self.is_computing = False
        self.worker: Worker | None = None

    @property
    def is_idle(self) -> bool:
        return not self.tickets and not self.alone
