"""The cache of what loading a checkpoint makes, in the cache folder: later processes map it.

There are two kinds of files, see ``cache_file``. Packed weights, ``*.packed``, one file for each checkpoint, precision
and layout, have a hash of the checkpoint's bytes in their name, so that they are never stale. Read checkpoints,
``*.checkpoint``, one file for each path, precision and use, hold the checkpoint as an exporter read it, and the tensors
that its model used; arrays stay in the mapped files that have them. A read checkpoint is used as long as its
``_conditions`` are unchanged, in place of the checkpoint's files. en-pt is read in 120 ms, from the cache in 5.

A cache folder that cannot be read or written costs only time.
"""

import contextlib
import hashlib
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError, warn
from fastattn.layers.parameters import NeededTensors
from fastattn.loading import cache_file
from fastattn.ops import backend
from fastattn.ops.protocol import Ops, PackedLinear
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import UnreadTensor
from fastattn.system.atomic_files import WINDOWS, open_trusted, sweep
from fastattn.system.cache_folder import A_DAY, cache_root, mark_used
from fastattn.system.memory import mapping_of
from fastattn.system.records import dataclass
from fastattn.weights.folder import map_file, map_opened

# A file system's times are at most this coarse: where a file's times are older, its next change shows in them.
SETTLED_NS = 2_000_000_000
SMALL_BYTES = 1 << 20  # bytes that a read checkpoint may take however small the checkpoint's files are
MOST_FILES = 250  # of a checkpoint's folder; a folder with more files has other purposes too
_FIELDS = tuple(name for name in Checkpoint.__annotations__ if name not in ("tensors", "files"))
# Packages whose modules, like those of fastattn.weights, decide what a read checkpoint holds: ops has classes of packed
# layers, encoders makes an encoder of a language model.
_READER_PACKAGES = ("system", "spec", "ops", "loading", "text", "layers", "models", "encoders")

# A file's name, size, times of modification and of change in ns, and inode number.
Status = tuple[str, int, int, int, int]


@dataclass(eq=False)
class LoadRecord:
    """What loading a model used, which the cache keeps for later processes.

    needed       the tensors and layers that the model used
    is_cached    whether ``needed`` comes from the cache: it then has all layers from the beginning
    packed_path  the file of the packed weights, if an earlier process wrote all of them
    """

    needed: NeededTensors = field(default_factory=NeededTensors)
    is_cached: bool = False
    packed_path: Path | None = None


Builder = Callable[[Checkpoint, LoadRecord], None]  # makes the model, and notes in the record what the model uses


def load_or_build(path: Path, precision: str, use: str, build: Builder, device: str = "cpu", part: str = "") -> None:
    """Have ``build`` make a model of the checkpoint at ``path``, which comes from the cache or is read, then cached.

    use     the name of the model's class: another class may use other tensors
    device  of the model's operations, which pack its weights
    part    of the checkpoint, see ``fastattn.weights.read``; each ``use`` has one part
    Raises what ``fastattn.weights.read`` and ``build`` raise.
    """
    statuses = _statuses(path)
    if statuses is None:
        build(_read(path, part), LoadRecord())
        return
    key = repr((os.path.abspath(path), precision, use, device, __file__)).encode("utf-8", "surrogatepass")
    cache_path = cache_root() / "packed" / f"{hashlib.sha256(key).hexdigest()[:40]}-{cache_file.VERSION}.checkpoint"
    cached = _find(cache_path, statuses, device)
    if cached is not None:
        with contextlib.suppress(KeyError):  # raised for a tensor that is not in the cache
            build(*cached)
            for file in filter(None, (cache_path, cached[1].packed_path)):
                mark_used(file, A_DAY)  # the next process checks the packed weights' digest again
            if path.parent == cache_root() / "checkpoints":
                mark_used(path)
            return
    are_settled = _are_settled(statuses, time.time_ns())
    checkpoint, record = _read(path, part), LoadRecord()
    build(checkpoint, record)
    # A checkpoint is cached only if all its files have a status, which shows their changes. A file deeper in the folder
    # has none, nor has one beside a single file, such as a fairseq model's dictionary.
    watched_files = {Path(name) for name, *_ in statuses} if path.is_dir() else {path}
    if are_settled and statuses == _statuses(path) and watched_files.issuperset(checkpoint.files):
        with contextlib.suppress(OSError):
            _write(cache_path, checkpoint, record, statuses, device)


def _read(path: Path, part: str) -> Checkpoint:
    from fastattn.weights import read  # this import loads what all exporters need

    return read(path, part, later=True)


