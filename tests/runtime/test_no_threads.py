"""Where the system gives no thread, work goes on with those that there are: one warning, the same results."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.children import run_child

CHILD = """
import threading, warnings
from tests.models.tiny_models import random_checkpoint
from fastattn import Translator

sources = [["\\u2581w1", "\\u2581w2", f"\\u2581w{n % 9}"] for n in range(24)]
expected = Translator.from_checkpoint(random_checkpoint(seed=5), threads=1).translate_tokens(sources)

def refuse(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        assert Translator.from_checkpoint(random_checkpoint(seed=5), threads=2).translate_tokens(sources) == expected
print("; ".join(str(warning.message) for warning in caught))
"""


def test_work_goes_on_without_threads() -> None:
    assert run_child(CHILD).strip() == "work goes on with fewer threads than asked for: can't start new thread"


def limited(*command: str) -> list[str]:
    """The command as a user who may have one thread in all."""
    return ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "prlimit", "--nproc=1", *command]


def test_the_command_with_no_thread_to_be_had() -> None:
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root on Linux, who may run a command as another user")
    python = [sys.executable, "-m", "fastattn.cli"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    if subprocess.run(limited(sys.executable, "-c", "import numpy"), env=environment, capture_output=True).returncode:
        pytest.skip("another user cannot run this Python")
    del environment["OPENBLAS_NUM_THREADS"]
    done = subprocess.run(limited(*python, "inspect"), env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        limited(*python, "translate", "-m", "/nowhere", "x"), env=environment, capture_output=True, text=True
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)


def test_a_process_that_ends_is_told_of_no_refused_thread() -> None:
    """Python gives a daemon thread none from then on."""
    code = CHILD.replace("can't start new thread", "can't create new thread at interpreter shutdown")
    assert run_child(code).strip() == ""
