"""Ctrl-C, kills and forks at any moment leave nothing taken or broken: afterwards everything works as before."""

import os
import threading

import pytest

from fastattn.runtime.threads import Pool
from fastattn.system.worker_threads import map_in_threads
from tests import ROOT
from tests.runtime.run_abuse import forks, interrupts, kills


@pytest.fixture(autouse=True)
def _pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at afterwards is the pool and its helpers."""
    monkeypatch.setenv("FASTATTN_THREADING", "pool")


def test_an_interrupt_while_a_thread_starts_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not taken for a system that gives no thread, though the condition that it waits at has lost its lock."""

    def start(thread: threading.Thread) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("release unlocked lock")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        map_in_threads(len, ["one", "two"], 2)
    pool = Pool(lambda address, helper: None, 1)
    with pytest.raises(KeyboardInterrupt):
        pool.ensure(1, 0)
    monkeypatch.undo()
    pool.ensure(1, 0)
    assert len(pool._helpers) == 1


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_an_interrupt_at_any_moment_leaves_nothing_behind(count: int) -> None:
    assert interrupts(count) == []


posix = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and forks")


@posix
@pytest.mark.parametrize("count", [2, pytest.param(500, marks=pytest.mark.slow)])
def test_after_a_kill_the_next_run_works_and_leaves_nothing(count: int) -> None:
    assert kills(count) == []


@posix
@pytest.mark.parametrize("count", [15, pytest.param(1000, marks=pytest.mark.slow)])
def test_children_forked_under_load(count: int) -> None:
    assert forks(count) == []


def test_nothing_uses_the_cached_property_with_a_lock() -> None:
    files = [path for room in ("fastattn", "weights", "cli") for path in (ROOT / room).rglob("*.py")]
    users = [path.name for path in files if "cached_property" in path.read_text("utf-8")]
    assert users == ["records.py"], "whose docstring of lazy says why not"
