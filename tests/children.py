"""Python code in processes of its own, from the clone's root, where it may import the tests."""

import os
import subprocess
import sys
from typing import Any

from tests import ROOT


def run_python(code: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """``python -W error -c code arguments``, on two threads.

    options  in capitals variables of the environment, None for one to remove; others are those of subprocess.run
    """
    variables = {"NUMBA_NUM_THREADS": "2"} | {name: options.pop(name) for name in list(options) if name.isupper()}
    environment = {name: value for name, value in {**os.environ, **variables}.items() if value is not None}
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(
        command, **{"env": environment, "cwd": ROOT, "capture_output": True, "text": True, "timeout": 400} | options
    )


def run_child(code: str, *arguments: str, **options: Any) -> str:
    """What Python code prints that must end well, in silence otherwise."""
    done = run_python(code, *arguments, **options)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
