"""Who may compile, in which thread, and what is left as it was."""

import os
import sys
import threading
from types import ModuleType

import pytest

from fastattn.runtime import compiling, handle
from fastattn.runtime.compiling import with_room
from fastattn.runtime.handle import _Compiled


def test_threads_that_compile_at_once_leave_the_size_of_stacks_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one comes as the first is about to start its thread."""
    sizes: list[int] = []
    start_thread = compiling.start_thread

    def start(thread: threading.Thread) -> None:
        if not helping.is_set():
            helping.set()
            inside.wait(0.3)  # the second one is here too, or waits for this one
        else:
            inside.set()
            first.join()
        sizes.append(threading.stack_size(compiling._STACK))  # to ask is to set
        start_thread(thread)

    def ask(number: int) -> None:
        if number == 2:
            helping.wait()
        results[number] = with_room(lambda: number)

    results: dict[int, int] = {}
    helping, inside = threading.Event(), threading.Event()
    first, second = (threading.Thread(target=ask, args=(number,)) for number in (1, 2))
    monkeypatch.setattr(compiling, "start_thread", start)
    before = threading.stack_size(1 << 18)
    try:
        for thread in (second, first):
            thread.start()
        for thread in (second, first):
            thread.join()
    finally:
        after = threading.stack_size(before)
    assert after == 1 << 18 and sizes == [compiling._STACK] * 2 and results == {1: 1, 2: 2}


def test_where_no_thread_is_to_be_had_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    found: list[threading.Thread] = []
    before = threading.stack_size(1 << 18)
    monkeypatch.setattr(compiling, "start_thread", refuse)
    caller = threading.Thread(target=lambda: found.append(with_room(threading.current_thread)))
    caller.start()
    caller.join()
    assert (found, threading.stack_size(before)) == ([caller], 1 << 18)


def test_what_fails_fails_in_the_thread_that_asked() -> None:
    def fail() -> None:
        raise KeyError(threading.current_thread().name)

    def ask() -> None:
        with pytest.raises(KeyError, match="fastattn compiling"):
            with_room(fail)
        asked.append(True)

    asked: list[bool] = []
    caller = threading.Thread(target=ask)
    caller.start()
    caller.join()
    assert asked


def test_the_second_process_is_begun_by_the_one_thread_that_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that begin it at once would begin two."""

    class Failing(_Compiled):
        def _compile(self, key: str, classes: list[type]) -> handle.Code:
            raise ArithmeticError

    began: list[bool] = []
    monkeypatch.setattr(handle, "begin_ahead", lambda: began.append(compiling.compiling._is_owned()))
    with pytest.raises(ArithmeticError):
        Failing("fastattn.kernels.none", "none")._variant("key", [])
    with pytest.raises(ArithmeticError):
        Failing("elsewhere", "none")._variant("key", [])
    assert began == [True], "and for what is not kept there is none"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_fork_while_another_thread_imports_numba_leaves_the_locks_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module is there before what it defines."""
    monkeypatch.setitem(sys.modules, "numba.core.compiler_lock", ModuleType("numba.core.compiler_lock"))
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    found = []

    def look() -> None:
        found.append(compiling.compiling.acquire(blocking=False))
        if found[0]:
            compiling.compiling.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [True]
