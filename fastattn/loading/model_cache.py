"""The cache of what loading a checkpoint makes, in the cache folder: later processes map it.

There are two kinds of files, see ``cache_file``. Packed weights, ``*.packed``, one file for each checkpoint, precision
and layout, have a hash of the checkpoint's bytes in their name, so that they are never stale. Read checkpoints,
``*.checkpoint``, one file for each path, precision and use, hold the checkpoint as an exporter read it, and the tensors
that its model used; arrays stay in the mapped files that have them. Such a file serves as long as ``_conditions`` are
unchanged; the checkpoint's files are not read then. en-pt is read in 120 ms, and from the cache in 5.

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

SETTLED = 2_000_000_000  # ns: no file system's times are coarser, so that a change of an older file shows in its times
LITTLE = 1 << 20  # bytes that a read checkpoint may take however small the checkpoint's files are
MOST_FILES = 250  # of a checkpoint's folder; a folder with more files serves other purposes too
_FIELDS = tuple(name for name in Checkpoint.__annotations__ if name not in ("tensors", "files"))
# Packages whose modules, like those of fastattn.weights, decide what a file holds: ops has classes of packed layers,
# encoders makes an encoder of a language model.
_READERS = ("system", "spec", "ops", "loading", "text", "layers", "models", "encoders")

# A file's name, size, times of modification and of change in ns, and number.
Status = tuple[str, int, int, int, int]


@dataclass(eq=False)
class Loading:
    """What later processes use of a loaded model.

    needed    the tensors and layers that the model used
    complete  whether an earlier process gave ``needed`` all layers
    packed    the file of the packed weights, if an earlier process wrote all of them
    """

    needed: NeededTensors = field(default_factory=NeededTensors)
    complete: bool = False
    packed: Path | None = None


def load_or_build(
    path: Path,
    precision: str,
    use: str,
    build: Callable[[Checkpoint, Loading], None],
    device: str = "cpu",
    part: str = "",
) -> None:
    """Have ``build`` make a model of the checkpoint at ``path``, which is cached or is read and then cached.

    use     names the class of the model: another class may use other tensors
    device  of the model's operations, which pack its weights
    part    of the checkpoint, see ``fastattn.weights.read``; a use always has the same
    Raises what ``fastattn.weights.read`` and ``build`` raise.
    """
    statuses = _statuses(path)
    if statuses is None:
        build(_read(path, part), Loading())
        return
    key = repr((os.path.abspath(path), precision, use, device, __file__)).encode("utf-8", "surrogatepass")
    cache_path = cache_root() / "packed" / f"{hashlib.sha256(key).hexdigest()[:40]}-{cache_file.VERSION}.checkpoint"
    cached = _find(cache_path, statuses, device)
    if cached is not None:
        with contextlib.suppress(KeyError):  # for a tensor that is not in the cache
            build(*cached)
            for file in filter(None, (cache_path, cached[1].packed)):
                mark_used(file, A_DAY)  # the next process checks the packed weights' digest again
            if path.parent == cache_root() / "checkpoints":
                mark_used(path)
            return
    settled = _are_older(statuses, time.time_ns())
    checkpoint, loading = _read(path, part), Loading()
    build(checkpoint, loading)
    # A file that is not among the statuses may change unseen: one deeper in the folder, or beside a single file, such
    # as a fairseq model's dictionary.
    watched = {Path(name) for name, *_ in statuses} if path.is_dir() else {path}
    if settled and statuses == _statuses(path) and watched.issuperset(checkpoint.files):
        with contextlib.suppress(OSError):
            _write(cache_path, checkpoint, loading, statuses, device)


def _read(path: Path, part: str) -> Checkpoint:
    from fastattn.weights import read  # with what all exporters need

    return read(path, part, later=True)


def _find(file: Path, statuses: list[Status], device: str) -> tuple[Checkpoint, Loading] | None:
    """The cached checkpoint whose files have these statuses; None: there is none that serves."""
    try:
        cached = cache_file.read(file)
        conditions, mapped = cached.load()
        packed = Path(conditions["packed"][0])
        with open_trusted(packed, 1) as opened:
            status = _status(str(packed), os.fstat(opened.fileno()))
            if conditions != _conditions(statuses, conditions["layouts"], status, device):
                return None
            weights = map_opened(opened, packed)
        cached.maps.extend(weights if name == str(packed) else map_file(Path(name)) for name in mapped)
        fields, files, tensors, layers = cached.load()
    except (OSError, CheckpointError, pickle.UnpicklingError, EOFError):  # there is none, or it is damaged
        return None
    except (LookupError, ValueError, TypeError, AttributeError, ImportError):  # of another version
        return None
    checkpoint = Checkpoint(tensors=tensors, files=tuple(map(Path, files)), **fields)
    return checkpoint, Loading(NeededTensors({}, layers), complete=True, packed=packed)


def _write(file: Path, checkpoint: Checkpoint, loading: Loading, statuses: list[Status], device: str) -> None:
    """Write the file that ``_find`` reads, unless it would take more room than the checkpoint's files. Raises OSError.

    Nothing is written if a module that decides about it may have changed after its import.
    """
    packed, needed = loading.packed, loading.needed
    if packed is None:
        return
    layouts = {precision for _, precision in needed.layers}
    conditions = _conditions(statuses, layouts, _status(str(packed), packed.stat()), device)
    if not _are_older(conditions["readers"], sys.modules["fastattn"]._imported_at):
        return
    arrays = cache_file.CachedArrays([packed, *checkpoint.files])
    fields = {name: getattr(checkpoint, name) for name in _FIELDS}
    contents = arrays.pickled((fields, [str(path) for path in checkpoint.files], needed.tensors, needed.layers))
    if arrays.size <= max(LITTLE, sum(path.stat().st_size for path in checkpoint.files)):
        head = pickle.dumps((conditions, [str(path) for path in arrays.paths]), pickle.HIGHEST_PROTOCOL)
        arrays.write(file, _origin(checkpoint.files), head + contents)


# conditions of a cached checkpoint


def _conditions(statuses: list[Status], precisions: Iterable[str], packed: Status, device: str) -> dict[str, Any]:
    """All that must be unchanged: the checkpoint's files, the modules, the layouts, the packed weights."""
    ops = backend(device)
    layouts = {precision: ops.packed_layout(precision) for precision in precisions}
    return {"statuses": statuses, "readers": _readers(), "layouts": layouts, "packed": packed}


