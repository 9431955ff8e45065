"""What may disturb a scheduler: callbacks that ask for more, no threads, errors of every kind, interrupts in a row."""

import gc
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from time import sleep

import pytest

from fastattn.errors import FastattnError
from fastattn.scheduling import scheduler as scheduling
from fastattn.scheduling.request import Queue, Request
from fastattn.scheduling.scheduler import Scheduler
from fastattn.scheduling.state import LONGEST_REST, SchedulerState
from tests.messages import refused
from tests.scheduling.by_hand import SchedulerByHand, ended
from tests.scheduling.test_scheduler import Count, Counter, Interrupt, calling, counting, plan_of, scheduler_of


def few_threads(monkeypatch, most):
    """The system gives so many, and then no more."""
    start_thread, started = scheduling.start_thread, []

    def start(thread):
        if len(started) == most:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start_thread(thread)

    monkeypatch.setattr(scheduling, "start_thread", start)
    monkeypatch.setattr(scheduling, "warn_of_fewer_threads", lambda error: None)


class Exiting(Counter):
    """Raises what a job is named after; does not begin before it may."""

    may = threading.Event()

    def advance(self):
        self.may.wait(10)
        for ticket in self.left:
            if ticket.job.name:
                raise {"SystemExit": SystemExit, "Interrupt": Interrupt}[ticket.job.name]
        return super().advance()


def exits(error, where):
    """A plan that such an error ends, in a step or by itself."""
    yield [Count(3, name=error.__name__ if where == "step" else "")]
    raise error


@pytest.mark.parametrize("error", [SystemExit, Interrupt])
@pytest.mark.parametrize("where", ["step", "plan"])
def test_an_exit_in_a_thread_ends_its_own_request_alone(error, where):
    Exiting.may.set()
    scheduler = scheduler_of(Exiting)
    good, bad = scheduler.submit(plan_of(2000), "good"), scheduler.submit(partial(exits, error, where), "bad")
    assert isinstance(ended(bad.result), error)
    assert ended(good.result) == [2000]
    assert ended(lambda: scheduler.run(plan_of(2))) == [2]


@pytest.mark.parametrize("where", ["plan", "step"])
def test_an_exit_of_one_request_is_not_that_of_a_caller_who_computes_it(where):
    Exiting.may.clear()
    scheduler = scheduler_of(Exiting)
    with ThreadPoolExecutor(1) as pool:
        computing = pool.submit(scheduler.run, plan_of(2000))
        while not scheduler._state.slots:
            sleep(0.001)
        bad = scheduler.submit(partial(exits, SystemExit, where), "bad")
        Exiting.may.set()
        assert isinstance(bad.exception(20), SystemExit) and computing.result(20) == [2000]


def test_where_no_thread_is_to_be_had_submit_computes(monkeypatch):
    few_threads(monkeypatch, 0)
    scheduler = counting(slots=3)
    for _ in range(3):
        assert scheduler.submit(plan_of(*[2] * 40)).result(5) == [2] * 40
    assert ended(lambda: scheduler.run(plan_of(*[2] * 40))) == [2] * 40
    assert not scheduler._state.slots


def test_a_failure_of_the_scheduler_itself_leaves_no_slot(monkeypatch):
    scheduler = counting()
    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "_hand_over", lambda slot: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            scheduler.run(plan_of(2))
    assert ended(lambda: scheduler.run(plan_of(3))) == [3]


def test_a_worker_and_what_it_keeps_go_with_its_slot():
    workers = []

    def make_worker(slot):
        worker = Counter(slot)
        workers.append(weakref.ref(worker))
        return worker

    scheduler = scheduler_of(make_worker)
    gc.disable()
    try:
        scheduler.run(plan_of(3))
        steps = scheduler.steps(plan_of(9))
        next(steps)
        steps.close()
        del steps
        assert [worker() for worker in workers] == [None, None]
    finally:
        gc.enable()


