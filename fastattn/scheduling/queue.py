"""The queue of waiting jobs: fair to callers, and first in, first out for each of them."""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable

from fastattn.scheduling.request import Ticket

Room = Callable[[Ticket, bool], bool]


class Queue:
    """Waiting tickets. Callers take turns; those with nothing in progress come first.

    A caller has a line for each seat. Tickets are added to the lines in turn, so that every seat gets long and short
    jobs alike; a seat whose line is empty takes from the others.
    """

    def __init__(self, seats: int):
        self._seats = seats
        self._callers: OrderedDict[Hashable, list[deque[Ticket]]] = OrderedDict()
        self._waiting: Counter[Hashable] = Counter()
        self._in_progress: Counter[Hashable] = Counter()
        self.waiting = 0

    def add(self, tickets: Iterable[Ticket], seats: int) -> None:
        """Add tickets at the end of their callers' first ``seats`` lines, in turn."""
        for n, ticket in enumerate(tickets):
            lines = self._callers.get(ticket.request.caller)
            if lines is None:
                lines = self._callers[ticket.request.caller] = [deque() for _ in range(self._seats)]
            lines[n % seats].append(ticket)
            ticket.queue = self
            self._waiting[ticket.request.caller] += 1
            self.waiting += 1

    def newcomers(self) -> list[Hashable]:
        """The callers that wait with nothing in progress."""
        return [caller for caller in self._callers if caller not in self._in_progress]

    def take(self, line: int, most: int, has_room: Room) -> list[Ticket]:
        """Take up to ``most`` tickets, first one of each caller with nothing in progress.

        has_room  (ticket, whether its caller has nothing in progress) -> whether to take it
        """
        taken: list[Ticket] = []
        for caller in self.newcomers():
            if len(taken) >= most or not self._take_one(caller, line, lambda ticket: has_room(ticket, True), taken):
                break
        while self._callers and len(taken) < most:
            caller = next(iter(self._callers))
            if not self._take_one(caller, line, lambda ticket: has_room(ticket, False), taken):
                break
            if caller in self._callers:
                self._callers.move_to_end(caller)
        return taken

    def _take_one(self, caller: Hashable, line: int, has_room: Callable[[Ticket], bool], taken: list[Ticket]) -> bool:
        """Take the caller's next ticket; False where it does not fit."""
        tickets = self._line(caller, line)
        if not has_room(tickets[0]):
            return False
        ticket = tickets.popleft()
        taken.append(ticket)
        self._leave(ticket)
        self.began(ticket)
        return True

    def _line(self, caller: Hashable, line: int) -> deque[Ticket]:
        """The caller's line, or another of its lines if that is empty; its first ticket waits."""
        lines = self._callers[caller]
        if lines[line] and lines[line][0].queue is self:
            return lines[line]
        for tickets in (lines[line], *lines):
            while tickets and tickets[0].queue is not self:  # dropped
                tickets.popleft()
            if tickets:
                return tickets
        raise AssertionError("a caller in the queue has a ticket that waits")

    def _leave(self, ticket: Ticket) -> None:
        """A ticket no longer waits."""
        ticket.queue = None
        self.waiting -= 1
        caller = ticket.request.caller
        self._waiting[caller] -= 1
        if not self._waiting[caller]:
            del self._waiting[caller], self._callers[caller]

    def began(self, ticket: Ticket) -> None:
        """A ticket is in progress."""
        self._in_progress[ticket.request.caller] += 1

    def ended(self, ticket: Ticket) -> None:
        """A ticket is no longer in progress."""
        caller = ticket.request.caller
        self._in_progress[caller] -= 1
        if not self._in_progress[caller]:
            del self._in_progress[caller]

    def drop(self, tickets: Iterable[Ticket]) -> list[Ticket]:
        """Remove the tickets from the queue; returns those that were in it."""
        dropped = [ticket for ticket in tickets if ticket.queue is self]
        for ticket in dropped:
            self._leave(ticket)  # it leaves its line, which may be long, only when its turn comes
        return dropped
