"""Limits of unpacked files and of models, in proportion to the bytes of the file, whatever it claims."""

import zipfile
from collections.abc import Iterable

from fastattn.errors import CheckpointError

# Weights compress to about 0.9, vocabularies and shortlists to 0.2; a file that unpacks to more than this is an attack.
GREATEST_RATIO = 20
SMALLEST_SUSPECT = 1 << 20
# Tied weights appear several times, a few bytes each; more than this many times the file would only fill memory.
MOST_SHARING = 16


def most_unpacked(size: int) -> int:
    """The most bytes that a compressed file of ``size`` bytes may hold."""
    return max(SMALLEST_SUSPECT, GREATEST_RATIO * size)


def check_members(members: Iterable[zipfile.ZipInfo], size: int, where: str) -> None:
    """Raise CheckpointError if members of a zip archive of ``size`` bytes overlap, or unpack to too much in all.

    Uses the sizes in the archive's list; unpacking must check these.
    """
    members = list(members)
    packed, unpacked = (sum(getattr(member, name) for member in members) for name in ("compress_size", "file_size"))
    if packed > size:
        raise CheckpointError(f"{where}: its members say they take {packed} bytes, more than the archive's {size}")
    if unpacked > most_unpacked(size):
        raise CheckpointError(
            f"{where}: says it unpacks to {unpacked} bytes, more than {GREATEST_RATIO} times the archive's {size}"
        )
