"""The scheduler: requests share steps, computed by callers that wait for results, or by threads where none waits.

A waiting caller's thread computes its own request, and with it other requests in progress at the same seat. When its
request is done and the others are not, a new thread continues with them, and ends with the last. So an idle scheduler
has no threads, which a fork would lose, and holds no memory.

A step that fails ends the requests in it only if it fails again for each of them alone. An interrupt ends the request
of the caller that it reaches: other requests in progress at that seat begin again.
"""

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import chain
from time import sleep
from typing import Any

from fastattn.errors import QueueFullError, check_hashable
from fastattn.scheduling.queue import Queue
from fastattn.scheduling.request import Plan, Request, Ticket
from fastattn.scheduling.seat import Desk, Seat, Worker
from fastattn.worker_threads import start_thread, warn_of_fewer_threads

# Jobs of all callers that may wait before ``submit`` refuses more.
MOST_WAITING = 100_000

_resetting = threading.Lock()


class Scheduler:
    """The scheduler of one model.

    make_worker  called with a Desk when a seat is taken
    threads      of all seats together, which share them equally
    use_threads  that of Ops
    enough       weight of jobs, waiting or in progress, that justifies a seat
    most_seats   taken at the same time
    Jobs have a ``weight`` and a ``length``; the longest jobs of a request come first.
    """

    def __init__(
        self,
        make_worker: Callable[[Desk], Worker],
        threads: int,
        use_threads: Callable[[int], AbstractContextManager[None]],
        enough: int,
        most_seats: int,
    ):
        self._make_worker, self._threads, self._use_threads = make_worker, threads, use_threads
        self._enough, self._most_seats = enough, most_seats
        self._reset()

    def _reset(self) -> None:
        """Clear the state: at first, and in a forked child, where other threads are gone."""
        # Reentrant: if an interrupt prevented its release, the thread that holds it can still take it.
        self._lock = threading.RLock()
        self._queue = Queue(self._most_seats)
        self._seats: list[Seat] = []
        self._requests: dict[Request, None] = {}  # that have begun and not ended
        self._weight = 0  # of what waits or is in progress
        self._threads_each = self._threads
        self._process = os.getpid()

    # what callers do

    def run(self, make_plan: Callable[[], Plan], caller: Hashable = None) -> Any:
        """The result of the plan; this thread computes if a seat is free.

        Called in the middle of a step, from a callback, it uses a separate scheduler, since its own seat waits for it.
        """
        request = self._new_request(make_plan, caller)
        for seat in [seat for seat in self._seats if seat.thread == threading.get_ident()]:
            if seat.is_computing:
                return Scheduler(self._make_worker, self._threads, self._use_threads, self._enough, 1).run(make_plan)
            self._leave_seat(seat)  # claimed, and an interrupt kept it from being given up
        try:
            self._enter(request, request.begin())
            while not request.done() and (seats := self._take_seats()):
                self._start_threads(seats[1:])
                self._compute(seats[0], request)
                self._hand_over(seats[0])
            request.exception()  # waits
        except BaseException:
            self._recover(request)
            raise
        return request.result()

    def claim(self) -> Seat | None:
        """Take the only seat for work that no other caller can share, and skip the queue; None if others are here.

        For one text's vector, which the queue would cost a tenth of a millisecond. ``give_up`` ends it.
        """
        if self._seats or self._queue.waiting or self._process != os.getpid():
            return None
        with self._lock:
            if self._seats or self._queue.waiting:
                return None
            seat = Seat(0, threading.get_ident())
            self._seats.append(seat)
            self._share_threads()
            return seat

    def give_up(self, seat: Seat) -> None:
        """Leave the claimed seat, and have computed what was submitted meanwhile."""
        self._leave_seat(seat)
        if self._queue.waiting:
            self._compute_waiting()

    def submit(self, make_plan: Callable[[], Plan], caller: Hashable = None) -> Request:
        """A Future of the plan's result, computed by other threads; returns at once.

        Raises QueueFullError if too many jobs wait, and InputError for a caller that is not hashable.
        """
        check_hashable("caller", caller)
        request = self._new_request(make_plan, caller)
        if self._queue.waiting >= MOST_WAITING:
            raise QueueFullError(f"{self._queue.waiting:,} jobs wait already, {MOST_WAITING:,} may")
        try:
            self._enter(request, request.begin())
            self._compute_waiting()
        except BaseException:
            self._recover(request)
            raise
        return request

    def steps(self, make_plan: Callable[[], Plan]) -> Iterator[None]:
        """Compute the plan, one step for each ``next``. For a Scheduler with no other callers."""
        request = self._new_request(make_plan, None)
        self._enter(request, request.begin())
        for seat in self._take_seats():
            try:
                while not request.done():
                    with self._use_threads(self._threads):  # not while the caller runs in between
                        self._worker(seat).advance()
                    yield
            finally:
                self._leave_seat(seat)
        request.result()

    # requests and their tickets

    def _new_request(self, make_plan: Callable[[], Plan], caller: Hashable) -> Request:
        if self._process != os.getpid():
            with _resetting:  # once, however many threads of the child come first
                if self._process != os.getpid():
                    self._reset()
        return Request(make_plan, threading.get_ident() if caller is None else caller, self._drop)

    def _enter(self, request: Request, tickets: list[Ticket]) -> None:
        """Put the tickets of a request's next stage into the queue."""
        with self._lock:
            request.planner = None
            if request.done():
                self._requests.pop(request, None)
                return
            self._requests[request] = None
            self._weight += sum(ticket.job.weight for ticket in tickets)
            # The longest last longest, and neighbours have similar lengths.
            longest_first = sorted(tickets, key=lambda ticket: -ticket.job.length)
            self._queue.add(longest_first, self._wanted_seats(len(tickets)))

    def _drop(self, request: Request) -> None:
        """The request is over: remove its waiting tickets, and have workers leave those in progress."""
        with self._lock:
            self._requests.pop(request, None)
            for ticket in self._queue.drop(request.tickets):
                ticket.done = True
                self._weight -= ticket.job.weight
            for ticket in request.tickets:
                if ticket.seat is not None:
                    ticket.seat.has_over = True

    def _take(self, seat: Seat, has_room: Callable[[Ticket, bool], bool]) -> list[Ticket]:
        if not self._queue.waiting and not seat.isolated:
            return []
        with self._lock:
            if seat.isolated:
                return self._take_isolated(seat)
            most = self._queue.waiting
            if len(self._seats) > 1:  # no more than the seat's share
                total = most + sum(len(other.tickets) for other in self._seats)
                most = -(-total // len(self._seats)) - len(seat.tickets)
            taken = self._queue.take(seat.line, most, has_room)
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
                self._leave(seat, ticket)
        return list(seat.tickets)

    def _finish(self, seat: Seat, ticket: Ticket, result: Any) -> None:
        with self._lock:
            ticket.result, ticket.done = result, True
            ticket.request.left -= 1
            self._leave(seat, ticket)
            stage_is_done = not ticket.request.left and not ticket.is_over
            if stage_is_done:
                ticket.request.planner = threading.get_ident()  # so that no other thread continues the plan
        if stage_is_done:
            tickets = ticket.request.go_on()
            self._enter(ticket.request, tickets)
            if tickets:
                self._start_threads(self._take_seats())

    def _fail(self, seat: Seat, ticket: Ticket, error: BaseException) -> None:
        ticket.request.fail(error)
        self._drop(ticket.request)

    def _leave(self, seat: Seat, ticket: Ticket) -> None:
        with self._lock:
            ticket.seat = None
            ticket.done = True
            del seat.tickets[ticket]
            self._queue.ended(ticket)
            self._weight -= ticket.job.weight

    # seats

    def _wanted_seats(self, tickets: int) -> int:
        return max(1, min(self._most_seats, tickets, self._weight // self._enough))

    def _take_seats(self) -> list[Seat]:
        """Take as many more seats as there is work for, and return them."""
        if not self._queue.waiting or len(self._seats) == self._most_seats:
            return []
        with self._lock:
            in_progress = sum(len(seat.tickets) for seat in self._seats)
            wanted = self._wanted_seats(self._queue.waiting + in_progress) if self._queue.waiting else 0
            lines = sorted(set(range(self._most_seats)) - {seat.line for seat in self._seats})
            seats = [Seat(line, threading.get_ident()) for line in lines[: max(0, wanted - len(self._seats))]]
            self._seats += seats
            self._share_threads()
            return seats

    def _leave_seat(self, seat: Seat) -> None:
        with self._lock:
            self._seats.remove(seat)
            self._share_threads()
        seat.worker = None  # frees its memory at once; the garbage collector would come later

    def _share_threads(self) -> None:
        self._threads_each = self._threads // max(1, len(self._seats))

    def _leave_if_idle(self, seat: Seat) -> bool:
        """Leave the seat, unless there is something left to do."""
        with self._lock:
            if self._queue.waiting or not seat.is_idle:
                return False
            self._leave_seat(seat)
            return True

    def _start_threads(self, seats: list[Seat]) -> None:
        """Start a thread for each seat, as far as the system gives threads."""
        for seat in seats:
            if not self._start_thread(seat):
                self._leave_seat(seat)

    def _compute_waiting(self) -> None:
        """Have threads compute the waiting jobs; if the system gives none, compute them here."""
        self._start_threads(self._take_seats())
        if not self._seats:
            for n, seat in enumerate(self._take_seats()):
                if n:
                    self._leave_seat(seat)
                else:
                    self._compute_all(seat)

    def _start_thread(self, seat: Seat) -> bool:
        """Start a thread that computes until nothing is left; False if the system gives none."""
        name = f"fastattn worker {seat.line}"
        thread = threading.Thread(target=self._serve, args=(seat, seat.thread), name=name, daemon=True)
        try:
            start_thread(thread)
        except (RuntimeError, MemoryError) as error:
            warn_of_fewer_threads(error)
            return False
        return True

    def _serve(self, seat: Seat, starter: int) -> None:
        with self._lock:
            if seat not in self._seats or seat.thread != starter:  # an interrupt reached the starter
                return
            seat.thread = threading.get_ident()
        while True:
            try:
                self._compute_all(seat)
                return
            except BaseException as error:  # noqa: BLE001  no interrupt, which the main thread alone has: a request's
                self._isolate(seat, error)

    def _hand_over(self, seat: Seat) -> None:
        """Have a thread continue with other requests in progress at this thread's seat."""
        if not self._leave_if_idle(seat) and not self._start_thread(seat):
            self._compute_all(seat)

    def _compute_all(self, seat: Seat) -> None:
        while not self._leave_if_idle(seat):
            self._compute(seat)

    def _compute(self, seat: Seat, request: Request | None = None) -> None:
        """Advance the seat's worker until the request is done, or nothing is left to do."""
        busy = seat.is_computing = True
        try:
            while busy:
                threads = self._threads_each
                with self._use_threads(max(1, threads)):
                    while busy and threads == self._threads_each and (request is None or not request.done()):
                        try:
                            busy = self._worker(seat).advance() or bool(seat.isolated)
                        except Exception as error:  # noqa: BLE001  a request's
                            self._isolate(seat, error)
                busy = busy and (request is None or not request.done())
        finally:
            seat.is_computing = False

    def _worker(self, seat: Seat) -> Worker:
        """The seat's worker, after it has left tickets that are over."""
        if seat.worker is None:
            seat.worker = self._make_worker(_SeatDesk(self, seat))
        if seat.has_over:
            seat.has_over = False
            seat.worker.drop()
        return seat.worker

    # what went wrong

    def _isolate(self, seat: Seat, error: BaseException) -> None:
        """After a failed step: its one request ends with the error; several requests are run one by one from now on."""
        seat.worker = None
        with self._lock:
            shared: dict[Request, list[Ticket]] = {}
            # Requests whose plan or callback failed in this step.
            failed = [request for request in self._requests if request.planner == threading.get_ident()]
            tickets = list(seat.tickets)
            for ticket in tickets:
                if ticket.is_over or ticket.request in failed:
                    self._leave(seat, ticket)
                else:
                    shared.setdefault(ticket.request, []).append(ticket)
            if failed or len({ticket.request for ticket in tickets}) > 1:  # it may be the error of one who is over
                seat.isolated.extend(shared.values())
                seat.tickets.clear()
            else:
                # With nothing in progress the fault is ours: end all requests, so that none waits for ever.
                failed = list(shared if tickets else self._requests)
                for ticket in list(seat.tickets):
                    self._leave(seat, ticket)
        for request in failed:  # without the lock, since it calls back
            request.fail(error)
            self._drop(request)

    def _recover(self, request: Request) -> None:
        """Restore the state after an interrupt, which may have come between any two lines of this thread.

        The request is over. This thread leaves its seats; other requests in progress there go back into the queue, and
        a plan of theirs that was interrupted begins again.
        """
        while True:
            try:
                for other in (*self._requests, request):
                    other.free()
                request.abandon()
                self._put_in_order(threading.get_ident())
                break
            except KeyboardInterrupt:  # another one: the first is raised in the end
                continue
        while any(ticket.seat in self._seats for ticket in request.tickets):  # until workers have left them
            sleep(0.001)

    def _put_in_order(self, me: int) -> None:
        """Rebuild queue and seats without the seats of thread ``me``."""
        self._lock.acquire()
        try:
            self._seats = [seat for seat in self._seats if seat.thread != me]
            self._share_threads()
            self._requests = {other: None for other in self._requests if not other.done()}
            self._queue, self._weight = Queue(self._most_seats), 0
            for seat in self._seats:
                seat.has_over = True
                for ticket in chain(seat.tickets, *seat.isolated):
                    self._queue.began(ticket)
                    self._weight += ticket.job.weight
            stopped = [other for other in self._requests if other.planner == me]
            ready = []
            for other in self._requests:
                if other.planner is None:
                    waiting = [ticket for ticket in other.tickets if not ticket.done and ticket.seat not in self._seats]
                    for ticket in waiting:
                        ticket.seat = None
                        self._weight += ticket.job.weight
                    self._queue.add(waiting, self._wanted_seats(len(waiting) or 1))
                    other.left = sum(not ticket.done for ticket in other.tickets)
                    if not other.left:
                        other.planner = me
                        ready.append(other)
        finally:
            self._release()
        for other in stopped:
            self._enter(other, other.begin())
        for other in ready:
            self._enter(other, other.go_on())
        self._compute_waiting()

    def _release(self) -> None:
        """Release the lock, however often this thread holds it."""
        with suppress(RuntimeError):
            while True:
                self._lock.release()


class _SeatDesk:
    """The Desk of the worker at one of a scheduler's seats."""

    def __init__(self, scheduler: Scheduler, seat: Seat):
        self._scheduler, self._seat = scheduler, seat
        self.take = partial(scheduler._take, seat)
        self.finish = partial(scheduler._finish, seat)
        self.fail = partial(scheduler._fail, seat)
        self.leave = partial(scheduler._leave, seat)

    def waiting(self) -> int:
        return self._scheduler._queue.waiting or len(self._seat.isolated)

    def newcomers(self) -> int:
        with self._scheduler._lock:
            return len(self._scheduler._queue.newcomers())
