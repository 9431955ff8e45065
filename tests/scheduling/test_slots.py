"""How many slots are taken, which jobs come first, and how many threads the kernels of a slot's steps have."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep

from fastattn.scheduling.scheduler import Scheduler
from tests.scheduling.by_hand import SchedulerByHand
from tests.scheduling.test_disturbances import ended
from tests.scheduling.test_scheduler import Count, Counter, counting, plan_of, scheduler_of


def test_as_many_slots_are_taken_as_there_is_enough_work_for():
    for jobs, slots in ((1, 1), (7, 1), (8, 2), (11, 2), (12, 3), (99, 3)):
        scheduler = scheduler_of(Counter, SchedulerByHand, slots=3, enough=4)
        scheduler.submit(plan_of(*[5] * jobs))
        for _ in range(2):
            scheduler.tick()
        assert len(scheduler._state.slots) == slots, f"for {jobs} jobs"
        scheduler.finish_all()
        assert scheduler.is_at_rest


def test_the_longest_jobs_of_a_request_come_first():
    log: list[str] = []
    scheduler = counting(SchedulerByHand, log=log)

    def make_plan():
        return (yield [Count(2, length=length, name=str(length)) for length in (3, 1, 7, 5, 2, 6, 4)])

    request = scheduler.submit(make_plan)
    scheduler.finish_all()
    assert log == ["7", "6", "5", "4", "3", "2", "1"] and request.result(0) == [2] * 7


def test_slots_share_the_threads_and_the_last_one_has_them_all():
    now, seen = threading.local(), []
    other_begun, other_may_end = threading.Event(), threading.Event()

    @contextmanager
    def use_threads(count: int) -> Iterator[None]:
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