def test_a_callback_has_no_lock():
    """Of a request that ends with an error: another thread may use the scheduler meanwhile."""
    scheduler, found = counting(SchedulerByHand), []
    request = scheduler.submit(plan_of(2, fails=True))
    request.add_done_callback(lambda done: found.append(ended(lambda: scheduler.submit(plan_of(1)), 5)))
    scheduler.finish_all()
    assert isinstance(found[0], Request)


def test_a_cancellation_between_two_stages_leaves_nothing():
    scheduler, requests = counting(SchedulerByHand), []

    def two_stages():
        yield [Count(1)]
        requests[0]._state = "CANCELLED"  # as by another thread, which has yet to tell the scheduler
        yield [Count(1)] * 5

    requests.append(scheduler.submit(two_stages))
    scheduler.tick()
    requests[0].cancel()
    scheduler.finish_all()
    assert scheduler.is_at_rest


def test_a_child_is_reset_once(monkeypatch):
    class Slow(Scheduler):
        resets = 0

        def _reset(self):
            Slow.resets += 1
            sleep(0.05)
            super()._reset()

    scheduler = scheduler_of(Counter, Slow)
    monkeypatch.setattr(scheduling.os, "getpid", lambda: -1)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: scheduler.run(plan_of(2)), range(8))) == [[2]] * 8
    assert Slow.resets == 2, "when it was made, and once more"


