"""Files of the cache folder with Python data and its arrays, which later processes map: their format and their digest.

A file is a header, the arrays' bytes, pickles of everything else, and a digest. In a pickle an array is (file, offset,
type, shape, strides): file 0 is the cache file itself, further numbers are other files from which the writer had mapped
the array. A reader checks the digest, and that no other user can have written the file; it makes objects of fastattn's
dataclasses only.
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
_HEADER = struct.Struct("<16sQQ")  # _MAGIC, size of the origin (which follows the header), size of all arrays
_MAGIC, _DIGEST_BYTES, _ALIGNMENT = b"fastattn cached\0", 32, 64
_PIECE_BYTES, _BLOCK_BYTES = 1 << 23, 1 << 18  # how much one thread hashes; how much is read at once
WINDOW_BYTES = 1 << 28  # of a mapping into which a file grows: few large mappings, since each holds a file descriptor
LARGE_BYTES = 1 << 16  # an array of at least so many bytes is worth a mapping
_HUGE_PAGE = 1 << 21  # bytes, on most CPUs
_SUM_WORDS = 4096  # words of 8 bytes for each sum


class CachedArrays:
    """Pickles objects for a cache file, and collects their arrays, except large arrays of the mapped files ``paths``.

    size  bytes of the arrays that the cache file will hold
    """

    def __init__(self, paths: Sequence[Path] = ()):
        self.paths = list(dict.fromkeys(paths))
        self.size = 0
        self._locations: dict[int, tuple[Any, ...]] = {}
        self._located_arrays: list[np.ndarray] = []  # while these live, no other object gets an id of _locations
        self._arrays_to_copy: list[np.ndarray] = []  # into the cache file, by ``write``
        self._mapped_file: tuple[BinaryIO, str] | None = None  # the file of ``map_parts``, and its path
        self._window: FileMap | None = None  # the mapping of the end of that file, to which arrays are added
        self._window_begin = self._window_end = 0  # offsets in that file, in bytes
        self._mapped_size = 0  # bytes of that file's arrays

    def map_parts(self, shape: tuple[int, ...], dtype: np.dtype, parts: Iterable[np.ndarray], path: Path) -> np.ndarray:
        """An array of ``parts``, which are written to a file next to ``path`` one by one and mapped from there.

        ``write`` copies and deletes that file; its mappings stay. To be called before ``pickled``. Raises OSError.
        """
        if self._mapped_file is None:
            make_folder(path.parent)
            self._mapped_file = begin_file(f"{path.with_suffix('')}.", 0o644)
        stream, name = self._mapped_file
        for part in parts:
            stream.write(part.reshape(-1).view(np.uint8).data)
        size = math.prod(shape) * dtype.itemsize
        stream.write(bytes(-size % _ALIGNMENT))
        stream.flush()
        if self._window is None or self.size + size > self._window_end:
            self._window_begin = self.size // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            window_size = max(WINDOW_BYTES, self.size - self._window_begin + size)
            self._window_end = self._window_begin + window_size
            os.ftruncate(stream.fileno(), self._window_end)
            self._window = FileMap(stream.fileno(), window_size, access=mmap.ACCESS_COPY, offset=self._window_begin)
            self._window.path = Path(name)
        array = np.ndarray(shape, dtype, self._window, self.size - self._window_begin)
        self._located_arrays.append(array)
        self._locations[id(array)] = 0, self.size, dtype.str, shape, array.strides
        self.size = self._mapped_size = self.size + size + -size % _ALIGNMENT
        return array

    def abandon(self) -> None:
        """Delete the file of ``map_parts``; its arrays stay mapped."""
        if self._mapped_file is not None:
            abandon_file(*self._mapped_file)
            self._mapped_file = None

    def pickled(self, contents: object) -> bytes:
        """The pickle of an object, for ``write``, which then writes the object's arrays too."""

        class ArrayPickler(pickle.Pickler):  # in Python 3.13.0 an object's own ``persistent_id`` is read-only
            persistent_id = staticmethod(self._location)  # type: ignore[assignment]

        stream = io.BytesIO()
        ArrayPickler(stream, pickle.HIGHEST_PROTOCOL).dump(contents)
        return stream.getvalue()

    def write(self, path: Path, origin: str, pickles: bytes) -> None:
        """Write the cache file whole, and delete cache files that are no longer used. Raises OSError.

        origin  the checkpoint's path, for people to read
        """

        def contents() -> Iterator[bytes | memoryview]:
            origin_bytes = origin.encode("utf-8", "surrogatepass")
            yield _padded(_HEADER.pack(_MAGIC, len(origin_bytes), self.size) + origin_bytes)
            if self._mapped_file is not None:
                with open(self._mapped_file[0].name, "rb") as stream:
                    for offset in range(0, self._mapped_size, _HUGE_PAGE):
                        yield stream.read(min(self._mapped_size - offset, _HUGE_PAGE))
            for array in self._arrays_to_copy:
                yield array.reshape(-1).view(np.uint8).data
                yield bytes(-array.nbytes % _ALIGNMENT)
            yield pickles

        def write_contents(stream: BinaryIO) -> None:
            for piece in _huge_pieces(contents()):
                stream.write(piece)
            stream.flush()
            stream.write(file_digest([partial(FileIO, stream.name)], [stream.tell()], _word_sums))

        make_folder(path.parent)
        try:
            write_whole(path, write_contents)
        finally:
            self.abandon()
        remove_unused("packed", path)

    def _location(self, value: object) -> tuple[Any, ...] | None:
        """What a pickle has in place of an array; None for another object."""
        if not isinstance(value, np.ndarray):
            return None
        if id(value) not in self._locations:
            self._located_arrays.append(value)
            owner, array = mapping_of(value), value
            # Small arrays lie together in the cache file: from another file, the system would map far more for each.
            if isinstance(owner, FileMap) and owner.path in self.paths and array.nbytes >= LARGE_BYTES:
                start = np.frombuffer(owner, np.uint8).ctypes.data
                file, offset = self.paths.index(owner.path) + 1, array.ctypes.data - start
            else:
                array, file, offset = np.ascontiguousarray(array), 0, self.size
                self._arrays_to_copy.append(array)
                self.size += array.nbytes + -array.nbytes % _ALIGNMENT
            self._locations[id(value)] = file, offset, array.dtype.str, array.shape, array.strides
        return self._locations[id(value)]


