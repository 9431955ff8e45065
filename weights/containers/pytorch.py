"""PyTorch's files of tensors (pytorch_model.bin), in the zip form and the older stream: mapped, nothing executed.

The zip has the pickle of a state dict in NAME/data.pkl and each storage, not compressed, in NAME/data/KEY; the stream
is five pickles (magic number, version, machine, state dict, keys), then each storage's count and bytes. Sizes, offsets
and strides are checked against the file before anything is allocated.

Only the opcodes that tensors need are parsed. Python's own unpickler is not used, so nothing of a pickle can be called,
imported or given attributes: the names in GLOBALS stand for themselves, REDUCE knows four of them, a trainer's options
become a dict, anything else is refused.
"""

import math
import struct
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import shorten
from fastattn.weights.containers.safetensors import HIGHEST_RANK, TYPES, StoredTensor, nonzero_product
from fastattn.weights.containers.zip_archive import MAGIC, MOST_SHARING, ZipError, list_members, packed_bytes
from fastattn.weights.folder import Folder

LONGEST = 1 << 21  # bytes of one pickle, some 15,000 tensors; an opcode of one byte may take a hundred of memory
FILE_SHARE = 64  # or this part of a file: a large model's checkpoint may hold vocabularies too
HIGHEST_PROTOCOL = 5
LONGEST_LINE = 256
LONGEST_INTEGER = 16  # bytes
LONGEST_KEY = 256  # characters of a storage's name, which is a number from 0 in torch.save's files
# Class of a storage -> safetensors' name of its elements' type.
STORAGES = {
    "torch.FloatStorage": "F32", "torch.HalfStorage": "F16", "torch.BFloat16Storage": "BF16",
    "torch.DoubleStorage": "F64", "torch.BoolStorage": "BOOL", "torch.ByteStorage": "U8", "torch.CharStorage": "I8",
    "torch.ShortStorage": "I16", "torch.IntStorage": "I32", "torch.LongStorage": "I64",
}  # fmt: skip
DTYPES = tuple(f"torch.{name}" for name in "float32 float16 bfloat16 float64 bool uint8 int8 int16 int32 int64".split())


class PickleError(Exception):
    """A fault in a file of torch.save; the message does not name the file."""


@dataclass(frozen=True)
class Global:
    """A global name in a pickle; never imported."""

    name: str


@dataclass(frozen=True)
class Storage:
    """An array of ``count`` numbers of a type of safetensors.TYPES; its bytes are stored elsewhere."""

    dtype: str
    key: str
    count: int


