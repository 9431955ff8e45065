"""Requests of many callers: who comes when, what an error, a cancellation or an interrupt ends, and what is left."""

import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from time import sleep

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.errors import InputError, QueueFullError
from fastattn.scheduling import scheduler as scheduling
from fastattn.scheduling.scheduler import Scheduler
from tests.messages import refused
from tests.scheduling.by_hand import SchedulerByHand, ended


@dataclass(eq=False)
class Count:
    """A job of so many steps; ``fails`` at the last of them."""

    steps: int
    fails: bool = False
    length: int = 1
    name: str = ""
    weight = 1


class Counter:
    """A worker that has up to ``places`` jobs in progress, and counts."""

    def __init__(self, slot, places=4, log=None):
        self.slot, self.places, self.left = slot, places, {}
        self.log = [] if log is None else log

    def advance(self):
        taken = count(len(self.left))
        tickets = self.slot.take(lambda ticket, newcomer: next(taken) < self.places or newcomer)
        self.left.update({ticket: ticket.job.steps for ticket in tickets})
        self.log.extend(ticket.job.name for ticket in tickets)
        if not self.left:
            return False
        for ticket in self.left:
            self.left[ticket] -= 1
            if not self.left[ticket] and ticket.job.fails:
                raise ValueError(f"{ticket.job.steps} steps are too many")
        for ticket in [ticket for ticket, steps in self.left.items() if not steps]:
            del self.left[ticket]
            self.slot.finish(ticket, ticket.job.steps)
        return True

    def drop(self):
        for ticket in [ticket for ticket in self.left if ticket.is_over]:
            del self.left[ticket]
            self.slot.release(ticket)


def calling(before):
    """Workers that call ``before`` of themselves at each step."""

    class Calling(Counter):
        def advance(self):
            before(self)
            return super().advance()

    return Calling


def scheduler_of(worker, kind=Scheduler, slots=1, enough=4):
    """A scheduler of such workers; ``enough`` jobs justify another slot."""
    return kind(worker, slots, lambda threads: nullcontext(), enough, slots)


def counting(kind=Scheduler, slots=1, log=None):
    return scheduler_of(lambda slot: Counter(slot, log=log), kind, slots)


def plan_of(*steps, fails=False, stages=1, **of):
    def make_plan():
        for _ in range(stages):
            results = yield [Count(each, fails, **of) for each in steps]
        return results

    return make_plan


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_any_interleaving_of_submissions_cancellations_and_ends(data, slots):
    scheduler, requests = counting(SchedulerByHand, slots), []
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["submit", "cancel", "tick", "tick"]))
        if action == "submit":
            steps = data.draw(st.lists(st.integers(1, 6), max_size=6))
            fails, stages = data.draw(st.integers(0, 9)) == 0, data.draw(st.integers(1, 2))
            request = scheduler.submit(plan_of(*steps, fails=fails, stages=stages), data.draw(st.integers(0, 3)))
            requests.append((request, steps, fails and len(steps) > 0))
        elif action == "cancel" and requests:
            request = data.draw(st.sampled_from(requests))[0]
            is_late = request.done() and not request.cancelled()
            assert request.cancel() is not is_late
        else:
            scheduler.tick()
    scheduler.finish_all()
    assert scheduler.is_at_rest
    for request, steps, fails in requests:
        if not request.cancelled():
            error = request.exception(0)
            assert isinstance(error, ValueError) and "too many" in str(error) if fails else request.result(0) == steps


def test_a_short_job_of_one_caller_does_not_wait_behind_the_many_of_another():
    log = []
    scheduler = counting(SchedulerByHand, log=log)
    many = scheduler.submit(plan_of(*[50] * 100, name="many"), "one")
    scheduler.tick()
    short = scheduler.submit(plan_of(2, name="short"), "other")
    scheduler.tick()
    assert log == ["many"] * 4 + ["short"], "it has a place beyond those that there are"
    scheduler.tick()
    assert short.done() and not many.done()
    scheduler.submit(plan_of(*[50] * 40, name="some"), "third")
    for _ in range(600):
        scheduler.tick()
    taken = log[5:65]
    assert abs(taken.count("many") - taken.count("some")) < 10, "callers take turns"


def test_what_waits_is_bounded_and_a_caller_has_to_be_told_apart(monkeypatch):
    monkeypatch.setattr(scheduling, "MOST_WAITING", 10)
    scheduler = counting(SchedulerByHand)
    scheduler.submit(plan_of(*[1] * 13))
    scheduler.tick()  # which has begun four
    scheduler.submit(plan_of(1))
    with refused(QueueFullError, "10 jobs"):
        scheduler.submit(plan_of(1))
    with refused(InputError, "caller"):
        scheduler.submit(plan_of(1), [])
    scheduler.finish_all()
    assert scheduler.submit(plan_of(1)) and scheduler.tick()


def test_a_cancelled_request_is_told_of_and_its_jobs_are_gone():
    scheduler = counting(SchedulerByHand)
    request = scheduler.submit(plan_of(*[9] * 50), "one")
    scheduler.tick()
    assert request.cancel() and request.cancelled() and wait([request], timeout=0).done == {request}
    with pytest.raises(CancelledError):
        request.result()
    scheduler.tick()
    assert not scheduler.tick() and scheduler.is_at_rest


