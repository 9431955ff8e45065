"""Packed weights kept in the cache: the first load of a checkpoint writes them, later ones map them.

One file a checkpoint, precision and layout, named by the content of what was packed, so that it can be neither stale
nor another's; mapped read-only, its pages are shared by all processes. Its own digest is looked at before it is used,
and who may write to it. A cache that cannot be read or written costs time and nothing else.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fastattn.cache import cache_root, mark_used
from fastattn.errors import CheckpointError
from fastattn.kept import is_own, make_folder, sweep, write_whole
from fastattn.kernels.packing import PackedLinear, packed_layout, packed_shapes
from fastattn.sharing import share_out
from fastattn.warned import warn
from fastattn.weights.folder import map_file
from fastattn.weights.safetensors_file import NewTensor, StoredTensor, parse, write_tensors

VERSION = 5  # of the files; counted up when what is in them changes
_PIECE, _BLOCK = 1 << 23, 1 << 18  # bytes that one thread hashes, and reads at a time
_DIGEST, _WORDS = "digest", 4096  # the name of its array, and the words of 8 bytes in a block of it
_TYPES = {"float32": "F32", "uint16": "BF16", "int8": "I8", "int32": "I32"}


def content_hash(files: Sequence[Path]) -> str:
    """SHA-256 over the sizes of the files and the SHA-256 of every piece of them.

    They are read, not mapped: what is only hashed shall not count as this process's memory.
    """
    sizes = [file.stat().st_size for file in files]
    pieces = [(file, at) for file, size in zip(files, sizes) for at in range(0, size, _PIECE)]
    digests = share_out(_hash_piece, pieces, os.cpu_count() or 1)
    return hashlib.sha256(repr(sizes).encode() + b"".join(digests)).hexdigest()


def _hash_piece(piece: tuple[Path, int]) -> bytes:
    file, at = piece
    digest, block = hashlib.sha256(), bytearray(_BLOCK)
    with file.open("rb", buffering=0) as stream:
        stream.seek(at)
        for _ in range(0, _PIECE, _BLOCK):
            digest.update(memoryview(block)[: stream.readinto(block)])
    return digest.digest()


class PackedFile:
    """The packed linear layers of one checkpoint in one precision; ``variety`` tells those apart that differ beyond."""

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
            mark_used(self.path)

    def linear(self, name: str, shape: tuple[int, int], make: Callable[[], PackedLinear]) -> PackedLinear:
        """The layer ``name``, weights of ``shape``: mapped from the file if it is there, else made, for ``save``."""
        balanced = f"{name}.input_factors" in self._stored and self._stored[f"{name}.input_factors"].shape != (0,)
        shapes = packed_shapes(*shape, self._precision, balanced)
        stored = {field: self._stored.get(f"{name}.{field}") for field in shapes}
        arrays = {field: tensor.array() for field, tensor in stored.items() if tensor is not None}
        if {field: array.shape for field, array in arrays.items()} == shapes:
            return PackedLinear(shape[0], shape[1], **arrays)
        self._made[name] = made = make()
        return made

    def save(self) -> None:
        """Write what was made, if anything was: under another name first, so that no reader meets half a file."""
        if not self._made:
            return
        tensors = {
            f"{name}.{field}": NewTensor(_TYPES[array.dtype.name], array.shape, partial(np.asarray, array))
            for name, packed in self._made.items()
            for field, array in packed.arrays().items()
        }
        digest = np.frombuffer(_digest({name: tensor.values() for name, tensor in tensors.items()}), "<i4")
        tensors[_DIGEST] = NewTensor("I32", digest.shape, lambda: digest)
        with contextlib.suppress(OSError):
            make_folder(self.path.parent)
            write_whole(self.path, lambda stream: write_tensors(stream, tensors, metadata=self._origin))
        self._made = {}


def _load(path: Path) -> dict[str, StoredTensor]:
    """The arrays of a file, empty where there is none; CheckpointError for one that is not to be believed."""
    if not path.exists():
        return {}
    if not is_own(path):
        raise CheckpointError(f"packed weights in the cache, {path}, may have been written by others")
    try:
        stored = parse(map_file(path), str(path))
        kept = stored.pop(_DIGEST).array().tobytes()
        whole = kept == _digest({name: tensor.array() for name, tensor in stored.items()})
    except (CheckpointError, KeyError):
        whole = False
    if not whole:
        raise CheckpointError(f"packed weights in the cache, {path}, are damaged")
    return stored


def _digest(arrays: Mapping[str, np.ndarray]) -> bytes:
    """32 bytes of the arrays' names, types, shapes and values.

    Sums of blocks, then SHA-256 of those: what a disk or a crash does to a file is seen, at the speed of memory.
    """
    names = sorted(arrays)
    digests = share_out(lambda name: _array_digest(arrays[name]), names, os.cpu_count() or 1)
    told = [(name, arrays[name].dtype.str, arrays[name].shape, digest) for name, digest in zip(names, digests)]
    return hashlib.sha256(repr(told).encode()).digest()


def _array_digest(array: np.ndarray) -> bytes:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    words = data[: len(data) // 8 * 8].view("<u8")
    whole = len(words) // _WORDS * _WORDS
    sums = words[:whole].reshape(-1, _WORDS).sum(axis=1, dtype="<u8")
    rest = data[8 * whole :]
    return hashlib.sha256(sums.tobytes() + rest.tobytes()).digest()
