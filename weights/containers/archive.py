"""Copying members out of a zip (wheel) or gzipped tar (sdist): only regular files, only to paths the caller names."""

import contextlib
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

_CHUNK_BYTES = 1 << 18


class ArchiveError(Exception):
    """An archive that is damaged, or lacks an expected member; the message is one line."""


def extract(archive: Path, targets: Mapping[str, Path], limit: int) -> None:
    """Copy members of an archive: ``targets`` maps a member's name to its new path, whose folder is created.

    limit  the most bytes that all members may unpack to, whatever the archive's headers say
    Raises ArchiveError for a fault of the archive, OSError for one of the new files.
    """
    if archive.name.endswith((".tar.gz", ".tgz")):
        _extract_tar(archive, targets, limit)
    else:
        _extract_zip(archive, targets, limit)


@contextlib.contextmanager
def _archive_errors(archive: Path) -> Iterator[None]:
    """Turn errors of the body into an ArchiveError: an archive's numbers may even cause a seek out of bounds."""
    try:
        yield
    except (
        tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError, OSError
    ) as error:  # fmt: skip
        reason = " ".join(str(error).split())
        raise ArchiveError(f"{archive.name} is damaged or of an unknown kind: {reason}") from None


def _extract_zip(archive: Path, targets: Mapping[str, Path], limit: int) -> None:
    with _archive_errors(archive):
        file = zipfile.ZipFile(archive)
    with file:
        names = set(file.namelist())
        for name, target in targets.items():
            if name not in names:
                raise ArchiveError(f"{archive.name} has no member {name}")
            member = file.getinfo(name)
            file_type = stat.S_IFMT(member.external_attr >> 16)
            if file_type not in (0, stat.S_IFREG) or member.is_dir():
                raise ArchiveError(f"{archive.name}: the member {name} is not a regular file")
            with _archive_errors(archive):
                source = file.open(member)
            with source:
                limit = _copy(source, target, limit, archive, name)


def _extract_tar(archive: Path, targets: Mapping[str, Path], limit: int) -> None:
    remaining_targets = dict(targets)
    with _archive_errors(archive):
        file = tarfile.open(archive, "r:gz")
    with file:
        while remaining_targets:
            with _archive_errors(archive):
                member = file.next()
            if member is None:
                raise ArchiveError(f"{archive.name} has no member {min(remaining_targets)}")
            if member.name not in remaining_targets:
                continue
            source = file.extractfile(member) if member.isreg() else None
            if source is None:
                raise ArchiveError(f"{archive.name}: the member {member.name} is not a regular file")
            with source:
                limit = _copy(source, remaining_targets.pop(member.name), limit, archive, member.name)


def _copy(source: IO[bytes], target: Path, limit: int, archive: Path, name: str) -> int:
    """Copy one member; returns ``limit`` less the member's bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "xb") as file:
        while True:
            with _archive_errors(archive):
                chunk = source.read(_CHUNK_BYTES)
            if not chunk:
                return limit
            limit -= len(chunk)
            if limit < 0:
                raise ArchiveError(f"{archive.name}: {name} unpacks to more than it should")
            file.write(chunk)