def _find(file: Path, statuses: list[Status], device: str) -> tuple[Checkpoint, LoadRecord] | None:
    """The cached checkpoint whose files have these statuses, and its record; None where none can be used."""
    try:
        cached = cache_file.read(file)
        conditions, mapped_files = cached.load()
        packed_path = Path(conditions["packed"][0])
        with open_trusted(packed_path, 1) as opened:
            status = _status(str(packed_path), os.fstat(opened.fileno()))
            if conditions != _conditions(statuses, conditions["layouts"], status, device):
                return None
            weights = map_opened(opened, packed_path)
        cached.maps.extend(weights if name == str(packed_path) else map_file(Path(name)) for name in mapped_files)
        fields, files, tensors, layers = cached.load()
    except (OSError, CheckpointError, pickle.UnpicklingError, EOFError):  # no file, or a damaged one
        return None
    except (LookupError, ValueError, TypeError, AttributeError, ImportError):  # a file of another version
        return None
    checkpoint = Checkpoint(tensors=tensors, files=tuple(map(Path, files)), **fields)
    return checkpoint, LoadRecord(NeededTensors({}, layers), is_cached=True, packed_path=packed_path)


def _write(file: Path, checkpoint: Checkpoint, record: LoadRecord, statuses: list[Status], device: str) -> None:
    """Write the file that ``_find`` reads, unless it would take more room than the checkpoint's files. Raises OSError.

    Nothing is written if a module that decides what the file holds may have changed since this process imported it.
    """
    packed_path, needed = record.packed_path, record.needed
    if packed_path is None:
        return
    precisions = {precision for _, precision in needed.layers}
    conditions = _conditions(statuses, precisions, _status(str(packed_path), packed_path.stat()), device)
    if not _are_settled(conditions["readers"], sys.modules["fastattn"]._imported_at):
        return
    arrays = cache_file.CachedArrays([packed_path, *checkpoint.files])
    fields = {name: getattr(checkpoint, name) for name in _FIELDS}
    contents = arrays.pickled((fields, [str(path) for path in checkpoint.files], needed.tensors, needed.layers))
    if arrays.size <= max(SMALL_BYTES, sum(path.stat().st_size for path in checkpoint.files)):
        head = pickle.dumps((conditions, [str(path) for path in arrays.paths]), pickle.HIGHEST_PROTOCOL)
        arrays.write(file, _origin(checkpoint.files), head + contents)


def _conditions(statuses: list[Status], precisions: Iterable[str], packed: Status, device: str) -> dict[str, Any]:
    """What must not have changed: the checkpoint's files, the modules, the layouts, the file of packed weights."""
    ops = backend(device)
    layouts = {precision: ops.packed_layout(precision) for precision in precisions}
    return {"statuses": statuses, "readers": _readers(), "layouts": layouts, "packed": packed}


def _statuses(path: Path) -> list[Status] | None:
    """The status of a file, or those of all files in a folder and its subfolders; None: no such path, or too many."""
    try:
        if not path.is_dir():
            return [_status("", path.stat())]
        statuses = list(_statuses_below(str(path), levels=2))
    except (OSError, ValueError):
        return None
    return sorted(statuses) if len(statuses) <= MOST_FILES else None


def _statuses_below(folder: str, levels: int, endings: str | tuple[str, ...] = "") -> Iterator[Status]:
    """The statuses of files with one of the endings among at most MOST_FILES + 1 entries of each folder."""
    with os.scandir(folder) as entries:
        for _, entry in zip(range(MOST_FILES + 1), entries):
            if not entry.is_dir():
                if entry.name.endswith(endings):
                    yield _status(entry.path, entry.stat())
            elif levels > 1:
                yield from _statuses_below(entry.path, levels - 1, endings)


def _readers() -> list[Status]:
    """The statuses of the modules, and tables of names, that decide what a read checkpoint holds."""
    from fastattn import weights

    root, endings = os.path.dirname(os.path.dirname(__file__)), (".py", ".toml")
    folders = [(os.path.join(root, package), 2) for package in _READER_PACKAGES]
    folders += [(folder, 9) for folder in weights.__path__]
    return sorted(status for folder, levels in folders for status in _statuses_below(folder, levels, endings))


def _status(name: str, status: os.stat_result) -> Status:
    return name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _are_settled(statuses: list[Status], moment_ns: int) -> bool:
    """Whether the files' last changes were more than SETTLED_NS before the moment."""
    return moment_ns - max((time for status in statuses for time in status[2:4]), default=0) > SETTLED_NS


# packed weights


