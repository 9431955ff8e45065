"""What the benchmarks measure time with: the samples of the interpreter's lock, the clock of kernels, the budget."""

import contextlib
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from bench import budget
from bench import kernel_clock as clock
from bench.kernel_clock import kernel_seconds
from bench.lock import Work, efficiency, lock_word, predicted, sampled_lock
from fastattn.ops import cpu as operations

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@LINUX
def test_samples_tell_work_with_the_lock_from_work_without() -> None:
    if threading.active_count() == 1:  # of a session in which others run, it may be found by chance only
        lock_word()
    shares = []
    for held in (True, False):
        with sampled_lock() as sampled:
            end = time.perf_counter() + 0.2
            while time.perf_counter() < end:
                if not held:
                    time.sleep(0.02)
        shares.append(sampled.share)
    assert shares[0] > 0.5 > shares[1]


def test_processes_get_round_the_lock_but_not_round_memory() -> None:
    work = Work(seconds=1e-3, held=2e-4, bytes=1e6)
    assert work.share == pytest.approx(0.2)
    assert predicted(work, 1) == pytest.approx(1000)
    assert 4500 < predicted(work, 64) < 5000.1
    assert efficiency(work, 16) < 0.35
    assert efficiency(work, 16, 8) > 0.9
    assert predicted(work, 16, 8, bandwidth=8e9) == pytest.approx(8000)
    assert predicted(work, 64, 32, sent=1e-4) == pytest.approx(10_000)
    assert predicted(work, 7, 2) > predicted(work, 6, 2)


def norm() -> np.ndarray:
    ones = np.ones((3, 8), np.float32)
    return operations.layer_norm(ones, ones[0], ones[0], 1e-5)


def test_seconds_of_calls_inside_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    norm()
    now = iter([1.0, 1.5, 4.0, 7.0])
    monkeypatch.setattr(clock, "time", SimpleNamespace(thread_time=lambda: next(now)))
    with contextlib.suppress(ZeroDivisionError), kernel_seconds() as seconds:
        inside = [norm(), norm()]
        raise ZeroDivisionError
    assert [name.partition(".")[0] for name in seconds] == ["norm"] and list(seconds.values()) == [3.5]
    np.testing.assert_array_equal(inside, [norm(), norm()])  # outside: no time is left to be told
    assert list(seconds.values()) == [3.5]


def test_what_a_part_calls_of_other_parts_is_theirs():
    now = [0.0]  # only work makes it pass

    def work(seconds, *calls):
        now[0] += seconds
        for call in calls:
            call()

    budgeted = budget.Budget({}, clock=lambda: now[0])
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
