"""Two commits beside each other: here one beside itself, which shows that both are laid out, asked and told of."""

import os
import re
import subprocess
import sys

import pytest

from tests import ROOT


def commits(*arguments: str) -> subprocess.CompletedProcess:
    if subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode or not os.access(
        ROOT, os.W_OK
    ):
        pytest.skip("not a git clone that may be written to")
    command = [sys.executable, "-m", "bench.commits", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")


@pytest.mark.slow
def test_a_commit_beside_itself() -> None:
    done = commits("HEAD", "HEAD", "--only", "attention one head causal", "--rounds", "1", "--threads", "1")
    assert (done.returncode, done.stderr) == (0, "")
    figures = [re.sub(r"\d+\.\d+", "#", line) for line in done.stdout.splitlines()]
    assert figures == [" #  attention one head causal, 1 thread: # -> # ms", " #  peak memory, 1 thread: # -> # MB"]


def test_no_commit() -> None:
    done = commits("nothing")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("expected a commit of this repository: ") and "Traceback" not in done.stderr
