"""Messages between processes, on streams that are cut, closed, or of something else."""

import io
import os
from pathlib import Path

import numpy as np
import pytest

from fastattn.errors import FastattnError
from fastattn.processes.messages import Closed, message_parts, read_message, write_parts


def test_a_file_that_takes_the_number_of_a_closed_pipe_gets_nothing(tmp_path: Path) -> None:
    """A pool is closed by any thread, also by one that comes between two steps of the thread that writes."""

    class ClosedWhenAsked(io.FileIO):
        def fileno(self) -> int:
            number = super().fileno()
            self.close()
            other.append(os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT))
            assert other == [number]
            return number

    reading, writing = os.pipe()
    other: list[int] = []
    stream = ClosedWhenAsked(writing, "wb")
    write_parts(stream, [b"some", memoryview(b"thing")])
    if not other:
        stream.close()
    assert os.read(reading, 99) == b"something"
    with pytest.raises(Closed):
        write_parts(stream, [b"more"])
    for number in (reading, *other):
        os.close(number)


def test_what_is_cut_is_closed_and_what_is_none_says_so() -> None:
    whole = b"".join(map(bytes, message_parts([1, "done", np.arange(3, dtype=np.float32)])))
    number, kind, array = read_message(io.BytesIO(whole))
    assert (number, kind, array.tolist(), array.dtype) == (1, "done", [0, 1, 2], np.float32)
    for size in range(len(whole)):
        with pytest.raises(Closed):
            read_message(io.BytesIO(whole[:size]))
    with pytest.raises(FastattnError, match="something else than a message"):
        read_message(io.BytesIO(b"F" + whole[1:]))
    with pytest.raises(FastattnError, match="version 2, not 1"):
        read_message(io.BytesIO(whole[:8] + b"\2" + whole[9:]))
