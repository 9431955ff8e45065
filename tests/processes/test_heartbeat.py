"""When a process that says nothing is ended, with a clock of the test's own."""

import select
import subprocess
import sys
from typing import Any

import pytest

from fastattn.processes.messages import Closed
from fastattn.processes.worker_process import SILENCE, _Heard

pytestmark = pytest.mark.skipif(not hasattr(select, "poll"), reason="no poll")


class Looks:
    """A poll that sees something at the last of so many looks."""

    def __init__(self, *looks: int):
        self.left, self.waited = list(looks), 0.0

    def poll(self, milliseconds: float) -> list[Any]:
        self.waited += milliseconds / 1000
        self.left[0] -= 1
        return [] if self.left[0] else [self.left.pop(0)]


def test_silence_is_of_several_looks_and_longer_before_the_first_sign() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdout.write('ab'); sys.stdout.flush(); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        heard, room = _Heard(process), memoryview(bytearray(1))
        heard._poll = looks = Looks(4, 4, 9)  # a program that was stopped itself, with its processes, looks in vain
        assert heard.readinto(room) == 1 and looks.waited == 10 * SILENCE
        assert heard.readinto(room) == 1 and looks.waited == 11 * SILENCE
        with pytest.raises(Closed):
            heard.readinto(room)
        assert looks.waited == 12 * SILENCE
        assert process.wait(60), "it was ended"
        assert "no sign of life for 60 seconds" in str(heard.ended[0])
