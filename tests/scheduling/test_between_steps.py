"""What happens between two steps: plans begin, pause and go on, results are set, slots are handed over and rest."""

import os
import threading
from contextlib import nullcontext
from functools import partial

import pytest

from fastattn.errors import FastattnError
from fastattn.scheduling import scheduler as scheduling
from fastattn.scheduling.state import LONGEST_REST
from tests.scheduling.by_hand import SchedulerByHand
from tests.scheduling.test_disturbances import ended, no_threads, refuse  # noqa: F401  a fixture
from tests.scheduling.test_scheduler import Count, Counter, counting, plan_of, scheduler_of


@pytest.fixture
def one_thread(monkeypatch):
    """The system gives one, and then no more."""
    start_thread, started = scheduling.start_thread, []

    def start_one(thread):
        if started:
            refuse(thread)
        started.append(thread)
        start_thread(thread)

    monkeypatch.setattr(scheduling, "start_thread", start_one)
    monkeypatch.setattr(scheduling, "warn_of_fewer_threads", lambda error: None)


@pytest.mark.parametrize(
    ("threads", "fails", "others"), [("any", False, 0), ("any", True, 3), ("one", False, 3), ("one", True, 0)]
)
def test_a_callback_may_wait_for_another_result(request, threads, fails, others):
    """Also for one that is in progress at the slot of its own thread."""
    if threads == "one":
        request.getfixturevalue("one_thread")
    ready, called_back, found = threading.Event(), threading.Event(), []

    class Gated(Counter):
        def advance(self):
            ready.wait()
            return super().advance()

    scheduler = scheduler_of(Gated)
    first = scheduler.submit(plan_of(2, fails=fails), "one")
    beside = [scheduler.submit(plan_of(50), n) for n in range(others)]
    first.add_done_callback(lambda _: found.append([other.result() for other in beside]))
    first.add_done_callback(lambda _: found.append(scheduler.submit(plan_of(4, 5)).result()))
    first.add_done_callback(lambda _: found.append(scheduler.submit(plan_of(3, fails=True)).exception()))
    first.add_done_callback(lambda _: called_back.set())
    ready.set()
    assert ended(lambda: [scheduler.run(plan_of(1)) for _ in range(3)]) == [[1]] * 3
    assert ended(lambda: [other.result() for other in beside]) == [[50]] * others
    assert called_back.wait(20)
    assert found[:2] == [[[50]] * others, [4, 5]] and isinstance(found[2], ValueError)


def test_a_callback_in_the_thread_of_a_caller_may_wait_for_another_result():
    scheduler, found = counting(), []

    def call():
        request = scheduler._new_request(plan_of(2), "other")
        request.add_done_callback(lambda _: found.append(threading.get_ident()))
        request.add_done_callback(lambda _: found.append(scheduler.submit(plan_of(3)).result()))
        scheduler._state.enter(request, [])
        return threading.get_ident(), scheduler.run(plan_of(9))

    caller, result = ended(call)
    assert result == [9] and found == [caller, [3]]


def test_what_is_submitted_begins_at_a_slot():
    began = []

    def make_plan():
        began.append(threading.get_ident())
        return (yield [Count(2)])

    scheduler = counting(SchedulerByHand)
    request = scheduler.submit(make_plan)
    assert not began
    assert request.cancel()
    scheduler.finish_all()
    assert not began and scheduler.is_at_rest
    assert counting().submit(make_plan).result(20) == [2] and began[0] != threading.get_ident()
    assert counting().run(make_plan) == [2] and began[1] == threading.get_ident()


def test_a_plan_that_pauses_keeps_nobody():
    """It is cancelled at such a moment, too."""
    scheduler = counting(SchedulerByHand)

    def pausing():
        for _ in range(1000):
            assert (yield None) == []
        return (yield [Count(2)])

    long, cancelled = scheduler.submit(pausing, "one"), scheduler.submit(pausing, "one")
    scheduler.tick()
    short = scheduler.submit(plan_of(3), "other")
    for _ in range(4):
        scheduler.tick()
    assert short.result(0) == [3] and not long.done() and cancelled.cancel()
    scheduler.finish_all()
    assert long.result(0) == [2] and scheduler.is_at_rest
    assert counting().run(pausing) == [2]
    assert counting().submit(pausing).result(20) == [2]


@pytest.mark.parametrize("where", ["plan", "step"])
def test_an_exit_of_one_request_is_not_that_of_a_caller_who_computes_it(where):
    entered, joined = threading.Event(), threading.Event()

    class Joined(Counter):
        def advance(self):
            entered.set()
            joined.wait(10)
            if where == "step" and any(ticket.job.name == "exits" for ticket in self.left):
                raise SystemExit
            return super().advance()

    def exits():
        yield [Count(3, name="exits")]
        raise SystemExit

    scheduler = scheduler_of(Joined)

    def call():
        computing = threading.Thread(target=lambda: results.append(scheduler.run(plan_of(2000))))
        computing.start()
        entered.wait(10)
        bad = scheduler.submit(exits, "bad")
        joined.set()
        computing.join()
        return bad.exception()

    results: list = []
    assert isinstance(ended(call), SystemExit)
    assert results == [[2000]]


@pytest.mark.usefixtures("no_threads")
def test_where_no_thread_takes_over_a_caller_computes_for_another():
    """Whose request is in progress at his slot when his own is done."""
    entered, found = threading.Event(), []

    class Joined(Counter):
        def advance(self):
            if self.left and not entered.is_set():
                entered.set()
                while not self.slot.waiting():
                    pass
            return super().advance()

    scheduler = scheduler_of(Joined)
    other = threading.Thread(target=lambda: entered.wait(10) and found.append(scheduler.run(plan_of(500))), daemon=True)
    other.start()
    assert ended(lambda: scheduler.run(plan_of(3))) == [3]
    other.join(20)
    assert found == [[500]] and scheduler._state.is_free