@dataclass(frozen=True)
class TensorView:
    """A tensor as a view of a storage; offset and strides in elements. Not yet checked against the storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Namespace(dict):
    """The attributes of an argparse.Namespace."""


class Opaque:
    """An object whose contents do not matter, such as a number of NumPy's among a trainer's records."""


class Stream:
    """Bytes with a position, from which pickles are read; ``storages`` has the storages that they name, by key.

    file_size  of the whole file, if the bytes are part of one
    """

    def __init__(self, data: memoryview, file_size: int = 0) -> None:
        self.data, self.position = data, 0
        self.longest = max(LONGEST, (file_size or len(data)) // FILE_SHARE)
        self.storages: dict[str, Storage] = {}

    def take(self, count: int) -> memoryview:
        """The next ``count`` bytes, not copied; PickleError if there are fewer."""
        if not 0 <= count <= len(self.data) - self.position:
            raise PickleError(f"it should have {count} bytes from byte {self.position} on, has {len(self.data)} in all")
        self.position += count
        return self.data[self.position - count : self.position]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        line, end, _ = bytes(self.data[self.position : self.position + LONGEST_LINE]).partition(b"\n")
        if not end:
            raise PickleError(f"a name should end within {LONGEST_LINE} bytes")
        self.position += len(line) + 1
        return _decoded(line)


def unpickle(stream: Stream) -> Any:
    """The object of the pickle at the stream's position; PickleError for one with other types than these.

    None, bool, int, float, str, tuple, list, dict with keys of str or int, Global, Storage, TensorView, Namespace and
    Opaque. The object may contain itself: do not print, hash or compare it.
    """
    return _Machine(stream).run()


class _Machine:
    """Stack, marked stacks below it, and memo, as Python's pickletools describes them."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.begin = stream.position
        self.gone_through = 0  # the number of items in REDUCE's arguments

    def run(self) -> Any:
        begin = self.begin
        while (code := bytes(self.stream.take(1))) != b".":
            if code not in OPCODES:
                raise PickleError(f"its pickle at byte {begin} has the opcode {code!r}, which no tensor needs")
            OPCODES[code](self)
            if self.stream.position - begin > self.stream.longest:
                raise PickleError(f"its pickle at byte {begin} should have at most {self.stream.longest} bytes")
        return self.pop()

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack:
            raise PickleError("its pickle lacks an operand")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            raise PickleError(f"its pickle fills or changes something that is no {kind.__name__}")
        return self.stack[-1]

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def pop_mark(self) -> list[Any]:
        if not self.below:
            raise PickleError("its pickle lacks a mark")
        items, self.stack = self.stack, self.below.pop()
        return items

    def protocol(self) -> None:
        version = self.stream.number("<B")
        if version > HIGHEST_PROTOCOL:
            raise PickleError(f"its pickle's protocol should be at most {HIGHEST_PROTOCOL}, is {version}")

    def text(self, form: str) -> None:
        self.push(_decoded(self.stream.take(self.stream.number(form))))

    def integer(self, form: str) -> None:
        """Push an integer, which is preceded by its number of bytes."""
        count = self.stream.number(form)
        if count > LONGEST_INTEGER:
            raise PickleError(f"its pickle has an integer of {count} bytes")
        self.push(int.from_bytes(self.stream.take(count), "little", signed=True))

    def get(self, form: str) -> None:
        number = self.stream.number(form)
        if number not in self.memo:
            raise PickleError("its pickle refers to what it has not given")
        self.push(self.memo[number])

    def put(self, number: int) -> None:
        value = self.pop()
        self.push(value)
        self.memo[number] = value

    def tuple_of(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(items)))

    def append(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        if len(items) % 2:
            raise PickleError("its pickle has a key without a value")
        _set_items(target, list(zip(items[::2], items[1::2])))

    def find(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise PickleError("its pickle names something without a name")
        dotted = f"{module}.{name}"
        if dotted not in GLOBALS:
            raise PickleError(f"its pickle names {shorten(dotted)}, which no tensor needs; nothing of it was run")
        self.push(Global(dotted))

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if type(function) is Global and function.name in OPAQUE:
            self.push(Opaque())
            return
        if type(function) is not Global or function.name not in CALLS or type(arguments) is not tuple:
            raise PickleError("its pickle calls what is no function on tensors")
        call, least, most = CALLS[function.name]
        if not least <= len(arguments) <= most:
            raise PickleError(f"its pickle gives {function.name} {len(arguments)} arguments")
        # A memo entry of any length is repeated in two bytes; torch.save passes each argument only once.
        self.gone_through += sum(len(value) for value in arguments if type(value) in (list, tuple))
        if self.gone_through > self.stream.position - self.begin:
            raise PickleError("its pickle goes through one list again and again, which no tensor needs")
        self.push(call(*arguments, *(None,) * (most - len(arguments))))

    def new_object(self) -> None:
        arguments, kind = self.pop(), self.pop()
        if type(kind) is not Global or kind.name != NAMESPACE or type(arguments) is not tuple or arguments:
            raise PickleError("its pickle makes what is no tensor and no options")
        self.push(Namespace())

    def build(self) -> None:
        """Attributes: a Namespace's, or a state dict's, its modules' versions, which are ignored."""
        attributes = self.pop()
        if self.stack and type(self.stack[-1]) is Opaque:
            return
        if type(attributes) is not dict:
            raise PickleError("its pickle has attributes that are no dict")
        if self.stack and type(self.stack[-1]) is Namespace:
            self.stack[-1].update(attributes)
        else:
            self.top(dict)

    def persistent(self) -> None:
        """A storage: ("storage", class, key, device, count), and in the older stream a view, which is None."""
        match self.pop():
            case ("storage", Global(name=name), str(key), str(_), int(count), *rest) if name in STORAGES and (
                type(count) is int and count >= 0 and rest in ([], [None]) and len(key) <= LONGEST_KEY
            ):
                storage = Storage(STORAGES[name], key, count)
                if self.stream.storages.setdefault(key, storage) != storage:
                    raise PickleError(f"its storage {shorten(key)} is given with two types or sizes")
                self.push(storage)
            case _:
                raise PickleError("its pickle has a persistent id that is no storage's")


def _decoded(data: bytes | memoryview) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise PickleError("its pickle has text that is not UTF-8") from None


def _set_items(target: dict, pairs: list[tuple[Any, Any]]) -> None:
    for key, value in pairs:
        if type(key) not in (str, int):  # nested tuples could take for ever to hash
            raise PickleError("its pickle has a key that is no text and no integer")
        target[key] = value


def _ordered_dict(pairs: Any) -> dict:
    target: dict[str | int, Any] = {}
    if pairs is not None:
        if type(pairs) is not list or not all(type(pair) in (list, tuple) and len(pair) == 2 for pair in pairs):
            raise PickleError("its pickle has an OrderedDict of what are no pairs")
        _set_items(target, pairs)
    return target


def _size(sizes: Any) -> tuple[int, ...]:
    if type(sizes) not in (list, tuple) or not all(type(size) is int and size >= 0 for size in sizes):
        raise PickleError("its pickle has a tensor whose sizes or strides are no tuple of sizes")
    return tuple(sizes)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, grad: Any, hooks: Any, flags: Any) -> TensorView:
    if type(storage) is not Storage or type(offset) is not int or offset < 0:
        raise PickleError("its pickle has a tensor without a storage, or without an offset in it")
    if type(grad) is not bool or type(hooks) is not dict or hooks or (flags is not None and flags != {}):
        raise PickleError("its pickle has a tensor with hooks or flags")
    shape, strides = _size(shape), _size(strides)
    if len(shape) != len(strides):
        raise PickleError(f"its pickle has a tensor of {len(shape)} sizes and {len(strides)} strides")
    return TensorView(storage, offset, shape, strides)


def _parameter(tensor: Any, grad: Any, hooks: Any) -> TensorView:
    if type(tensor) is not TensorView or type(grad) is not bool or type(hooks) is not dict or hooks:
        raise PickleError("its pickle has a parameter that is no tensor, or has hooks")
    return tensor


# Name -> the function, its fewest and its most arguments; missing ones are None.
CALLS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "collections.OrderedDict": (_ordered_dict, 0, 1),
    "torch.Size": (_size, 1, 1),
    "torch._utils._rebuild_tensor_v2": (_tensor, 6, 7),
    "torch._utils._rebuild_parameter": (_parameter, 3, 3),
}
NAMESPACE = "argparse.Namespace"
# What makes NumPy's numbers and arrays: a trainer's records of its progress have some. None is made.
OPAQUE = frozenset(
    ("_codecs.encode", "numpy.dtype", "numpy.ndarray")
    + tuple(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar"))
)
GLOBALS = frozenset((*CALLS, *STORAGES, *DTYPES, NAMESPACE)) | OPAQUE
OPCODES: dict[bytes, Callable[[_Machine], object]] = {
    b"\x80": _Machine.protocol,
    b"\x95": lambda m: m.stream.take(8),  # a length, for readers that read ahead
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"J": lambda m: m.push(m.stream.number("<i")),
    b"K": lambda m: m.push(m.stream.number("<B")),
    b"M": lambda m: m.push(m.stream.number("<H")),
    b"G": lambda m: m.push(m.stream.number(">d")),
    b"\x8a": lambda m: m.integer("<B"),
    b"\x8b": lambda m: m.integer("<I"),
    b"X": lambda m: m.text("<I"),
    b"\x8c": lambda m: m.text("<B"),
    b"\x8d": lambda m: m.text("<Q"),
    b"U": lambda m: m.text("<B"),  # Python 2's strings
    b"T": lambda m: m.text("<I"),
    b"(": _Machine.mark,
    b")": lambda m: m.push(()),
    b"]": lambda m: m.push([]),
    b"}": lambda m: m.push({}),
    b"t": lambda m: m.push(tuple(m.pop_mark())),
    b"\x85": lambda m: m.tuple_of(1),
    b"\x86": lambda m: m.tuple_of(2),
    b"\x87": lambda m: m.tuple_of(3),
    b"a": lambda m: m.append([m.pop()]),
    b"e": lambda m: m.append(m.pop_mark()),
    b"s": lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    b"u": lambda m: m.set_items(m.pop_mark()),
    b"q": lambda m: m.put(m.stream.number("<B")),
    b"r": lambda m: m.put(m.stream.number("<I")),
    b"\x94": lambda m: m.put(len(m.memo)),
    b"h": lambda m: m.get("<B"),
    b"j": lambda m: m.get("<I"),
    b"c": lambda m: m.find(m.stream.line(), m.stream.line()),
    b"\x93": lambda m: m.find(*[m.pop(), m.pop()][::-1]),
    b"R": _Machine.reduce,
    b"\x81": _Machine.new_object,
    b"b": _Machine.build,
    b"Q": _Machine.persistent,
}


STREAM_MAGIC = 0x1950A86A20F9469CFC6C
STREAM_VERSION = 1001

Find = Callable[[Storage], memoryview]


@dataclass
class TrainerFile:
    """A trainer's checkpoint. ``entries`` is a dict that may contain itself: do not print, hash or compare it."""

    entries: dict[Any, Any]
    where: str
    size: int
    find: Find

    def tensors(self, *parts: str) -> dict[str, StoredTensor]:
        """The tensors of the state dicts under ``parts``, by PART.NAME; CheckpointError for other entries."""
        try:
            states: dict[str, Any] = {f"{part}.": self.entries.get(part) for part in parts}
            if not all(type(state) is dict for state in states.values()):
                raise PickleError(f"it should hold a state dict, tensors by name each as {' and '.join(parts)}")
            views = {start + name: view for start, state in states.items() for name, view in _views(state)}
            return _stored_tensors(views, self.find, self.where, self.size)
        except PickleError as error:
            raise CheckpointError(f"{self.where}: {error}") from None


def read_whole(folder: Folder, name: str) -> TrainerFile:
    """A trainer's checkpoint, a dict with state dicts among its entries; raises CheckpointError."""
    data, where = folder.read(name), folder.where(name)
    entries, find = _unpickled(data, where)
    if type(entries) is not dict:
        raise CheckpointError(f"{where}: it should hold a dict of options and tensors")
    return TrainerFile(entries, where, len(data), find)


def parse(data: memoryview, where: str) -> dict[str, StoredTensor]:
    """The tensors of a file's bytes; raises CheckpointError for anything but a state dict of dense tensors."""
    state, find = _unpickled(data, where)
    try:
        return _stored_tensors(dict(_views(state)), find, where, len(data))
    except PickleError as error:
        raise CheckpointError(f"{where}: {error}") from None


def _unpickled(data: memoryview, where: str) -> tuple[Any, Find]:
    try:
        return _read_zip(data) if data[:4] == MAGIC else _read_stream(data)
    except PickleError as error:
        raise CheckpointError(f"{where}: {error}") from None


def _views(state: Any) -> Iterable[tuple[str, TensorView]]:
    if type(state) is not dict or {*map(type, state)} - {str} or {*map(type, state.values())} - {TensorView}:
        raise PickleError("it should hold a state dict, tensors by name, and nothing else")
    return state.items()


def _stored_tensors(views: dict[str, TensorView], find: Find, where: str, size: int) -> dict[str, StoredTensor]:
    tensors, by_view = {}, dict[TensorView, StoredTensor]()
    for name, view in views.items():
        if not name.isprintable():
            raise PickleError(f"a tensor's name should be printable, is {shorten(name)}")
        if view not in by_view:  # one that has several names is one
            by_view[view] = _stored(name, view, find(view.storage), where, size)
        tensors[name] = by_view[view]
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
    if count and any(size > 1 and stride != dense for size, stride, dense in zip(shape, view.strides, contiguous)):
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
        content = _member(data, entry)
        if len(content) != storage.count * TYPES[storage.dtype][0]:
            raise PickleError(
                f"its member {shorten(entry.filename)} should hold {storage.count} {storage.dtype}, has"
                f" {len(content)} bytes"
            )
        return content

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
    state = unpickle(stream)
    storages = stream.storages
    keys = unpickle(stream)
    is_list = type(keys) is list and all(type(key) is str for key in keys)
    if not is_list or len(keys) != len(storages) or set(keys) != set(storages):
        raise PickleError("its list of storages does not fit its tensors")
    contents = {}
    for key in keys:
        count = stream.number("<q")
        if count != storages[key].count:
            raise PickleError(f"its storage {shorten(key)} should have {storages[key].count} numbers, has {count}")
        contents[key] = stream.take(count * TYPES[storages[key].dtype][0])
    if stream.position != len(data):
        raise PickleError(f"{len(data) - stream.position} bytes follow its last storage")

    return state, lambda storage: contents[storage.key]
