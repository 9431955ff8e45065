"""Packed weights in the cache folder: the first load of a checkpoint writes them, later ones map them.

One file for each checkpoint, precision and layout, named by a hash of the checkpoint, so that it is never stale;
mapped read-only, so that processes share its pages. Before use its digest is checked, and that nobody else may have
written it. A cache folder that cannot be read or written costs only time.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.ops.cpu.packing import PackedLinear, packed_layout, packed_shapes
from fastattn.system.atomic_files import NotTrusted, make_folder, open_trusted, sweep, write_whole
from fastattn.system.cache_folder import A_DAY, cache_root, mark_used, remove_unused
from fastattn.system.caller_warnings import warn
from fastattn.system.cpus import default_threads
from fastattn.system.worker_threads import map_in_threads
from fastattn.weights.containers.safetensors import NewTensor, StoredTensor, parse, write_tensors
from fastattn.weights.folder import map_opened

VERSION = 6  # of the file format; increased when the contents change
_PIECE, _BLOCK = 1 << 23, 1 << 18  # bytes that one thread hashes, and reads at a time
_DIGEST, _DIGEST_BYTES = "digest", 32  # the file's last array: int8, which write_tensors puts at the end
_WORDS = 4096  # of 8 bytes, for each sum
_TYPES = {"float32": "F32", "uint16": "BF16", "int8": "I8", "int32": "I32"}


def content_hash(files: Sequence[Path]) -> str:
    """SHA-256 over the sizes of the files and the SHA-256 of every piece of them.

    They are read, not mapped, so that the hashed bytes do not count as this process's memory.
    """
    sizes = [file.stat().st_size for file in files]
    return _digest([partial(FileIO, file) for file in files], sizes, lambda block: block).hex()


def _digest(
    files: Sequence[Callable[[], FileIO]], sizes: list[int], hashed: Callable[[memoryview], bytes | memoryview]
) -> bytes:
    """SHA-256 over the sizes, and the SHA-256 of every piece of the first ``sizes`` bytes of the files.

    files   each opens one
    hashed  block -> the bytes to hash
    """

    def hash_piece(piece: tuple[Callable[[], FileIO], int, int]) -> bytes:
        opened, at, size = piece
        digest, room = hashlib.sha256(), memoryview(bytearray(_BLOCK))
        with opened() as stream:
            stream.seek(at)
            for start in range(at, min(at + _PIECE, size), _BLOCK):
                digest.update(hashed(room[: stream.readinto(room[: size - start])]))
        return digest.digest()

    pieces = [(opened, at, size) for opened, size in zip(files, sizes) for at in range(0, size, _PIECE)]
    digests = map_in_threads(hash_piece, pieces, default_threads())
    return hashlib.sha256(repr(sizes).encode() + b"".join(digests)).digest()


def _sums(block: memoryview) -> bytes:
    """Sums of each run of words, then the remaining bytes: enough to detect disk errors, at the speed of memory."""
    whole = len(block) // (8 * _WORDS) * (8 * _WORDS)
    return np.frombuffer(block[:whole], "<u8").reshape(-1, _WORDS).sum(axis=1, dtype="<u8").tobytes() + block[whole:]


class PackedFile:
    """The packed linear layers of one checkpoint in one precision; ``variety`` distinguishes further variants."""

    def __init__(self, files: Sequence[Path], precision: str, variety: str = ""):
        self._precision = precision
        self._origin = {"checkpoint": str(files[0].absolute())} if files else {}  # for people; loading needs no name
        name = f"{content_hash(files)[:40]}-{packed_layout(precision)}{variety}-{VERSION}.safetensors"
        self.path = cache_root() / "packed" / name
        self._made: dict[str, PackedLinear] = {}
        self._stored: dict[str, StoredTensor] = {}
        sweep(self.path.parent)
        try:
            self._stored = _load(self.path)
        except CheckpointError as error:
            warn(f"{error}; it is made anew")
        except OSError:
            pass
        else:
            mark_used(self.path, A_DAY)  # kept checkpoints know its time

    def linear(
        self, name: str, shape: tuple[int, int], make: Callable[[], PackedLinear], precision: str = ""
    ) -> PackedLinear:
        """The layer ``name``, with weights of ``shape``: mapped from the file if stored, else made, for ``save``.

        precision  "": the file's
        """
        balanced = f"{name}.input_factors" in self._stored and self._stored[f"{name}.input_factors"].shape != (0,)
        shapes = packed_shapes(*shape, precision or self._precision, balanced)
        stored = {field: self._stored.get(f"{name}.{field}") for field in shapes}
        arrays = {field: tensor.array() for field, tensor in stored.items() if tensor is not None}
        if {field: array.shape for field, array in arrays.items()} == shapes:
            return PackedLinear(shape[0], shape[1], **arrays)
        self._made[name] = made = make()
        return made

    @property
    def is_whole(self) -> bool:
        """Whether nothing had to be made."""
        return not self._made

    def save(self) -> None:
        """Write the layers that were made: under another name first, so that no reader meets half a file."""
        if not self._made:
            return
        tensors = {
            f"{name}.{field}": NewTensor(_TYPES[array.dtype.name], array.shape, partial(np.asarray, array))
            for name, packed in self._made.items()
            for field, array in packed.arrays().items()
        }
        tensors[_DIGEST] = NewTensor("I8", (_DIGEST_BYTES,), lambda: np.zeros(_DIGEST_BYTES, np.int8))

        def write(stream: BinaryIO) -> None:
            write_tensors(stream, tensors, metadata=self._origin)
            stream.flush()
            stream.seek(-_DIGEST_BYTES, os.SEEK_END)
            stream.write(_file_digest(partial(FileIO, stream.name), stream.tell()))

        with contextlib.suppress(OSError):
            make_folder(self.path.parent)
            write_whole(self.path, write)
            remove_unused("packed", self.path)
        self._made = {}


def _load(path: Path) -> dict[str, StoredTensor]:
    """The arrays of a file; CheckpointError for one that is not trusted or damaged, OSError where there is none."""
    opened = partial(open_trusted, path, 1)
    try:
        with opened() as stream:
            data = map_opened(stream, path)
        whole = data[-_DIGEST_BYTES:] == _file_digest(opened, max(len(data) - _DIGEST_BYTES, 0))
        stored = parse(data, str(path))
        del stored[_DIGEST]
    except NotTrusted:
        raise CheckpointError(f"packed weights in the cache, {path}, may have been written by others") from None
    except (CheckpointError, KeyError):
        whole = False
    if not whole:
        raise CheckpointError(f"packed weights in the cache, {path}, are damaged")
    return stored


def _file_digest(opened: Callable[[], FileIO], size: int) -> bytes:
    """The digest of a file's first ``size`` bytes: all but its last array, which holds it."""
    return _digest([opened], [size], _sums)