class Failing:
    """Makes workers, in the slots that work; counts tries at the others."""

    def __init__(self, *working: int):
        self.working, self.tries = set(working), 0

    def __call__(self, slot):
        if slot.key[1] in self.working:
            return Counter(slot)
        self.tries += 1
        raise FastattnError("no worker can be made")


@pytest.mark.parametrize("working", [{0}, {1}, {2}, {0, 2}])
def test_a_slot_that_can_do_nothing_is_missed_by_nobody(working):
    make_worker = Failing(*working)
    scheduler = scheduler_of(make_worker, slots=3, enough=1)
    requests = [scheduler.submit(plan_of(*[2] * 20, stages=3), n) for n in range(20)]
    assert ended(lambda: [request.result() for request in requests]) == [[2] * 20] * 20
    assert ended(lambda: scheduler.run(plan_of(*[2] * 20))) == [2] * 20
    assert make_worker.tries < 20, "it rests"
    make_worker.working |= {0, 1, 2}
    assert ended(lambda: scheduler.run(plan_of(*[2] * 20))) == [2] * 20


def test_where_no_slot_can_do_anything_requests_fail():
    """A new one has them tried again, and all goes on once one can."""
    make_worker = Failing()
    scheduler = scheduler_of(make_worker, slots=3, enough=1)
    for way in ("run", "submit"):
        before, plan = make_worker.tries, plan_of(*[2] * 20)
        call = partial(scheduler.run, plan) if way == "run" else scheduler.submit(plan).result
        assert isinstance(ended(call), FastattnError)
        assert before < make_worker.tries < before + 10
    make_worker.working.add(2)
    assert ended(lambda: scheduler.run(plan_of(*[2] * 20))) == [2] * 20


def test_a_slot_that_rests_is_tried_again(monkeypatch):
    """After twice the time each time, until it has done something."""
    now = [0.0]
    monkeypatch.setattr("fastattn.scheduling.state.monotonic", lambda: now[0])
    make_worker = Failing(1)
    scheduler = scheduler_of(make_worker, SchedulerByHand, 2, 1)
    scheduler.submit(plan_of(*[5] * 2000))
    tries = []
    for second in range(200):
        now[0] = float(second)
        scheduler.tick()
        tries.append(make_worker.tries)
    assert tries[10] > 3 and tries[-1] - tries[-int(2 * LONGEST_REST)] <= 2, "seldom in the end"
    make_worker.working.add(0)
    now[0] += LONGEST_REST
    for _ in range(20):
        scheduler.tick()
    assert len(scheduler._state.slots) == 2 and not scheduler._state.rests
    scheduler.finish_all()
    assert scheduler.is_at_rest


def test_what_a_process_began_does_not_go_on_in_its_child(monkeypatch):
    scheduler = counting(SchedulerByHand)
    under_way, done = scheduler.submit(plan_of(9)), scheduler.submit(plan_of(1))
    for _ in range(3):
        scheduler.tick()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for wait in (under_way.result, under_way.exception):
        with pytest.raises(FastattnError, match="when it was forked"):
            wait()
    assert not under_way.cancel() and done.result() == [1]
    assert scheduler.submit(plan_of(2)) and scheduler.finish_all() is None


def test_a_line_that_nobody_tried_yet_is_tried_before_a_request_fails() -> None:
    """Of one job, for which one slot is taken."""
    make_worker = Failing(1)
    scheduler = scheduler_of(make_worker, SchedulerByHand, 2, 1)
    request = scheduler.submit(plan_of(2))
    scheduler.finish_all()
    assert request.result(0) == [2] and make_worker.tries == 1


class PutsBack(Counter):
    """Gives back what it has, and can do nothing from then on, when it is told to."""

    lost = False

    def advance(self) -> bool:
        if self.lost:
            for ticket in self.left:
                self.slot.put_back(ticket)
            self.left = {}
            type(self).lost = False
            raise FastattnError("its process is gone")
        return super().advance()


@pytest.fixture
def scheduler() -> SchedulerByHand:
    PutsBack.lost = False
    return SchedulerByHand(PutsBack, 1, lambda count: nullcontext(), 100, 2)  # one slot at a time


def test_what_is_put_back_is_done_and_what_is_over_is_not(scheduler: SchedulerByHand) -> None:
    goes_on, over = (scheduler.submit(plan_of(5, 5), caller) for caller in range(2))
    scheduler.tick()
    assert over.abandon(), "as it is before its scheduler knows"
    PutsBack.lost = True
    scheduler.tick()
    assert not any(ticket.queue for ticket in over.tickets)
    scheduler._state.drop(over)
    scheduler.finish_all()
    assert goes_on.result(0) == [5, 5] and scheduler.is_at_rest


def test_what_was_to_run_alone_at_a_slot_that_rests_waits_again(scheduler: SchedulerByHand) -> None:
    requests = [scheduler.submit(plan_of(5, fails=fails), caller) for caller, fails in enumerate((False, True, False))]
    while not (isolated := [slot for slot in scheduler._state.slots if len(slot.isolated) > 1]):
        assert scheduler.tick()
    assert not isolated[0].tickets
    PutsBack.lost = True
    scheduler.finish_all()
    assert requests[0].result(0) == requests[2].result(0) == [5]
    assert isinstance(requests[1].exception(0), ValueError) and scheduler.is_at_rest
