"""The scheduler: requests share steps, computed by callers that wait for results, or by threads where none waits.

A waiting caller's thread computes its own request, and with it other requests in progress at the same seat. When its
request is done and the others are not, a new thread continues with them, and ends with the last. So an idle scheduler
has no threads, which a fork would lose, and holds no memory.

Plans go on, and results are set, between two steps: what a plan raises is its own request's, and a callback that waits
for another result has its thread's seat handed over first. What is submitted begins there too, so that to submit takes
no time; who waits begins by himself. The ledger's module says which states there are, and the order of locks.

A step that fails ends the requests in it only if it fails again for each of them alone; if there are none, its seat
rests. An interrupt ends the request of the caller that it reaches: others in progress at that seat begin again.
"""

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from time import sleep
from typing import Any

from fastattn.errors import QueueFullError, check_hashable
from fastattn.scheduling.ledger import Ledger
from fastattn.scheduling.request import Plan, Request, Ticket, is_interrupt
from fastattn.scheduling.seat import Desk, Seat, Worker
from fastattn.system.worker_threads import start_thread, warn_of_fewer_threads

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
        self._ledger = Ledger(self._threads, self._enough, self._most_seats)
        self._process = os.getpid()

    # what callers do

    def run(self, make_plan: Callable[[], Plan], caller: Hashable = None) -> Any:
        """The result of the plan; this thread computes if a seat is free.

        Called in the middle of a step, from a callback, it uses a separate scheduler, since its own seat waits for it.
        """
        request = self._new_request(make_plan, caller)
        if any(seat.is_computing and seat.thread == threading.get_ident() for seat in self._ledger.seats):
            return Scheduler(self._make_worker, self._threads, self._use_threads, self._enough, 1).run(make_plan)
        try:
            self._ledger.enter(request, request.go_on())
            while not request.done() and (seats := self._ledger.take_seats()):
                self._start_threads(seats[1:])
                self._compute(seats[0], request)
                self._hand_over(seats[0])
            request.exception()  # waits
        except BaseException:
            self._recover(request)
            raise
        return request.result()

    def run_alone(self, make_plan: Callable[[], Plan], do_jobs: Callable[[list[Any]], list[Any]]) -> Any:
        """As ``run``, but if nobody else is here ``do_jobs`` computes each stage's results, without queue and worker.

        For one text's vector, which the queue would cost a tenth of a millisecond.
        """
        if self._process != os.getpid() or not self._ledger.is_free:
            return self.run(make_plan)
        try:
            if seat := self._ledger.claim():
                with self._use_threads(self._threads):
                    result = _outcome(make_plan(), do_jobs)
                self._ledger.leave_seat(seat)
                if self._ledger.has_work:
                    self._compute_waiting()
                return result
        except BaseException:
            self._recover()
            raise
        return self.run(make_plan)

    def submit(self, make_plan: Callable[[], Plan], caller: Hashable = None) -> Request:
        """A Future of the plan's result, computed by other threads; returns at once.

        Raises QueueFullError if too many jobs wait, and InputError for a caller that is not hashable.
        """
        check_hashable("caller", caller)
        ledger = self._ledger
        if self._process == os.getpid() and (waiting := ledger.queue.waiting + len(ledger.plans)) >= MOST_WAITING:
            raise QueueFullError(f"{waiting:,} jobs wait already, {MOST_WAITING:,} may")
        return self.start(make_plan, caller)

    def start(self, make_plan: Callable[[], Plan], caller: Hashable = None) -> Request:
        """``submit``, however many jobs wait: for who asks for no more before a result has come."""
        request = self._new_request(make_plan, caller)
        try:
            self._ledger.enter(request, [])
            self._compute_waiting()
        except BaseException:
            self._recover(request)
            raise
        return request

    def steps(self, make_plan: Callable[[], Plan]) -> Iterator[None]:
        """Compute the plan, one step for each ``next``. For a Scheduler with no other callers."""
        request = self._new_request(make_plan, None)
        self._ledger.enter(request, request.go_on())
        for seat in self._ledger.take_seats():
            try:
                while not request.done():
                    seat.thread = threading.get_ident()  # any may ask for the next one
                    with self._use_threads(self._threads):  # not while the caller runs in between
                        self._step(seat)
                    yield
            finally:
                if seat in self._ledger.seats:  # it does not rest
                    self._ledger.leave_seat(seat)
        request.result()

    # requests

    def _new_request(self, make_plan: Callable[[], Plan], caller: Hashable) -> Request:
        if self._process != os.getpid():
            with _resetting:  # once, however many threads of the child come first
                if self._process != os.getpid():
                    self._reset()
        return Request(make_plan, threading.get_ident() if caller is None else caller, self._drop, self._hand_over_to)

    def _hand_over_to(self, request: Request) -> None:
        """Before this thread waits for a request: if it is between two steps, have another compute at its seat."""
        for seat in list(self._ledger.seats):
            if self._ledger.has(seat) and seat.is_between and not self._start_thread(seat):
                self._compute(seat, request)

    def _drop(self, request: Request) -> None:
        self._ledger.drop(request)  # that of this process, which may be a child of the request's

    # seats

    def _start_threads(self, seats: list[Seat]) -> None:
        """Start a thread for each seat, as far as the system gives threads."""
        for seat in seats:
            if not self._start_thread(seat):
                self._ledger.leave_seat(seat)

    def _compute_waiting(self) -> None:
        """Have threads compute the waiting jobs; if the system gives none, compute them here."""
        self._start_threads(self._ledger.take_seats())
        if not self._ledger.seats:
            for n, seat in enumerate(self._ledger.take_seats()):
                if n:
                    self._ledger.leave_seat(seat)
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
        self._ledger.offer(seat)
        return True

    def _serve(self, seat: Seat, starter: int) -> None:
        if not self._ledger.seize(seat, starter):
            return
        while True:
            try:
                self._compute_all(seat)
                return
            except BaseException as error:  # noqa: BLE001  no interrupt, which the main thread alone has
                if not self._ledger.has(seat):
                    return
                self._isolate(seat, error)

    def _hand_over(self, seat: Seat) -> None:
        """Have a thread continue with other requests in progress at this thread's seat."""
        if not self._ledger.leave_if_idle(seat) and not self._start_thread(seat):
            self._compute_all(seat)

    def _compute_all(self, seat: Seat) -> None:
        while not self._ledger.leave_if_idle(seat):
            self._compute(seat)

    def _compute(self, seat: Seat, request: Request | None = None) -> None:
        """Steps, until the request is done, nothing is left to do, or this thread has the seat no more."""
        busy = True
        while busy:
            threads = self._ledger.threads_each
            with self._use_threads(max(1, threads)):
                while busy and threads == self._ledger.threads_each and (request is None or not request.done()):
                    busy = self._step(seat)
            busy = busy and (request is None or not request.done())

    def _step(self, seat: Seat) -> bool:
        """A step of the seat's worker, and plans before and after it; False if nothing is left to do here."""
        busy = self._go_on(seat)
        if not self._ledger.has(seat):
            return False
        seat.is_between = False
        error: BaseException | None = None
        try:
            busy |= self._worker(seat).advance() or bool(seat.isolated)
        except BaseException as raised:
            if is_interrupt(raised):
                raise
            error = raised
        seat.is_between = True
        if error is not None:
            self._isolate(seat, error)
        busy |= self._go_on(seat) or error is not None
        return busy and self._ledger.has(seat)

    def _go_on(self, seat: Seat) -> bool:
        """Go on with the plans that can, but for those that pause, or come meanwhile; False if there are none."""
        count = len(self._ledger.plans)
        for _ in range(count):
            if not self._ledger.has(seat) or (request := self._ledger.next_plan()) is None:
                break
            seat.is_between = True
            self._ledger.enter(request, request.go_on())
        if (count or self._ledger.rests) and self._ledger.has(seat):
            self._start_threads(self._ledger.take_seats())
        return count > 0

    def _worker(self, seat: Seat) -> Worker:
        """The seat's worker, after it has left tickets that are over."""
        if seat.worker is None:
            seat.worker = self._make_worker(_SeatDesk(self._ledger, seat))
        if seat.has_over:
            seat.has_over = False
            seat.worker.drop()
        return seat.worker

    # what went wrong

    def _isolate(self, seat: Seat, error: BaseException) -> None:
        """After a failed step: its one request ends with the error; several requests are run one by one from now on."""
        seat.worker = None
        for request in self._ledger.isolate(seat):  # without the lock, since it calls back
            request.fail(error)
            self._ledger.drop(request)
        if not self._ledger.has(seat):  # it rests
            self._compute_waiting()

    def _recover(self, request: Request | None = None) -> None:
        """Restore the state after an interrupt, which may have come between any two lines of this thread.

        The request is over. This thread leaves its seats; other requests in progress there wait again, and those whose
        plan was interrupted begin again.
        """
        own = [] if request is None else [request]
        while True:
            try:
                for other in (*self._ledger.requests, *own):
                    other.free()
                for other in own:
                    other.abandon()
                self._ledger.rebuild(threading.get_ident())
                self._compute_waiting()
                break
            except KeyboardInterrupt:  # another one: the first is raised in the end
                continue
        while any(ticket.seat in self._ledger.seats for other in own for ticket in other.tickets):
            sleep(0.001)  # until workers have left them


class _SeatDesk:
    """The Desk of the worker at one of a scheduler's seats."""

    def __init__(self, ledger: Ledger, seat: Seat):
        self._ledger, self._seat = ledger, seat
        self.place: tuple[object, int] = (ledger, seat.line)
        self.take = partial(ledger.take, seat)
        self.finish = partial(ledger.finish, seat)
        self.put_back = partial(ledger.put_back, seat)
        self.leave = partial(ledger.leave, seat)

    def waiting(self) -> int:
        return self._ledger.queue.waiting or len(self._seat.isolated)

    def newcomers(self) -> int:
        with self._ledger.lock:
            return len(self._ledger.queue.newcomers())

    def wake_by(self, wake: Callable[[], None]) -> None:
        self._seat.wake = wake

    def fail(self, ticket: Ticket, error: BaseException) -> None:
        self._ledger.fail(ticket.request, error)


def _outcome(plan: Plan, do_jobs: Callable[[list[Any]], list[Any]]) -> Any:
    """What the plan returns, given the results of its jobs."""
    results: Any = None
    while True:
        try:
            jobs = plan.send(results)
        except StopIteration as end:
            return end.value
        results = do_jobs(jobs or [])
