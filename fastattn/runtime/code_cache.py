"""The cache of compiled code: Numba's own keys a function on its file's mtime and misses a change in a file that it
inlines; ours is a folder named after a hash of every source that kernels are made of and of the CPU.

A file is a line that names the format, the SHA-256 of the rest, the length of a JSON object, that object, and machine
code. Nothing in it is unpickled: what Numba wants to know beside the code follows from the types, or is text. It is
believed only if nobody but this user or root may have written it.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from fastattn.atomic_files import is_trusted, make_folder, sweep, write_whole
from fastattn.cache_folder import remove_unused
from fastattn.caller_warnings import warn
from fastattn.runtime.internals import from_bytes, to_bytes

UNUSED_DAYS = 30  # after which another version's, or another CPU's, code goes
MAGIC = b"fastattn machine code 1\n"
DIGEST = 32


class CodeFolder:
    """The folder of one machine type's compiled code; ``path`` is computed at first use."""

    def __init__(self, path: Callable[[], Path]):
        self._path = path
        self._told: set[str] = set()
        self._swept = False

    @property
    def path(self) -> Path:
        return self._path()

    def load(self, name: str) -> bytes | None:
        """The contents of a file; None if it is missing, or not trusted, of which one warning tells."""
        file = self.path / name
        try:
            if not (is_trusted(file) and is_trusted(self.path)):
                self._tell(f"compiled kernels in {self.path} are not used: others may have written them")
                return None
            data = file.read_bytes()
        except OSError:
            return None
        start = len(MAGIC) + DIGEST
        if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : start] != hashlib.sha256(data[start:]).digest():
            self._tell(f"a compiled kernel in {self.path} is damaged; what is damaged there is compiled anew")
            return None
        return data[start:]

    def save(self, name: str, data: bytes) -> None:
        """Write a file. Raises OSError where that fails."""
        make_folder(self.path)
        sweep(self.path)

        def write(stream: BinaryIO) -> None:
            stream.writelines([MAGIC, hashlib.sha256(data).digest(), data])

        write_whole(self.path / name, write)
        if not self._swept:
            self._swept = True
            remove_unused("kernels", UNUSED_DAYS, self.path)

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            warn(message)


class CodeCache:
    """What a dispatcher of Numba's asks for compiled code. A cache that cannot be read or written only costs time.

    form        tells kernels from other functions of the same name
    on_compile  called with the function's name before it is compiled from scratch
    on_fault    called with the OSError that kept code from being written
    """

    def __init__(
        self,
        function: Callable,
        form: str,
        folder: CodeFolder,
        on_compile: Callable[[str], None],
        on_fault: Callable[[OSError], None],
    ):
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        self._function, self._form, self._folder = function, form, folder
        self._on_compile, self._on_fault = on_compile, on_fault

    @property
    def cache_path(self) -> str:
        return str(self._folder.path)

    def load_overload(self, sig, target_context):
        argument_types = tuple(getattr(sig, "args", sig))
        try:
            data = self._folder.load(self._file(argument_types, target_context))
            loaded = data and from_bytes(data, argument_types, self._function.__globals__, target_context)
        except Exception:  # noqa: BLE001  a foreign file may fail in any way; compiling replaces it
            loaded = None
        if not loaded:
            self._on_compile(self._name)
        return loaded or None

    def save_overload(self, sig, data) -> None:
        argument_types = tuple(data.signature.args)
        try:
            self._folder.save(self._file(argument_types, data.target_context), to_bytes(data))
        except OSError as error:
            self._on_fault(error)

    def enable(self) -> None:
        """It always is."""

    def disable(self) -> None:
        """It never is."""

    def flush(self) -> None:
        """Files go by ``fastattn cache clear``."""

    def _file(self, argument_types: tuple, target_context: Any) -> str:
        """A file a compiled form, named by its key: two processes that write at once write the same."""
        key = repr((argument_types, target_context.codegen().magic_tuple()))
        return f"{self._name}-{self._form}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