def test_no_interrupt_is_one_too_many(monkeypatch):
    """A second one comes while what the first has left is put in order."""
    scheduler, struck = counting(SchedulerByHand), []
    other = scheduler.submit(plan_of(5), "other")
    scheduler.tick()
    add = Queue.add

    def interrupted(*arguments):
        if len(struck) < 2:
            struck.append(1)
            raise KeyboardInterrupt
        add(*arguments)

    monkeypatch.setattr(Queue, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scheduler.run(plan_of(3))
    assert len(struck) == 2
    scheduler.finish_all()
    assert other.result(0) == [5] and scheduler.is_at_rest


@pytest.mark.parametrize(("holder", "step"), [(SchedulerState, "enter"), (Request, "continue_plan")])
def test_an_interrupt_of_another_leaves_what_a_thread_is_about_to_do(monkeypatch, holder, step):
    """Between the end of a plan's stage and the beginning of the next: nothing waits twice, no plan goes on twice."""
    scheduler = counting(SchedulerByHand)
    request = scheduler.submit(plan_of(1, 2, 3, stages=3), "one")
    original, interrupted = getattr(holder, step), []

    def raising():
        raise Interrupt
        yield

    def late(*arguments):
        if request in arguments and not interrupted:
            interrupted.append(1)
            interrupted.append(ended(lambda: scheduler.run(raising)))
        return original(*arguments)

    monkeypatch.setattr(holder, step, late)
    scheduler.finish_all()
    assert isinstance(interrupted[1], Interrupt) and request.result(0) == [1, 2, 3] and scheduler.is_at_rest
    assert not scheduler.failures


def test_an_interrupt_in_the_plan_of_another_ends_ones_own_call_and_that_plan_begins_again():
    scheduler, struck = counting(), []

    def plan():
        if not struck:
            struck.append(1)
            raise Interrupt
        return (yield [Count(2)])

    other = scheduler._new_request(plan, "other")
    scheduler._state.enter(other, [])
    with pytest.raises(Interrupt):
        scheduler.run(plan_of(3))
    assert other.result(10) == [2]


def test_what_an_interrupt_leaves_at_another_slot_is_dropped_there():
    other_begun, dropped = threading.Event(), []

    class Struck(Counter):
        def advance(self):
            if threading.current_thread() is threading.main_thread():
                other_begun.wait(10)
                raise Interrupt
            other_begun.set()
            return super().advance()

        def drop(self):
            dropped.extend(self.left)
            super().drop()

    with pytest.raises(Interrupt):
        scheduler_of(Struck, slots=2, enough=1).run(plan_of(200_000, 200_000))
    assert len(dropped) == 1


def test_to_cancel_looks_through_no_line(monkeypatch):
    """Of a caller's many requests each would look at all the others."""
    scheduler, looks, done = counting(SchedulerByHand), [], Request.done
    requests = [scheduler.submit(plan_of(1)) for _ in range(100)]
    with monkeypatch.context() as patch:
        patch.setattr(Request, "done", lambda self: looks.append(self) or done(self))
        assert all(request.cancel() for request in requests[:90]) and len(looks) < 200
    scheduler.finish_all()
    assert scheduler.is_at_rest and all(request.result(0) == [1] for request in requests[90:])


def test_nobody_has_the_error_of_one_who_is_over():
    """He is cancelled in the middle of the step that fails because of him."""

    def cancel(worker):
        if len(worker.left) == 2:
            requests[1].cancel()
            raise ValueError("his")

    scheduler = scheduler_of(calling(cancel), SchedulerByHand)
    requests = [scheduler.submit(plan_of(3), n) for n in range(2)]
    scheduler.finish_all()
    assert requests[0].result(0) == [3] and requests[1].cancelled() and scheduler.is_at_rest


def test_many_callers_of_one_job_each_are_shared_among_the_slots():
    scheduler = scheduler_of(lambda slot: Counter(slot, 64), SchedulerByHand, 2)
    for caller in range(40):
        scheduler.submit(plan_of(3), caller)
    scheduler.tick()
    scheduler.tick()  # of the second slot the first one
    assert [len(slot.tickets) for slot in scheduler._state.slots] == [20, 20]


def test_a_slot_that_is_handed_over_is_not_given_up(monkeypatch):
    """Its new thread has not begun yet when the caller of the old one asks for more."""
    start_thread, second, requests = scheduling.start_thread, threading.Event(), []

    def start_late(thread):
        start_thread(threading.Thread(target=lambda: second.wait(10) and thread.run(), daemon=True))

    def join(worker):
        if not requests:
            requests.append(scheduler.submit(plan_of(50), "other"))

    monkeypatch.setattr(scheduling, "start_thread", start_late)
    scheduler = scheduler_of(calling(join))
    late = lambda: second.set() or plan_of(3)()  # noqa: E731
    assert ended(lambda: [scheduler.run(plan_of(2)), scheduler.run(late)]) == [[2], [3]]
    assert requests[0].result(10) == [50]


def test_a_callback_of_a_step_that_an_exit_ended_may_ask_for_more(monkeypatch):
    started, found, start_thread = [], [], scheduling.start_thread
    monkeypatch.setattr(scheduling, "start_thread", lambda thread: started.append(thread) or start_thread(thread))
    Exiting.may.clear()
    scheduler = scheduler_of(Exiting)
    request = scheduler.submit(plan_of(5, name="SystemExit"))
    request.add_done_callback(lambda done: found.append(scheduler.run(plan_of(2, 3))))
    Exiting.may.set()
    assert isinstance(ended(request.exception), SystemExit)
    assert ended(lambda: scheduler.run(plan_of(1))) == [1]
    started[0].join(60)
    assert not started[0].is_alive(), "it gave up a slot that it had lost"
    assert found == [[2, 3]]


@pytest.mark.parametrize("when", ["_start_threads", "_hand_over"])
def test_a_signal_handler_may_ask_for_more_before_and_after_the_steps(monkeypatch, when):
    scheduler, found = counting(), []
    function = getattr(scheduler, when)

    def interposed(argument):
        if not found:
            found.append(scheduler.run(plan_of(2)))
        function(argument)

    monkeypatch.setattr(scheduler, when, interposed)
    assert ended(lambda: scheduler.run(plan_of(3))) == [3]
    assert found == [[2]] and not scheduler._state.slots


@pytest.mark.parametrize("threads, fails, others", [(99, False, 0), (99, True, 3), (1, False, 3), (1, True, 0)])
def test_a_callback_may_wait_for_another_result(monkeypatch, threads, fails, others):
    """Also for one that is in progress at the slot of its own thread."""
    few_threads(monkeypatch, threads)
    called_back, found = threading.Event(), []
    Exiting.may.clear()
    scheduler = scheduler_of(Exiting)
    first = scheduler.submit(plan_of(2, fails=fails), "one")
    beside = [scheduler.submit(plan_of(50), n) for n in range(others)]
    for ask in (
        lambda: [other.result() for other in beside],
        lambda: scheduler.submit(plan_of(4, 5)).result(),
        lambda: type(scheduler.submit(plan_of(3, fails=True)).exception()),
    ):
        first.add_done_callback(lambda _, ask=ask: found.append(ask()))
    first.add_done_callback(lambda _: called_back.set())
    Exiting.may.set()
    assert ended(lambda: [scheduler.run(plan_of(1)) for _ in range(3)]) == [[1]] * 3
    assert ended(lambda: [other.result() for other in beside]) == [[50]] * others
    assert called_back.wait(20)
    assert found == [[[50]] * others, [4, 5], ValueError]


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


def test_where_no_thread_takes_over_a_caller_computes_for_another(monkeypatch):
    """Whose request is in progress at his slot when his own is done."""
    few_threads(monkeypatch, 0)
    entered = threading.Event()

    def join(worker):
        if worker.left and not entered.is_set():
            entered.set()
            while not worker.slot.waiting():
                pass

    scheduler = scheduler_of(calling(join))
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: entered.wait(10) and scheduler.run(plan_of(500)))
        assert ended(lambda: scheduler.run(plan_of(3))) == [3]
        assert other.result(20) == [500]
    assert scheduler._state.is_free


