"""The budget's arithmetic: a part's time is its own, and all parts sum to the whole."""

import pytest

from bench import budget


class Clock:
    """Seconds that only work makes pass."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_what_a_part_calls_of_other_parts_is_theirs():
    clock = Clock()

    def work(seconds, *calls):
        clock.now += seconds
        for call in calls:
            call()

    budgeted = budget.Budget({}, clock=clock)
    inner = budgeted._timed("inner", lambda: work(2.0))
    outer = budgeted._timed("outer", lambda: work(1.0, inner, inner))
    total = budgeted.run(lambda: work(0.5, outer, inner))
    assert total == 7.5
    assert {part: own for part, (own, _) in budgeted.spent.items()} == {"inner": 6.0, "outer": 1.0, budget.REST: 0.5}
    assert next(iter(budgeted.spent)) == "inner"


def test_every_part_is_there_and_is_put_back():
    before = {}
    for places in (*budget.PARTS.values(), *budget.LOADING.values()):
        before |= {place: budget.holder_of(*place)[0] for place in places}
    functions = {place: vars(holder)[place[2]] for place, holder in before.items()}
    with pytest.raises(ZeroDivisionError), budget.Budget(budget.PARTS), budget.Budget(budget.LOADING):
        assert all(vars(holder)[place[2]] is not functions[place] for place, holder in before.items())
        raise ZeroDivisionError
    assert all(vars(holder)[place[2]] is functions[place] for place, holder in before.items())
