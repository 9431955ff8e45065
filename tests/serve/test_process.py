"""The command as a process: what it says, how it ends, workers that die."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.serve.serving import serving_process

LONG = "The committee discussed the proposal at length and postponed the vote. "


def ask(text="Good morning."):
    return {"q": text, "source": "en", "target": "pt"}


def test_what_runs_is_finished_when_it_is_told_to_end(pulled):
    with serving_process("-m", f"en-pt={pulled('en-pt')}", "-t", "1") as (asked, process):
        answers = list[tuple[int, object]]()
        body = ask([LONG * 8] * 12)
        thread = threading.Thread(target=lambda: answers.append(asked.post("/translate", body)))
        thread.start()
        time.sleep(0.25)
        process.send_signal(signal.SIGTERM)
        thread.join(60)
        assert process.wait(30) in (0, -signal.SIGTERM) and [status for status, _ in answers] == [200]
        with pytest.raises(OSError):
            asked.raw("GET", "/health")


def test_a_worker_that_dies_is_replaced(pulled):
    with serving_process("-m", f"en-pt={pulled('en-pt')}", "--processes", "2") as (asked, process):
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
        pids = [int(pid) for pid in children.stdout.split()]
        killed = 0
        for pid in pids:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"spawn_main" in file.read():
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                    break
        assert killed == 1
        good = 0
        for _ in range(200):
            try:
                good += asked.post("/translate", ask())[0] == 200
            except OSError:
                time.sleep(0.05)
            if good >= 20:
                break
        assert good >= 20
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        left = subprocess.run(["ps", "-o", "args=", "-g", str(process.pid)], capture_output=True, text=True).stdout
        assert "spawn_main" not in left


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (("-m", "no-such-model"), 3, "no-such-model"),
        (("-m", "a=x", "-m", "a=y"), 2, "two models have one name"),
        ((), 2, "Missing option '-m'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(arguments, code, message):
    ended = subprocess.run(
        [sys.executable, "-m", "fastattn", "serve", *arguments], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == code and message in ended.stderr and ended.stderr.count("\n") == 1
