"""A worker that could do nothing leaves its tickets to others: they wait again, once, and nothing is counted twice."""

from contextlib import nullcontext

import pytest

from fastattn.errors import FastattnError
from tests.scheduling.by_hand import SchedulerByHand
from tests.scheduling.test_between_steps import Failing
from tests.scheduling.test_scheduler import Counter, plan_of


def test_a_line_that_nobody_tried_yet_is_tried_before_a_request_fails() -> None:
    """Of one job, for which one slot is taken."""
    make_worker = Failing(1)
    scheduler = SchedulerByHand(make_worker, 2, lambda count: nullcontext(), 1, 2)
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
