"""Who may compile, in which thread, and what is left as it was; a process that ends meanwhile does so in silence."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

from fastattn.runtime import compiling, handle
from fastattn.runtime.compiling import with_large_stack
from fastattn.runtime.handle import _CompiledBase
from tests.children import run_child


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
        sizes.append(threading.stack_size(compiling._STACK_BYTES))  # to ask is to set
        start_thread(thread)

    def ask(number: int) -> None:
        if number == 2:
            helping.wait()
        results[number] = with_large_stack(lambda: number)

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
    assert after == 1 << 18 and sizes == [compiling._STACK_BYTES] * 2 and results == {1: 1, 2: 2}


def test_where_no_thread_is_to_be_had_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.stack_size(1 << 18)
    with ThreadPoolExecutor() as pool:
        caller = pool.submit(threading.current_thread).result()
        monkeypatch.setattr(compiling, "start_thread", Mock(side_effect=RuntimeError("can't start new thread")))
        assert pool.submit(with_large_stack, threading.current_thread).result() is caller
    assert threading.stack_size(before) == 1 << 18


def test_what_fails_fails_in_the_thread_that_asked() -> None:
    def fail() -> None:
        raise KeyError(threading.current_thread().name)

    with ThreadPoolExecutor() as pool, pytest.raises(KeyError, match="fastattn compiling"):
        pool.submit(with_large_stack, fail).result()


def test_the_second_process_is_begun_by_the_one_thread_that_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that begin it at once would begin two."""

    class Failing(_CompiledBase):
        def _compile(self, key: str, classes: list[type]) -> handle.Code:
            raise ArithmeticError

    began: list[bool] = []
    monkeypatch.setattr(handle, "start_processes", lambda: began.append(compiling.compile_lock._is_owned()))
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

    def look() -> bool:
        is_free = compiling.compile_lock.acquire(blocking=False)
        if is_free:
            compiling.compile_lock.release()
        return is_free

    with ThreadPoolExecutor() as pool:
        assert pool.submit(look).result()


WORKING = """
import atexit, threading, time
waits = []
atexit.register(lambda: print("waits", len(waits)))  # the first is called last
import numpy as np
from fastattn.ops import cpu as operations
from tests.runtime.workload import Workload

def use():
    work = Workload()
    while True:
        work.results()

def multiply():
    x, packed = np.ones((3000, 64), np.float32), operations.pack_linear(np.ones((20000, 64), np.float32))
    with operations.use_threads(2):
        while True:
            operations.linear(x, packed)

for work in (use, use, use, multiply):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.5)
main, sleep, join = threading.get_ident(), time.sleep, threading.Thread.join

def count(wait):
    def counted(*arguments, **more):
        if threading.get_ident() == main:
            waits.append(wait)
        wait(*arguments, **more)
    return counted

time.sleep, threading.Thread.join = count(sleep), count(join)
"""

# One kernel is being compiled when the main thread returns, and its thread is for another one then.
COMPILING = """
import atexit, threading, time

def tell_at_the_end():  # the first is called last
    print("compiled", sum(len(each.variants) for each in kernels))
    time.sleep(1)  # in which another one might begin
    print("begun", len(calls))

atexit.register(tell_at_the_end)
import numpy as np
from fastattn.ops import cpu as operations
from fastattn.runtime import kernel_code
from fastattn.runtime.handle import _kernels
translate, calls, begun = kernel_code.object_file, [], threading.Event()
kernels = list(_kernels.values())

def translate_late(*arguments):
    calls.append(1)
    begun.set()
    time.sleep(0.5)
    return translate(*arguments)

def compile_all():
    operations.rms_norm(x, x[0], 1e-5)
    operations.pack_linear(x)

kernel_code.object_file, x = translate_late, np.ones((3, 8), np.float32)
threading.Thread(target=compile_all, daemon=True).start()
begun.wait()
"""


def test_nothing_waits_for_daemon_threads_that_work() -> None:
    assert run_child(WORKING).split() == ["waits", "0"]


def test_a_kernel_that_is_being_compiled_is_finished_first(tmp_path: Path) -> None:
    """LLVM's own state goes with the process: it crashed in a thread that went on. And no other is begun."""
    environment = {"FASTATTN_CACHE": str(tmp_path / "cache"), "FASTATTN_THREADING": "pool"}
    assert run_child(COMPILING, **environment).split() == ["compiled", "1", "begun", "1"]


# Handlers that were there before ours are called after it.
HANDLERS = """
import atexit, sys, threading

def handle():
    def work():
        operations.seen_around(np.array([0, 2]), np.array([9]), np.zeros(1, np.int64), -1, 0)
        print("computed")
    if sys.version_info < (3, 12):  # which starts none any more
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join()
    told.set()
    older.join()

atexit.register(handle)
import numba
import numpy as np
from fastattn.ops import cpu as operations
from fastattn.runtime import compiling

def wait():
    told.wait()
    print(numba.njit(lambda x: x + 1)(2))
    operations.pack_linear(np.ones((3, 8), np.float32))
    print("computed")

operations.rms_norm(np.ones((3, 8), np.float32), np.ones(8, np.float32), 1e-5)
compiling._GRACE = 0.5
told, older = threading.Event(), threading.Thread(target=wait, daemon=True)
older.start()
"""


def test_a_handler_that_waits_for_threads_gets_what_they_compute() -> None:
    """One that was there before goes on after a while: at once, it would begin what the end leaves in the middle."""
    new = ["computed"] if sys.version_info < (3, 12) else []
    assert run_child(HANDLERS, timeout=120).split() == [*new, "3", "computed"]
