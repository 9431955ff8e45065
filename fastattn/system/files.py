"""Output files and folders that appear complete or not at all, and lines of UTF-8 files, whatever the locale."""

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

from fastattn.errors import FastattnError, InputError
from fastattn.system.atomic_files import abandon_file, begin_file, begin_folder, discard, finish_file, sweep

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Bytes, more than a line of text has; a line of another endless file, such as a device, would fill the memory.
LONGEST_LINE = 1 << 26


class OutputFile:
    """A byte stream whose errors name its file. A closed pipe raises BrokenPipeError.

    rewritable  whether ``rewrite_start`` works: in a new file, but not in a pipe or behind older contents
    """

    def __init__(self, file: BinaryIO, name: str, rewritable: bool = False):
        self.rewritable = rewritable
        self._file = file
        self._name = name

    def write(self, data: bytes) -> None:
        """Write all bytes, perhaps into a buffer."""
        with _file_errors(self._name):
            self._file.write(data)

    def flush(self) -> None:
        with _file_errors(self._name):
            self._file.flush()

    def rewrite_start(self, data: bytes) -> None:
        """Replace the first bytes; no ``write`` follows."""
        with _file_errors(self._name):
            self._file.seek(0)
            self._file.write(data)

    def is_terminal(self) -> bool:
        return self._file.isatty()


@contextlib.contextmanager
def open_file(path: str | os.PathLike[str]) -> Iterator[OutputFile]:
    """Open a sibling of ``path`` that is renamed to ``path`` when the block succeeds; open a device or a FIFO itself.

    Raises InputError at once where the folder does not exist, FastattnError where the file cannot be written.
    """
    path = checked_path(path)
    target = _target(path)
    if os.path.lexists(target) and not os.path.isfile(target):  # a device, a FIFO; a folder fails to open
        with _file_errors(path):
            device = open(target, "wb")
        try:
            output = OutputFile(device, path)
            yield output
            output.flush()
        finally:
            with contextlib.suppress(OSError):  # ``flush`` has raised it already
                device.close()
        return
    with _file_errors(path):
        if os.path.exists(target):
            open(target, "r+b").close()  # fails for a read-only file, which a rename would replace
        file, sibling = begin_file(_sibling_prefix(target), 0o666)
    try:
        yield OutputFile(file, path, rewritable=True)
        with _file_errors(path):
            if os.path.exists(target):
                import shutil  # slow to import, and rarely needed

                shutil.copymode(target, sibling)
            finish_file(file, sibling, target)
    finally:
        abandon_file(file, sibling)


@contextlib.contextmanager
def open_folder(path: str) -> Iterator[str]:
    """Make a sibling folder of ``path`` for the block to fill, which is renamed to ``path`` when the block succeeds.

    Raises InputError where ``path`` exists and is no empty folder, or its parent does not exist; FastattnError where
    the folder cannot be made.
    """
    target = _target(checked_path(path))
    is_empty = os.path.isdir(target) and not os.listdir(target)
    if os.path.lexists(target) and (not is_empty or os.path.samefile(target, os.curdir)):
        raise InputError(f"{path} exists already; name a folder that does not")
    with _file_errors(path):
        lock, sibling = begin_folder(_sibling_prefix(target))
    try:
        with _file_errors(path):
            yield sibling
            _sync_folder(sibling)
            if os.path.isdir(target):
                os.rmdir(target)  # not every system renames a folder to the name of an empty one
            os.rename(sibling, target)
            _sync_folder(os.path.dirname(target))
    finally:
        discard(sibling)
        if lock >= 0:
            os.close(lock)


def _target(path: str) -> str:
    """``path`` with links resolved, so that writing replaces no link; InputError if the folder does not exist."""
    if "\0" in path:
        raise InputError(f"cannot write {path!r}: a NUL byte cannot be in a path")
    target = os.path.realpath(path)
    named_folder, folder = os.path.dirname(os.path.normpath(path)), os.path.dirname(target)
    try:
        os.stat(folder)
    except FileNotFoundError:
        missing = folder if os.path.exists(named_folder or os.curdir) else named_folder  # a link's folder may exist
        raise InputError(f"cannot write {path}: the folder {missing} does not exist") from None
    except OSError:
        pass  # opening the file raises the error again
    return target


def _sync_folder(path: str) -> None:
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sibling_prefix(target: str) -> str:
    """The beginning of the paths of unfinished siblings of ``target``; deletes those that killed processes left."""
    import hashlib  # slow to import, and rarely needed

    folder, name = os.path.split(target)
    prefix = f".fastattn-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}-"
    sweep(folder, prefix)
    return os.path.join(folder, prefix)


@contextlib.contextmanager
def _file_errors(name: str) -> Iterator[None]:
    """Turn an OSError of the ``with`` block into a FastattnError with the file's name; a BrokenPipeError stays."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FastattnError(f"cannot write {name}: {error.strerror or error}") from error


@contextlib.contextmanager
def open_text(path: str | os.PathLike[str]) -> Iterator[Iterator[str]]:
    """Open a text file and yield an iterator of its lines. Raises InputError where the file cannot be opened."""
    path = checked_path(path)
    with open_bytes(path) as file:
        yield (as_text(line, number, path) for number, line in enumerate(raw_lines(file, path), start=1))


def checked_path(path: str | os.PathLike[str]) -> str:
    """The path as a str; InputError for an empty path or another type."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"a file's path should be a str or a path, got {type(path).__name__}")
    if not os.fspath(path):
        raise InputError("a file's path should not be empty")
    return os.fsdecode(path)


def open_bytes(path: str) -> BinaryIO:
    """Open a file for reading; InputError where that fails."""
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def raw_lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield lines with their line ends, cut behind LONGEST_LINE bytes. Raises FastattnError where reading fails.

    The rest of a cut line, which may be endless, is skipped only when the next line is read.
    """
    try:
        while line := file.readline(LONGEST_LINE + 1):
            yield line
            while len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                line = file.readline(LONGEST_LINE + 1)
    except OSError as error:
        raise FastattnError(f"cannot read {name}: {error.strerror}") from error


def as_text(line: bytes, number: int, name: str) -> str:
    """``text_of`` for line ``number`` (from 1) of the file ``name``."""
    return text_of(line, f"{name}, line {number}", is_first=number == 1)


def text_of(line: bytes, location: str, is_first: bool) -> str:
    """A line without its line end, a first line without a byte order mark; InputError where it is not text."""
    if len(line) > LONGEST_LINE:
        raise InputError(f"{location}: longer than {LONGEST_LINE:,} bytes, so this is not text")
    if is_first:
        line = line.removeprefix(BYTE_ORDER_MARK)
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        fault = f"byte 0x{line[error.start]:02x} at column {error.start + 1}"
        raise InputError(f"{location}: not UTF-8 ({fault}); convert the text first, for example with iconv") from None
    if "\0" in text:
        raise InputError(f"{location}: a NUL byte, so this is not text; UTF-16 has to be converted to UTF-8 first")
    return text


def one_line(text: str) -> str:
    """``text`` with spaces in place of line ends: a hypothesis may have tokens with line ends."""
    return text.replace("\r", " ").replace("\n", " ")
