"""The acceptance checks' harness: every check is listed, and a figure that misses what is wanted fails its check."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def accept(*arguments):
    return subprocess.run([sys.executable, "-m", "bench.accept", *arguments], cwd=ROOT, capture_output=True, text=True)


def test_checks_have_names_of_their_own_and_are_listed_without_corpora():
    done = accept("--list")
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert len(names) == len(set(names)) > 20 and {"attention-torch", "zh-en-beam", "start-cold"} <= set(names)
    chosen = accept("--list", "two-threads").stdout.splitlines()
    assert [line.split()[0] for line in chosen] == [name for name in names if "two-threads" in name] != []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((), "--data should name the folder"), (("--data", str(ROOT), "nothing"), "no check is named like nothing")],
)
def test_what_cannot_be_checked_is_refused(arguments, message):
    done = accept(*arguments)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_one_figure_that_misses_fails_all(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.checks import Findings

    findings = Findings()
    findings.at_least("speed", 1.8, "x NumPy", 1.8, "20 ms")
    findings.at_most("memory", 4, "MB", 4)
    findings.say("by itself")
    assert findings.verdict == (True, "speed 1.8 x NumPy >= 1.8 (20 ms); memory 4 MB <= 4; by itself")
    findings.at_most("start", 1.5, "s", 1.3)
    findings.at_least("speed", 2, "x", 1)
    passed, said = findings.verdict
    assert not passed and "start 1.5 s > 1.3" in said
