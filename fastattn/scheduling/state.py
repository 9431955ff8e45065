"""The state of a scheduler: waiting jobs, and jobs in progress at slots. One lock guards every change.

A request is in one of these states, from ``enter`` on:
    to be planned  in ``to_plan``: it is new or has an error, or its plan has paused or completed a stage
    planned        its ``planner``, a thread, runs the plan, without the lock since a plan calls users' callbacks
    under way      its tickets are in the queue or at slots
    over           done, or about to be: no longer in ``requests``
The thread that has a slot makes a step, or is between two steps, where plans continue and callbacks are called. When
there is nothing to do, the slot is free again. A slot whose worker can do nothing rests: for a while nobody takes the
slot, and waiting jobs go to the other slots; requests fail only when all slots rest.

Order of locks: the state's, then that of a worker's queue, to which a slot's ``wake`` adds an item. A request's own
lock (a Future's) is never taken under the state's, since a thread may hold the former while it calls users' callbacks.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple, Protocol

from fastattn.scheduling.request import Queue, Request, Ticket

# Seconds that a slot rests: twice as many each time, until its worker finishes a job.
FIRST_REST, LONGEST_REST = 0.1, 30.0


class Rest(NamedTuple):
    """A time of so many ``seconds`` in which nobody takes a slot; ``until``: its end in monotonic time."""

    until: float
    seconds: float


class Worker(Protocol):
    """Does jobs, several at a time."""

    def advance(self) -> bool:
        """Take waiting tickets, as far as there is room, and do a step; False if there was nothing to do.

        Raises an error of one of the tickets in progress; without any, the error says that the worker can do nothing.
        """

    def drop(self) -> None:
        """Release all tickets whose requests are over."""


class WorkerSlot:
    """A worker, the thread that runs it, and its tickets in progress: all that the worker knows of the scheduler.

    index         the number of the slot, and of its line in the queue
    key           a key that no other worker has at the same time, not even a worker of another scheduler
    thread        the identifier of the thread that runs the worker
    tickets       the tickets in progress
    ended         how many tickets the present step has ended
    isolated      lists of one request's tickets each, to be run one list at a time, since a shared step failed
    may_drop      whether a request in progress may be over, so that the worker has tickets to drop
    is_computing  False once the thread has started another thread to take over, until that thread has taken over
    is_between_steps  whether another thread can take over, since the thread is between two steps
    wake          a function for any thread, called when tickets or plans come or end; a worker that waits sets it
    """

    def __init__(self, state: "SchedulerState", index: int, thread: int):
        self._state, self.index, self.thread = state, index, thread
        self.key: tuple[object, int] = (state, index)
        self.tickets: dict[Ticket, None] = {}
        self.isolated: deque[list[Ticket]] = deque()
        self.may_drop, self.is_computing, self.is_between_steps, self.ended = False, True, False, 0
        self.worker: Worker | None = None
        self.wake: Callable[[], None] = _wake_nobody

    def waiting(self) -> int:
        """How many tickets wait."""
        return self._state.queue.waiting or len(self.isolated)

    def newcomers(self) -> int:
        """How many waiting callers have nothing in progress."""
        with self._state.lock:
            return len(self._state.queue.newcomers())

    def take(self, has_room: Callable[[Ticket, bool], bool]) -> list[Ticket]:
        """Take waiting tickets as long as ``has_room``, as for ``Queue.take``, accepts them."""
        state = self._state
        if not state.queue.waiting and not self.isolated:
            return []
        with state.lock:
            if self.isolated:
                return self._take_isolated()
            limit = state.queue.waiting
            if len(state.slots) > 1:  # the slot's share at most
                total = limit + sum(len(slot.tickets) for slot in state.slots)
                limit = -(-total // len(state.slots)) - len(self.tickets)
            tickets = state.queue.take(self.index, limit, has_room)
            for ticket in tickets:
                ticket.slot = self
                self.tickets[ticket] = None
            return tickets

    def _take_isolated(self) -> list[Ticket]:
        if self.tickets:
            return []
        tickets = self.isolated.popleft()
        self.tickets.update(dict.fromkeys(tickets))
        for ticket in tickets:
            if ticket.is_over:
                self.release(ticket)
        return list(self.tickets)

    def finish(self, ticket: Ticket, result: Any) -> None:
        """End a ticket with its job's result; after the last ticket of a stage the plan continues."""
        state = self._state
        with state.lock:
            state.rests.pop(self.index, None)
            ticket.result, ticket.is_done = result, True
            ticket.request.unfinished -= 1
            self.release(ticket)
            if not ticket.request.unfinished and not ticket.is_over:
                state.to_plan.append(ticket.request)

    def fail(self, ticket: Ticket, error: BaseException) -> None:
        """Have the ticket's request end with an error, after this step. The worker still has to release the ticket."""
        with self._state.lock:
            ticket.request.error = ticket.request.error or error
            self._state.to_plan.append(ticket.request)

    def release(self, ticket: Ticket) -> None:
        """End a ticket that is done, or whose request is over."""
        with self._state.lock:
            ticket.is_done = True
            self._state.weight -= ticket.job.weight
            self.ended += 1
            self._detach(ticket)

    def put_back(self, ticket: Ticket) -> None:
        """Have a ticket wait again, for any slot."""
        with self._state.lock:
            if ticket.is_over:
                self.release(ticket)
                return
            self._detach(ticket)
            self._state.queue.add([ticket], 1)

    def _detach(self, ticket: Ticket) -> None:
        ticket.slot = None
        del self.tickets[ticket]
        self._state.queue.count_ended(ticket)


