"""A function mapped in threads: in order, by as many as asked for, and what one that raises does to the others."""

import threading
from time import sleep

import pytest

from fastattn.system import worker_threads
from fastattn.system.worker_threads import map_in_threads


def test_results_come_in_order_of_as_many_threads_as_asked_for():
    for workers, items, threads in ((1, 5, 1), (3, 9, 3), (3, 2, 2)):
        together, used = threading.Barrier(threads), set()

        def work(item, together=together, used=used):
            if threading.get_ident() not in used:
                used.add(threading.get_ident())
                together.wait(10)
            return -item

        before = threading.active_count()
        assert map_in_threads(work, range(items), workers) == [-item for item in range(items)]
        assert len(used) == threads and threading.get_ident() in used
        assert threading.active_count() == before, "they end with the call"
    assert map_in_threads(len, [], 3) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_after_an_error_no_more_is_begun_and_it_is_raised(workers):
    begun, failed = [], threading.Event()

    def work(item):
        begun.append(item)
        if item == 0:
            failed.set()
            raise KeyError(item)
        failed.wait(10)
        sleep(0.001)

    with pytest.raises(KeyError):
        map_in_threads(work, range(1000), workers)
    assert begun == [0] if workers == 1 else len(begun) < 1000


def test_where_no_thread_is_to_be_had_this_one_does_it_all_and_says_so_once(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(worker_threads, "_warned", False)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.warns(UserWarning, match="^work goes on with fewer threads than asked for: can't start new th") as told:
        for _ in range(2):
            assert map_in_threads(str, range(4), 3) == ["0", "1", "2", "3"]
    assert len(told) == 1