def content_hash(files: Sequence[Path]) -> str:
    """SHA-256 over the sizes of the files and the SHA-256 of every piece of them."""
    sizes = [file.stat().st_size for file in files]
    return cache_file.file_digest([partial(FileIO, file) for file in files], sizes, lambda block: block).hex()


def _origin(files: Sequence[Path]) -> str:
    return str(files[0].absolute()) if files else ""


class PackedWeights:
    """The file of a checkpoint's packed linear layers in one precision.

    variety  distinguishes files of one checkpoint and layout whose layers differ, in the file's name
    ops      the operations that pack the layers, in their own layout; None: the CPU's
    """

    def __init__(self, files: Sequence[Path], precision: str, variety: str = "", ops: Ops | None = None):
        self._precision, self._origin, self._ops = precision, _origin(files), ops or backend("cpu")
        layout = self._ops.packed_layout(precision)
        name = f"{content_hash(files)[:40]}-{layout}{variety}-{cache_file.VERSION}.packed"
        self.path = cache_root() / "packed" / name
        self._new_layers: dict[str, dict[str, np.ndarray]] = {}  # by name, then by the field of a PackedLinear
        self._has_no_room = False
        self._arrays = cache_file.CachedArrays()
        self._cached_layers: dict[str, dict[str, np.ndarray]] = {}
        sweep(self.path.parent)
        try:
            self._cached_layers = cache_file.read(self.path).load()
        except CheckpointError as error:
            warn(f"{error}; it is made anew")
        except OSError:
            pass
        else:
            mark_used(self.path, A_DAY)  # once a day: each new time makes the read checkpoints of this file invalid

    def linear(
        self, name: str, shape: tuple[int, int], pack: Callable[[], PackedLinear], precision: str = ""
    ) -> PackedLinear:
        """The layer ``name``, with weights of ``shape``: mapped from the file, else packed, for ``save`` to store.

        precision  of the layer; "": that of the file
        """
        arrays = self._cached_layers.get(name, {})
        has_factors = "input_factors" in arrays and arrays["input_factors"].shape != (0,)
        shapes = self._ops.packed_shapes(*shape, precision or self._precision, has_factors)
        if {field: array.shape for field, array in arrays.items()} == shapes:
            return self._ops.packed_of(*shape, arrays)
        layer = pack()
        self._new_layers[name] = arrays = {field: self._mapped(array) for field, array in layer.arrays().items()}
        return self._ops.packed_of(*shape, arrays)

    def table(self, name: str, tensor: UnreadTensor) -> np.ndarray:
        """A table in float32: mapped from the checkpoint's file, else from the file of packed weights, like a layer."""
        first_row: np.ndarray = tensor.read(0, 1)
        if mapping_of(first_row) is not None or first_row.itemsize * tensor.size < cache_file.LARGE_BYTES:
            return tensor.float32()
        array = self._cached_layers.get(name, {}).get("float32")
        if array is None or array.shape != tensor.shape:
            array = self._map(tensor.shape, first_row.dtype, tensor.rows(), tensor.float32)
            self._new_layers[name] = {"float32": array}
        return array

    def _mapped(self, array: np.ndarray) -> np.ndarray:
        """The array; a large array is mapped from a file, so that it need not stay in memory."""
        if array.nbytes < cache_file.LARGE_BYTES:
            return array
        return self._map(array.shape, array.dtype, [array], lambda: array)

    def _map(
        self, shape: tuple[int, ...], dtype: np.dtype, parts: Iterable[np.ndarray], in_memory: Callable[[], np.ndarray]
    ) -> np.ndarray:
        """The array of ``parts``, in a file; in memory if the disk is full, or on Windows: it deletes no open file."""
        if WINDOWS or self._has_no_room:
            return in_memory()
        try:
            return self._arrays.map_parts(shape, dtype, parts, self.path)
        except OSError:
            self._has_no_room = True  # no file is tried again: the arrays mapped so far still take room
            self._arrays.abandon()
            self._arrays = cache_file.CachedArrays()
            return in_memory()

    @property
    def is_whole(self) -> bool:
        """Whether the file had all layers."""
        return not self._new_layers

    def save(self) -> None:
        """Write the new layers and the layers that the file already had."""
        if self._new_layers:
            contents = self._arrays.pickled(self._cached_layers | self._new_layers)
            with contextlib.suppress(OSError):
                self._arrays.write(self.path, self._origin, contents)
            self._new_layers = {}

    def abandon(self) -> None:
        """Delete the file of the arrays that were mapped so far, where ``save`` is not to be called."""
        self._arrays.abandon()
