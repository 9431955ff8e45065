"""What loading a checkpoint has found out, kept in the cache folder: later processes need not find it out again.

That is the checkpoint as an exporter read it, and what its model asked of the tensors: packed layers, norms, tables. An
array that lies in a mapped file, one of the checkpoint's or that of the packed weights, is kept as its place there; the
others are in the kept file itself. It serves as long as these files, and the modules that read them, have the sizes and
times that they had, those that nobody can set among them; nothing else of them is looked at, and where one has changed,
everything is read anew.

A kept file is trusted as packed weights are: nobody else may have written it, and it has a digest. One that is damaged
or of another version is passed over. en-pt is read in 120 ms, and found again in 5.
"""

import contextlib
import hashlib
import io
import os
import pickle
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.layers.parameters import NeededTensors
from fastattn.loading.loaded_model import Loading
from fastattn.spec.checkpoint import Checkpoint
from fastattn.system.atomic_files import make_folder, open_trusted, write_whole
from fastattn.system.cache_folder import A_DAY, cache_root, mark_used, remove_unused
from fastattn.weights.folder import FileMap, map_file, map_opened

VERSION = 1  # of the file's format
SETTLED = 2_000_000_000  # ns; no file system's times are coarser: what is older has not changed since without a trace
MOST_FILES = 250  # of a checkpoint's folder; one that has more is used for something else too
_FIELDS = ("spec", "input", "precision", "format", "details", "shortlist", "headless")
_HEADER = struct.Struct("<16sQQ")  # _MAGIC, bytes of the arrays, bytes of the rest, which is followed by a digest
_MAGIC, _DIGEST_BYTES, _ALIGNMENT = b"fastattn kept\0\0\0", 32, 64

# A file's name, size, times of modification and of change in ns, and number.
Status = tuple[str, int, int, int, int]


def load(path: Path, precision: str, use: str, build: Callable[[Checkpoint, Loading], None]) -> None:
    """Have ``build`` make a model of the checkpoint at ``path``: as it was kept, else as it is read, to be kept then.

    use  what it is made for: others may ask for other tensors
    Raises what ``fastattn.weights.read`` raises, and what ``build`` does.
    """
    statuses = _statuses(path)
    if statuses is None:
        build(_read(path), Loading())
        return
    place = repr((os.path.abspath(path), precision, use, __file__)).encode("utf-8", "surrogatepass")
    file = cache_root() / "packed" / f"{hashlib.sha256(place).hexdigest()[:40]}-{VERSION}.kept"
    kept = _find(file, statuses)
    if kept is not None:
        with contextlib.suppress(KeyError):  # a tensor that was not asked for when they were kept
            build(*kept)
            for used in filter(None, (file, kept[1].packed)):
                mark_used(used, A_DAY)  # of the packed weights, whose digest the next process checks again
            if path.parent == cache_root() / "checkpoints":
                mark_used(path)
            return
    settled = _are_older(statuses, time.time_ns())
    checkpoint, loading = _read(path), Loading()
    build(checkpoint, loading)
    if settled and statuses == _statuses(path) and (not path.is_dir() or _knows(statuses, checkpoint.files)):
        with contextlib.suppress(OSError):
            _keep(file, checkpoint, loading, statuses)


def _read(path: Path) -> Checkpoint:
    from fastattn.weights import read  # with what all exporters need

    return read(path)


def _statuses(path: Path) -> list[Status] | None:
    """Of a file, or of all in a folder and in the folders there; None: there is none, or there are too many."""
    try:
        if not path.is_dir():
            return [_status("", path.stat())]
        statuses = list(_below(str(path), levels=2))
    except (OSError, ValueError):
        return None
    return sorted(statuses) if len(statuses) <= MOST_FILES else None


def _knows(statuses: list[Status], files: Iterable[Path]) -> bool:
    """Whether all these files are among those of the statuses: one that lies deeper may change unseen."""
    return {Path(name) for name, *_ in statuses}.issuperset(files)


