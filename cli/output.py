"""Where results go: standard output, or a file or folder that appears complete or not at all."""

import contextlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from typing import BinaryIO

from fastattn.errors import FastattnError, InputError

_unfinished: set[str] = set()


class Output:
    """Bytes to one place; a failure to write names the place. A reader that went away is a BrokenPipeError.

    ``rewritable``  whether ``rewrite_start`` works: in a new file, not in a pipe or after what others have written.
    """

    def __init__(self, file: BinaryIO, name: str, rewritable: bool = False):
        self.rewritable = rewritable
        self._file = file
        self._name = name

    def write(self, data: bytes) -> None:
        """Write all of it, perhaps only to a buffer."""
        with _naming(self._name):
            self._file.write(data)

    def flush(self) -> None:
        """Hand everything written so far to the system."""
        with _naming(self._name):
            self._file.flush()

    def rewrite_start(self, data: bytes) -> None:
        """Replace the first bytes, once nothing more is to be written."""
        with _naming(self._name):
            self._file.seek(0)
            self._file.write(data)

    def is_terminal(self) -> bool:
        """Whether a person watches the results themselves."""
        return self._file.isatty()


@contextlib.contextmanager
def open_output(path: str | None) -> Iterator[Output]:
    """Standard output (None or "-"), or a sibling of ``path`` that takes its name when the block succeeds.

    Raises FastattnError at once when the place cannot be written.
    """
    if path is None or path == "-":
        output = Output(_standard_output(), "standard output")
        yield output
        output.flush()
        return
    target = os.path.realpath(path)  # a link stays a link
    special = os.path.lexists(target) and not os.path.isfile(target)  # a device, a FIFO; a folder fails to open
    if special:
        with _naming(path):
            file = open(target, "wb")
        try:
            output = Output(file, path)
            yield output
            output.flush()
        finally:
            with contextlib.suppress(OSError):  # the flush has told
                file.close()
        return
    if os.path.exists(target):
        with _naming(path):
            open(target, "r+b").close()  # it could be replaced even if it is read-only; that would surprise
    yield from _replace_on_success(target, path)


def _replace_on_success(target: str, name: str) -> Iterator[Output]:
    sibling = _sibling(target)
    _unfinished.add(sibling)
    with _naming(name):
        # Not tempfile: its files are private, and this one is to have the permissions of any new file.
        file = open(os.open(sibling, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o666), "wb")
    try:
        yield Output(file, name, rewritable=True)
        with _naming(name):
            file.flush()
            os.fsync(file.fileno())
            file.close()
            if os.path.exists(target):
                shutil.copymode(target, sibling)
            os.replace(sibling, target)
    finally:
        with contextlib.suppress(OSError):
            file.close()
        _discard(sibling)


@contextlib.contextmanager
def open_folder(path: str) -> Iterator[str]:
    """A new sibling folder of ``path``, to be filled, which takes its name when the block succeeds.

    Raises InputError where ``path`` is there already, but for an empty folder; FastattnError where it cannot be made.
    """
    target = os.path.realpath(path)
    empty = os.path.isdir(target) and not os.listdir(target)
    if os.path.lexists(target) and (not empty or os.path.samefile(target, os.curdir)):
        raise InputError(f"{path} exists already; name a folder that does not")
    sibling = _sibling(target)
    _unfinished.add(sibling)
    try:
        with _naming(path):
            os.mkdir(sibling)
            yield sibling
            _sync_folder(sibling)
            if os.path.isdir(target):
                os.rmdir(target)  # not on every system does a folder replace another
            os.rename(sibling, target)
            _sync_folder(os.path.dirname(target))
    finally:
        _discard(sibling)


def _sync_folder(path: str) -> None:
    """Have the system write down which files are in a folder, where it lets a folder be opened for that."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sibling(target: str) -> str:
    return os.path.join(os.path.dirname(target), f".fastattn-{secrets.token_hex(6)}.part")


def discard_unfinished() -> None:
    """Remove what has not been completed; called when the process is about to end."""
    for sibling in list(_unfinished):
        _discard(sibling)


def _discard(sibling: str) -> None:
    if os.path.isdir(sibling):
        shutil.rmtree(sibling, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(sibling)
    _unfinished.discard(sibling)


def _standard_output() -> BinaryIO:
    if sys.stdout is None:
        raise FastattnError("standard output is closed")
    return sys.stdout.buffer


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """An OSError inside becomes an error that names the place, but for a pipe that nobody reads any more."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FastattnError(f"cannot write {name}: {error.strerror or error}") from error