def _wake_nobody() -> None:
    """The ``wake`` of a worker whose steps do not wait, and so end soon."""


class SchedulerState:
    """Requests, their tickets, and slots.

    threads, slot_weight, most_slots  as in Scheduler
    """

    def __init__(self, threads: int, slot_weight: int, most_slots: int):
        self._threads, self._slot_weight, self._most_slots = threads, slot_weight, most_slots
        # Reentrant: after an interrupt that prevented the lock's release, the same thread can still take it.
        self.lock = threading.RLock()
        self.queue = Queue(most_slots)
        self.to_plan: deque[Request] = deque()
        self.slots: list[WorkerSlot] = []
        self.rests: dict[int, Rest] = {}  # by a slot's index, until its worker finishes a job
        self.requests: dict[Request, None] = {}  # all that are not over
        self.weight = 0  # of jobs that wait or are in progress
        self.threads_each = threads

    def enter(self, request: Request, tickets: list[Ticket]) -> None:
        """Put the tickets of a request's next stage into the queue, or a request without tickets into ``to_plan``."""
        with self.lock:
            request.planner = None
            if request.done():
                self.drop(request)
                return
            self.requests[request] = None
            if not tickets:
                self.to_plan.append(request)
                if self.slots:
                    min(self.slots, key=lambda slot: len(slot.tickets)).wake()
                return
            self.weight += sum(ticket.job.weight for ticket in tickets)
            # The longest jobs, which take most time, come first, and neighbours have similar lengths.
            longest_first = sorted(tickets, key=lambda ticket: -ticket.job.length)
            self.queue.add(longest_first, self._slots_for(len(tickets)))
            for slot in sorted(self.slots, key=lambda slot: len(slot.tickets))[: len(tickets)]:
                slot.wake()

    def next_plan(self) -> Request | None:
        """Make this thread the planner of a request, and return the request; None if no request is to be planned."""
        with self.lock:
            while self.to_plan:
                request = self.to_plan.popleft()
                if not request.done():
                    request.planner = threading.get_ident()
                    return request
            return None

    def drop(self, request: Request) -> None:
        """Remove the waiting tickets of a request that is over, and have workers drop its tickets in progress."""
        with self.lock:
            self.requests.pop(request, None)
            for ticket in self.queue.drop(request.tickets):
                ticket.is_done = True
                self.weight -= ticket.job.weight
            for ticket in request.tickets:
                if ticket.slot is not None:
                    ticket.slot.may_drop = True
                    ticket.slot.wake()

    def _slots_for(self, tickets: int) -> int:
        return max(1, min(self._most_slots, tickets, self.weight // self._slot_weight))

    @property
    def has_work(self) -> bool:
        """Whether a ticket or a plan waits."""
        return bool(self.queue.waiting or self.to_plan)

    def take_slots(self) -> list[WorkerSlot]:
        """Take more slots, as many as there is work for, and return them."""
        if not self.has_work or len(self.slots) == self._most_slots:
            return []
        with self.lock:
            in_progress = sum(len(slot.tickets) for slot in self.slots)
            count = self._slots_for(self.queue.waiting + in_progress) if self.has_work else 0
            slots = [
                WorkerSlot(self, index, threading.get_ident())
                for index in self._free_slots()[: max(0, count - len(self.slots))]
            ]
            self.slots += slots
            self._share_threads()
            return slots

    def _free_slots(self) -> list[int]:
        """The indices of slots that can be taken; if all rest, the one whose rest ends first."""
        now, used_indices = monotonic(), {slot.index for slot in self.slots}
        indices = [index for index in range(self._most_slots) if index not in used_indices]
        ready_indices = [index for index in indices if index not in self.rests or self.rests[index].until <= now]
        return ready_indices or ([] if used_indices else sorted(indices, key=lambda index: self.rests[index].until)[:1])

    @property
    def is_free(self) -> bool:
        """Whether no slot is taken, and nothing waits."""
        return not self.slots and not self.has_work

    def claim(self) -> WorkerSlot | None:
        """Take a slot if none is taken and nothing waits; else None."""
        with self.lock:
            if not self.is_free:
                return None
            slot = WorkerSlot(self, 0, threading.get_ident())
            self.slots.append(slot)
            self._share_threads()
            return slot

    def offer(self, slot: WorkerSlot) -> None:
        """Stop computing at the slot, unless the thread that this thread has started has seized the slot already."""
        with self.lock:
            if slot.thread == threading.get_ident():
                slot.is_computing = False

    def seize(self, slot: WorkerSlot, starter: int) -> bool:
        """Take the slot over from ``starter``, which started this thread; False if an interrupt has freed the slot."""
        with self.lock:
            if slot not in self.slots or slot.thread != starter:
                return False
            slot.thread, slot.is_computing, slot.is_between_steps = threading.get_ident(), True, False
            return True

    def is_held(self, slot: WorkerSlot) -> bool:
        """Whether this thread has the slot still: it was not handed over, nor freed, nor taken away by an interrupt."""
        return slot.is_computing and slot.thread == threading.get_ident() and slot in self.slots

    def free_slot(self, slot: WorkerSlot) -> None:
        """End the slot and its worker."""
        with self.lock:
            self.slots.remove(slot)
            self._share_threads()
        slot.worker, slot.wake = None, _wake_nobody  # frees memory now, before the garbage collector would

    def free_if_idle(self, slot: WorkerSlot) -> bool:
        """Free the slot unless there is work; True if this thread no longer has the slot."""
        with self.lock:
            if not self.is_held(slot):
                return True
            if self.has_work or slot.tickets or slot.isolated:
                return False
            self.free_slot(slot)
            return True

    def _share_threads(self) -> None:
        self.threads_each = self._threads // max(1, len(self.slots))

    def isolate(self, slot: WorkerSlot) -> list[Request]:
        """After a failed step, have its requests run one by one; returns the requests that fail instead."""
        with self.lock:
            tickets = list(slot.tickets)
            tickets_of: dict[Request, list[Ticket]] = {}
            for ticket in tickets:
                if ticket.is_over:
                    slot.release(ticket)
                else:
                    tickets_of.setdefault(ticket.request, []).append(ticket)
            if not tickets:
                return self._rest(slot)
            if len({ticket.request for ticket in tickets}) > 1:  # the error may come from a request that is over
                slot.isolated.extend(tickets_of.values())
                slot.tickets.clear()
                return []
            for ticket in list(slot.tickets):
                slot.release(ticket)
            return list(tickets_of)

    def _rest(self, slot: WorkerSlot) -> list[Request]:
        """Free the slot, whose worker can do nothing, and have it rest for a while.

        Returns the requests that fail: all if no slot is taken, and every slot has rested and finished no job since.
        """
        previous = self.rests.get(slot.index)
        seconds = FIRST_REST if previous is None else min(2 * previous.seconds, LONGEST_REST)
        self.rests[slot.index] = Rest(monotonic() + seconds, seconds)
        for ticket in chain.from_iterable(slot.isolated):
            slot.tickets[ticket] = None
            slot.put_back(ticket)
        self.free_slot(slot)
        for other in self.slots:
            other.wake()
        return [] if self.slots or len(self.rests) < self._most_slots else list(self.requests)

    def rebuild(self, interrupted_thread: int) -> None:
        """Rebuild queue and slots without the slots of an interrupted thread, whose code may have ended anywhere.

        Requests whose plan that thread was running begin again.
        """
        self.lock.acquire()
        try:
            self.slots = [slot for slot in self.slots if slot.thread != interrupted_thread]
            self._share_threads()
            self.requests = {request: None for request in self.requests if not request.done()}
            self.queue, self.weight, self.to_plan = Queue(self._most_slots), 0, deque()
            for slot in self.slots:
                slot.may_drop = True
                slot.wake()
                for ticket in chain(slot.tickets, *slot.isolated):
                    self.queue.count_begun(ticket)
                    self.weight += ticket.job.weight
            for request in self.requests:
                if request.planner == interrupted_thread:
                    request.restart()
                if request.planner is None and (request.error is not None or not self._add_again(request)):
                    self.to_plan.append(request)
        finally:
            with suppress(RuntimeError):  # this thread may hold the lock several times
                while True:
                    self.lock.release()

    def _add_again(self, request: Request) -> int:
        """Put a request's tickets that are at no slot into the new queue; returns how many tickets are not done."""
        tickets = [ticket for ticket in request.tickets if not ticket.is_done and ticket.slot not in self.slots]
        for ticket in tickets:
            ticket.slot = None
            self.weight += ticket.job.weight
        self.queue.add(tickets, self._slots_for(len(tickets) or 1))
        request.unfinished = sum(not ticket.is_done for ticket in request.tickets)
        return request.unfinished
