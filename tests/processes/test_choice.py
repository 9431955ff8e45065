"""How many processes there are for how much work, and how it is shared out."""

import pytest

from fastattn.processes.choice import LEAST_TEXTS, LEAST_THREADS, chosen_processes, rate_under_lock, sharing
from fastattn.processes.pool import dealt


def test_chunks_hold_every_text_once() -> None:
    for texts in (0, 1, 2, 15, 33, 500, 20_000):
        chunks = dealt([n % 50 for n in range(texts)], 8)
        assert sorted(place for chunk in chunks for place in chunk) == list(range(texts))
        assert len(chunks) >= min(texts, 8) and all(chunks)
        sizes = [len(chunk) for chunk in chunks]
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_processes_are_chosen_for_many_threads_and_light_models() -> None:
    light, heavy = 1 << 20, 1 << 26
    assert all(chosen_processes(threads, light) == 1 for threads in range(1, LEAST_THREADS))
    assert chosen_processes(64, light) > chosen_processes(64, heavy) > chosen_processes(8, heavy) >= 1
    for threads in (8, 16, 64):
        assert threads // chosen_processes(threads, light) >= 1
    assert sharing(None, None, 2, light).processes == 1
    assert sharing(4, None, 8, light) == sharing(4, 2, 2, light)
    assert sharing(None, None, 16, light).least == LEAST_TEXTS * chosen_processes(16, light)


def test_the_rate_under_a_lock_is_between_its_limits() -> None:
    assert rate_under_lock(1.0, 0.0, 8) == 8
    assert rate_under_lock(1.0, 1.0, 8) == pytest.approx(1.0)
    rates = [rate_under_lock(1.0, 0.2, threads) for threads in (1, 2, 8, 64)]
    assert rates == sorted(rates) and rates[0] == 1 and rates[-1] == pytest.approx(5)
