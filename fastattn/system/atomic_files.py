"""Files that appear whole or not at all: a file is written under another name, and renamed once it is on disk.

The writer locks its unfinished file, so that ``sweep`` recognizes the files of killed writers. A file of the cache
folder is trusted only if no other user can have written it.
"""

import contextlib
import errno
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, BinaryIO

PARTIAL_SUFFIX = ".part"  # ends the name of an unfinished file or folder
WINDOWS = sys.platform == "win32"  # Windows neither deletes nor renames a file that a process has open

_partial_paths: set[str] = set()


def make_folder(path: Path) -> None:
    """Make a folder and its parents, to which no other user may write, whatever the umask.

    No other user may read the folder either, unless root makes it: root may prepare files for users, who trust root.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(0o700)
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            path.chmod(0o755)


class UntrustedFile(OSError):
    """Another user may have written a file of the cache folder, or put it there."""


def open_trusted(path: str | Path, folders: int) -> io.FileIO:
    """Open a regular file of the cache folder that only this user or root owns and may write to.

    folders  how many folders above the file are checked in the same way; the uppermost may be a link
    Each name is opened in the folder that was opened and checked before: a user who may write to folders above can
    exchange names, but not the file that is read. Raises UntrustedFile, and OSError where there is no such file.
    """
    if os.open not in os.supports_dir_fd:  # Windows, where no other user may write to a user's folders
        return io.FileIO(os.fspath(path))
    parts = os.fspath(path).rsplit(os.sep, folders)
    descriptor = _open_checked(parts[0], None, stat.S_ISDIR)
    for name in parts[1:]:
        try:
            inner_descriptor = _open_checked(name, descriptor, stat.S_ISREG if name is parts[-1] else stat.S_ISDIR)
        finally:
            os.close(descriptor)
        descriptor = inner_descriptor
    return io.FileIO(descriptor)


def _open_checked(name: str, folder: int | None, is_expected: Callable[[int], bool]) -> int:
    """A descriptor of ``name`` in the folder of a descriptor; UntrustedFile if another user may have written it."""
    # O_NONBLOCK: a FIFO opens at once, without a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if folder is None else os.O_NOFOLLOW)
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UntrustedFile(error.errno, "a link", name) from None
        raise
    status = os.fstat(descriptor)
    is_foreign = status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if is_foreign or not is_expected(status.st_mode):
        os.close(descriptor)
        raise UntrustedFile(errno.EPERM, "others may have written it", name)
    return descriptor


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Have ``write`` fill a new file, which is then renamed to ``path``. Raises OSError."""
    stream, partial_path = begin_file(f"{path.with_suffix('')}.", 0o644)
    try:
        write(stream)
        finish_file(stream, partial_path, str(path))
    finally:
        abandon_file(stream, partial_path)


def begin_file(start: str, mode: int) -> tuple[BinaryIO, str]:
    """(stream, ``partial_path``) of a new file, for ``finish_file`` or ``abandon_file``. Raises OSError.

    The path is ``start``, random digits and PARTIAL_SUFFIX.
    """
    while True:
        # Not tempfile: its files are private, and this file gets the permissions of any new file.
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
        with _new_name(start) as partial_path:
            stream = open(partial_path, "wb", opener=lambda name, _: os.open(name, flags, mode))  # noqa: B023  at once
        if WINDOWS or (try_lock(stream) is not None and os.path.exists(partial_path)):
            return stream, partial_path
        abandon_file(stream, partial_path)  # another process swept the file before this one had locked it


def finish_file(stream: BinaryIO, partial_path: str, path: str) -> None:
    """Write the file to disk, then rename it from ``partial_path`` to ``path``. Raises OSError."""
    stream.flush()
    os.fsync(stream.fileno())
    if WINDOWS:
        stream.close()
    os.replace(partial_path, path)


@contextlib.contextmanager
def _new_name(start: str) -> Iterator[str]:
    """The path of a file or folder that the block makes: ``start``, random digits, PARTIAL_SUFFIX."""
    partial_path = f"{start}{os.urandom(4).hex()}{PARTIAL_SUFFIX}"
    _partial_paths.add(partial_path)
    try:
        yield partial_path
    except OSError:
        _partial_paths.discard(partial_path)
        raise


def abandon_file(stream: BinaryIO, partial_path: str) -> None:
    """Close the file, and delete it unless ``finish_file`` has renamed it."""
    with contextlib.suppress(OSError):
        stream.close()
    discard(partial_path)


def begin_folder(start: str) -> tuple[int, str]:
    """Make a new folder, named like files of ``begin_file``: (descriptor that holds the folder's lock or -1, path)."""
    while True:
        with _new_name(start) as partial_path:
            os.mkdir(partial_path)
        if WINDOWS:
            return -1, partial_path
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(partial_path, os.O_RDONLY)
            if try_lock(descriptor) is not None and os.path.exists(partial_path):
                return descriptor, partial_path
            os.close(descriptor)
        discard(partial_path)


def discard(partial_path: str) -> None:
    """Delete an unfinished file or folder, if it is still there."""
    if os.path.isdir(partial_path):
        import shutil  # slow to import, and rarely needed

        shutil.rmtree(partial_path, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(partial_path)
    _partial_paths.discard(partial_path)


def discard_unfinished() -> None:
    """Delete all unfinished files and folders; called when the process is about to end."""
    for partial_path in list(_partial_paths):
        discard(partial_path)


def sweep(folder: str | Path, prefix: str = "") -> None:
    """Delete unfinished files whose writers have ended; with a prefix: files and folders whose names begin with it."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(prefix) and name.endswith(PARTIAL_SUFFIX):
                with contextlib.suppress(OSError):
                    _delete_if_abandoned(os.path.join(folder, name), folders=bool(prefix))


def _delete_if_abandoned(partial_path: str, folders: bool) -> None:
    status = os.lstat(partial_path)
    is_folder = folders and stat.S_ISDIR(status.st_mode)
    if WINDOWS:
        if stat.S_ISREG(status.st_mode):
            os.unlink(partial_path)
        return
    if not (is_folder or stat.S_ISREG(status.st_mode)) or status.st_uid != os.geteuid():
        return
    descriptor = os.open(partial_path, (os.O_RDONLY if is_folder else os.O_RDWR) | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if try_lock(descriptor):
            discard(partial_path)
    finally:
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _lock(file: "IO[bytes] | int", locks: bool) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK if locks else msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(file: "IO[bytes] | int", locks: bool) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if locks else fcntl.LOCK_UN)


def try_lock(file: "IO[bytes] | int") -> bool | None:
    """Lock a file until ``unlock`` or its end: True; None if another process has the lock; False without locks."""
    try:
        _lock(file, True)
    except OSError as error:
        return None if isinstance(error, PermissionError if WINDOWS else BlockingIOError) else False
    return True


def unlock(file: IO[bytes]) -> None:
    _lock(file, False)
