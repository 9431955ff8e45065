"""With an empty cache a second process compiles beside the first; what it is to compile is what models take."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from fastattn import Translator
from fastattn.cli import warmup
from fastattn.runtime import compiling
from fastattn.runtime.handle import VARIANTS, kernel_named
from tests import ROOT
from tests.children import run_child
from tests.models.tiny_models import random_checkpoint

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files cannot be locked there")


def test_models_take_the_forms_that_are_compiled_ahead() -> None:
    for precision in ("float32", "int8"):
        translator = Translator.from_checkpoint(random_checkpoint(seed=5), precision)
        translator.translate_tokens([["▁w1", "▁w2"]], beam_size=2)
    for file, name, key in VARIANTS:
        assert key in kernel_named(file, name).variants, name
        kernel_named(file, name).compile_ahead(key)  # finds the classes that the key names


def test_processes_of_a_warmup_work_towards_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    monkeypatch.setattr(warmup, "_jobs", lambda: [partial(done.append, number) for number in range(4)])
    orders = []
    for number, processes in ((0, 1), (0, 2), (1, 2), (1, 4), (2, 4), (3, 4)):
        warmup.run_jobs(number, processes)
        orders.append("".join(map(str, done)))
        done.clear()
    assert orders == ["0123", "0123", "3210", "1032", "2301", "3210"]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of processes that are begun, none of which is."""
    commands: list[list[str]] = []
    monkeypatch.setattr(compiling, "thread_limit", lambda: 2)
    monkeypatch.delenv(compiling.SWITCH, raising=False)
    monkeypatch.setattr(os, "posix_spawn", lambda path, command, environment, **more: commands.append(command))
    return commands


def test_it_imports_nothing_of_the_current_folder(begun: list[list[str]], tmp_path: Path) -> None:
    with mock.patch.object(os, "waitpid"):
        compiling.start_processes.__wrapped__()
    (tmp_path / "fastattn.py").write_text("raise SystemExit(7)")
    ((python, option, code, *more),) = begun
    command = [python, option, code.replace("os.fork()", "False").replace("\nmain()", ""), *more]
    assert subprocess.run(command, cwd=tmp_path, timeout=60).returncode == 0


def test_no_program_but_python_is_started_nor_one_where_it_is_of_no_use(begun: list[list[str]]) -> None:
    for holder, name, value in (
        (sys, "frozen", True),
        (sys, "executable", "/usr/bin/uwsgi"),
        (sys, "executable", None),
        (compiling, "thread_limit", lambda: 1),
        (os, "environ", {**os.environ, compiling.SWITCH: "0"}),
    ):
        with mock.patch.object(holder, name, value, create=True):
            compiling.start_processes.__wrapped__()
    assert begun == []


def start(code: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """A process that runs Python code, in a session of its own."""
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | variables, start_new_session=True, **streams)


def kept(cache: Path) -> set[str]:
    """The kernels that the cache has forms of."""
    found = [path.name.rpartition("-") for path in cache.glob("kernels/*/*")]
    return {name for name, _, key in found if len(key) == 16}


AHEAD = {"NUMBA_NUM_THREADS": "2", "FASTATTN_COMPILE_AHEAD": ""}
FIRST = """
import os, select, signal, time
from pathlib import Path
from fastattn.runtime import compiling
signal.signal(signal.SIGINT, lambda *more: None)
compiling.start_processes()
try:
    print(os.waitpid(-1, os.WNOHANG), flush=True)
except ChildProcessError:
    print("no child", flush=True)
while not list(Path(os.environ["FASTATTN_CACHE"]).glob("kernels/*/*.claim.part")):
    time.sleep(0.05)
print("at it", flush=True)
ended = select.poll()
ended.register(compiling._lifeline[0], 0)
print("ended" if ended.poll(60_000) else "goes on", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["Ctrl-C", "the first is killed"])
def test_the_second_process_is_no_child_and_ends_at_once(tmp_path: Path, how: str) -> None:
    """Whoever waits for children waits for none of ours; and nothing is left that goes on for ten seconds."""
    first = start(FIRST, FASTATTN_CACHE=str(tmp_path), **AHEAD)
    assert first.stdout is not None
    try:
        assert [first.stdout.readline() for _ in range(2)] == ["no child\n", "at it\n"]
        if how == "Ctrl-C":
            os.killpg(first.pid, signal.SIGINT)
            assert first.stdout.readline() == "ended\n"
    finally:
        first.kill()
        first.communicate()
    deadline = time.monotonic() + 60
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(first.pid, 0)
            time.sleep(0.05)
    assert kept(tmp_path) == set()


NORM = "f2C,f2C,f1C,f1C,D,B,f2C"  # the form that STUBBED calls
STUBBED = """
import tests.runtime.stub_kernels
import numpy as np
from fastattn.ops import cpu as operations
from fastattn.runtime import handle
handle.CLAIM_TIMEOUT = 0.1
x = np.ones((3, 8), np.float32)
operations.rms_norm(x, x[0], 1e-5)
"""
HOLDER = """
import sys, time
from fastattn.runtime import handle
with handle._folder.claimed("norm._normalise", sys.argv[1]):
    print("claimed", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that claims to compile that form, in a cache at ``tmp_path``."""
    process = start(HOLDER, NORM, FASTATTN_CACHE=str(tmp_path))
    assert process.stdout is not None and process.stdout.readline() == "claimed\n"
    yield process
    process.kill()
    process.communicate()


# A thread waits for the form that is claimed: it is refused again and again. With an argument the process waits for it.
WAITING = """
import os, sys, threading
import tests.runtime.stub_kernels
import numpy as np
from fastattn.ops import cpu as operations
from fastattn.runtime import handle

waits, refused = threading.Event(), []
claimed = handle._folder.claimed

def claim(*form):
    refused.append(form)
    if len(refused) == 20:
        waits.set()
    return claimed(*form)

handle._folder.claimed = claim
ones = np.ones((3, 8), np.float32)
thread = threading.Thread(target=lambda: operations.rms_norm(ones, ones[0], 1e-5), daemon=True)
thread.start()
assert waits.wait(60)
operations.pack_linear(ones)
print("another form", flush=True)
child = os.fork()
if child == 0:
    operations.pack_linear(ones)
    os._exit(0)
print("forked", os.waitpid(child, 0)[1], flush=True)
if sys.argv[1:]:
    thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_who_wants_what_another_compiles_waits_until_it_is_gone(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """That one may be stopped, at the keyboard say: other forms, forks and the end do not wait."""
    holder.send_signal(signal.SIGSTOP)
    assert run_child(WAITING, FASTATTN_CACHE=str(tmp_path)).splitlines() == ["another form", "forked 0"]
    waiting = start(WAITING, "for it", FASTATTN_CACHE=str(tmp_path))
    assert waiting.stdout is not None and waiting.stdout.readline() + waiting.stdout.readline()
    assert "norm._normalise" not in kept(tmp_path)
    holder.kill()
    waiting.communicate(timeout=120)
    assert waiting.returncode == 0 and "norm._normalise" in kept(tmp_path)


def test_nobody_waits_for_ever(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGSTOP)
    run_child(STUBBED, FASTATTN_CACHE=str(tmp_path), timeout=120)
    assert kept(tmp_path) == {"norm._normalise"}
