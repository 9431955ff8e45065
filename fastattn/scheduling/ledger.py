"""The state of a scheduler: what waits, what is in progress at which seat. Every change is made under one lock.

A request is in one of these states, from ``enter`` on:
    to be planned  in ``plans``: new, or a stage of its is done, or it is to fail, or its plan has paused
    planned        its ``planner`` is a thread, which calls back to users and so has no lock
    under way      its tickets are in the queue or at seats
    over           done, or about to be: in ``requests`` no more
A seat is taken, by a thread: it steps, or is between two steps; then plans go on and callbacks are called. It is left
when there is nothing to do; or it rests, for a while in which nobody takes it, where its worker could do nothing. What
waits is the other seats' then; only when all rest the requests fail. Lines are the seats' numbers.

Order of locks: this one, then the queue of a worker that a seat's ``wake`` puts something into. A request's own
(a Future's) is never taken under this one, since it is held while users' callbacks are called.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple

from fastattn.scheduling.queue import Queue
from fastattn.scheduling.request import Request, Ticket
from fastattn.scheduling.seat import Seat

# Seconds that a seat rests: twice as many each time, until it has done something.
FIRST_REST, LONGEST_REST = 0.1, 30.0


class Rest(NamedTuple):
    """until    when it may be tried again, in monotonic time
    seconds  how long it is
    """

    until: float
    seconds: float


class Ledger:
    """Requests, their tickets, and seats.

    threads     of all seats together, which share them equally
    enough      weight of jobs, waiting or in progress, that justifies a seat
    most_seats  taken at the same time
    """

    def __init__(self, threads: int, enough: int, most_seats: int):
        self._threads, self._enough, self._most_seats = threads, enough, most_seats
        # Reentrant: if an interrupt prevented its release, the thread that holds it can still take it.
        self.lock = threading.RLock()
        self.queue = Queue(most_seats)
        self.plans: deque[Request] = deque()
        self.seats: list[Seat] = []
        self.rests: dict[int, Rest] = {}  # by line, until a seat there has done something
        self.requests: dict[Request, None] = {}  # that are not over
        self.weight = 0  # of what waits or is in progress
        self.threads_each = threads

    # requests and their tickets

    def enter(self, request: Request, tickets: list[Ticket]) -> None:
        """Have the tickets of a request's next stage wait; without any, the request itself, for its plan to go on."""
        with self.lock:
            request.planner = None
            if request.done():
                self.drop(request)
                return
            self.requests[request] = None
            if not tickets:
                self.plans.append(request)
                if self.seats:
                    min(self.seats, key=lambda seat: len(seat.tickets)).wake()
                return
            self.weight += sum(ticket.job.weight for ticket in tickets)
            # The longest last longest, and neighbours have similar lengths.
            longest_first = sorted(tickets, key=lambda ticket: -ticket.job.length)
            self.queue.add(longest_first, self._wanted_seats(len(tickets)))
            for seat in sorted(self.seats, key=lambda seat: len(seat.tickets))[: len(tickets)]:
                seat.wake()

    def fail(self, request: Request, error: BaseException) -> None:
        """Have a request end with an error after this step of this thread."""
        with self.lock:
            request.error = request.error or error
            self.plans.append(request)

    def next_plan(self) -> Request | None:
        """A request whose plan this thread, and no other, goes on with."""
        with self.lock:
            while self.plans:
                request = self.plans.popleft()
                if not request.done():
                    request.planner = threading.get_ident()
                    return request
            return None

    def drop(self, request: Request) -> None:
        """The request is over: remove its waiting tickets, and have workers leave those in progress."""
        with self.lock:
            self.requests.pop(request, None)
            for ticket in self.queue.drop(request.tickets):
                ticket.done = True
                self.weight -= ticket.job.weight
            for ticket in request.tickets:
                if ticket.seat is not None:
                    ticket.seat.has_over = True
                    ticket.seat.wake()

    def take(self, seat: Seat, has_room: Callable[[Ticket, bool], bool]) -> list[Ticket]:
        """Have the seat take waiting tickets, as a Desk does."""
        if not self.queue.waiting and not seat.isolated:
            return []
        with self.lock:
            if seat.isolated:
                return self._take_isolated(seat)
            most = self.queue.waiting
            if len(self.seats) > 1:  # no more than the seat's share
                total = most + sum(len(other.tickets) for other in self.seats)
                most = -(-total // len(self.seats)) - len(seat.tickets)
            taken = self.queue.take(seat.line, most, has_room)
            for ticket in taken:
                ticket.seat = seat
                seat.tickets[ticket] = None
            return taken

    def put_back(self, seat: Seat, ticket: Ticket) -> None:
        """A ticket is no longer in progress, and waits again."""
        with self.lock:
            if ticket.is_over:
                self.leave(seat, ticket)
                return
            ticket.seat = None
            del seat.tickets[ticket]
            self.queue.ended(ticket)
            self.queue.add([ticket], 1)

    def _take_isolated(self, seat: Seat) -> list[Ticket]:
        if seat.tickets:
            return []
        taken = seat.isolated.popleft()
        seat.tickets.update(dict.fromkeys(taken))
        for ticket in taken:
            if ticket.is_over:
                self.leave(seat, ticket)
        return list(seat.tickets)

    def finish(self, seat: Seat, ticket: Ticket, result: Any) -> None:
        """A ticket is done; if it is the last of its stage, the plan goes on."""
        with self.lock:
            self.rests.pop(seat.line, None)
            ticket.result, ticket.done = result, True
            ticket.request.left -= 1
            self.leave(seat, ticket)
            if not ticket.request.left and not ticket.is_over:
                self.plans.append(ticket.request)

    def leave(self, seat: Seat, ticket: Ticket) -> None:
        """A ticket is no longer in progress."""
        with self.lock:
            ticket.seat = None
            ticket.done = True
            del seat.tickets[ticket]
            self.queue.ended(ticket)
            self.weight -= ticket.job.weight

    # seats

    def _wanted_seats(self, tickets: int) -> int:
        return max(1, min(self._most_seats, tickets, self.weight // self._enough))

    @property
    def has_work(self) -> bool:
        """Whether something waits."""
        return bool(self.queue.waiting or self.plans)

    def take_seats(self) -> list[Seat]:
        """Take as many more seats as there is work for, and return them."""
        if not self.has_work or len(self.seats) == self._most_seats:
            return []
        with self.lock:
            in_progress = sum(len(seat.tickets) for seat in self.seats)
            wanted = self._wanted_seats(self.queue.waiting + in_progress) if self.has_work else 0
            seats = [
                Seat(line, threading.get_ident()) for line in self._free_lines()[: max(0, wanted - len(self.seats))]
            ]
            self.seats += seats
            self._share_threads()
            return seats

    def _free_lines(self) -> list[int]:
        """The lines where a seat can be taken; where all rest, that of the shortest rest, so that somebody tries."""
        now, taken = monotonic(), {seat.line for seat in self.seats}
        lines = [line for line in range(self._most_seats) if line not in taken]
        rested = [line for line in lines if line not in self.rests or self.rests[line].until <= now]
        return rested if rested or taken else sorted(lines, key=lambda line: self.rests[line].until)[:1]

    @property
    def is_free(self) -> bool:
        """Whether nobody computes, and nothing waits."""
        return not self.seats and not self.has_work

    def claim(self) -> Seat | None:
        """Take the only seat; None if others are here."""
        with self.lock:
            if not self.is_free:
                return None
            seat = Seat(0, threading.get_ident())
            self.seats.append(seat)
            self._share_threads()
            return seat

    def offer(self, seat: Seat) -> None:
        """This thread computes there no more: it has started one that seizes the seat, or has seized it by now."""
        with self.lock:
            if seat.thread == threading.get_ident():
                seat.is_computing = False

    def seize(self, seat: Seat, starter: int) -> bool:
        """Take the seat over from the thread that started this one; False if that has lost it to an interrupt."""
        with self.lock:
            if seat not in self.seats or seat.thread != starter:
                return False
            seat.thread, seat.is_computing, seat.is_between = threading.get_ident(), True, False
            return True

    def has(self, seat: Seat) -> bool:
        """Whether this thread still has the seat: not handed over, not left, not lost to an interrupt."""
        return seat.is_computing and seat.thread == threading.get_ident() and seat in self.seats

    def leave_seat(self, seat: Seat) -> None:
        """The seat is free."""
        with self.lock:
            self.seats.remove(seat)
            self._share_threads()
        seat.let_go()

    def leave_if_idle(self, seat: Seat) -> bool:
        """Leave the seat, unless there is something left to do; True where this thread has it no more."""
        with self.lock:
            if not self.has(seat):
                return True
            if self.has_work or not seat.is_idle:
                return False
            self.leave_seat(seat)
            return True

    def _share_threads(self) -> None:
        self.threads_each = self._threads // max(1, len(self.seats))

    # what went wrong

    def isolate(self, seat: Seat) -> list[Request]:
        """After a failed step of this thread: have requests run one by one from now on; returns those that fail."""
        with self.lock:
            tickets = list(seat.tickets)
            shared: dict[Request, list[Ticket]] = {}
            for ticket in tickets:
                if ticket.is_over:
                    self.leave(seat, ticket)
                else:
                    shared.setdefault(ticket.request, []).append(ticket)
            if not tickets:
                return self._rest(seat)
            if len({ticket.request for ticket in tickets}) > 1:  # it may be the error of one who is over
                seat.isolated.extend(shared.values())
                seat.tickets.clear()
                return []
            for ticket in list(seat.tickets):
                self.leave(seat, ticket)
            return list(shared)

    def _rest(self, seat: Seat) -> list[Request]:
        """The seat's worker can do nothing: leave it for a while.

        Returns the requests that fail: all where no seat has done anything since it rested, else none.
        """
        last = self.rests.get(seat.line)
        seconds = FIRST_REST if last is None else min(2 * last.seconds, LONGEST_REST)
        self.rests[seat.line] = Rest(monotonic() + seconds, seconds)
        for ticket in chain.from_iterable(seat.isolated):
            seat.tickets[ticket] = None
            self.put_back(seat, ticket)
        self.leave_seat(seat)
        for other in self.seats:
            other.wake()
        return [] if self.seats or len(self.rests) < self._most_seats else list(self.requests)

    def rebuild(self, me: int) -> None:
        """Rebuild queue and seats without the seats of thread ``me``, which an interrupt may have reached anywhere.

        Requests whose plan it was running begin again.
        """
        self.lock.acquire()
        try:
            self.seats = [seat for seat in self.seats if seat.thread != me]
            self._share_threads()
            self.requests = {request: None for request in self.requests if not request.done()}
            self.queue, self.weight, self.plans = Queue(self._most_seats), 0, deque()
            for seat in self.seats:
                seat.has_over = True
                seat.wake()
                for ticket in chain(seat.tickets, *seat.isolated):
                    self.queue.began(ticket)
                    self.weight += ticket.job.weight
            for request in self.requests:
                if request.planner == me:
                    request.begin_again()
                if request.planner is None and (request.error is not None or not self._add_again(request)):
                    self.plans.append(request)
        finally:
            with suppress(RuntimeError):  # however often this thread holds it
                while True:
                    self.lock.release()

    def _add_again(self, request: Request) -> int:
        """Put a request's tickets that are at no seat into the new queue; returns how many of its stage are left."""
        waiting = [ticket for ticket in request.tickets if not ticket.done and ticket.seat not in self.seats]
        for ticket in waiting:
            ticket.seat = None
            self.weight += ticket.job.weight
        self.queue.add(waiting, self._wanted_seats(len(waiting) or 1))
        request.left = sum(not ticket.done for ticket in request.tickets)
        return request.left
