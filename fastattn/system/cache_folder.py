"""The cache folder: compiled kernels, packed weights and pulled checkpoints, all of which can be made or fetched again.

Next to kernels lie digests of their sources and LLVM's descriptions of CPUs, next to packed weights other results of
loading. The folder, the name and the type of a file make it an entry; all other files stay untouched, and so do targets
of links.
"""

import contextlib
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fastattn.errors import InputError
from fastattn.system.records import dataclass

NOWHERE = Path(os.devnull) / "fastattn"
A_DAY = 86_400  # seconds
UNUSED_DAYS = 30  # an entry that was not used for so many days is deleted when another one of its kind is made
KINDS = ("kernels", "packed", "checkpoints")
_HALF_MADE_SECONDS = 3600  # without a change, after which no process is still making an entry
_REMOVED_PREFIX = ".cleared-"  # begins the name of a folder that is being deleted


def cache_root() -> Path:
    """FASTATTN_CACHE, else ``fastattn`` in the platform's folder for caches. It may not exist yet.

    The first call makes a relative FASTATTN_CACHE absolute in the environment, so that it names the same folder for
    this process after a change of folder, and for processes that it starts. A user without a home folder has NOWHERE,
    a path below a file, where nothing can be made: nothing is cached.
    Raises InputError where FASTATTN_CACHE begins with the home of a user who has none, or the current folder is gone.
    """
    setting = os.environ.get("FASTATTN_CACHE")
    if setting:
        return _root_of_setting(setting)
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    elif sys.platform == "darwin":
        base = os.path.join(home, "Library", "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):  # the specification of XDG_CACHE_HOME ignores a relative path
            base = os.path.join(home, ".cache")
    return Path(base) / "fastattn" if os.path.isabs(base) else NOWHERE


def _root_of_setting(setting: str) -> Path:
    path = os.path.expanduser(setting)
    if path.startswith("~"):
        raise InputError(f"FASTATTN_CACHE should be the path of a folder, is {setting}, and no such user has a home")
    if not os.path.isabs(path):
        try:
            path = os.environ["FASTATTN_CACHE"] = os.path.abspath(path)
        except FileNotFoundError:
            raise InputError(
                f"FASTATTN_CACHE should be an absolute path, is {setting}, and the current folder is gone"
            ) from None
    return Path(path)


def mark_used(path: Path, every: float = 0) -> None:
    """Set the modification time of a loaded entry to now; nothing happens where this user may not change the time.

    every  seconds: a time that is more recent stays
    """
    with contextlib.suppress(OSError):
        if not every or time.time() - path.stat().st_mtime > every:
            os.utime(path)


@dataclass(frozen=True)
class CacheEntry:
    """An entry of the cache folder: a machine's compiled kernels, the digest of their sources or its CPU's description,
    a file of packed weights or of a read checkpoint (``loading.model_cache``), a pulled checkpoint.

    size       bytes of its files
    last_used  when it was made, or last loaded if ``mark_used`` could note that, in seconds since 1970; for a half-made
               entry, when a file in it last changed
    half_made  whether a process is still making the entry, or was stopped before it had finished
    """

    kind: str
    path: Path
    size: int
    last_used: float
    half_made: bool

    @property
    def in_progress(self) -> bool:
        """Whether a process may still be making the entry."""
        return self.half_made and time.time() - self.last_used < _HALF_MADE_SECONDS

    def remove(self) -> None:
        """Delete the entry; raises OSError. Processes that have mapped its files keep the mappings.

        A folder is first renamed, so that no process finds a part of it, or writes into it, meanwhile.
        """
        with contextlib.suppress(FileNotFoundError):  # another process was first
            if not stat.S_ISDIR(self.path.lstat().st_mode):
                self.path.unlink()
                return
            removed_folder = self.path.with_name(_REMOVED_PREFIX + os.urandom(4).hex())
            os.rename(self.path, removed_folder)
            import shutil  # slow to import, and rarely needed

            shutil.rmtree(removed_folder)


# Kind -> pattern of the names of whole entries, and below of half-made ones; the name of a folder ends in a slash.
# Patterns are compiled at their first use: few processes look into the folder.
_WHOLE_NAMES = {
    "kernels": r"[0-9a-f]{24}(/|\.sources|\.cpu)",
    "packed": r"[0-9a-f]{40}-\S+\.(packed|checkpoint)",
    "checkpoints": r"[\w.-]+-[0-9a-f]{8}/",
}
_HALF_MADE_NAMES = {
    "kernels": rf"\{_REMOVED_PREFIX}[0-9a-f]{{8}}/|[0-9a-f]{{24}}\.[0-9a-f]{{8}}\.part",
    "packed": r"[0-9a-f]{40}-\S+\.[0-9a-f]{8}\.part",
    "checkpoints": rf"(\.pull-[^~]+~.+|\{_REMOVED_PREFIX}[0-9a-f]{{8}})/",
}
_LOCK_PREFIX = ".lock-"  # of a pull's lock: an empty file, never deleted, since a process may wait for it


def cache_contents() -> tuple[list[CacheEntry], list[Path]]:
    """(entries by kind and name, paths of all other files and folders). Raises OSError where one cannot be read."""
    root, entries, other_paths = cache_root(), [], []
    for folder in [] if root == NOWHERE else _items_of(root):
        if folder.name not in KINDS or not folder.is_dir(follow_symlinks=False):
            other_paths.append(Path(folder))
            continue
        for item in _items_of(folder):
            entry = _entry(folder.name, item)
            if entry is not None:
                entries.append(entry)
            elif not item.name.startswith(_LOCK_PREFIX):
                other_paths.append(Path(item))
    return sorted(entries, key=lambda entry: (KINDS.index(entry.kind), entry.path.name)), sorted(other_paths)


def remove_unused(kind: str, current: Path) -> None:
    """Delete the entries of a kind that were not used for UNUSED_DAYS, but never ``current``; failures are ignored.

    A file's access time counts as use, where the file system notes it: not every reader may call ``mark_used``.
    """
    folder, limit = cache_root() / kind, time.time() - UNUSED_DAYS * A_DAY
    with contextlib.suppress(OSError):
        for item in [] if folder.is_symlink() else _items_of(folder):
            entry = _entry(kind, item)
            if entry is None or entry.path == current:
                continue
            with contextlib.suppress(OSError):
                last_read = max((status.st_atime for status in _statuses(item)), default=0.0)
                if max(entry.last_used, last_read) < limit:
                    entry.remove()


def _items_of(folder: "Path | os.DirEntry[str]") -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:  # nothing is cached yet, or the folder was deleted meanwhile
        return []


def _entry(kind: str, item: "os.DirEntry[str]") -> CacheEntry | None:
    is_folder = item.is_dir(follow_symlinks=False)
    name = item.name + "/" * is_folder
    half_made = bool(re.fullmatch(_HALF_MADE_NAMES[kind], name))
    is_no_link = is_folder or item.is_file(follow_symlinks=False)
    if not is_no_link or not (half_made or re.fullmatch(_WHOLE_NAMES[kind], name)):
        return None
    if kind == "checkpoints" and not half_made and not os.path.isfile(os.path.join(item, "SOURCE.txt")):
        return None  # not a pulled checkpoint: a pull leaves SOURCE.txt in its folder
    try:
        status = item.stat(follow_symlinks=False)
        statuses = list(_statuses(item))
    except FileNotFoundError:
        return None
    last_used = max(inner.st_mtime for inner in [status, *statuses]) if half_made else status.st_mtime
    size = sum(inner.st_size for inner in statuses if stat.S_ISREG(inner.st_mode))
    return CacheEntry(kind, Path(item), size, last_used, half_made)


def _statuses(entry: "os.DirEntry[str]") -> Iterator[os.stat_result]:
    """The status of a file, or of everything below a folder; links are not followed."""
    if not entry.is_dir(follow_symlinks=False):
        yield entry.stat(follow_symlinks=False)
        return
    for item in _items_of(entry):
        if item.is_dir(follow_symlinks=False):
            yield item.stat(follow_symlinks=False)
        yield from _statuses(item)
