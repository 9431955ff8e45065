"""The scheduler: requests share steps. Callers that wait for results compute the steps, or threads if no caller waits.

A waiting caller's thread computes the caller's request, and with it other requests in progress at the same slot. When
that request is done and others are not, a new thread continues with the others, and ends with the last. So an idle
scheduler has no threads, which a fork would lose, and holds no memory.

Plans continue, and requests get results, between two steps: an error of a plan ends its own request, and before a
callback waits for another result, its thread hands its slot over. Submitted requests begin there too, so that
``submit`` takes no time; ``run`` begins its own. ``state.py`` has the states of requests and slots, and the order of
locks.

After a failed step each of its requests runs alone, and ends if it fails again; if no request was in the step, the slot
rests. An interrupt ends the request of the caller that it reaches; others in progress at that slot begin again.
"""

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, suppress
from time import sleep
from typing import Any

from fastattn.errors import QueueFullError, check_hashable
from fastattn.scheduling.request import Plan, Request, is_interrupt
from fastattn.scheduling.state import SchedulerState, Worker, WorkerSlot
from fastattn.system.worker_threads import start_thread, warn_of_fewer_threads

# Jobs of all callers that may wait before ``submit`` refuses more.
MOST_WAITING = 100_000

_reset_lock = threading.Lock()