class Failing:
    """Makes workers, in the slots that work; counts tries at the others."""

    def __init__(self, *working):
        self.working, self.tries = {*working}, 0

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
    """A new one has them tried again, and all goes on once one can; none fails before every slot was tried."""
    make_worker, plan = Failing(), plan_of(*[2] * 20)
    scheduler = scheduler_of(make_worker, slots=3, enough=1)
    for call in (scheduler.run, lambda plan: scheduler.submit(plan).result()):
        before = make_worker.tries
        assert isinstance(ended(lambda call=call: call(plan)), FastattnError)
        assert before < make_worker.tries < before + 10
    make_worker.working.add(2)
    assert ended(lambda: scheduler.run(plan)) == [2] * 20
    make_worker = Failing(1)
    scheduler = scheduler_of(make_worker, SchedulerByHand, 2, 1)
    request = scheduler.submit(plan_of(2))
    scheduler.finish_all()
    assert request.result(0) == [2] and make_worker.tries == 1


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
        with refused(FastattnError):
            wait()
    assert not under_way.cancel() and done.result() == [1]
    assert scheduler.submit(plan_of(2)) and scheduler.finish_all() is None


class PutsBack(Counter):
    """Gives back what it has, and can do nothing from then on, when it is told to."""

    lost = False

    def advance(self):
        if self.lost:
            for ticket in self.left:
                self.slot.put_back(ticket)
            self.left = {}
            type(self).lost = False
            raise FastattnError("its process is gone")
        return super().advance()


@pytest.fixture
def scheduler():
    PutsBack.lost = False
    return SchedulerByHand(PutsBack, 1, lambda count: nullcontext(), 100, 2)  # one slot at a time


def test_what_is_put_back_is_done_and_what_is_over_is_not(scheduler):
    goes_on, over = (scheduler.submit(plan_of(5, 5), caller) for caller in range(2))
    scheduler.tick()
    assert over.abandon(), "as it is before its scheduler knows"
    PutsBack.lost = True
    scheduler.tick()
    assert not any(ticket.queue for ticket in over.tickets)
    scheduler._state.drop(over)
    scheduler.finish_all()
    assert goes_on.result(0) == [5, 5] and scheduler.is_at_rest


def test_what_was_to_run_alone_at_a_slot_that_rests_waits_again(scheduler):
    requests = [scheduler.submit(plan_of(5, fails=fails), caller) for caller, fails in enumerate((False, True, False))]
    while not (isolated := [slot for slot in scheduler._state.slots if len(slot.isolated) > 1]):
        assert scheduler.tick()
    assert not isolated[0].tickets
    PutsBack.lost = True
    scheduler.finish_all()
    assert requests[0].result(0) == requests[2].result(0) == [5]
    assert isinstance(requests[1].exception(0), ValueError) and scheduler.is_at_rest