class CachedObjects(NamedTuple):
    """The contents of a cache file.

    pickles  a stream of the pickles, one behind the other
    maps     the bytes of this file's arrays; the caller appends the bytes of the other files to which pickles refer
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
        found = super().find_class(module, name) if module.startswith("fastattn.") else None
        if not (isinstance(found, type) and "__dataclass_fields__" in vars(found)):
            raise pickle.UnpicklingError(f"{module}.{name} is none of a checkpoint's classes")
        return found

    def persistent_load(self, location: tuple[Any, ...]) -> np.ndarray:
        if location not in self._arrays:
            file, offset, dtype, shape, strides = location
            data = self._maps[file]
            array = np.ndarray(shape, dtype, data, offset, strides) if 0 not in shape else np.empty(shape, dtype)
            self._arrays[location] = array
        return self._arrays[location]


def read(path: Path) -> CachedObjects:
    """The contents of a file, mapped; CheckpointError if it is damaged or not trusted, OSError if it is missing."""
    open_file = partial(open_trusted, path, 1)
    try:
        with open_file() as stream:
            data = map_opened(stream, path)
        advice = getattr(mmap, "MADV_HUGEPAGE", None)
        if advice is not None and isinstance(data.obj, FileMap) and len(data) > _HUGE_PAGE:
            with contextlib.suppress(OSError):  # a Linux without huge pages refuses
                data.obj.madvise(advice)
                # Brings a file not yet in memory into huge pages, which takes 0.1 s for 400 MB.
                bytes(data[::_HUGE_PAGE])
        end = len(data) - _DIGEST_BYTES
        if end < _HEADER.size or data[end:] != file_digest([open_file], [end], _word_sums):
            raise CheckpointError(f"packed weights in the cache, {path}, are damaged")
    except UntrustedFile:
        raise CheckpointError(f"packed weights in the cache, {path}, may have been written by others") from None
    _, origin_size, arrays_size = _HEADER.unpack(data[: _HEADER.size])
    start = len(_padded(bytes(_HEADER.size + origin_size)))
    stop = start + arrays_size
    return CachedObjects(io.BytesIO(data[stop:end]), [data[start:stop]])


def _huge_pieces(parts: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """The bytes of all parts in pieces of _HUGE_PAGE bytes, the last one shorter; a piece is valid until the next.

    If a file is written in such pieces, Linux since 6.16 keeps it in huge pages of its file cache, on ext4 or xfs, and
    maps huge pages. A step of int4 weights then takes 5 to 15% less time, the first touch of all weights 2 ms, not 40.
    """
    piece, filled = memoryview(bytearray(_HUGE_PAGE)), 0
    for part in parts:
        remaining = memoryview(part)
        while len(remaining):
            count = min(len(remaining), _HUGE_PAGE - filled)
            piece[filled : filled + count] = remaining[:count]
            remaining, filled = remaining[count:], filled + count
            if filled == _HUGE_PAGE:
                yield piece
                filled = 0
    yield piece[:filled]


def read_origin(path: Path) -> str:
    """The ``origin`` that ``write`` put into a file; "" for a missing or damaged file and for one of another format."""
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        head = stream.read(_HEADER.size)
        if len(head) == _HEADER.size and head.startswith(_MAGIC):
            return stream.read(min(_HEADER.unpack(head)[1], _BLOCK_BYTES)).decode("utf-8", "replace")
    return ""


def _padded(head: bytes) -> bytes:
    return head + bytes(-len(head) % _ALIGNMENT)


def file_digest(
    files: Sequence[Callable[[], FileIO]], sizes: list[int], summarize: Callable[[memoryview], bytes | memoryview]
) -> bytes:
    """SHA-256 over the sizes, and over the SHA-256 of each piece of the files' first ``sizes`` bytes.

    files      functions that open the files, which are read, not mapped: mapped files count as the process's memory
    summarize  from a block of a piece to the bytes that are hashed for it: the block itself, or sums of its words
    """

    def hash_piece(piece: tuple[Callable[[], FileIO], int, int]) -> bytes:
        opener, offset, size = piece
        digest, buffer = hashlib.sha256(), memoryview(bytearray(_BLOCK_BYTES))
        with opener() as stream:
            stream.seek(offset)
            for start in range(offset, min(offset + _PIECE_BYTES, size), _BLOCK_BYTES):
                digest.update(summarize(buffer[: stream.readinto(buffer[: size - start])]))
        return digest.digest()

    pieces = [(opener, offset, size) for opener, size in zip(files, sizes) for offset in range(0, size, _PIECE_BYTES)]
    digests = map_in_threads(hash_piece, pieces, default_threads())
    return hashlib.sha256(repr(sizes).encode() + b"".join(digests)).digest()


def _word_sums(block: memoryview) -> bytes:
    """The sum of each run of _SUM_WORDS words, then the remaining bytes: shows a disk's errors, at memory's speed."""
    end = len(block) // (8 * _SUM_WORDS) * (8 * _SUM_WORDS)
    return np.frombuffer(block[:end], "<u8").reshape(-1, _SUM_WORDS).sum(axis=1, dtype="<u8").tobytes() + block[end:]