def _statuses(path: Path) -> list[Status] | None:
    """The statuses of a file, or of all files in a folder and its folders; None: no files, or too many."""
    try:
        if not path.is_dir():
            return [_status("", path.stat())]
        statuses = list(_below(str(path), levels=2))
    except (OSError, ValueError):
        return None
    return sorted(statuses) if len(statuses) <= MOST_FILES else None


def _below(folder: str, levels: int, endings: str | tuple[str, ...] = "") -> Iterator[Status]:
    """The statuses of a folder's files with one of the endings, of MOST_FILES + 1 entries at most."""
    with os.scandir(folder) as entries:
        for _, entry in zip(range(MOST_FILES + 1), entries):
            if not entry.is_dir():
                if entry.name.endswith(endings):
                    yield _status(entry.path, entry.stat())
            elif levels > 1:
                yield from _below(entry.path, levels - 1, endings)


def _readers() -> list[Status]:
    """The statuses of the modules, and tables of names, that decide what a file holds."""
    from fastattn import weights

    package = os.path.dirname(os.path.dirname(__file__))
    statuses = [status for room in _READERS for status in _below(os.path.join(package, room), 2, ".py")]
    return sorted(statuses + [status for folder in weights.__path__ for status in _below(folder, 9, (".py", ".toml"))])


def _status(name: str, status: os.stat_result) -> Status:
    return name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _are_older(statuses: list[Status], moment: int) -> bool:
    return moment - max((time for status in statuses for time in status[2:4]), default=0) > SETTLED


# packed weights


