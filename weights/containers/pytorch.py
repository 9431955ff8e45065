"""PyTorch's files of tensors (pytorch_model.bin), in the zip form and the older stream: mapped, nothing executed.

The zip has the pickle of a state dict in NAME/data.pkl and each storage, not compressed, in NAME/data/KEY; the stream
is five pickles (magic number, version, machine, state dict, keys), then each storage's count and bytes. Sizes, offsets
and strides are checked against the file before anything is allocated.
"""

import math
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import shorten
from fastattn.weights.containers.safetensors import HIGHEST_RANK, TYPES, StoredTensor, nonzero_product
from fastattn.weights.containers.torch_pickle import PickleError, Storage, Stream, TensorView, unpickle
from fastattn.weights.containers.zip_archive import MAGIC, MOST_SHARING, ZipError, list_members, packed_bytes
from fastattn.weights.folder import Folder

STREAM_MAGIC = 0x1950A86A20F9469CFC6C
STREAM_VERSION = 1001

Find = Callable[[Storage], memoryview]


def read_tensors(folder: Folder, name: str) -> dict[str, StoredTensor]:
    return parse(folder.read(name), folder.where(name))


@dataclass
class TrainerFile:
    """A trainer's checkpoint: its ``entries``, a dict that may contain itself: do not print, hash or compare it."""

    entries: dict[Any, Any]
    where: str
    size: int
    find: Find

    def tensors(self, *parts: str) -> dict[str, StoredTensor]:
        """The tensors of the state dicts ``parts`` in it, by PART.NAME; raises CheckpointError for anything else."""
        try:
            states: dict[str, Any] = {f"{part}.": self.entries.get(part) for part in parts}
            if not all(type(state) is dict for state in states.values()):
                raise PickleError(f"it should hold a state dict, tensors by name each as {' and '.join(parts)}")
            named = {start + name: view for start, state in states.items() for name, view in _views(state)}
            return _stored_tensors(named, self.find, self.where, self.size)
        except PickleError as error:
            raise CheckpointError(f"{self.where}: {error}") from None


def read_whole(folder: Folder, name: str) -> TrainerFile:
    """A trainer's checkpoint, whose state dicts are entries among others; raises CheckpointError."""
    data, where = folder.read(name), folder.where(name)
    whole, find = _unpickled(data, where)
    if type(whole) is not dict:
        raise CheckpointError(f"{where}: it should hold a dict of options and tensors")
    return TrainerFile(whole, where, len(data), find)


def parse(data: memoryview, where: str) -> dict[str, StoredTensor]:
    """The tensors of a file's bytes; raises CheckpointError for anything but a state dict of dense tensors."""
    state, find = _unpickled(data, where)
    try:
        if type(state) is not dict:
            raise PickleError("it should hold a state dict, tensors by name, and nothing else")
        return _stored_tensors(dict(_views(state)), find, where, len(data))
    except PickleError as error:
        raise CheckpointError(f"{where}: {error}") from None


def _unpickled(data: memoryview, where: str) -> tuple[Any, Find]:
    try:
        return _read_zip(data) if data[:4] == MAGIC else _read_stream(data)
    except PickleError as error:
        raise CheckpointError(f"{where}: {error}") from None


def _views(state: dict[Any, Any]) -> Iterable[tuple[str, TensorView]]:
    if not all(type(name) is str and type(value) is TensorView for name, value in state.items()):
        raise PickleError("it should hold a state dict, tensors by name, and nothing else")
    return state.items()


def _stored_tensors(named: dict[str, TensorView], find: Find, where: str, size: int) -> dict[str, StoredTensor]:
    tensors, made = {}, dict[TensorView, StoredTensor]()
    for name, view in named.items():
        if not name.isprintable():
            raise PickleError(f"a tensor's name should be printable, is {shorten(name)}")
        if view not in made:  # one that has several names is one
            made[view] = _stored(name, view, find(view.storage), where, size)
        tensors[name] = made[view]
    total = sum(math.prod(tensor.shape) * TYPES[tensor.dtype][0] for tensor in tensors.values())
    if total > MOST_SHARING * size:
        raise PickleError(f"its tensors take {total} bytes, more than {MOST_SHARING} times the file's")
    return tensors


