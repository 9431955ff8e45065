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
from typing import Any, NamedTuple

from fastattn.scheduling.request import Queue, Request, Ticket
from fastattn.scheduling.worker_slot import WorkerSlot

# Seconds that a slot rests: twice as many each time, until it has done something.
FIRST_REST, LONGEST_REST = 0.1, 30.0


class Rest(NamedTuple):
    """until    when it may be tried again, in monotonic time
    seconds  how long it is
    """

    until: float
    seconds: float


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
            self.queue.add(longest_first, self._wanted_slots(len(tickets)))
            for slot in sorted(self.slots, key=lambda slot: len(slot.tickets))[: len(tickets)]:
                slot.wake()

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
                if ticket.slot is not None:
                    ticket.slot.has_over = True
                    ticket.slot.wake()

    def take(self, slot: WorkerSlot, has_room: Callable[[Ticket, bool], bool]) -> list[Ticket]:
        """Have the slot take waiting tickets, as a SlotInterface does."""
        if not self.queue.waiting and not slot.isolated:
            return []
        with self.lock:
            if slot.isolated:
                return self._take_isolated(slot)
            most = self.queue.waiting
            if len(self.slots) > 1:  # no more than the slot's share
                total = most + sum(len(other.tickets) for other in self.slots)
                most = -(-total // len(self.slots)) - len(slot.tickets)
            taken = self.queue.take(slot.index, most, has_room)
            for ticket in taken:
                ticket.slot = slot
                slot.tickets[ticket] = None
            return taken

    def put_back(self, slot: WorkerSlot, ticket: Ticket) -> None:
        """A ticket is no longer in progress, and waits again."""
        with self.lock:
            if ticket.is_over:
                self.leave(slot, ticket)
                return
            ticket.slot = None
            del slot.tickets[ticket]
            self.queue.ended(ticket)
            self.queue.add([ticket], 1)

    def _take_isolated(self, slot: WorkerSlot) -> list[Ticket]:
        if slot.tickets:
            return []
        taken = slot.isolated.popleft()
        slot.tickets.update(dict.fromkeys(taken))
        for ticket in taken:
            if ticket.is_over:
                self.leave(slot, ticket)
        return list(slot.tickets)

    def finish(self, slot: WorkerSlot, ticket: Ticket, result: Any) -> None:
        """A ticket is done; if it is the last of its stage, the plan goes on."""
        with self.lock:
            self.rests.pop(slot.index, None)
            ticket.result, ticket.done = result, True
            ticket.request.left -= 1
            self.leave(slot, ticket)
            if not ticket.request.left and not ticket.is_over:
                self.plans.append(ticket.request)

    def leave(self, slot: WorkerSlot, ticket: Ticket) -> None:
        """A ticket is no longer in progress."""
        with self.lock:
            ticket.slot = None
            ticket.done = True
            del slot.tickets[ticket]
            self.queue.ended(ticket)
            self.weight -= ticket.job.weight

    # slots

    def _wanted_slots(self, tickets: int) -> int:
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
            wanted = self._wanted_slots(self.queue.waiting + in_progress) if self.has_work else 0
            slots = [
                WorkerSlot(index, threading.get_ident())
                for index in self._free_slots()[: max(0, wanted - len(self.slots))]
            ]
            self.slots += slots
            self._share_threads()
            return slots

    def _free_slots(self) -> list[int]:
        """The indices of slots that can be taken; where all rest, that of the shortest rest, so that somebody tries."""
        now, taken = monotonic(), {slot.index for slot in self.slots}
        free = [index for index in range(self._most_slots) if index not in taken]
        rested = [index for index in free if index not in self.rests or self.rests[index].until <= now]
        return rested if rested or taken else sorted(free, key=lambda index: self.rests[index].until)[:1]

    @property
    def is_free(self) -> bool:
        """Whether nobody computes, and nothing waits."""
        return not self.slots and not self.has_work

    def claim(self) -> WorkerSlot | None:
        """Take the only slot; None if others are here."""
        with self.lock:
            if not self.is_free:
                return None
            slot = WorkerSlot(0, threading.get_ident())
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

    def leave_slot(self, slot: WorkerSlot) -> None:
        """The slot is free."""
        with self.lock:
            self.slots.remove(slot)
            self._share_threads()
        slot.let_go()

    def leave_if_idle(self, slot: WorkerSlot) -> bool:
        """Leave the slot, unless there is something left to do; True where this thread has it no more."""
        with self.lock:
            if not self.has(slot):
                return True
            if self.has_work or not slot.is_idle:
                return False
            self.leave_slot(slot)
            return True

    def _share_threads(self) -> None:
        self.threads_each = self._threads // max(1, len(self.slots))

    # what went wrong

    def isolate(self, slot: WorkerSlot) -> list[Request]:
        """After a failed step of this thread: have requests run one by one from now on; returns those that fail."""
        with self.lock:
            tickets = list(slot.tickets)
            shared: dict[Request, list[Ticket]] = {}
            for ticket in tickets:
                if ticket.is_over:
                    self.leave(slot, ticket)
                else:
                    shared.setdefault(ticket.request, []).append(ticket)
            if not tickets:
                return self._rest(slot)
            if len({ticket.request for ticket in tickets}) > 1:  # it may be the error of one who is over
                slot.isolated.extend(shared.values())
                slot.tickets.clear()
                return []
            for ticket in list(slot.tickets):
                self.leave(slot, ticket)
            return list(shared)

    def _rest(self, slot: WorkerSlot) -> list[Request]:
        """The slot's worker can do nothing: leave it for a while.

        Returns the requests that fail: all where no slot has done anything since it rested, else none.
        """
        last = self.rests.get(slot.index)
        seconds = FIRST_REST if last is None else min(2 * last.seconds, LONGEST_REST)
        self.rests[slot.index] = Rest(monotonic() + seconds, seconds)
        for ticket in chain.from_iterable(slot.isolated):
            slot.tickets[ticket] = None
            self.put_back(slot, ticket)
        self.leave_slot(slot)
        for other in self.slots:
            other.wake()
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
        self.queue.add(waiting, self._wanted_slots(len(waiting) or 1))
        request.left = sum(not ticket.done for ticket in request.tickets)
        return request.left
