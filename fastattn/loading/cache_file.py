"""Files of the cache folder with Python data and its arrays, which later processes map: their format and their digest.

A file is a header, the arrays' bytes, pickles of everything else, and a digest. In a pickle an array is (file, offset,
type, shape, strides): file 0 is this file, further numbers are files that were mapped when it was written. A reader
checks that nobody else may have written the file, and its digest; it makes objects of fastattn's dataclasses only.
"""

import contextlib
import hashlib
import io
import math
import mmap
import os
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.system.atomic_files import UntrustedFile, abandon_file, begin_file, make_folder, open_trusted, write_whole
from fastattn.system.cache_folder import remove_unused
from fastattn.system.cpus import default_threads
from fastattn.system.memory import mapping_of
from fastattn.system.worker_threads import map_in_threads
from fastattn.weights.folder import FileMap, map_opened

VERSION = 9  # of the format and of what the files hold
_HEADER = struct.Struct("<16sQQ")  # _MAGIC, bytes of the origin, which follows, and of the arrays
_MAGIC, _DIGEST_BYTES, _ALIGNMENT = b"fastattn cached\0", 32, 64
_PIECE, _BLOCK = 1 << 23, 1 << 18  # bytes that one thread hashes; bytes of one read
WINDOW = 1 << 28  # bytes of one mapping of a file that is being written, which may grow into it
LARGE = 1 << 16  # bytes from which an array is worth a mapping
_HUGE = 1 << 21  # a huge page of most CPUs
_WORDS = 4096  # of 8 bytes, for each sum


class CachedArrays:
    """Pickles objects for a cache file, and collects their arrays, except large ones in the mapped files ``paths``.

    size  bytes of the arrays that the file will hold
    """

    def __init__(self, paths: Sequence[Path] = ()):
        self.paths = list(dict.fromkeys(paths))
        self.size = 0
        self._locations: dict[int, tuple[Any, ...]] = {}
        self._referenced: list[np.ndarray] = []  # so that no other object gets an id in _locations
        self._stored: list[np.ndarray] = []
        self._begun: tuple[BinaryIO, str] | None = None  # the file of ``keep``, and its path
        self._window: FileMap | None = None  # of that file, where arrays are added
        self._window_begin = self._window_end = 0  # in bytes of the file
        self._mapped_size = 0  # bytes of its arrays

    def keep(self, shape: tuple[int, ...], dtype: np.dtype, parts: Iterable[np.ndarray], path: Path) -> np.ndarray:
        """An array that is made part by part, mapped from a file next to ``path``; ``write`` copies it from there.

        That deletes the file, whose mappings stay. These arrays come before all others. Raises OSError.
        """
        if self._begun is None:
            make_folder(path.parent)
            self._begun = begin_file(f"{path.with_suffix('')}.", 0o644)
        stream, part = self._begun
        for array in parts:
            stream.write(array.reshape(-1).view(np.uint8).data)
        size = math.prod(shape) * dtype.itemsize
        stream.write(bytes(-size % _ALIGNMENT))
        stream.flush()
        if self._window is None or self.size + size > self._window_end:  # a mapping holds a file descriptor
            self._window_begin = self.size // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            room = max(WINDOW, self.size - self._window_begin + size)
            self._window_end = self._window_begin + room
            os.ftruncate(stream.fileno(), self._window_end)
            self._window = FileMap(stream.fileno(), room, access=mmap.ACCESS_COPY, offset=self._window_begin)
            self._window.path = Path(part)
        mapped = np.ndarray(shape, dtype, self._window, self.size - self._window_begin)
        self._referenced.append(mapped)
        self._locations[id(mapped)] = 0, self.size, dtype.str, shape, mapped.strides
        self.size += size + -size % _ALIGNMENT
        self._mapped_size = self.size
        return mapped

    def abandon(self) -> None:
        """Delete the file of ``keep``; its arrays stay mapped."""
        if self._begun is not None:
            abandon_file(*self._begun)
            self._begun = None

    def pickled(self, contents: object) -> bytes:
        """The pickle of an object, to be written behind the arrays."""
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = self._location  # type: ignore[method-assign]
        pickler.dump(contents)
        return stream.getvalue()

    def write(self, path: Path, origin: str, pickles: bytes) -> None:
        """Write the file whole, and delete unused files of its kind. Raises OSError.

        origin  the checkpoint's path, for people
        """

        def parts() -> Iterator[bytes | memoryview]:
            name = origin.encode("utf-8", "surrogatepass")
            yield _padded(_HEADER.pack(_MAGIC, len(name), self.size) + name)
            if self._begun is not None:  # with the arrays of ``keep``, which come before all others
                with open(self._begun[0].name, "rb") as stream:
                    for offset in range(0, self._mapped_size, _HUGE):
                        yield stream.read(min(self._mapped_size - offset, _HUGE))
            for array in self._stored:
                yield array.reshape(-1).view(np.uint8).data
                yield bytes(-array.nbytes % _ALIGNMENT)
            yield pickles

        def write(stream: BinaryIO) -> None:
            for piece in _huge_pieces(parts()):
                stream.write(piece)
            stream.flush()
            stream.write(file_digest([partial(FileIO, stream.name)], [stream.tell()], _sums))

        make_folder(path.parent)
        try:
            write_whole(path, write)
        finally:
            self.abandon()
        remove_unused("packed", path)

    def _location(self, value: object) -> tuple[Any, ...] | None:
        if not isinstance(value, np.ndarray):
            return None
        if id(value) not in self._locations:
            self._referenced.append(value)
            owner, array = mapping_of(value), value
            # Small arrays are together in this file: elsewhere the system would map far more bytes around each.
            if isinstance(owner, FileMap) and owner.path in self.paths and array.nbytes >= LARGE:
                start = np.frombuffer(owner, np.uint8).ctypes.data
                place = self.paths.index(owner.path) + 1, array.ctypes.data - start
            else:
                array, place = np.ascontiguousarray(array), (0, self.size)
                self._stored.append(array)
                self.size += array.nbytes + -array.nbytes % _ALIGNMENT
            self._locations[id(value)] = *place, array.dtype.str, array.shape, array.strides
        return self._locations[id(value)]