def _stored(name: str, view: TensorView, data: memoryview, where: str, file_size: int) -> StoredTensor:
    storage, shape = view.storage, view.shape
    if len(shape) > HIGHEST_RANK:
        raise PickleError(f"{name} should have at most {HIGHEST_RANK} dimensions, has {len(shape)}")
    count = math.prod(shape)
    end = view.offset
    if count:
        end += 1 + sum((size - 1) * stride for size, stride in zip(shape, view.strides))
    # More elements than the storage has: a stride of 0 repeats them, and takes more memory than the file's size.
    if end > storage.count or count > storage.count or (not count and nonzero_product(shape) > file_size):
        raise PickleError(
            f"{name} should lie within the {storage.count} numbers of its storage; its sizes are"
            f" {shorten(list(shape))}, its strides {shorten(list(view.strides))}, its offset {view.offset}"
        )
    item = TYPES[storage.dtype][0]
    strides = None
    contiguous = (math.prod(shape[i + 1 :]) for i in range(len(shape)))
    if count and any(size > 1 and stride != one for size, stride, one in zip(shape, view.strides, contiguous)):
        # The stride of an axis of length one is not used and may be any number.
        strides = tuple(stride * item if size > 1 else 0 for size, stride in zip(shape, view.strides))
    return StoredTensor(storage.dtype, shape, data[view.offset * item : end * item], f"{where}: {name}", strides)


def _read_zip(data: memoryview) -> tuple[Any, Find]:
    try:
        entries = list_members(data)
    except ZipError as error:
        raise PickleError(f"not a sound zip archive: {error}") from None
    members = {entry.filename: entry for entry in entries}
    pickles = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1 or len(members) != len(entries):
        raise PickleError("it should have one member NAME/data.pkl, and each member once")
    top = pickles[0].removesuffix("data.pkl")
    order = members.get(f"{top}byteorder")
    if order is not None and bytes(_member(data, order)) != b"little":
        raise PickleError("its byte order should be little")

    def find(storage: Storage) -> memoryview:
        entry = members.get(f"{top}data/{storage.key}")
        if entry is None:
            raise PickleError(f"it lacks the member {shorten(f'{top}data/{storage.key}')}")
        found = _member(data, entry)
        if len(found) != storage.count * TYPES[storage.dtype][0]:
            raise PickleError(
                f"its member {shorten(entry.filename)} should hold {storage.count} {storage.dtype}, has"
                f" {len(found)} bytes"
            )
        return found

    return unpickle(Stream(_member(data, members[pickles[0]]), len(data))), find


def _member(data: memoryview, entry: zipfile.ZipInfo) -> memoryview:
    """A member's bytes, not copied."""
    name = shorten(entry.filename)
    if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.file_size != entry.compress_size:
        raise PickleError(f"its member {name} should be stored as it is, is compressed or encrypted")
    content = packed_bytes(data, entry)
    if content is None:
        raise PickleError(f"its member {name} is not where the archive's list has it (is the file complete?)")
    if len(content) < entry.file_size:
        raise PickleError(f"its member {name} should have {entry.file_size} bytes, the file ends before")
    return content


def _read_stream(data: memoryview) -> tuple[Any, Find]:
    stream = Stream(data)
    if data[:1] != b"\x80" or unpickle(stream) != STREAM_MAGIC or unpickle(stream) != STREAM_VERSION:
        raise PickleError("neither of torch.save's forms: no zip archive, and no stream of version 1001")
    machine = unpickle(stream)
    if type(machine) is not dict or machine.get("little_endian") is not True:
        raise PickleError("its byte order should be little")
    named = unpickle(stream)
    storages = stream.storages
    keys = unpickle(stream)
    is_list = type(keys) is list and all(type(key) is str for key in keys)
    if not is_list or len(keys) != len(storages) or set(keys) != set(storages):
        raise PickleError("its list of storages does not fit its tensors")
    found = {}
    for key in keys:
        count = stream.number("<q")
        if count != storages[key].count:
            raise PickleError(f"its storage {shorten(key)} should have {storages[key].count} numbers, has {count}")
        found[key] = stream.take(count * TYPES[storages[key].dtype][0])
    if stream.position != len(data):
        raise PickleError(f"{len(data) - stream.position} bytes follow its last storage")

    return named, lambda storage: found[storage.key]
