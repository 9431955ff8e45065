"""With an empty cache a second process compiles beside the first; what it is to compile is what models take."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fastattn import Translator
from fastattn.runtime import ahead, code_cache
from fastattn.runtime.ahead import FORMS
from fastattn.runtime.handle import kernel_named
from tests import ROOT
from tests.models.tiny_models import random_checkpoint

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files cannot be locked there")


def test_models_take_the_forms_that_are_compiled_ahead() -> None:
    Translator.from_checkpoint(random_checkpoint(seed=5)).translate_tokens([["▁w1", "▁w2"]], beam_size=2)
    for file, name, key in FORMS:
        assert key in kernel_named(file, name).forms, name


def test_it_imports_nothing_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(ahead, "thread_limit", lambda: 2)
    monkeypatch.delenv(ahead.SWITCH, raising=False)
    monkeypatch.setattr(os, "posix_spawn", lambda path, command, environment, **more: commands.append(command))
    ahead.begin_ahead.__wrapped__()
    package = tmp_path / "fastattn"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit(7)")
    ((python, option, code, *more),) = commands
    command = [python, option, code.replace("; main()", ""), *more]
    assert subprocess.run(command, cwd=tmp_path, timeout=60).returncode == 0


@pytest.mark.parametrize(("name", "value"), [("frozen", True), ("executable", "/usr/bin/uwsgi"), ("executable", None)])
def test_no_program_but_python_is_started(name: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "thread_limit", lambda: 2)
    monkeypatch.delenv(ahead.SWITCH, raising=False)
    monkeypatch.setattr(os, "posix_spawn", lambda *command, **more: pytest.fail("started"))
    monkeypatch.setattr(sys, name, value, raising=False)
    ahead.begin_ahead.__wrapped__()


CHILD = """
import numpy as np
from fastattn import operations
x = np.ones((3, 8), np.float32)
print(operations.rms_norm(x, x[0], 1e-5).sum())
"""


@pytest.mark.slow
def test_a_second_process_compiles_them(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "FASTATTN_CACHE": str(tmp_path),
        "NUMBA_NUM_THREADS": "2",
        "FASTATTN_COMPILE_AHEAD": "",
    }
    command = [sys.executable, "-W", "error", "-c", CHILD]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    deadline = time.monotonic() + 120
    wanted = {"norm._normalise", *(f"{file.rpartition('.')[2]}.{name}" for file, name, _ in FORMS)}
    while time.monotonic() < deadline:
        found = [path.name.rpartition("-") for path in tmp_path.glob("kernels/*/*")]
        if {name for name, _, key in found if len(key) == 16} == wanted:
            return
        time.sleep(0.2)
    raise AssertionError(found)


HOLDER = """
import sys, time
from fastattn.runtime import handle
with handle._folder.claimed("norm._normalise", sys.argv[1]):
    print("claimed", flush=True)
    time.sleep(100)
"""


def test_who_wants_what_another_compiles_waits_until_that_one_is_gone(tmp_path: Path) -> None:
    """Killed, it holds no claim."""
    environment = {**os.environ, "FASTATTN_CACHE": str(tmp_path)}
    key = "f2C,f2C,f1C,f1C,D,B,f2C"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, key], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "claimed\n"
    waiting = subprocess.Popen(
        [sys.executable, "-c", CHILD], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(8)
    finally:
        holder.kill()
        holder.communicate()
    output, _ = waiting.communicate(timeout=120)
    assert float(output) == pytest.approx(24, rel=1e-4)
    assert [path.name.rpartition("-")[0] for path in tmp_path.glob("kernels/*/norm*")] == ["norm._normalise"]


def test_for_a_process_that_is_stopped_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suspended at the keyboard, say, in the middle of its first run."""
    monkeypatch.setattr(code_cache, "CLAIMED_FOR", 0.1)
    entered = []
    with code_cache.CodeFolder(lambda: tmp_path).claimed("a.b", "I"):
        with code_cache.CodeFolder(lambda: tmp_path).claimed("a.b", "I"):
            entered.append(True)
    assert entered
