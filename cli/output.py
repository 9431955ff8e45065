"""Where results go: standard output, or a file that appears complete or not at all."""

import contextlib
import sys
from collections.abc import Iterator
from typing import BinaryIO

from fastattn.errors import FastattnError
from fastattn.system.files import OutputFile, open_file


@contextlib.contextmanager
def open_output(path: str | None) -> Iterator[OutputFile]:
    """Standard output (None or "-"), or a sibling of ``path`` that takes its name when the block succeeds.

    Raises InputError or another FastattnError at once when that cannot be written.
    """
    if path is None or path == "-":
        output = OutputFile(_standard_output(), "standard output")
        yield output
        output.flush()
        return
    with open_file(path) as output:
        yield output


def _standard_output() -> BinaryIO:
    if sys.stdout is None:
        raise FastattnError("standard output is closed")
    return sys.stdout.buffer
