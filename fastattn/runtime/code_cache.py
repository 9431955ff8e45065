"""The cache of compiled code: Numba's own keys a function on its file's mtime and misses a change in a file that it
inlines; ours is a folder named after a hash of every source that kernels are made of and of the CPU.

A file is a line that names the format, the SHA-256 of the rest, the length of a JSON object, that object, and an object
file. Nothing in it is unpickled. It is believed only if nobody but this user or root may have written it.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fastattn.errors import warn_once
from fastattn.system.atomic_files import (
    PART,
    WINDOWS,
    NotTrusted,
    make_folder,
    open_trusted,
    sweep,
    try_lock,
    write_whole,
)
from fastattn.system.cache_folder import remove_unused

MAGIC = b"fastattn machine code 2\n"
DIGEST = 32
_FOLDERS = 2  # of the cache above a file: one for these sources and this CPU, and that of all kernels

_SYMBOL = re.compile(r"[\w.$]+", re.ASCII)


class Code(NamedTuple):
    """A compiled variant of a kernel.

    exports  what the object file defines for others: role ("wrapper", ...) -> symbol
    needs    symbols of the process that it calls
    """

    exports: dict[str, str]
    needs: list[str]
    object_file: bytes


class CodeFolder:
    """The folder of one machine type's compiled code; ``path`` is computed at first use."""

    def __init__(self, path: Callable[[], Path]):
        self._path = path
        self._swept = False

    @property
    def path(self) -> Path:
        return self._path()

    def load(self, label: str, key: str) -> Code | None:
        """Load a variant by the kernel's label and key; None if it is missing or, with a warning, not trusted.

        ValueError or KeyError for a file that is none of ours.
        """
        file = self.path / _file_name(label, key)
        try:
            with open_trusted(file, _FOLDERS) as stream:
                data = stream.readall()
        except NotTrusted:
            warn_once(f"compiled kernels in {self.path} are not used: others may have written them")
            return None
        except OSError:
            return None
        start = len(MAGIC) + DIGEST
        if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : start] != hashlib.sha256(data[start:]).digest():
            warn_once(f"a compiled kernel in {self.path} is damaged; what is damaged there is compiled anew")
            return None
        end = start + 4 + int.from_bytes(data[start : start + 4], "little")
        kept = json.loads(data[start + 4 : end])
        if kept["key"] != key or not all(map(_SYMBOL.fullmatch, [*kept["exports"].values(), *kept["needs"]])):
            raise ValueError(f"{file}: another variant")
        return Code(kept["exports"], kept["needs"], data[end:])

    def save(self, label: str, key: str, code: Code) -> None:
        """Store a variant. Raises OSError where that fails."""
        make_folder(self.path)
        sweep(self.path)
        text = json.dumps({"key": key, "exports": code.exports, "needs": code.needs}).encode()
        data = len(text).to_bytes(4, "little") + text + code.object_file

        def write(stream: BinaryIO) -> None:
            stream.writelines([MAGIC, hashlib.sha256(data).digest(), data])

        write_whole(self.path / _file_name(label, key), write)
        if not self._swept:
            self._swept = True
            remove_unused("kernels", self.path)  # another version's, or another CPU's

    @contextlib.contextmanager
    def claimed(self, label: str, key: str) -> Iterator[bool]:
        """Whether no other process makes the same variant; true where files cannot be locked.

        The claim of a process that ends goes with it.
        """
        if WINDOWS:  # which deletes no file that another process waits for
            yield True
            return
        path = self.path / f"{_file_name(label, key)}.claim{PART}"  # what a killed process leaves is swept
        try:
            make_folder(self.path)
            stream = open(path, "ab")
        except OSError:
            yield True
            return
        with stream:
            is_ours = try_lock(stream) is not None
            try:
                yield is_ours
            finally:
                if is_ours:
                    with contextlib.suppress(OSError):
                        path.unlink()


def _file_name(label: str, key: str) -> str:
    """The name of a variant's file, after its key: two processes that write at once write the same."""
    return f"{label}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