def test_two_hundred_threads_at_once():
    scheduler, start = counting(slots=2), threading.Barrier(200)

    def call(number):
        start.wait()
        steps = [1 + (number + n) % 5 for n in range(number % 4)]
        found = scheduler.run(plan_of(*steps)) if number % 2 else scheduler.submit(plan_of(*steps)).result()
        return found == steps

    with ThreadPoolExecutor(200) as pool:
        assert list(pool.map(call, range(200))) == [True] * 200


class Interrupt(BaseException):
    pass


def test_an_interrupt_ends_the_request_it_reaches_and_others_begin_anew():
    """The main thread computes for all; another waits for what is in progress there."""
    entered, struck = threading.Event(), []

    def interrupt(worker):
        if len(worker.left) == 2 and not struck:
            struck.append(1)
            raise Interrupt
        if worker.left:
            entered.set()
            wait([other], 0.01)  # it has time to enter

    scheduler = scheduler_of(calling(interrupt))
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: entered.wait() and scheduler.run(plan_of(5)))
        with pytest.raises(Interrupt):
            scheduler.run(plan_of(1000))
        assert other.result(10) == [5]
    assert scheduler.run(plan_of(2)) == [2]


def alone(jobs):
    """Results as run_alone has them made, which a worker's are not."""
    return [-job.steps for job in jobs]


def test_a_slot_is_claimed_where_nobody_else_is():
    scheduler, found = counting(slots=2), []

    def in_company(jobs):
        found.append(scheduler.submit(plan_of(3), "other"))
        found.extend(pool.submit(scheduler.run_alone, plan_of(2), alone) for _ in range(2))
        found.append(scheduler.run_alone(plan_of(4), alone))  # from a callback, say
        return alone(jobs)

    with ThreadPoolExecutor(2) as pool:
        assert scheduler.run_alone(plan_of(7, 8), in_company) == [-7, -8]
        waiting, *others, within = found
        assert all(other.result(10) in ([2], [-2]) for other in others)
    assert waiting.result(10) == [3] and within == [4], "the slot of others is not shared alone"
    assert scheduler.run_alone(plan_of(1, stages=3), alone) == [-1]
    assert scheduler.run_alone(plan_of(), alone) == []


@pytest.mark.parametrize("error", [Interrupt, ValueError])
def test_a_claim_that_an_interrupt_left_keeps_nobody_out(error):
    """Nor one that an error left; and who came meanwhile is computed."""
    scheduler, requests = counting(SchedulerByHand), []

    def raising(jobs):
        requests.append(scheduler.submit(plan_of(3), "other"))
        raise error

    with pytest.raises(error):
        scheduler.run_alone(plan_of(2), raising)
    scheduler.finish_all()
    assert requests[0].result(0) == [3] and scheduler.is_at_rest
    assert scheduler.run_alone(plan_of(2), alone) == [-2]


@pytest.mark.parametrize(("jobs", "slots"), [(1, 1), (7, 1), (8, 2), (11, 2), (12, 3), (99, 3)])
def test_as_many_slots_are_taken_as_there_is_enough_work_for(jobs, slots):
    scheduler = scheduler_of(Counter, SchedulerByHand, slots=3, enough=4)
    scheduler.submit(plan_of(*[5] * jobs))
    for _ in range(2):
        scheduler.tick()
    assert len(scheduler._state.slots) == slots
    scheduler.finish_all()
    assert scheduler.is_at_rest


def test_the_longest_jobs_of_a_request_come_first():
    log = []
    scheduler = counting(SchedulerByHand, log=log)
    scheduler.submit(lambda: (yield [Count(2, length=n, name=str(n)) for n in (3, 1, 7, 5, 2, 6, 4)]))
    scheduler.finish_all()
    assert log == [*"7654321"]


def test_who_observes_steps_is_told_of_their_jobs_and_of_those_that_wait():
    seen, scheduler = [], counting(SchedulerByHand)
    scheduler.observe = lambda jobs, waiting: seen.append((jobs, waiting))
    scheduler.submit(plan_of(1, 1, 1, 2, 2, 1))
    scheduler.finish_all()
    assert [pair for pair in seen if pair[0]] == [(4, 2), (3, 0), (1, 0)]
    request = scheduler.submit(plan_of(*[9] * 6))
    scheduler.tick()
    assert seen[-1] == (4, 2)
    request.cancel()
    scheduler.finish_all()
    assert seen[-1] == (0, 0), "those that waited are gone"
    seen = None  # the observer raises an error
    request = scheduler.submit(plan_of(3))
    scheduler.finish_all()
    assert request.result(0) == [3]


def test_slots_share_the_threads_and_the_last_one_has_them_all():
    now, seen = threading.local(), []
    other_begun, other_may_end = threading.Event(), threading.Event()

    @contextmanager
    def use_threads(count):
        before, now.count = getattr(now, "count", 0), count
        yield
        now.count = before

    class Watched(Counter):
        def advance(self):
            if threading.current_thread().name != "caller":
                other_begun.set()
                other_may_end.wait(10)
            else:
                seen.append(now.count)
                other_begun.wait(10)
                if len(seen) == 3:
                    other_may_end.set()
                    while len(scheduler._state.slots) > 1:
                        sleep(0.001)
            return super().advance()

    def call():
        threading.current_thread().name = "caller"
        return scheduler.run(plan_of(9, 1))

    scheduler = Scheduler(Watched, 7, use_threads, 1, 2)
    assert ended(call) == [9, 1]
    assert seen[:3] == [3] * 3 and seen[-1] == 7