def _below(folder: str, levels: int) -> Iterator[Status]:
    """At most one more than MOST_FILES of a folder."""
    with os.scandir(folder) as entries:
        for _, entry in zip(range(MOST_FILES + 1), entries):
            if not entry.is_dir():
                yield _status(entry.path, entry.stat())
            elif levels > 1:
                yield from _below(entry.path, levels - 1)


def _status(name: str, status: os.stat_result) -> Status:
    return name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _are_older(statuses: list[Status], moment: int) -> bool:
    return moment - max((time for status in statuses for time in status[2:4]), default=0) > SETTLED


def _readers() -> list[Status]:
    """The modules on which it depends what is read."""
    from fastattn import weights

    package = os.path.dirname(os.path.dirname(__file__))
    flat = [os.path.join(package, room) for room in ("system", "spec", "ops", "loading", "text", "layers", "models")]
    folders = [*flat, *weights.__path__]
    found = []
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    found.append(_status(entry.path, entry.stat()))
                elif folder not in flat and entry.is_dir():
                    folders.append(entry.path)
    return sorted(found)


def _layouts(precisions: Iterable[str]) -> dict[str, str]:
    """Of packed weights, on this CPU."""
    from fastattn.ops.cpu.packing import packed_layout  # once there is something to map

    return {precision: packed_layout(precision) for precision in precisions}


def _find(file: Path, statuses: list[Status]) -> tuple[Checkpoint, Loading] | None:
    """What was kept of a checkpoint whose files have these statuses; None: nothing that serves."""
    try:
        with open_trusted(file, 1) as opened:
            arrays, rest = _parts(map_opened(opened, file))
        stream = io.BytesIO(rest)
        found = _Unpickler(stream, ()).load()
        if found["statuses"] != statuses or found["readers"] != _readers():
            return None
        if found["layouts"] != _layouts(found["layouts"]):
            return None
        packed = Path(found["packed"][0])
        with open_trusted(packed, 1) as opened:
            if _status(str(packed), os.fstat(opened.fileno())) != found["packed"]:
                return None
            weights = map_opened(opened, packed)
        maps = [arrays, *(weights if name == str(packed) else map_file(Path(name)) for name in found["mapped"])]
        fields, files, tensors, layers = _Unpickler(stream, maps).load()
    except (OSError, CheckpointError, LookupError, ValueError, TypeError, AttributeError, ImportError, EOFError):
        return None
    except pickle.UnpicklingError:
        return None
    checkpoint = Checkpoint(tensors=tensors, files=tuple(map(Path, files)), **fields)
    return checkpoint, Loading(NeededTensors({}, layers), known=True, packed=packed)


def _keep(file: Path, checkpoint: Checkpoint, loading: Loading, statuses: list[Status]) -> None:
    """Write what ``_find`` finds, unless it would take more room than the checkpoint's files. Raises OSError.

    Nor is it kept where a module that reads was changed since it, perhaps, was imported.
    """
    readers = _readers()
    if loading.packed is None or not _are_older(readers, sys.modules["fastattn"]._imported_at):
        return
    arrays = _Arrays([loading.packed, *checkpoint.files])
    fields = {name: getattr(checkpoint, name) for name in _FIELDS}
    needed = loading.needed
    contents = arrays.pickled((fields, [str(path) for path in checkpoint.files], needed.tensors, needed.layers))
    if arrays.size > sum(path.stat().st_size for path in checkpoint.files):
        return
    conditions = {
        "statuses": statuses,
        "readers": readers,
        "layouts": _layouts(precision for _, precision in needed.layers),
        "packed": _status(str(loading.packed), loading.packed.stat()),
        "mapped": [str(path) for path in arrays.paths],
    }
    rest = pickle.dumps(conditions, pickle.HIGHEST_PROTOCOL) + contents
    head = _HEADER.pack(_MAGIC, arrays.size, len(rest))
    pieces = [head.ljust(_ALIGNMENT, b"\0"), *arrays.pieces, rest]

    def write(stream: BinaryIO) -> None:
        for piece in pieces:
            stream.write(piece)
        stream.write(_digest(memoryview(b"".join(pieces))))

    make_folder(file.parent)
    write_whole(file, write)
    remove_unused("packed", file)


