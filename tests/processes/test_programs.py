"""Programs whose worker processes end with them, however they end; and what their forked children have."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.processes.served import is_gone

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

SCRIPT = """
import os, sys, threading, time
from fastattn import Translator
translator = Translator(sys.argv[1], threads=1, processes=2)
translator.translate("w1 w2")
processes = list(translator._pool._pool._processes.values())
print(*[process.number for process in processes], flush=True)
if sys.argv[2] == "fork" and os.fork() == 0:
    sys.stdin.read()  # longer than the program lives
    os._exit(0)

def tell():
    while not any(process._heard.routes for process in processes):
        time.sleep(0.01)
    print("under way", flush=True)

threading.Thread(target=tell, daemon=True).start()
try:
    translator.translate(["w1 " * 200] * 4000, max_decoding_length=200, min_decoding_length=200)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    print(translator.translate("w1 w2") != "", flush=True)
"""


@contextlib.contextmanager
def _program(folder: Path, tmp_path: Path, what: str) -> Iterator[tuple[Any, list[int]]]:
    """A script without a main guard, and the numbers of its processes."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "json.py").write_text("raise ImportError('of the folder that the script runs in')")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-W", "error", str(script), str(folder), what]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, cwd=tmp_path, env=environment, **pipes) as process:
        numbers = list(map(int, process.stdout.readline().split()))
        assert len(numbers) == 2 and process.stdout.readline() == "under way\n"
        yield process, numbers
        process.kill()


def test_nothing_is_left_when_the_program_is_killed(folder: Path, tmp_path: Path) -> None:
    """Even where a child that it forked has copies of its pipes."""
    with _program(folder, tmp_path, "fork") as (program, numbers):
        program.kill()
        assert all(map(is_gone, numbers))


def test_an_interrupt_ends_the_call_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    with _program(folder, tmp_path, "work") as (program, numbers):
        program.send_signal(signal.SIGINT)
        assert program.stdout.readline() == "interrupted\n"
        assert program.stdout.readline() == "True\n"
        assert program.wait(30) == 0
        assert program.stderr.read() == ""
        assert all(map(is_gone, numbers))


FORKED = """
import os, sys, time
from fastattn import FastattnError, Translator
for processes in (1, 2):
    with Translator(sys.argv[1], threads=1, processes=processes) as translator:
        def texts():
            for n in range(600):
                yield f"w{n % 16} w{n % 7} w{n % 5}"
        expected = translator.translate(["w1 w2"])
        stream = translator.translate_iter(texts(), max_decoding_length=9)
        endless = {"min_decoding_length": 100_000, "max_decoding_length": 100_000, "beam_size": 1}
        future = translator.submit("w1", **endless, caller="other")
        begun = [next(stream) for _ in range(300 if processes == 1 else 1)]  # now some of it is under way
        child = os.fork()
        if child == 0:
            def says_so(ask):
                try:
                    return len(ask())
                except FastattnError as error:
                    return "when it was forked" in str(error)
            ends = says_so(lambda: list(stream)) in (True, 600 - len(begun))  # or nothing was under way just then
            print(processes, ends, says_so(future.result), translator.translate(["w1 w2"]) == expected, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(processes, future.cancel(), len(begun) + len(list(stream)), flush=True)
"""


def test_what_a_process_began_does_not_go_on_in_its_child_which_begins_anew(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["1 True True True", "1 True 600", "2 True True True", "2 True 600"]
