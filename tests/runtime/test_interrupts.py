"""Ctrl-C, kills and forks at any moment leave nothing taken or broken: afterwards everything works as before."""

import json
import os
import threading

import pytest

from fastattn.runtime.threads import Pool
from fastattn.system.worker_threads import map_in_threads
from tests import ROOT
from tests.children import run_child
from tests.runtime.run_abuse import forks, interrupts, kills


@pytest.fixture(autouse=True)
def _pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at afterwards is the pool and its helpers."""
    monkeypatch.setenv("FASTATTN_THREADING", "pool")


# An exception at the n-th line that is run in the files of one part, for every n there is.
EVERY_LINE = """
import json, sys, threading, time
import numpy as np
from tests.models.tiny_models import random_checkpoint
from fastattn import Translator
from fastattn.ops import cpu as operations
from fastattn.runtime import handle
from fastattn.runtime.threads import TAKEN

sources = [["\\u2581w1", "\\u2581w2", f"\\u2581w{n % 9}"] for n in range(9)]
rng = np.random.default_rng(0)
x, packed = rng.standard_normal((300, 64)).astype(np.float32), operations.pack_linear(np.ones((200, 64), np.float32))
translators = {threads: Translator.from_checkpoint(random_checkpoint(seed=5), threads=threads) for threads in (1, 2)}

def work(threads):
    with operations.use_threads(2):
        product = operations.linear(x, packed)
    return product.tobytes(), translators[threads].translate_tokens(sources, beam_size=2, max_decoding_length=4)

class Interrupt(BaseException):
    pass

def trace(frame, event, argument):
    global left
    if not frame.f_code.co_filename.endswith(files):
        return None
    if event == "line":
        left -= 1
        if left == 0:
            raise Interrupt
    return trace

expected = {threads: work(threads) for threads in (1, 2)}
for names, step, threads, fresh in json.loads(sys.argv[1]):
    files, at, interrupted, waited = tuple(names.split(",")), 1, 0, 0
    while True:
        if fresh:
            handle._pool = handle.Pool(handle._serve, 2)
        left = at
        sys.settrace(trace)
        try:
            work(threads)
            done = True
        except Interrupt:
            done, interrupted = False, interrupted + 1
        finally:
            sys.settrace(None)
        assert work(threads) == expected[threads], (names, at)
        assert handle._pool._words[TAKEN // 8] == 0, (names, at)
        assert len(handle._pool._helpers) == 1, (names, at)
        if done:
            break
        at += step
    while threading.active_count() > 2 + fresh * (1 + 2 * interrupted) and (waited := waited + 1) < 100:
        time.sleep(0.01)  # a thread that has done its work is about to end
    print(interrupted, threading.active_count() <= 2 + fresh * (1 + 2 * interrupted))
"""
# (files, every how many lines, threads of the translator, whether each time with a new pool, whose helpers stay).
PARTS = [
    ("fastattn/system/worker_threads.py,scheduling/request.py", 1, 2, False),
    ("scheduling/scheduler.py,scheduling/state.py", 1, 2, False),
    # The thread that is interrupted does it all: else it depends on the other how much there is for it to do.
    ("decoding/worker.py,decoding/batch.py", 5, 1, False),
    ("layers/key_value_cache.py", 2, 1, False),
    ("runtime/threads.py,runtime/handle.py", 2, 2, True),
]


@pytest.mark.slow
def test_an_exception_at_any_line_leaves_nothing_behind() -> None:
    found = [line.split() for line in run_child(EVERY_LINE, json.dumps(PARTS)).splitlines()]
    assert len(found) == len(PARTS)
    for part, (interrupted, few) in zip(PARTS, found):
        assert int(interrupted) > 15 and few == "True", part


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