def _parts(data: memoryview) -> tuple[memoryview, memoryview]:
    """(the arrays, the rest) of a kept file's bytes; CheckpointError for one that is damaged or of anything else."""
    if len(data) > _ALIGNMENT:
        magic, size, length = _HEADER.unpack(data[: _HEADER.size])
        end = _ALIGNMENT + size + length
        if magic == _MAGIC and len(data) == end + _DIGEST_BYTES and data[end:] == _digest(data[:end]):
            return data[_ALIGNMENT : _ALIGNMENT + size], data[_ALIGNMENT + size : end]
    raise CheckpointError("not a kept checkpoint")


def _digest(data: memoryview) -> bytes:
    """Of the sums of each 32 KB, which detect disk errors at the speed of memory, and of what remains."""
    whole = len(data) // 32_768 * 32_768
    sums = np.frombuffer(data[:whole], "<u8").reshape(-1, 4096).sum(axis=1, dtype="<u8")
    return hashlib.sha256(sums.tobytes() + data[whole:]).digest()


class _Arrays:
    """Where the arrays of pickled objects are: in files that are mapped, else in ``pieces``, of ``size`` bytes.

    paths  of the mapped files
    """

    def __init__(self, paths: Sequence[Path]):
        self.paths = list(dict.fromkeys(paths))
        self.pieces: list[bytes] = []
        self.size = 0
        self._places: dict[int, tuple[Any, ...]] = {}
        self._arrays: list[np.ndarray] = []  # so that the keys of _places stay theirs

    def pickled(self, contents: object) -> bytes:
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = self._place  # type: ignore[method-assign]
        pickler.dump(contents)
        return stream.getvalue()

    def _place(self, value: object) -> tuple[Any, ...] | None:
        """(file, offset, type, shape, strides) of an array; file 0 is the kept one. None: no array."""
        if not isinstance(value, np.ndarray):
            return None
        if id(value) not in self._places:
            self._arrays.append(value)
            self._places[id(value)] = self._mapped(value) or self._stored(value)
        return self._places[id(value)]

    def _mapped(self, array: np.ndarray) -> tuple[Any, ...] | None:
        owner: Any = array
        while isinstance(owner, np.ndarray | memoryview):
            owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
        if not isinstance(owner, FileMap) or owner.path not in self.paths or not array.size:
            return None
        start = np.frombuffer(owner, np.uint8).ctypes.data
        return self.paths.index(owner.path) + 1, array.ctypes.data - start, array.dtype.str, array.shape, array.strides

    def _stored(self, array: np.ndarray) -> tuple[Any, ...]:
        array = np.ascontiguousarray(array)
        offset, data = self.size, array.tobytes()
        self.pieces.append(data + bytes(-len(data) % _ALIGNMENT))
        self.size += len(self.pieces[-1])
        return 0, offset, array.dtype.str, array.shape, array.strides


class _Unpickler(pickle.Unpickler):
    """Reads plain data, classes of fastattn's own data, and arrays from ``maps``."""

    def __init__(self, stream: BinaryIO, maps: Sequence[memoryview]):
        super().__init__(stream)
        self._maps = maps
        self._known: dict[tuple[Any, ...], np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.startswith("fastattn.") else None
        if not (isinstance(found, type) and "__dataclass_fields__" in vars(found)):
            raise pickle.UnpicklingError(f"{module}.{name} is none of a checkpoint's classes")
        return found

    def persistent_load(self, place: tuple[Any, ...]) -> np.ndarray:
        if place not in self._known:
            file, offset, dtype, shape, strides = place
            data = self._maps[file]
            array = np.ndarray(shape, dtype, data, offset, strides) if 0 not in shape else np.empty(shape, dtype)
            self._known[place] = array
        return self._known[place]