class Scheduler:
    """The scheduler of one model.

    make_worker  called with a WorkerSlot when a slot is taken
    threads      how many threads all slots have together; each gets an equal share
    use_threads  ``Ops.use_threads``
    slot_weight  the weight of jobs, waiting or in progress, for which a slot is taken
    most_slots   the most slots that are taken at the same time
    observe      called behind each step, by the thread that made it, with how many jobs it had, and how many wait. Its
                 errors are ignored; it hears nothing of ``run_alone``
    Jobs have a ``weight`` and a ``length``; the longest jobs of a request come first.
    """

    def __init__(
        self,
        make_worker: Callable[[WorkerSlot], Worker],
        threads: int,
        use_threads: Callable[[int], AbstractContextManager[None]],
        slot_weight: int,
        most_slots: int,
    ):
        self._make_worker, self._threads, self._use_threads = make_worker, threads, use_threads
        self._slot_weight, self._most_slots = slot_weight, most_slots
        self.observe: Callable[[int, int], None] = lambda jobs, waiting: None
        self._reset()

    def _reset(self) -> None:
        """Clear the state: at first, and in a forked child, which has no other threads."""
        self._state = SchedulerState(self._threads, self._slot_weight, self._most_slots)
        self._process = os.getpid()

    def run(self, make_plan: Callable[[], Plan], caller: Hashable = None) -> Any:
        """The result of the plan; this thread computes if a slot is free.

        A call from a callback, in a step, uses a separate scheduler, since this thread's slot waits for the callback.
        """
        request = self._new_request(make_plan, caller)
        if any(slot.is_computing and slot.thread == threading.get_ident() for slot in self._state.slots):
            return Scheduler(self._make_worker, self._threads, self._use_threads, self._slot_weight, 1).run(make_plan)
        try:
            self._state.enter(request, request.continue_plan())
            while not request.done() and (slots := self._state.take_slots()):
                self._start_threads(slots[1:])
                self._compute(slots[0], request)
                self._hand_over(slots[0])
            request.exception()  # waits
        except BaseException:
            self._recover(request)
            raise
        return request.result()

    def run_alone(self, make_plan: Callable[[], Plan], do_jobs: Callable[[list[Any]], list[Any]]) -> Any:
        """``run``; but if nobody else computes, ``do_jobs`` does the jobs, which saves a call for one text 0.1 ms."""
        if self._process != os.getpid() or not self._state.is_free:
            return self.run(make_plan)
        try:
            if slot := self._state.claim():
                with self._use_threads(self._threads):
                    result = _outcome(make_plan(), do_jobs)
                self._state.free_slot(slot)
                if self._state.has_work:
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
        state = self._state
        if self._process == os.getpid() and (waiting := state.queue.waiting + len(state.to_plan)) >= MOST_WAITING:
            raise QueueFullError(f"{waiting:,} jobs wait already, {MOST_WAITING:,} may")
        return self.start(make_plan, caller)

    def start(self, make_plan: Callable[[], Plan], caller: Hashable = None) -> Request:
        """``submit``, however many jobs wait: for a caller that waits for a result before it asks for more."""
        request = self._new_request(make_plan, caller)
        try:
            self._state.enter(request, [])
            self._compute_waiting()
        except BaseException:
            self._recover(request)
            raise
        return request

    def steps(self, make_plan: Callable[[], Plan]) -> Iterator[None]:
        """Compute the plan, one step for each ``next``; the Scheduler has no other callers."""
        request = self._new_request(make_plan, None)
        self._state.enter(request, request.continue_plan())
        for slot in self._state.take_slots():
            try:
                while not request.done():
                    slot.thread = threading.get_ident()  # any thread may ask for the next step
                    with self._use_threads(self._threads):  # only during the step
                        self._step(slot)
                    yield
            finally:
                if slot in self._state.slots:  # the slot does not rest
                    self._state.free_slot(slot)
        request.result()

    def _new_request(self, make_plan: Callable[[], Plan], caller: Hashable) -> Request:
        if self._process != os.getpid():
            with _reset_lock:  # several threads of the child may come at once
                if self._process != os.getpid():
                    self._reset()

        def drop(request: Request) -> None:
            self._state.drop(request)  # ``_state`` is looked up late, since a forked child has a state of its own

        return Request(make_plan, threading.get_ident() if caller is None else caller, drop, self._prepare_to_wait)

    def _prepare_to_wait(self, request: Request) -> None:
        """Hand this thread's slot over, if it is between two steps, before the thread waits for a request."""
        for slot in list(self._state.slots):
            if self._state.is_held(slot) and slot.is_between_steps and not self._start_thread(slot):
                self._compute(slot, request)

    def _start_threads(self, slots: list[WorkerSlot]) -> None:
        """Start a thread for each slot; free a slot for which the system gives no thread."""
        for slot in slots:
            if not self._start_thread(slot):
                self._state.free_slot(slot)

    def _compute_waiting(self) -> None:
        """Have threads compute the waiting jobs; if the system gives no thread, compute the jobs here."""
        self._start_threads(self._state.take_slots())
        if not self._state.slots:
            for n, slot in enumerate(self._state.take_slots()):
                if n:
                    self._state.free_slot(slot)
                else:
                    self._compute_all(slot)

    def _start_thread(self, slot: WorkerSlot) -> bool:
        """Start a thread that computes until nothing is left to do; False if the system gives no thread."""
        name = f"fastattn worker {slot.index}"
        thread = threading.Thread(target=self._run_thread, args=(slot, slot.thread), name=name, daemon=True)
        try:
            start_thread(thread)
        except (RuntimeError, MemoryError) as error:
            warn_of_fewer_threads(error)
            return False
        self._state.offer(slot)
        return True

    def _run_thread(self, slot: WorkerSlot, starter: int) -> None:
        if not self._state.seize(slot, starter):
            return
        while True:
            try:
                self._compute_all(slot)
                return
            except BaseException as error:  # noqa: BLE001  no interrupt: only the main thread gets interrupts
                if not self._state.is_held(slot):
                    return
                self._isolate(slot, error)

    def _hand_over(self, slot: WorkerSlot) -> None:
        """Have a new thread continue with other requests in progress at this thread's slot."""
        if not self._state.free_if_idle(slot) and not self._start_thread(slot):
            self._compute_all(slot)

    def _compute_all(self, slot: WorkerSlot) -> None:
        while not self._state.free_if_idle(slot):
            self._compute(slot)

    def _compute(self, slot: WorkerSlot, request: Request | None = None) -> None:
        """Make steps until the request is done, nothing is left to do, or another thread has the slot."""
        is_busy = True
        while is_busy:
            threads = self._state.threads_each
            with self._use_threads(max(1, threads)):
                while is_busy and threads == self._state.threads_each and (request is None or not request.done()):
                    is_busy = self._step(slot)
            is_busy = is_busy and (request is None or not request.done())

    def _step(self, slot: WorkerSlot) -> bool:
        """Continue plans, make a step of the slot's worker, continue plans; False if nothing is left to do."""
        is_busy = self._continue_plans(slot)
        if not self._state.is_held(slot):
            return False
        slot.is_between_steps = False
        step_error: BaseException | None = None
        try:
            worker, slot.ended = self._worker(slot), 0
            is_busy |= worker.advance() or bool(slot.isolated)
        except BaseException as error:
            if is_interrupt(error):
                raise
            step_error = error
        slot.is_between_steps = True
        with suppress(Exception):  # an observer's error is none of the requests'
            self.observe(len(slot.tickets) + slot.ended, self._state.queue.waiting)
        if step_error is not None:
            self._isolate(slot, step_error)
        is_busy |= self._continue_plans(slot) or step_error is not None
        return is_busy and self._state.is_held(slot)

    def _continue_plans(self, slot: WorkerSlot) -> bool:
        """Continue each plan that is ready now, once; False if no plan is ready."""
        count = len(self._state.to_plan)
        for _ in range(count):
            if not self._state.is_held(slot) or (request := self._state.next_plan()) is None:
                break
            slot.is_between_steps = True
            self._state.enter(request, request.continue_plan())
        if (count or self._state.rests) and self._state.is_held(slot):
            self._start_threads(self._state.take_slots())
        return count > 0

    def _worker(self, slot: WorkerSlot) -> Worker:
        """The slot's worker, after it has dropped tickets that are over."""
        if slot.worker is None:
            slot.worker = self._make_worker(slot)
        if slot.may_drop:
            slot.may_drop = False
            slot.worker.drop()
        return slot.worker

    def _isolate(self, slot: WorkerSlot, error: BaseException) -> None:
        """After a failed step: end the step's only request with the error, or have its requests run one by one."""
        slot.worker = None
        for request in self._state.isolate(slot):  # not under the lock, since ``fail`` calls callbacks
            request.fail(error)
            self._state.drop(request)
        if not self._state.is_held(slot):  # the slot rests
            self._compute_waiting()

    def _recover(self, request: Request | None = None) -> None:
        """Restore the state after an interrupt, which may have come between any two lines of this thread.

        The request ends, and this thread's slots are freed. Other requests in progress there wait again, or begin again
        if the interrupt reached their plan.
        """
        while True:
            try:
                for locked_request in (*self._state.requests, *filter(None, [request])):
                    locked_request.free_lock()
                if request is not None:
                    request.abandon()
                self._state.rebuild(threading.get_ident())
                self._compute_waiting()
                break
            except KeyboardInterrupt:  # a second interrupt: the caller raises the first
                continue
        while request is not None and any(ticket.slot in self._state.slots for ticket in request.tickets):
            sleep(0.001)  # until workers have dropped the tickets


def _outcome(plan: Plan, do_jobs: Callable[[list[Any]], list[Any]]) -> Any:
    """The plan's result, with its jobs' results from ``do_jobs``."""
    results: Any = None
    while True:
        try:
            jobs = plan.send(results)
        except StopIteration as end:
            return end.value
        results = do_jobs(jobs or [])
