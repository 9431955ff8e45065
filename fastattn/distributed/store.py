"""What an output folder asks of its storage, be it a folder of the system or an object store."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from fastattn.errors import StorageError
from fastattn.system.records import dataclass

Buffer = Any  # bytes, or what else has a buffer of bytes


@dataclass(frozen=True)
class StoredFile:
    """A file of a listing: its bytes, and when it was written by the store's own clock, in ns."""

    size: int
    modified: int


class Store(Protocol):
    """Files by their paths below one folder, with "/" between names. All methods raise StorageError.

    hold    one process at a time, within ``room``; makes the folders, and deletes what killed writers left; yields a
            function that raises StorageError where the room is not held any more
    read    the contents, or the first ``most`` bytes of them; None where there is no such file
    write   a file that appears whole or not at all, in the place of one that is there
    delete  a file, if it is there
    size    of a file, in bytes; None where there is no such file
    intact  whether a file of the right size still has this SHA-256; a store that checks what it keeps is not asked
    list    what is in a folder, folders too, by name; nothing where there is none
    """

    name: str

    def hold(self, room: str, folders: Sequence[str]) -> AbstractContextManager[Callable[[], None]]: ...
    def read(self, path: str, most: int) -> bytes | None: ...
    def write(self, path: str, data: Buffer) -> None: ...
    def delete(self, path: str) -> None: ...
    def size(self, path: str) -> int | None: ...
    def intact(self, path: str, digest: str) -> bool: ...
    def list(self, folder: str) -> dict[str, StoredFile]: ...


_LONGEST = 300  # characters of a store's own message


@contextmanager
def naming_failures(store: Store, verb: str, path: str) -> Iterator[None]:
    """Turn an error of the system or of pyarrow inside, which is an OSError or a ValueError, into one of one line."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:_LONGEST]
        raise StorageError(f"cannot {verb} {store.name}{'/' * bool(path)}{path}: {reason}") from error
