"""PyTorch's files of tensors (pytorch_model.bin), in the zip form and the older stream: mapped, nothing executed.

The zip has the pickle of a state dict in NAME/data.pkl and each storage, not compressed, in NAME/data/KEY. The stream
has five pickles (magic number, version, system, state dict, keys), then each storage's count and bytes. Sizes, offsets
and strides are checked against the file before anything is allocated.

Only the opcodes that tensors need are parsed. Python's own unpickler is not used, so nothing that a pickle names is
called, imported or given attributes: a name of GLOBALS becomes a Global, and REDUCE accepts the functions of CALLS and
OPAQUE. A trainer's options, an argparse.Namespace, become a dict. Anything else is refused.
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

# Bytes of a pickle, enough for some 15,000 tensors: an opcode of one byte may take a hundred bytes of memory.
LONGEST_PICKLE = 1 << 21
FILE_SHARE = 64  # a pickle may also have 1 / FILE_SHARE of the file's bytes: large models' files may hold vocabularies
HIGHEST_PROTOCOL = 5
LONGEST_LINE, LONGEST_INTEGER = 256, 16  # bytes
LONGEST_KEY = 256  # characters of a storage's key, which torch.save makes from a number
# Class of a storage -> safetensors' name for the type of its elements.
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
    """The dotted name of a class or function in a pickle; never imported."""

    name: str


@dataclass(frozen=True)
class Storage:
    """An array of ``count`` numbers of a type of safetensors.TYPES; its bytes are outside the pickle."""

    dtype: str
    key: str
    count: int


@dataclass(frozen=True)
class TensorView:
    """A tensor as a view of a storage, not yet checked against it; offset and strides in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Namespace(dict):
    """The attributes of an argparse.Namespace."""


class Opaque:
    """An object whose contents do not matter, such as a NumPy number in a trainer's records of progress."""


