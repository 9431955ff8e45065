"""How much a compressed file may unpack to: in proportion to its own size, whatever it says of itself."""

import zipfile
from collections.abc import Iterable

from fastattn.errors import CheckpointError

# Weights shrink to about 0.9, vocabularies and shortlists to 0.2; what unpacks to more than this is an attack.
GREATEST_RATIO = 20
SMALLEST_SUSPECT = 1 << 20


def most_unpacked(size: int) -> int:
    """The most bytes that a compressed file of ``size`` bytes may hold."""
    return max(SMALLEST_SUSPECT, GREATEST_RATIO * size)


def check_members(members: Iterable[zipfile.ZipInfo], size: int, where: str) -> None:
    """Raise CheckpointError where the members of a zip archive of ``size`` bytes share some of them, or unpack to more
    than they may in all. Each still has to be held to the size that it says it has."""
    members = list(members)
    packed, unpacked = (sum(getattr(member, name) for member in members) for name in ("compress_size", "file_size"))
    if packed > size:
        raise CheckpointError(f"{where}: its members say they take {packed} bytes, more than the archive's {size}")
    if unpacked > most_unpacked(size):
        raise CheckpointError(
            f"{where}: says it unpacks to {unpacked} bytes, more than {GREATEST_RATIO} times the archive's {size}"
        )