class CachedObjects(NamedTuple):
    """The contents of a cache file.

    pickles  one behind the other
    maps     the bytes of the arrays in this file; the caller appends those of the further files
    """

    pickles: BinaryIO
    maps: list[memoryview]

    def load(self) -> Any:
        """The next object. Raises UnpicklingError for other classes than fastattn's dataclasses."""
        return _Unpickler(self.pickles, self.maps).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: BinaryIO, maps: Sequence[memoryview]):
        super().__init__(stream)
        self._maps = maps
        self._arrays: dict[tuple[Any, ...], np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        kind = super().find_class(module, name) if module.startswith("fastattn.") else None
        if not (isinstance(kind, type) and "__dataclass_fields__" in vars(kind)):
            raise pickle.UnpicklingError(f"{module}.{name} is none of a checkpoint's classes")
        return kind

    def persistent_load(self, location: tuple[Any, ...]) -> np.ndarray:
        if location not in self._arrays:
            file, offset, dtype, shape, strides = location
            data = self._maps[file]
            array = np.ndarray(shape, dtype, data, offset, strides) if 0 not in shape else np.empty(shape, dtype)
            self._arrays[location] = array
        return self._arrays[location]


def read(path: Path) -> CachedObjects:
    """The contents of a file, mapped; CheckpointError if it is damaged or not trusted, OSError if it is missing."""
    opened = partial(open_trusted, path, 1)
    try:
        with opened() as stream:
            data = map_opened(stream, path)
        advice = getattr(mmap, "MADV_HUGEPAGE", None)
        if advice is not None and isinstance(data.obj, FileMap) and len(data) > _HUGE:
            with contextlib.suppress(OSError):  # of a Linux without huge pages
                data.obj.madvise(advice)
                bytes(data[::_HUGE])  # reads the file into them, if it is not read yet: 0.1 s more for 400 MB on a disk
        end = len(data) - _DIGEST_BYTES
        if end < _HEADER.size or data[end:] != file_digest([opened], [end], _sums):
            raise CheckpointError(f"packed weights in the cache, {path}, are damaged")
    except UntrustedFile:
        raise CheckpointError(f"packed weights in the cache, {path}, may have been written by others") from None
    _, name, size = _HEADER.unpack(data[: _HEADER.size])
    start = len(_padded(bytes(_HEADER.size + name)))
    return CachedObjects(io.BytesIO(data[start + size : end]), [data[start : start + size]])


def _huge_pieces(parts: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """The bytes of all parts in pieces of _HUGE bytes, the last one shorter; a piece is valid until the next.

    Written in such pieces a file lies in huge pages of Linux's file cache, on ext4 or xfs since 6.16, and is mapped by
    them. A step of int4 weights takes 5 to 15% less time then, and the first touch of all weights 2 ms instead of 40.
    """
    piece, filled = memoryview(bytearray(_HUGE)), 0
    for part in parts:
        remaining = memoryview(part)
        while len(remaining):
            took = min(len(remaining), _HUGE - filled)
            piece[filled : filled + took] = remaining[:took]
            remaining, filled = remaining[took:], filled + took
            if filled == _HUGE:
                yield piece
                filled = 0
    yield piece[:filled]


def read_origin(path: Path) -> str:
    """The origin that a file was written with; "" for a file of another kind, damaged or missing."""
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        head = stream.read(_HEADER.size)
        if len(head) == _HEADER.size and head.startswith(_MAGIC):
            return stream.read(min(_HEADER.unpack(head)[1], _BLOCK)).decode("utf-8", "replace")
    return ""


def _padded(head: bytes) -> bytes:
    return head + bytes(-len(head) % _ALIGNMENT)


def file_digest(
    files: Sequence[Callable[[], FileIO]], sizes: list[int], hashed: Callable[[memoryview], bytes | memoryview]
) -> bytes:
    """SHA-256 over the sizes, and over the SHA-256 of each piece of the files' first ``sizes`` bytes.

    files   functions that open them; they are read, not mapped, so that the bytes do not count as this process's memory
    hashed  from a block of a piece to the bytes that its SHA-256 takes: the block itself, or sums of its words
    """

    def hash_piece(piece: tuple[Callable[[], FileIO], int, int]) -> bytes:
        opened, offset, size = piece
        digest, buffer = hashlib.sha256(), memoryview(bytearray(_BLOCK))
        with opened() as stream:
            stream.seek(offset)
            for start in range(offset, min(offset + _PIECE, size), _BLOCK):
                digest.update(hashed(buffer[: stream.readinto(buffer[: size - start])]))
        return digest.digest()

    pieces = [(opened, offset, size) for opened, size in zip(files, sizes) for offset in range(0, size, _PIECE)]
    digests = map_in_threads(hash_piece, pieces, default_threads())
    return hashlib.sha256(repr(sizes).encode() + b"".join(digests)).digest()


def _sums(block: memoryview) -> bytes:
    """The sums of runs of words, then the remaining bytes: they detect errors of a disk, at the speed of memory."""
    whole = len(block) // (8 * _WORDS) * (8 * _WORDS)
    return np.frombuffer(block[:whole], "<u8").reshape(-1, _WORDS).sum(axis=1, dtype="<u8").tobytes() + block[whole:]