def content_hash(files: Sequence[Path]) -> str:
    """SHA-256 over the sizes of the files and the SHA-256 of every piece of them."""
    sizes = [file.stat().st_size for file in files]
    return cache_file.file_digest([partial(FileIO, file) for file in files], sizes, lambda block: block).hex()


def _origin(files: Sequence[Path]) -> str:
    return str(files[0].absolute()) if files else ""


class PackedWeights:
    """The packed linear layers of one checkpoint in one precision; ``variety`` distinguishes further variants.

    ops  that pack them, and have a layout; None: the CPU's
    """

    def __init__(self, files: Sequence[Path], precision: str, variety: str = "", ops: Ops | None = None):
        self._precision, self._origin, self._ops = precision, _origin(files), ops or backend("cpu")
        layout = self._ops.packed_layout(precision)
        name = f"{content_hash(files)[:40]}-{layout}{variety}-{cache_file.VERSION}.packed"
        self.path = cache_root() / "packed" / name
        self._new: dict[str, dict[str, np.ndarray]] = {}
        self._has_no_room = False
        self._arrays = cache_file.CachedArrays()
        self._cached: dict[str, dict[str, np.ndarray]] = {}
        sweep(self.path.parent)
        try:
            self._cached = cache_file.read(self.path).load()
        except CheckpointError as error:
            warn(f"{error}; it is made anew")
        except OSError:
            pass
        else:
            mark_used(self.path, A_DAY)  # a cached checkpoint stores its time

    def linear(
        self, name: str, shape: tuple[int, int], make: Callable[[], PackedLinear], precision: str = ""
    ) -> PackedLinear:
        """The layer ``name``, with weights of ``shape``: mapped from the file, else made, and stored by ``save``.

        precision  "": the file's
        """
        arrays = self._cached.get(name, {})
        balanced = "input_factors" in arrays and arrays["input_factors"].shape != (0,)
        shapes = self._ops.packed_shapes(*shape, precision or self._precision, balanced)
        if {field: array.shape for field, array in arrays.items()} == shapes:
            return self._ops.packed_of(*shape, arrays)
        layer = make()
        self._new[name] = arrays = {field: self._mapped(array) for field, array in layer.arrays().items()}
        return self._ops.packed_of(*shape, arrays)

    def table(self, name: str, tensor: UnreadTensor) -> np.ndarray:
        """A table in float32: mapped from the checkpoint's file, else from this one, like a layer."""
        first: np.ndarray = tensor.read(0, 1)
        if mapping_of(first) is not None or first.itemsize * tensor.size < cache_file.LARGE:
            return tensor.float32()
        array = self._cached.get(name, {}).get("float32")
        if array is None or array.shape != tensor.shape:
            array = self._map(tensor.shape, first.dtype, tensor.rows(), tensor.float32)
            self._new[name] = {"float32": array}
        return array

    def _mapped(self, array: np.ndarray) -> np.ndarray:
        """The array; a large one mapped from a file, so that it need not stay in memory."""
        if array.nbytes < cache_file.LARGE:
            return array
        return self._map(array.shape, array.dtype, [array], lambda: array)

    def _map(
        self, shape: tuple[int, ...], dtype: np.dtype, parts: Iterable[np.ndarray], otherwise: Callable[[], np.ndarray]
    ) -> np.ndarray:
        """An array in a file; in memory where there is no room, and on Windows, where no file in use can be deleted."""
        if WINDOWS or self._has_no_room:
            return otherwise()
        try:
            return self._arrays.keep(shape, dtype, parts, self.path)
        except OSError:
            self._has_no_room = True  # mapped arrays still take the room
            self._arrays.abandon()
            self._arrays = cache_file.CachedArrays()
            return otherwise()

    @property
    def is_whole(self) -> bool:
        """Whether nothing had to be made."""
        return not self._new

    def save(self) -> None:
        """Write the new layers and those that the file had."""
        if self._new:
            contents = self._arrays.pickled(self._cached | self._new)
            with contextlib.suppress(OSError):
                self._arrays.write(self.path, self._origin, contents)
            self._new = {}

    def abandon(self) -> None:
        """Write nothing, in place of ``save``."""
        self._arrays.abandon()