class Stream:
    """Bytes with a position, from which pickles are read; ``storages`` has the storages that the pickles name, by key.

    file_size  the size of the whole file, if the bytes are part of one
    """

    def __init__(self, data: memoryview, file_size: int = 0) -> None:
        self.data, self.position = data, 0
        self.longest_pickle = max(LONGEST_PICKLE, (file_size or len(data)) // FILE_SHARE)
        self.storages: dict[str, Storage] = {}

    def take(self, count: int) -> memoryview:
        """The next ``count`` bytes, not copied; PickleError if there are fewer."""
        if not 0 <= count <= len(self.data) - self.position:
            raise PickleError(f"it should have {count} bytes from byte {self.position} on, has {len(self.data)} in all")
        self.position += count
        return self.data[self.position - count : self.position]

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def line(self) -> str:
        line, end, _ = bytes(self.data[self.position : self.position + LONGEST_LINE]).partition(b"\n")
        if not end:
            raise PickleError(f"a name should end within {LONGEST_LINE} bytes")
        self.position += len(line) + 1
        return _decode(line)


def unpickle(stream: Stream) -> Any:
    """The object of the pickle at the stream's position; it may contain itself: do not print, hash or compare it.

    Its types are None, bool, int, float, str, tuple, list, dict with keys of str or int, Global, Storage, TensorView,
    Namespace and Opaque; PickleError where a pickle has another type.
    """
    return _Machine(stream).run()


class _Machine:
    """A pickle machine, as Python's pickletools describes it: a stack, the stacks below each mark, a memo."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.stack: list[Any] = []
        self.lower_stacks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.begin = stream.position
        self.argument_items = 0  # the number of items in all of REDUCE's list and tuple arguments

    def run(self) -> Any:
        begin, longest = self.begin, self.stream.longest_pickle
        while (code := bytes(self.stream.take(1))) != b".":
            if code not in OPCODES:
                raise PickleError(f"its pickle at byte {begin} has the opcode {code!r}, which no tensor needs")
            OPCODES[code](self)
            if self.stream.position - begin > longest:
                raise PickleError(f"its pickle at byte {begin} should have at most {longest} bytes")
        return self.pop()

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack:
            raise PickleError("its pickle lacks an operand")
        return self.stack.pop()

    def top(self, expected: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not expected:
            raise PickleError(f"its pickle fills or changes something that is no {expected.__name__}")
        return self.stack[-1]

    def mark(self) -> None:
        self.lower_stacks.append(self.stack)
        self.stack = []

    def pop_mark(self) -> list[Any]:
        if not self.lower_stacks:
            raise PickleError("its pickle lacks a mark")
        items, self.stack = self.stack, self.lower_stacks.pop()
        return items

    def protocol(self) -> None:
        version = self.stream.number("<B")
        if version > HIGHEST_PROTOCOL:
            raise PickleError(f"its pickle's protocol should be at most {HIGHEST_PROTOCOL}, is {version}")

    def push_text(self, count_layout: str) -> None:
        self.push(_decode(self.stream.take(self.stream.number(count_layout))))

    def push_integer(self, count_layout: str) -> None:
        """Push an integer, which is preceded by its number of bytes."""
        count = self.stream.number(count_layout)
        if count > LONGEST_INTEGER:
            raise PickleError(f"its pickle has an integer of {count} bytes")
        self.push(int.from_bytes(self.stream.take(count), "little", signed=True))

    def push_memo(self, layout: str) -> None:
        number = self.stream.number(layout)
        if number not in self.memo:
            raise PickleError("its pickle refers to what it has not given")
        self.push(self.memo[number])

    def set_memo(self, number: int) -> None:
        value = self.pop()
        self.push(value)
        self.memo[number] = value

    def push_tuple(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(items)))

    def append(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        if len(items) % 2:
            raise PickleError("its pickle has a key without a value")
        _set_items(target, list(zip(items[::2], items[1::2])))

    def push_global(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise PickleError("its pickle names something without a name")
        dotted = f"{module}.{name}"
        if dotted not in GLOBALS:
            raise PickleError(f"its pickle names {shorten(dotted)}, which no tensor needs; nothing of it was run")
        self.push(Global(dotted))

    def call_function(self) -> None:
        arguments, function = self.pop(), self.pop()
        if type(function) is Global and function.name in OPAQUE:
            self.push(Opaque())
            return
        if type(function) is not Global or function.name not in CALLS or type(arguments) is not tuple:
            raise PickleError("its pickle calls what is no function on tensors")
        call, fewest, most = CALLS[function.name]
        if not fewest <= len(arguments) <= most:
            raise PickleError(f"its pickle gives {function.name} {len(arguments)} arguments")
        # Two bytes of a pickle can pass a list of any length again, from the memo; torch.save passes a list only once.
        self.argument_items += sum(len(value) for value in arguments if type(value) in (list, tuple))
        if self.argument_items > self.stream.position - self.begin:
            raise PickleError("its pickle goes through one list again and again, which no tensor needs")
        self.push(call(*arguments, *(None,) * (most - len(arguments))))

    def new_object(self) -> None:
        arguments, cls = self.pop(), self.pop()
        if type(cls) is not Global or cls.name != NAMESPACE or type(arguments) is not tuple or arguments:
            raise PickleError("its pickle makes what is no tensor and no options")
        self.push(Namespace())

    def set_attributes(self) -> None:
        """Set the attributes of a Namespace; ignore those of an Opaque or a state dict (modules' versions)."""
        attributes = self.pop()
        if self.stack and type(self.stack[-1]) is Opaque:
            return
        if type(attributes) is not dict:
            raise PickleError("its pickle has attributes that are no dict")
        if self.stack and type(self.stack[-1]) is Namespace:
            self.stack[-1].update(attributes)
        else:
            self.top(dict)

    def push_storage(self) -> None:
        """Push the storage that the tuple ("storage", class, key, device, count) names; older streams append a None."""
        match self.pop():
            case ("storage", Global(name=name), str(key), str(_), int(count), *view) if name in STORAGES and (
                type(count) is int and count >= 0 and view in ([], [None]) and len(key) <= LONGEST_KEY
            ):
                storage = Storage(STORAGES[name], key, count)
                if self.stream.storages.setdefault(key, storage) != storage:
                    raise PickleError(f"its storage {shorten(key)} is given with two types or sizes")
                self.push(storage)
            case _:
                raise PickleError("its pickle has a persistent id that is no storage's")


def _decode(data: bytes | memoryview) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise PickleError("its pickle has text that is not UTF-8") from None


def _set_items(target: dict, pairs: list[tuple[Any, Any]]) -> None:
    for key, value in pairs:
        if type(key) not in (str, int):  # not nested tuples, which could take for ever to hash
            raise PickleError("its pickle has a key that is no text and no integer")
        target[key] = value


def _ordered_dict(pairs: Any) -> dict:
    target: dict[str | int, Any] = {}
    if pairs is not None:
        if type(pairs) is not list or not all(type(pair) in (list, tuple) and len(pair) == 2 for pair in pairs):
            raise PickleError("its pickle has an OrderedDict of what are no pairs")
        _set_items(target, pairs)
    return target


def _torch_size(sizes: Any) -> tuple[int, ...]:
    if type(sizes) not in (list, tuple) or not all(type(size) is int and size >= 0 for size in sizes):
        raise PickleError("its pickle has a tensor whose sizes or strides are no tuple of sizes")
    return tuple(sizes)


def _tensor_view(storage: Any, offset: Any, shape: Any, strides: Any, grad: Any, hooks: Any, flags: Any) -> TensorView:
    if type(storage) is not Storage or type(offset) is not int or offset < 0:
        raise PickleError("its pickle has a tensor without a storage, or without an offset in it")
    if type(grad) is not bool or type(hooks) is not dict or hooks or (flags is not None and flags != {}):
        raise PickleError("its pickle has a tensor with hooks or flags")
    shape, strides = _torch_size(shape), _torch_size(strides)
    if len(shape) != len(strides):
        raise PickleError(f"its pickle has a tensor of {len(shape)} sizes and {len(strides)} strides")
    return TensorView(storage, offset, shape, strides)


def _parameter(tensor: Any, grad: Any, hooks: Any) -> TensorView:
    if type(tensor) is not TensorView or type(grad) is not bool or type(hooks) is not dict or hooks:
        raise PickleError("its pickle has a parameter that is no tensor, or has hooks")
    return tensor


# Name of a function -> (what is called in its stead, fewest arguments, most); arguments that a pickle omits are None.
CALLS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "collections.OrderedDict": (_ordered_dict, 0, 1),
    "torch.Size": (_torch_size, 1, 1),
    "torch._utils._rebuild_tensor_v2": (_tensor_view, 6, 7),
    "torch._utils._rebuild_parameter": (_parameter, 3, 3),
}
NAMESPACE = "argparse.Namespace"
# Functions that make the NumPy numbers and arrays of a trainer's records of progress. None is called.
OPAQUE = frozenset(
    ("_codecs.encode", "numpy.dtype", "numpy.ndarray")
    + tuple(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar"))
)
GLOBALS = frozenset((*CALLS, *STORAGES, *DTYPES, NAMESPACE)) | OPAQUE
OPCODES: dict[bytes, Callable[[_Machine], object]] = {
    b"\x80": _Machine.protocol,
    b"\x95": lambda m: m.stream.take(8),  # the length of a frame, for readers that read ahead
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"J": lambda m: m.push(m.stream.number("<i")),
    b"K": lambda m: m.push(m.stream.number("<B")),
    b"M": lambda m: m.push(m.stream.number("<H")),
    b"G": lambda m: m.push(m.stream.number(">d")),
    b"\x8a": lambda m: m.push_integer("<B"),
    b"\x8b": lambda m: m.push_integer("<I"),
    b"X": lambda m: m.push_text("<I"),
    b"\x8c": lambda m: m.push_text("<B"),
    b"\x8d": lambda m: m.push_text("<Q"),
    b"U": lambda m: m.push_text("<B"),  # U and T: Python 2's strings
    b"T": lambda m: m.push_text("<I"),
    b"(": _Machine.mark,
    b")": lambda m: m.push(()),
    b"]": lambda m: m.push([]),
    b"}": lambda m: m.push({}),
    b"t": lambda m: m.push(tuple(m.pop_mark())),
    b"\x85": lambda m: m.push_tuple(1),
    b"\x86": lambda m: m.push_tuple(2),
    b"\x87": lambda m: m.push_tuple(3),
    b"a": lambda m: m.append([m.pop()]),
    b"e": lambda m: m.append(m.pop_mark()),
    b"s": lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    b"u": lambda m: m.set_items(m.pop_mark()),
    b"q": lambda m: m.set_memo(m.stream.number("<B")),
    b"r": lambda m: m.set_memo(m.stream.number("<I")),
    b"\x94": lambda m: m.set_memo(len(m.memo)),
    b"h": lambda m: m.push_memo("<B"),
    b"j": lambda m: m.push_memo("<I"),
    b"c": lambda m: m.push_global(m.stream.line(), m.stream.line()),
    b"\x93": lambda m: m.push_global(*[m.pop(), m.pop()][::-1]),
    b"R": _Machine.call_function,
    b"\x81": _Machine.new_object,
    b"b": _Machine.set_attributes,
    b"Q": _Machine.push_storage,
}
STREAM_MAGIC, STREAM_VERSION = 0x1950A86A20F9469CFC6C, 1001

Loader = Callable[[Storage], memoryview]  # from a storage to its bytes in the file


@dataclass
class TrainerFile:
    """A trainer's checkpoint, a file. ``entries`` may contain itself: do not print, hash or compare it."""

    entries: dict[Any, Any]
    where: str
    file_size: int
    load: Loader

    def tensors(self, *keys: str) -> dict[str, StoredTensor]:
        """The tensors of the entries ``keys``, by KEY.NAME; CheckpointError for an entry that is no state dict."""
        try:
            states: dict[str, Any] = {f"{key}.": self.entries.get(key) for key in keys}
            if not all(type(state) is dict for state in states.values()):
                raise PickleError(f"it should hold a state dict, tensors by name each as {' and '.join(keys)}")
            views = {prefix + name: view for prefix, state in states.items() for name, view in _named_views(state)}
            return _stored_tensors(views, self.load, self.where, self.file_size)
        except PickleError as error:
            raise CheckpointError(f"{self.where}: {error}") from None


def read_trainer_file(folder: Folder, name: str) -> TrainerFile:
    """A trainer's checkpoint, a dict with state dicts among its entries; CheckpointError for anything else."""
    data, where = folder.read(name), folder.where(name)
    entries, load = _unpickle_file(data, where)
    if type(entries) is not dict:
        raise CheckpointError(f"{where}: it should hold a dict of options and tensors")
    return TrainerFile(entries, where, len(data), load)


def parse(data: memoryview, where: str) -> dict[str, StoredTensor]:
    """The tensors of a file's bytes; raises CheckpointError for anything but a state dict of dense tensors."""
    state, load = _unpickle_file(data, where)
    try:
        return _stored_tensors(dict(_named_views(state)), load, where, len(data))
    except PickleError as error:
        raise CheckpointError(f"{where}: {error}") from None


def _unpickle_file(data: memoryview, where: str) -> tuple[Any, Loader]:
    try:
        return _read_zip(data) if data[:4] == MAGIC else _read_stream(data)
    except PickleError as error:
        raise CheckpointError(f"{where}: {error}") from None


def _named_views(state: Any) -> Iterable[tuple[str, TensorView]]:
    if type(state) is not dict or {*map(type, state)} - {str} or {*map(type, state.values())} - {TensorView}:
        raise PickleError("it should hold a state dict, tensors by name, and nothing else")
    return state.items()


def _stored_tensors(views: dict[str, TensorView], load: Loader, where: str, file_size: int) -> dict[str, StoredTensor]:
    tensors, by_view = {}, dict[TensorView, StoredTensor]()
    for name, view in views.items():
        if not name.isprintable():
            raise PickleError(f"a tensor's name should be printable, is {shorten(name)}")
        if view not in by_view:  # a tensor of several names is made once
            by_view[view] = _stored_tensor(name, view, load(view.storage), where, file_size)
        tensors[name] = by_view[view]
    total = sum(math.prod(tensor.shape) * TYPES[tensor.dtype][0] for tensor in tensors.values())
    if total > MOST_SHARING * file_size:
        raise PickleError(f"its tensors take {total} bytes, more than {MOST_SHARING} times the file's")
    return tensors


def _stored_tensor(name: str, view: TensorView, data: memoryview, where: str, file_size: int) -> StoredTensor:
    storage, shape = view.storage, view.shape
    if len(shape) > HIGHEST_RANK:
        raise PickleError(f"{name} should have at most {HIGHEST_RANK} dimensions, has {len(shape)}")
    count, end = math.prod(shape), view.offset
    if count:
        end += 1 + sum((size - 1) * stride for size, stride in zip(shape, view.strides))
    # A stride of 0 repeats elements: a tensor of more elements than its storage could take more memory than the file.
    if end > storage.count or count > storage.count or (not count and nonzero_product(shape) > file_size):
        raise PickleError(
            f"{name} should lie within the {storage.count} numbers of its storage; its sizes are"
            f" {shorten(list(shape))}, its strides {shorten(list(view.strides))}, its offset {view.offset}"
        )
    item_size, strides = TYPES[storage.dtype][0], None
    dense_strides = (math.prod(shape[i + 1 :]) for i in range(len(shape)))
    if count and any(size > 1 and stride != dense for size, stride, dense in zip(shape, view.strides, dense_strides)):
        # The stride of an axis of length one is not used and may be any number.
        strides = tuple(stride * item_size if size > 1 else 0 for size, stride in zip(shape, view.strides))
    content = data[view.offset * item_size : end * item_size]
    return StoredTensor(storage.dtype, shape, content, f"{where}: {name}", strides)


def _read_zip(data: memoryview) -> tuple[Any, Loader]:
    try:
        entries = list_members(data)
    except ZipError as error:
        raise PickleError(f"not a sound zip archive: {error}") from None
    members = {entry.filename: entry for entry in entries}
    pickles = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1 or len(members) != len(entries):
        raise PickleError("it should have one member NAME/data.pkl, and each member once")
    folder = pickles[0].removesuffix("data.pkl")
    byte_order = members.get(f"{folder}byteorder")
    if byte_order is not None and bytes(_member_bytes(data, byte_order)) != b"little":
        raise PickleError("its byte order should be little")

    def load(storage: Storage) -> memoryview:
        entry = members.get(f"{folder}data/{storage.key}")
        if entry is None:
            raise PickleError(f"it lacks the member {shorten(f'{folder}data/{storage.key}')}")
        content = _member_bytes(data, entry)
        if len(content) != storage.count * TYPES[storage.dtype][0]:
            raise PickleError(
                f"its member {shorten(entry.filename)} should hold {storage.count} {storage.dtype}, has"
                f" {len(content)} bytes"
            )
        return content

    return unpickle(Stream(_member_bytes(data, members[pickles[0]]), len(data))), load


def _member_bytes(data: memoryview, entry: zipfile.ZipInfo) -> memoryview:
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


def _read_stream(data: memoryview) -> tuple[Any, Loader]:
    stream = Stream(data)
    if data[:1] != b"\x80" or unpickle(stream) != STREAM_MAGIC or unpickle(stream) != STREAM_VERSION:
        raise PickleError("neither of torch.save's forms: no zip archive, and no stream of version 1001")
    system = unpickle(stream)
    if type(system) is not dict or system.get("little_endian") is not True:
        raise PickleError("its byte order should be little")
    state, storages = unpickle(stream), stream.storages
    keys = unpickle(stream)
    are_texts = type(keys) is list and all(type(key) is str for key in keys)
    if not are_texts or len(keys) != len(storages) or set(keys) != set(storages):
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
