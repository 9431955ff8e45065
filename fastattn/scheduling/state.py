"""The state of a scheduler: what waits, what is in progress at which slot. Every change is made under one lock.

A request is in one of these states, from ``enter`` on:
    to be planned  in ``plans``: new, or a stage of its is done, or it is to fail, or its plan has paused
    planned        its ``planner`` is a thread, which calls back to users and so has no lock
    under way      its tickets are in the queue or at slots
    over           done, or about to be: in ``requests`` no more
A slot is taken, by a thread: it steps, or is between two steps; then plans go on and callbacks are called. It is left
when there is nothing to do; or it rests, for a while in which nobody takes it, where its worker could do nothing. What
waits is the other slots' then; only when all rest the requests fail.

Order of locks: this one, then the queue of a worker that a slot's ``wake`` puts something into. A request's own
(a Future's) is never taken under this one, since it is held while users' callbacks are called.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple, Protocol

from fastattn.scheduling.request import Queue, Request, Ticket

# Seconds that a slot rests: twice as many each time, until it has done something.
FIRST_REST, LONGEST_REST = 0.1, 30.0


class Rest(NamedTuple):
    """until    when it may be tried again, in monotonic time
    seconds  how long it is
    """

    until: float
    seconds: float


class Worker(Protocol):
    """Does jobs, several at a time."""

    def advance(self) -> bool:
        """Take waiting tickets, as far as there is room, and do a step; False if there was nothing to do.

        What it raises is the fault of one of the tickets in progress; where there are none, it can do nothing at all.
        """

    def drop(self) -> None:
        """Leave all tickets whose requests are over."""


class WorkerSlot:
    """A worker, the thread that runs it, and its tickets in progress. For the worker it stands for the scheduler.

    index         its number, also that of its line in the queue
    key           which no other worker has meanwhile, also in a scheduler beside this one
    thread        the identifier of the thread that runs the worker
    tickets       those in progress
    isolated      lists of one request's tickets, to be run without others: a step that they shared failed
    has_over      whether a request in progress may be over
    is_computing  whether that thread is the one to compute; False until a new thread has taken over from it
    is_between    whether it is between two steps, so that another thread can take over
    wake          called by any thread when there is something new: for a worker whose steps wait, which sets it
    """

    def __init__(self, state: "SchedulerState", index: int, thread: int):
        self._state, self.index, self.thread = state, index, thread
        self.key: tuple[object, int] = (state, index)
        self.tickets: dict[Ticket, None] = {}
        self.isolated: deque[list[Ticket]] = deque()
        self.has_over, self.is_computing, self.is_between = False, True, False
        self.worker: Worker | None = None
        self.wake: Callable[[], None] = _wake_nobody

    # for the worker

    def waiting(self) -> int:
        """How many tickets wait."""
        return self._state.queue.waiting or len(self.isolated)

    def newcomers(self) -> int:
        """How many callers wait and have nothing in progress."""
        with self._state.lock:
            return len(self._state.queue.newcomers())

    def take(self, has_room: Callable[[Ticket, bool], bool]) -> list[Ticket]:
        """Take waiting tickets as long as ``has_room`` accepts them.

        has_room  (ticket, whether its caller has nothing in progress) -> whether to take it
        """
        state = self._state
        if not state.queue.waiting and not self.isolated:
            return []
        with state.lock:
            if self.isolated:
                return self._take_isolated()
            limit = state.queue.waiting
            if len(state.slots) > 1:  # no more than the slot's share
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
        taken = self.isolated.popleft()
        self.tickets.update(dict.fromkeys(taken))
        for ticket in taken:
            if ticket.is_over:
                self.release(ticket)
        return list(self.tickets)

    def finish(self, ticket: Ticket, result: Any) -> None:
        """A job is done, with this result; if it is the last of its stage, the plan goes on."""
        state = self._state
        with state.lock:
            state.rests.pop(self.index, None)
            ticket.result, ticket.done = result, True
            ticket.request.unfinished -= 1
            self.release(ticket)
            if not ticket.request.unfinished and not ticket.is_over:
                state.plans.append(ticket.request)

    def fail(self, ticket: Ticket, error: BaseException) -> None:
        """Have the ticket's request end with an error, after this step. The ticket is the worker's until it is left."""
        with self._state.lock:
            ticket.request.error = ticket.request.error or error
            self._state.plans.append(ticket.request)

    def release(self, ticket: Ticket) -> None:
        """Give a ticket up: it is done, or its request is over."""
        with self._state.lock:
            ticket.done = True
            self._state.weight -= ticket.job.weight
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
        self._state.queue.ended(ticket)


def _wake_nobody() -> None:
    """Steps that do not wait end soon."""


class SchedulerState:
    """Requests, their tickets, and slots.

    threads     of all slots together, which share them equally
    enough      weight of jobs, waiting or in progress, that justifies a slot
    most_slots  taken at the same time
    """

    def __init__(self, threads: int, enough: int, most_slots: int):
        self._threads, self._enough, self._most_slots = threads, enough, most_slots
        # Reentrant: if an interrupt prevented its release, the thread that holds it can still take it.
        self.lock = threading.RLock()
        self.queue = Queue(most_slots)
        self.plans: deque[Request] = deque()
        self.slots: list[WorkerSlot] = []
        self.rests: dict[int, Rest] = {}  # by a slot's index, until its worker has done something
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
                if self.slots:
                    min(self.slots, key=lambda slot: len(slot.tickets)).wake()
                return
            self.weight += sum(ticket.job.weight for ticket in tickets)
            # The longest last longest, and neighbours have similar lengths.
            longest_first = sorted(tickets, key=lambda ticket: -ticket.job.length)
            self.queue.add(longest_first, self._slots_for(len(tickets)))
            for slot in sorted(self.slots, key=lambda slot: len(slot.tickets))[: len(tickets)]:
                slot.wake()

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
                if ticket.slot is not None:
                    ticket.slot.has_over = True
                    ticket.slot.wake()

    # slots

    def _slots_for(self, tickets: int) -> int:
        return max(1, min(self._most_slots, tickets, self.weight // self._enough))

    @property
    def has_work(self) -> bool:
        """Whether something waits."""
        return bool(self.queue.waiting or self.plans)

    def take_slots(self) -> list[WorkerSlot]:
        """Take as many more slots as there is work for, and return them."""
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
        """The indices of slots that can be taken; where all rest, that of the shortest rest, so that somebody tries."""
        now, used = monotonic(), {slot.index for slot in self.slots}
        free = [index for index in range(self._most_slots) if index not in used]
        rested = [index for index in free if index not in self.rests or self.rests[index].until <= now]
        return rested if rested or used else sorted(free, key=lambda index: self.rests[index].until)[:1]

    @property
    def is_free(self) -> bool:
        """Whether nobody computes, and nothing waits."""
        return not self.slots and not self.has_work

    def claim(self) -> WorkerSlot | None:
        """Take the only slot; None if others are here."""
        with self.lock:
            if not self.is_free:
                return None
            slot = WorkerSlot(self, 0, threading.get_ident())
            self.slots.append(slot)
            self._share_threads()
            return slot

    def offer(self, slot: WorkerSlot) -> None:
        """This thread computes there no more: it has started one that seizes the slot, or has seized it by now."""
        with self.lock:
            if slot.thread == threading.get_ident():
                slot.is_computing = False

    def seize(self, slot: WorkerSlot, starter: int) -> bool:
        """Take the slot over from the thread that started this one; False if that has lost it to an interrupt."""
        with self.lock:
            if slot not in self.slots or slot.thread != starter:
                return False
            slot.thread, slot.is_computing, slot.is_between = threading.get_ident(), True, False
            return True

    def has(self, slot: WorkerSlot) -> bool:
        """Whether this thread still has the slot: not handed over, not left, not lost to an interrupt."""
        return slot.is_computing and slot.thread == threading.get_ident() and slot in self.slots

    def free_slot(self, slot: WorkerSlot) -> None:
        """The slot is free."""
        with self.lock:
            self.slots.remove(slot)
            self._share_threads()
        slot.worker, slot.wake = None, _wake_nobody  # memory is free at once; the garbage collector would come later

    def free_if_idle(self, slot: WorkerSlot) -> bool:
        """Leave the slot, unless there is something left to do; True where this thread has it no more."""
        with self.lock:
            if not self.has(slot):
                return True
            if self.has_work or slot.tickets or slot.isolated:
                return False
            self.free_slot(slot)
            return True

    def _share_threads(self) -> None:
        self.threads_each = self._threads // max(1, len(self.slots))

    # what went wrong

    def isolate(self, slot: WorkerSlot) -> list[Request]:
        """After a failed step of this thread: have requests run one by one from now on; returns those that fail."""
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
            if len({ticket.request for ticket in tickets}) > 1:  # it may be the error of one who is over
                slot.isolated.extend(tickets_of.values())
                slot.tickets.clear()
                return []
            for ticket in list(slot.tickets):
                slot.release(ticket)
            return list(tickets_of)

    def _rest(self, slot: WorkerSlot) -> list[Request]:
        """The slot's worker can do nothing: leave it for a while.

        Returns the requests that fail: all where no slot has done anything since it rested, else none.
        """
        last = self.rests.get(slot.index)
        seconds = FIRST_REST if last is None else min(2 * last.seconds, LONGEST_REST)
        self.rests[slot.index] = Rest(monotonic() + seconds, seconds)
        for ticket in chain.from_iterable(slot.isolated):
            slot.tickets[ticket] = None
            slot.put_back(ticket)
        self.free_slot(slot)
        for active in self.slots:
            active.wake()
        return [] if self.slots or len(self.rests) < self._most_slots else list(self.requests)

    def rebuild(self, me: int) -> None:
        """Rebuild queue and slots without the slots of thread ``me``, which an interrupt may have reached anywhere.

        Requests whose plan it was running begin again.
        """
        self.lock.acquire()
        try:
            self.slots = [slot for slot in self.slots if slot.thread != me]
            self._share_threads()
            self.requests = {request: None for request in self.requests if not request.done()}
            self.queue, self.weight, self.plans = Queue(self._most_slots), 0, deque()
            for slot in self.slots:
                slot.has_over = True
                slot.wake()
                for ticket in chain(slot.tickets, *slot.isolated):
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
        """Put a request's tickets that are at no slot into the new queue; returns how many of its stage are left."""
        waiting = [ticket for ticket in request.tickets if not ticket.done and ticket.slot not in self.slots]
        for ticket in waiting:
            ticket.slot = None
            self.weight += ticket.job.weight
        self.queue.add(waiting, self._slots_for(len(waiting) or 1))
        request.unfinished = sum(not ticket.done for ticket in request.tickets)
        return request.unfinished
