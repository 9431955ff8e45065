"""Files of the cache folder with Python data and its arrays, which later processes map: their format and their digest.

A file is a header, the arrays' bytes, pickles of everything else, and a digest. In a pickle an array is (file, offset,
type, shape, strides): file 0 is this one, others are files that were mapped when it was written. Before use it is
checked that nobody else may have written the file, and its digest; of classes none but fastattn's dataclasses are made.
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
from fastattn.system.atomic_files import NotTrusted, abandon, begin, make_folder, open_trusted, write_whole
from fastattn.system.cache_folder import remove_unused
from fastattn.system.cpus import default_threads
from fastattn.system.memory import mapping_of
from fastattn.system.worker_threads import map_in_threads
from fastattn.weights.folder import FileMap, map_opened

VERSION = 9  # of the format and of what the files hold
_HEADER = struct.Struct("<16sQQ")  # _MAGIC, bytes of the origin, which follows, and of the arrays
_MAGIC, _DIGEST_BYTES, _ALIGNMENT = b"fastattn cached\0", 32, 64
_PIECE, _BLOCK = 1 << 23, 1 << 18  # bytes that one thread hashes, and reads at a time
WINDOW = 1 << 28  # bytes of a file, which may not be there yet, that are mapped at once
LARGE = 1 << 16  # bytes of an array that is worth a mapping
_HUGE = 1 << 21  # a huge page of most CPUs
_WORDS = 4096  # of 8 bytes, for each sum


class CachedArrays:
    """Pickles objects for a cache file, and collects arrays that are small or in none of the mapped files ``paths``.

    size  bytes of the arrays that the file will hold
    """

    def __init__(self, paths: Sequence[Path] = ()):
        self.paths = list(dict.fromkeys(paths))
        self.size = 0
        self._locations: dict[int, tuple[Any, ...]] = {}
        self._given: list[np.ndarray] = []  # so that no other object takes an id among _locations
        self._stored: list[np.ndarray] = []
        self._begun: tuple[BinaryIO, str] | None = None  # the file, and its path until it is whole
        self._window: FileMap | None = None  # of that file, where it is written now and later
        self._window_begin = self._window_end = 0  # in bytes of the file
        self._kept = 0  # bytes of the arrays there

    def keep(self, shape: tuple[int, ...], dtype: np.dtype, parts: Iterable[np.ndarray], path: Path) -> np.ndarray:
        """An array that is made part by part, mapped from a file beside ``path``, which ``write`` has the bytes from.

        It is as good as deleted then, but for those who map it. Before other arrays. Raises OSError.
        """
        if self._begun is None:
            make_folder(path.parent)
            self._begun = begin(f"{path.with_suffix('')}.", 0o644)
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
        kept = np.ndarray(shape, dtype, self._window, self.size - self._window_begin)
        self._given.append(kept)
        self._locations[id(kept)] = 0, self.size, dtype.str, shape, kept.strides
        self.size += size + -size % _ALIGNMENT
        self._kept = self.size
        return kept

    def abandon(self) -> None:
        """Delete what was begun; arrays that are kept there stay as they are."""
        if self._begun is not None:
            abandon(*self._begun)
            self._begun = None

    def pickled(self, contents: object) -> bytes:
        """The pickle of an object, to be written after the arrays."""
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = self._location  # type: ignore[method-assign]
        pickler.dump(contents)
        return stream.getvalue()

    def write(self, path: Path, origin: str, pickles: bytes) -> None:
        """Write the file, and delete others of its kind that nobody uses; no reader meets half a file. Raises OSError.

        origin  which checkpoint it is of, for people
        """

        def parts() -> Iterator[bytes | memoryview]:
            yield _head(origin, self.size)
            yield from self._kept_so_far()
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

    def _kept_so_far(self) -> Iterator[bytes]:
        """The bytes of the arrays of ``keep``, which come before all others."""
        if self._begun is not None:
            left = self._kept
            with open(self._begun[0].name, "rb") as stream:
                while left and (piece := stream.read(min(left, _HUGE))):
                    left -= len(piece)
                    yield piece

    def _location(self, value: object) -> tuple[Any, ...] | None:
        if not isinstance(value, np.ndarray):
            return None
        if id(value) not in self._locations:
            self._given.append(value)
            self._locations[id(value)] = self._mapped(value) or self._to_be_stored(value)
        return self._locations[id(value)]

    def _mapped(self, array: np.ndarray) -> tuple[Any, ...] | None:
        owner = mapping_of(array)
        # Small ones are together in this file: of others the system maps as much around each as it read at once.
        if not isinstance(owner, FileMap) or owner.path not in self.paths or array.nbytes < LARGE:
            return None
        start = np.frombuffer(owner, np.uint8).ctypes.data
        return self.paths.index(owner.path) + 1, array.ctypes.data - start, array.dtype.str, array.shape, array.strides

    def _to_be_stored(self, array: np.ndarray) -> tuple[Any, ...]:
        array, offset = np.ascontiguousarray(array), self.size
        self._stored.append(array)
        self.size += array.nbytes + -array.nbytes % _ALIGNMENT
        return 0, offset, array.dtype.str, array.shape, array.strides


class CachedObjects(NamedTuple):
    """What a cache file holds.

    pickles  one after the other
    maps     the bytes of the arrays in this file; the caller appends those of the mapped files
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
        self._known: dict[tuple[Any, ...], np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.startswith("fastattn.") else None
        if not (isinstance(found, type) and "__dataclass_fields__" in vars(found)):
            raise pickle.UnpicklingError(f"{module}.{name} is none of a checkpoint's classes")
        return found

    def persistent_load(self, location: tuple[Any, ...]) -> np.ndarray:
        if location not in self._known:
            file, offset, dtype, shape, strides = location
            data = self._maps[file]
            array = np.ndarray(shape, dtype, data, offset, strides) if 0 not in shape else np.empty(shape, dtype)
            self._known[location] = array
        return self._known[location]


def read(path: Path) -> CachedObjects:
    """A file, mapped. CheckpointError for one that is not trusted or damaged, OSError where there is none."""
    opened = partial(open_trusted, path, 1)
    try:
        with opened() as stream:
            data = map_opened(stream, path)
        _ask_for_huge_pages(data)
        end = len(data) - _DIGEST_BYTES
        if end < _HEADER.size or data[end:] != file_digest([opened], [end], _sums):
            raise CheckpointError(f"packed weights in the cache, {path}, are damaged")
    except NotTrusted:
        raise CheckpointError(f"packed weights in the cache, {path}, may have been written by others") from None
    _, name, size = _HEADER.unpack(data[: _HEADER.size])
    start = len(_padded(bytes(_HEADER.size + name)))
    return CachedObjects(io.BytesIO(data[start + size : end]), [data[start : start + size]])


def _ask_for_huge_pages(data: memoryview) -> None:
    """Have Linux read a mapped file into huge pages, where it has not read it yet: 0.1 s more for 400 MB on a disk."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None and isinstance(data.obj, FileMap) and len(data) > _HUGE:
        with contextlib.suppress(OSError):  # of a Linux without them
            data.obj.madvise(advice)
            bytes(data[::_HUGE])


def _huge_pieces(parts: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """The bytes of all parts in pieces of _HUGE bytes and a last one, each of which is valid until the next.

    What is written so lies in huge pages of Linux's file cache, on ext4 or xfs since 6.16, and is mapped by them. A
    step of int4 weights takes 5 to 15% less time then, and the first touch of all of them 2 ms instead of 40.
    """
    piece, filled = memoryview(bytearray(_HUGE)), 0
    for part in parts:
        left = memoryview(part)
        while len(left):
            took = min(len(left), _HUGE - filled)
            piece[filled : filled + took] = left[:took]
            left, filled = left[took:], filled + took
            if filled == _HUGE:
                yield piece
                filled = 0
    yield piece[:filled]


def read_origin(path: Path) -> str:
    """The origin that a file was written with; "" for another file, a damaged one, or one that is gone."""
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        head = stream.read(_HEADER.size)
        if len(head) == _HEADER.size and head.startswith(_MAGIC):
            return stream.read(min(_HEADER.unpack(head)[1], _BLOCK)).decode("utf-8", "replace")
    return ""


def _head(origin: str, size: int) -> bytes:
    name = origin.encode("utf-8", "surrogatepass")
    return _padded(_HEADER.pack(_MAGIC, len(name), size) + name)


def _padded(head: bytes) -> bytes:
    return head + bytes(-len(head) % _ALIGNMENT)


def file_digest(
    files: Sequence[Callable[[], FileIO]], sizes: list[int], hashed: Callable[[memoryview], bytes | memoryview]
) -> bytes:
    """SHA-256 over the sizes, and the SHA-256 of every piece of the first ``sizes`` bytes of the files.

    files   each opens one; they are read, not mapped, so that the bytes do not count as this process's memory
    hashed  block -> the bytes to hash
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
    """Sums of each run of words, then the remaining bytes: enough to detect disk errors, at the speed of memory."""
    whole = len(block) // (8 * _WORDS) * (8 * _WORDS)
    return np.frombuffer(block[:whole], "<u8").reshape(-1, _WORDS).sum(axis=1, dtype="<u8").tobytes() + block[whole:]
