"""A job whose process is ended from outside: what it began ends with it, and a line says what became of it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fastattn.cli import watchdog
from tests import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are told apart by /proc")

JOB = """
import os, subprocess, sys, time
from fastattn.cli.interrupt import exit_on_signals, message_at_signal
from fastattn.cli.watchdog import watchdog

def begin():
    # As Ray's agents: in a session of its own, with a child whose environment is another.
    command = ["sh", "-c", "env -i sleep 600 & echo $!; exec sleep 600"]
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    process = subprocess.Popen(command, start_new_session=True, **options)
    return process.pid, int(process.stdout.readline())

exit_on_signals()
before = begin()
with watchdog("it was ended"), message_at_signal(lambda: "3 of 9"):
    within = begin()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # as a job keeps Ray's messages away
    print(*before, *within, flush=True)
    time.sleep(float(sys.argv[1]))
print("after", flush=True)
time.sleep(600)
"""


def is_alive(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def job():
    """A function that begins the job: (its process, two from before it, two that it began)."""
    begun = []

    def begin(seconds):
        command = [sys.executable, "-c", JOB, str(seconds)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        numbers = list(map(int, process.stdout.readline().split()))
        begun.append((process, numbers))
        return process, numbers[:2], numbers[2:]

    yield begin
    for process, numbers in begun:
        process.kill()
        process.communicate()
        for number in numbers:
            if is_alive(number):
                os.kill(number, signal.SIGKILL)


def await_end(numbers):
    deadline = time.monotonic() + 60
    while any(map(is_alive, numbers)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("name, said", [("SIGTERM", "3 of 9\n"), ("SIGKILL", "it was ended\n"), (None, "")])
def test_an_end_ends_what_was_begun_and_one_from_outside_says_so(job, name, said):
    process, before, within = job(600 if name else 0)
    if name:
        assert all(map(is_alive, before + within))
        process.send_signal(getattr(signal, name))
    else:  # the block's good end
        assert process.stdout.readline() == "after\n"
        assert not any(map(is_alive, within))
        process.kill()
    _, stderr = process.communicate(timeout=60)
    await_end(within)
    assert all(map(is_alive, before))
    assert (process.returncode, stderr) == (128 + signal.SIGTERM if name == "SIGTERM" else -signal.SIGKILL, said)


def test_what_has_lost_its_parent_is_still_known():
    """A child with an environment of its own, as Ray's agents have, whose parent is gone before the job is."""
    command = ["sh", "-c", "env -i sleep 600 & echo $!; exec sleep 600"]
    name = f"MARK_OF_TEST_{os.getpid()}"  # as a second run of the suite has its own
    environment, mark = {**os.environ, name: "1"}, f"{name}=1".encode()
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    child = int(parent.stdout.readline())
    try:
        known = watchdog._descendants(mark, {})
        assert known.keys() == {parent.pid, child}
        parent.kill()
        parent.wait()
        assert watchdog._descendants(mark, {}) == {}
        assert watchdog._descendants(mark, known) == {child: known[child]}
        assert watchdog._descendants(mark, {child: b"another start"}) == {}
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()
