"""Files of arrays in the cache folder: what was made of a checkpoint's files once, for later processes to map.

A file is named by a hash of what it was made of, so that it is never stale; mapped read-only, so that processes share
its pages. Before use its digest is checked, and that nobody else may have written it. A cache folder that cannot be
read or written costs only time.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fastattn.atomic_files import is_trusted, make_folder, write_whole
from fastattn.cache_folder import cache_root, mark_used
from fastattn.caller_warnings import warn
from fastattn.errors import CheckpointError
from fastattn.weights.containers.safetensors import NewTensor, StoredTensor, parse, write_tensors
from fastattn.weights.folder import map_file
from fastattn.worker_threads import map_in_threads

VERSION = 1  # of what ``kept_arrays`` keeps; increased when the contents change
WORTHWHILE = 1 << 16  # bytes: what smaller files are made into is made as quickly as it is found
_PIECE, _BLOCK = 1 << 23, 1 << 18  # bytes that one thread hashes, and reads at a time
_DIGEST, _DIGEST_BYTES = "digest", 32  # the file's last array: int8, which write_tensors puts at the end
_WORDS = 4096  # of 8 bytes, for each sum
_TYPES = {"float32": "F32", "uint16": "BF16", "int8": "I8", "int32": "I32"}


def content_hash(files: Sequence[Path]) -> str:
    """SHA-256 over the sizes of the files and the SHA-256 of every piece of them.

    They are read, not mapped, so that the hashed bytes do not count as this process's memory.
    """
    sizes = [file.stat().st_size for file in files]
    return _digest(files, sizes, lambda block: block).hex()


def _digest(files: Sequence[Path], sizes: list[int], hashed: Callable[[memoryview], bytes | memoryview]) -> bytes:
    """SHA-256 over the sizes, and the SHA-256 of every piece of the first ``sizes`` bytes of the files.

    hashed  block -> the bytes to hash
    """

    def hash_piece(piece: tuple[Path, int, int]) -> bytes:
        file, at, size = piece
        digest, room = hashlib.sha256(), memoryview(bytearray(_BLOCK))
        with file.open("rb", buffering=0) as stream:
            stream.seek(at)
            for start in range(at, min(at + _PIECE, size), _BLOCK):
                digest.update(hashed(room[: stream.readinto(room[: size - start])]))
        return digest.digest()

    pieces = [(file, at, size) for file, size in zip(files, sizes) for at in range(0, size, _PIECE)]
    digests = map_in_threads(hash_piece, pieces, os.cpu_count() or 1)
    return hashlib.sha256(repr(sizes).encode() + b"".join(digests)).digest()


def _sums(block: memoryview) -> bytes:
    """Sums of each run of words, then the remaining bytes: enough to detect disk errors, at the speed of memory."""
    whole = len(block) // (8 * _WORDS) * (8 * _WORDS)
    return np.frombuffer(block[:whole], "<u8").reshape(-1, _WORDS).sum(axis=1, dtype="<u8").tobytes() + block[whole:]


def kept_arrays(
    sources: Iterable[bytes | memoryview], kind: str, origin: str, make: Callable[[], Mapping[str, np.ndarray]]
) -> Mapping[str, np.ndarray]:
    """The arrays that ``make`` makes of these bytes and of nothing else: found in the cache folder, or made, and kept.

    kind    what they are, in one word; ``make`` of one kind gives arrays of the same names and types
    origin  the path of the file that they are of: for people
    """
    digest, size = hashlib.sha256(), 0
    for source in sources:
        digest.update(len(source).to_bytes(8, "little"))
        digest.update(source)
        size += len(source)
    if size < WORTHWHILE:
        return make()
    path = cache_root() / "packed" / f"{digest.hexdigest()[:40]}-{kind}-{VERSION}.safetensors"
    stored = load_kept(path)
    if stored:
        return {name: tensor.array() for name, tensor in stored.items()}
    arrays = make()
    store(path, arrays, {"checkpoint": os.path.abspath(origin)})
    return arrays


def load_kept(path: Path) -> dict[str, StoredTensor]:
    """The arrays of a kept file, which counts as used now; {} if there is none, or, with a warning, a damaged one."""
    try:
        stored = _load(path)
    except CheckpointError as error:
        warn(f"{error}; it is made anew")
        return {}
    except OSError:
        return {}
    mark_used(path)
    return stored


def store(path: Path, arrays: Mapping[str, np.ndarray], origin: Mapping[str, str]) -> None:
    """Write a kept file: under another name first, so that no reader meets half a file."""
    tensors = {
        name: NewTensor(_TYPES[array.dtype.name], array.shape, partial(np.asarray, array))
        for name, array in arrays.items()
    }
    tensors[_DIGEST] = NewTensor("I8", (_DIGEST_BYTES,), lambda: np.zeros(_DIGEST_BYTES, np.int8))

    def write(stream: BinaryIO) -> None:
        write_tensors(stream, tensors, metadata=origin)
        stream.flush()
        stream.seek(-_DIGEST_BYTES, os.SEEK_END)
        stream.write(_file_digest(Path(stream.name)))

    with contextlib.suppress(OSError):
        make_folder(path.parent)
        write_whole(path, write)


def _load(path: Path) -> dict[str, StoredTensor]:
    """The arrays of a file, {} if there is none; CheckpointError for one that is not trusted or damaged."""
    if not path.exists():
        return {}
    if not is_trusted(path):
        raise CheckpointError(f"packed weights in the cache, {path}, may have been written by others")
    try:
        data = map_file(path)
        whole = data[-_DIGEST_BYTES:] == _file_digest(path)
        stored = parse(data, str(path))
        del stored[_DIGEST]
    except (CheckpointError, KeyError):
        whole = False
    if not whole:
        raise CheckpointError(f"packed weights in the cache, {path}, are damaged")
    return stored


def _file_digest(path: Path) -> bytes:
    """The digest of a file without its last array, which holds it."""
    return _digest([path], [max(path.stat().st_size - _DIGEST_BYTES, 0)], _sums)
