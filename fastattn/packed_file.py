"""Packed weights kept in the cache: the first load of a checkpoint writes them, later ones map them.

One file a checkpoint, precision and layout, named by the content of what was packed, so that it can be neither stale
nor another's; mapped read-only, its pages are shared by all processes. A cache that cannot be read or written costs
time and nothing else.
"""

import contextlib
import hashlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from fastattn.cache import cache_root
from fastattn.errors import CheckpointError
from fastattn.weights.safetensors_file import NewTensor, parse, write_tensors

LAYOUT = 1  # of the files; counted up when what is in them changes
_PIECE = 1 << 23  # bytes that one thread hashes at a time
_TYPES = {"float32": "F32", "uint16": "BF16", "int8": "I8", "int32": "I32"}


def content_hash(parts: Iterable[memoryview]) -> str:
    """SHA-256 over the SHA-256 of every piece of every part, and of the parts' sizes."""
    pieces = [part[i : i + _PIECE] for part in parts for i in range(0, max(len(part), 1), _PIECE)]
    with ThreadPoolExecutor() as pool:
        digests = pool.map(lambda piece: hashlib.sha256(piece).digest(), pieces)
        return hashlib.sha256(b"".join(digests) + repr([len(piece) for piece in pieces]).encode()).hexdigest()


class PackedFile:
    """The packed arrays of one checkpoint by layer.

    name  of the file: whatever decides its content
    """

    def __init__(self, name: str):
        self.path = cache_root() / "packed" / f"{name}-{LAYOUT}.safetensors"
        self._made: dict[str, Mapping[str, np.ndarray]] = {}
        self._stored = {}
        with contextlib.suppress(OSError, ValueError, CheckpointError), self.path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._stored = parse(memoryview(mapped), str(self.path))

    def arrays(self, layer: str, fields: Iterable[str], make: Callable[[], Mapping[str, np.ndarray]]):
        """The arrays of ``layer`` by field, mapped from the file, or made and kept for ``save``."""
        stored = {field: self._stored.get(f"{layer}.{field}") for field in fields}
        if None not in stored.values():
            return {field: tensor.array() for field, tensor in stored.items()}
        self._made[layer] = made = make()
        return made

    def save(self) -> None:
        """Write what was made, if anything was: under another name first, so that no reader meets half a file."""
        if not self._made:
            return
        tensors = {
            f"{layer}.{field}": NewTensor(_TYPES[array.dtype.name], array.shape, lambda array=array: array)
            for layer, fields in self._made.items()
            for field, array in fields.items()
        }
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.stem, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as stream:
                    write_tensors(stream, tensors)
                os.replace(temporary, self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        self._made = {}
