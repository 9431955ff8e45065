"""Files of the cache: they appear whole or not at all, what a killed writer left is swept, and none is believed that
somebody else may have written."""

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows, which deletes no file that another process has open
    fcntl = None  # type: ignore[assignment]

PART = ".part"


def make_folder(path: Path) -> None:
    """The folder, and those above it, which nobody else may write to whatever the umask.

    Nor read, but for root's, whose files everybody may believe: they may be made ahead for others.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(0o700)
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            path.chmod(0o755)


def is_own(path: Path) -> bool:
    """Whether a file or folder is this user's or root's, is no link, and nobody else may write to it.

    Raises OSError where that cannot be seen.
    """
    status = path.lstat()
    if not hasattr(os, "geteuid"):  # Windows, where the user's folders are the user's
        return True
    plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return plain and status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Have a new file written under another name, on disk before it takes its own. OSErrors pass through.

    Its writer holds a lock on it, by which ``sweep`` tells that the writer is gone.
    """
    part = path.with_suffix(f".{secrets.token_hex(4)}{PART}")
    try:
        descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o644)
        with open(descriptor, "wb") as stream:
            _lock(stream)
            write(stream)
            stream.flush()
            os.fsync(descriptor)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def sweep(folder: Path) -> None:
    """Delete the unfinished files in a folder whose writers are gone."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.endswith(PART):
                with contextlib.suppress(OSError):
                    _delete_if_left(folder / name)


def _delete_if_left(part: Path) -> None:
    if not stat.S_ISREG(part.lstat().st_mode):
        return
    with open(os.open(part, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)), "r+b") as stream:
        if _lock(stream) and fcntl is not None:
            part.unlink()
    if fcntl is None:
        part.unlink()


def _lock(stream: BinaryIO) -> bool:
    """Whether the file is this process's now; where there are no locks it is nobody's, and nothing is swept."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
