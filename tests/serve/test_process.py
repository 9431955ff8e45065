"""The command as a process: what it says, how it ends, workers that die."""

import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

from tests.serve.serving import serving_process

LONG = "The committee discussed the proposal at length and postponed the vote. "


def ask(text="Good morning."):
    return {"q": text, "source": "en", "target": "pt"}


def in_progress(asked):
    """Requests, this one among them."""
    lines = asked.raw("GET", "/metrics")[1].decode().splitlines()
    return float(next(line for line in lines if line.startswith("fastattn_requests_active")).split()[1])


def test_what_runs_is_finished_when_it_is_told_to_end(pulled):
    with serving_process("-m", f"en-pt={pulled('en-pt')}", "-t", "1") as (asked, process):
        answers = list[tuple[int, object]]()
        body = ask([f"{number} {LONG * 8}" for number in range(12)])
        thread = threading.Thread(target=lambda: answers.append(asked.post("/translate", body)))
        thread.start()
        while in_progress(asked) < 2:
            assert thread.is_alive()
        process.send_signal(signal.SIGTERM)
        thread.join(60)
        assert process.wait(30) in (0, -signal.SIGTERM) and [status for status, _ in answers] == [200]
        with pytest.raises(OSError):
            asked.raw("GET", "/health")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_closed_input_is_no_matter(pulled, processes):
    """As under a supervisor that gives a server no standard input."""
    arguments = ("-m", f"en-pt={pulled('en-pt')}", "-t", "1", "--processes", processes)
    with serving_process(*arguments, before=["sh", "-c", 'exec "$@" <&-', "sh"]) as (asked, process):
        assert asked.post("/translate", ask())[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)


def workers(process):
    """The process ids of its workers."""
    found = subprocess.run(
        ["ps", "-ww", "-o", "pid=", "-o", "args=", "--ppid", str(process.pid)], capture_output=True, text=True
    )
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "spawn_main" in line]


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_without_a_model_that_has_gone(pulled, tmp_path):
    shutil.copytree(pulled("en-pt"), tmp_path / "copy")
    models = ("-m", f"en-pt={pulled('en-pt')}", "-m", f"pt-en={tmp_path / 'copy'}")
    with serving_process(*models, "--processes", "2") as (asked, process):
        busy = [threading.Thread(target=quietly, args=(asked, ask([LONG * 8] * 40))) for _ in range(6)]
        for thread in busy:
            thread.start()
        shutil.rmtree(tmp_path / "copy")
        time.sleep(0.3)
        os.kill(workers(process)[0], signal.SIGKILL)
        good = 0
        for _ in range(400):
            with contextlib.suppress(OSError, http.client.HTTPException):
                good += asked.post("/translate", ask())[0] == 200
            if good >= 20 and set(map(has_answered, workers(process))) == {True} and len(workers(process)) == 2:
                break
            time.sleep(0.05)
        assert good >= 20 and process.poll() is None and len(workers(process)) == 2
        for thread in busy:
            thread.join()
        assert in_progress(asked) == 1  # what the dead one was at is over
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        left = subprocess.run(["ps", "-o", "args=", "-g", str(process.pid)], capture_output=True, text=True).stdout
        assert "spawn_main" not in left


def has_answered(pid):
    """Whether a worker has counted a request: what it counts is in files of its own."""
    with contextlib.suppress(OSError):
        folder = f"/proc/{pid}/fd"
        return any(os.readlink(f"{folder}/{one}").endswith(f"counter_{pid}.db") for one in os.listdir(folder))
    return False


def quietly(asked, body):
    with contextlib.suppress(OSError, http.client.HTTPException):
        asked.post("/translate", body)
