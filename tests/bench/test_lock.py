"""The benchmark of the interpreter's lock: it sees who holds it, and predicts what its model says."""

import sys
import threading
import time

import pytest

from bench import lock
from bench.lock_sampling import lock_word, sampled_lock
from bench.scaling_model import Work, efficiency, predicted

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


def test_the_table_has_a_row_for_each_way_of_calling() -> None:
    rows = [lock.Row("tiny int8", mode, Work(1e-3, 2e-4, 0.0), 0.1, 0.0, 1 << 20) for mode in lock.MODES]
    lines = lock.table(rows, 200e9).splitlines()
    assert len(lines) == 2 + len(lock.MODES)
    assert lines[2].startswith("| tiny int8 | batch | 1.00 ms | 200 us | 20.0% (10.0%) |")
    assert len({line.count("|") for line in lines}) == 1
