"""The state of a scheduler: what waits, what is in progress at which seat. Every change is made under one lock."""

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Any

from fastattn.scheduling.queue import Queue
from fastattn.scheduling.request import Request, Ticket
from fastattn.scheduling.seat import Seat


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
        self.seats: list[Seat] = []
        self.requests: dict[Request, None] = {}  # that have begun and not ended
        self.weight = 0  # of what waits or is in progress
        self.threads_each = threads

    # requests and their tickets

    def enter(self, request: Request, tickets: list[Ticket]) -> None:
        """Put the tickets of a request's next stage into the queue."""
        with self.lock:
            request.planner = None
            if request.done():
                self.requests.pop(request, None)
                return
            self.requests[request] = None
            self.weight += sum(ticket.job.weight for ticket in tickets)
            # The longest last longest, and neighbours have similar lengths.
            longest_first = sorted(tickets, key=lambda ticket: -ticket.job.length)
            self.queue.add(longest_first, self._wanted_seats(len(tickets)))
            for seat in sorted(self.seats, key=lambda seat: len(seat.tickets))[: len(tickets)]:
                seat.wake()

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

    def _take_isolated(self, seat: Seat) -> list[Ticket]:
        if seat.tickets:
            return []
        taken = seat.isolated.popleft()
        seat.tickets.update(dict.fromkeys(taken))
        for ticket in taken:
            if ticket.is_over:
                self.leave(seat, ticket)
        return list(seat.tickets)

    def finish(self, seat: Seat, ticket: Ticket, result: Any) -> bool:
        """A ticket is done. True if its stage is: then this thread, and no other, continues the plan."""
        with self.lock:
            ticket.result, ticket.done = result, True
            ticket.request.left -= 1
            self.leave(seat, ticket)
            if ticket.request.left or ticket.is_over:
                return False
            ticket.request.planner = threading.get_ident()
            return True

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

    def take_seats(self) -> list[Seat]:
        """Take as many more seats as there is work for, and return them."""
        if not self.queue.waiting or len(self.seats) == self._most_seats:
            return []
        with self.lock:
            in_progress = sum(len(seat.tickets) for seat in self.seats)
            wanted = self._wanted_seats(self.queue.waiting + in_progress) if self.queue.waiting else 0
            lines = sorted(set(range(self._most_seats)) - {seat.line for seat in self.seats})
            seats = [Seat(line, threading.get_ident()) for line in lines[: max(0, wanted - len(self.seats))]]
            self.seats += seats
            self._share_threads()
            return seats

    @property
    def is_free(self) -> bool:
        """Whether nobody computes, and nothing waits."""
        return not self.seats and not self.queue.waiting

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
            seat.thread, seat.is_computing = threading.get_ident(), True
            return True

    def leave_seat(self, seat: Seat) -> None:
        """The seat is free."""
        with self.lock:
            self.seats.remove(seat)
            self._share_threads()
        seat.worker = None  # frees its memory at once; the garbage collector would come later

    def leave_if_idle(self, seat: Seat) -> bool:
        """Leave the seat, unless there is something left to do."""
        with self.lock:
            if self.queue.waiting or not seat.is_idle:
                return False
            self.leave_seat(seat)
            return True

    def _share_threads(self) -> None:
        self.threads_each = self._threads // max(1, len(self.seats))

    # what went wrong

    def isolate(self, seat: Seat) -> list[Request]:
        """After a failed step of this thread: have requests run one by one from now on; returns those that fail."""
        with self.lock:
            shared: dict[Request, list[Ticket]] = {}
            # Requests whose plan or callback failed in this step.
            failed = [request for request in self.requests if request.planner == threading.get_ident()]
            tickets = list(seat.tickets)
            for ticket in tickets:
                if ticket.is_over or ticket.request in failed:
                    self.leave(seat, ticket)
                else:
                    shared.setdefault(ticket.request, []).append(ticket)
            if failed or len({ticket.request for ticket in tickets}) > 1:  # it may be the error of one who is over
                seat.isolated.extend(shared.values())
                seat.tickets.clear()
            else:
                # With nothing in progress the fault is ours: end all requests, so that none waits for ever.
                failed = list(shared if tickets else self.requests)
                for ticket in list(seat.tickets):
                    self.leave(seat, ticket)
            return failed

    def rebuild(self, me: int) -> tuple[list[Request], list[Request]]:
        """Rebuild queue and seats without the seats of thread ``me``, which an interrupt may have reached anywhere.

        Returns the requests whose plan it was running, which begin again, and those whose stage is done, whose plan it
        continues now.
        """
        self.lock.acquire()
        try:
            self.seats = [seat for seat in self.seats if seat.thread != me]
            self._share_threads()
            self.requests = {request: None for request in self.requests if not request.done()}
            self.queue, self.weight = Queue(self._most_seats), 0
            for seat in self.seats:
                seat.has_over = True
                seat.wake()
                for ticket in chain(seat.tickets, *seat.isolated):
                    self.queue.began(ticket)
                    self.weight += ticket.job.weight
            stopped = [request for request in self.requests if request.planner == me]
            ready = []
            for request in self.requests:
                if request.planner is None and not self._add_again(request):
                    request.planner = me
                    ready.append(request)
            return stopped, ready
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
