"""ONNX files: a graph's float32 initialisers by name, a recurrent node's by PyTorch's names. No graph is run.

A file is protocol buffers (onnx.proto): a field is one integer of its number and kind, then a value. Unknown fields are
skipped. A recurrent node has initialisers W [directions, G H, inputs], R [directions, G H, H] and B [directions, 2 G H]
of its G gates: input, output, forget, cell in an LSTM; update, reset, new in a GRU. The initialisers become the tensors
CELL.weight_ih_l0, weight_hh_l0, bias_ih_l0 and bias_hh_l0 (with ``_reverse`` for the second direction), whose gates are
in the order of ``spec.recurrent`` CELLS. CELL is the cell's name in CELLS, so that a mapping cannot confuse the two
variants of a GRU, which have equal weights.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.weights.containers import ByteReader
from fastattn.weights.containers.json_file import shorten
from fastattn.weights.containers.safetensors import HIGHEST_RANK, StoredTensor, nonzero_product

# Kinds of fields: an integer, eight bytes, a number of bytes and the bytes, four bytes.
VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
LONGEST_VARINT = 10  # bytes
# Numbers of fields, by message.
MODEL_GRAPH, GRAPH_NODE, GRAPH_INITIALIZER = 7, 1, 5
NODE_INPUT, NODE_OPERATION, NODE_ATTRIBUTE = 1, 4, 5
ATTRIBUTE_NAME, ATTRIBUTE_INTEGER, ATTRIBUTE_TEXT = 1, 3, 4
TENSOR_DIMS, TENSOR_TYPE, TENSOR_FLOATS, TENSOR_NAME, TENSOR_RAW, TENSOR_EXTERNAL = 1, 2, 4, 8, 9, 13
FLOAT = 1  # number of a tensor's type
DIRECTIONS = {"forward": 1, "bidirectional": 2}
# The numbers of a node's inputs: rows, W, R, B, lengths, first h; of an LSTM also first c and peepholes.
W, R, B, PEEPHOLES = 1, 2, 3, 7
# Attributes that a node may have besides hidden_size -> the values that are supported.
ATTRIBUTES: dict[str, Sequence[Any]] = {
    "direction": [*DIRECTIONS], "layout": [0], "input_forget": [0], "linear_before_reset": [0, 1]
}  # fmt: skip
GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}  # PyTorch's order of ONNX's gates

Value = int | memoryview


def parse(data: memoryview, where: str) -> dict[str, StoredTensor]:
    """The tensors of a file by name; CheckpointError for a malformed file or an unsupported recurrent node."""
    graphs = [value for number, value in _fields(data, where) if number == MODEL_GRAPH]
    if len(graphs) != 1 or not isinstance(graphs[0], memoryview):
        raise CheckpointError(f"{where}: should be an ONNX model with one graph, has {len(graphs)}")
    tensors: dict[str, StoredTensor] = {}
    recurrent_nodes = []
    for number, value in _fields(graphs[0], where):
        if number == GRAPH_INITIALIZER:
            tensors |= _read_initializer(_bytes(value, where), where, len(data))
        elif number == GRAPH_NODE:
            node = list(_fields(_bytes(value, where), where))
            operations = [_text(text, where) for field, text in node if field == NODE_OPERATION]
            recurrent_nodes += [(name, node) for name in operations[-1:] if name in GATES]
    if len(recurrent_nodes) > 1:
        raise CheckpointError(f"{where}: its graph has {len(recurrent_nodes)} recurrent nodes, one is supported")
    for operation, node in recurrent_nodes:
        tensors = _name_as_pytorch(operation, node, tensors, where)
    return tensors


def _fields(message: memoryview, where: str) -> Iterator[tuple[int, Value]]:
    """(number, value) of each field of a message."""
    reader = ByteReader(message, where)
    while reader.remaining:
        number, kind = divmod(_varint(reader), 8)
        if kind == VARINT:
            yield number, _varint(reader)
        elif kind == BYTES:
            yield number, reader.take(_varint(reader), "a field")
        elif kind in (EIGHT, FOUR):
            yield number, reader.take(8 if kind == EIGHT else 4, "a number")
        else:
            raise reader.error(f"a field of kind {kind}, which ONNX files have none of")


def _varint(reader: ByteReader) -> int:
    value = 0
    for i in range(LONGEST_VARINT):
        byte = reader.number("B", "an integer")
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value
    raise reader.error(f"an integer of more than {LONGEST_VARINT} bytes")


def _bytes(value: Value, where: str) -> memoryview:
    """``value``; CheckpointError unless it is bytes."""
    if isinstance(value, int):
        raise CheckpointError(f"{where}: a field should be bytes, is the number {value}")
    return value


def _text(value: Value, where: str) -> str:
    text = bytes(_bytes(value, where)).decode(errors="replace")
    if not text.isprintable():
        raise CheckpointError(f"{where}: a name should be printable, is {shorten(text)}")
    return text


def _integers(value: Value, where: str) -> list[int]:
    """The integers of a repeated field, which is packed or a single integer."""
    if isinstance(value, int):
        return [value]
    reader, integers = ByteReader(value, where), []
    while reader.remaining:
        integers.append(_varint(reader))
    return integers


def _read_initializer(message: memoryview, where: str, file_size: int) -> dict[str, StoredTensor]:
    """{name: tensor} of an initialiser; {} if the initialiser is not float32."""
    shape: list[int] = []
    name, dtype, is_external = "", 0, False
    floats: list[memoryview] = []
    for number, value in _fields(message, where):
        if number == TENSOR_DIMS:
            shape += _integers(value, where)
        elif number == TENSOR_NAME:
            name = _text(value, where)
        elif number == TENSOR_TYPE and isinstance(value, int):
            dtype = value
        elif number in (TENSOR_FLOATS, TENSOR_RAW):
            floats.append(_bytes(value, where))
        elif number == TENSOR_EXTERNAL:
            is_external = True
    if dtype != FLOAT:
        return {}
    if is_external:
        raise CheckpointError(f"{where}: {name} is stored in another file, which is not supported")
    size = 4 * math.prod(shape[: HIGHEST_RANK + 1])
    data = floats[0] if len(floats) == 1 else memoryview(b"".join(floats))
    if len(shape) > HIGHEST_RANK or size != len(data) or nonzero_product(tuple(shape)) > file_size:
        raise CheckpointError(
            f"{where}: {name} of sizes {shorten(shape)} should have as many floats, has {len(data)} bytes"
        )
    return {name: StoredTensor("F32", tuple(shape), data, f"{where}: {name}")}


def _name_as_pytorch(
    operation: str, node: list[tuple[int, Value]], tensors: Mapping[str, StoredTensor], where: str
) -> dict[str, StoredTensor]:
    """The tensors, with a recurrent node's initialisers as PyTorch names and orders them."""
    label, gates = f"{where}: its {operation}", len(GATES[operation])
    inputs = [_text(value, where) for field, value in node if field == NODE_INPUT]
    if any(inputs[PEEPHOLES:]):
        raise CheckpointError(f"{label} with peepholes is not supported")
    names = inputs[W : B + 1]
    if len(names) != B or not all(name in tensors and tensors[name].shape for name in names):
        raise CheckpointError(f"{label}'s weights and biases should be initialisers, are {shorten(names)}")
    units = tensors[names[R - W]].shape[-1]
    attributes = dict(_attribute(_bytes(value, where), where) for field, value in node if field == NODE_ATTRIBUTE)
    for name, value in attributes.items():
        if value not in (ATTRIBUTES | {"hidden_size": [units]}).get(name, []):
            raise CheckpointError(f"{label} with {shorten(name)} {shorten(value)} is not supported")
    count, rows = DIRECTIONS[str(attributes.get("direction", "forward"))], gates * units
    expected = {"W": (count, rows, *tensors[names[0]].shape[2:]), "R": (count, rows, units), "B": (count, 2 * rows)}
    arrays = {}
    for (letter, shape), name in zip(expected.items(), names):
        if tensors[name].shape != shape:
            raise CheckpointError(f"{label}'s {letter} should be {list(shape)}, is {list(tensors[name].shape)}")
        arrays[letter] = tensors[name].float32().reshape(count, 1 + (letter == "B"), gates, units, *shape[2:])
    cell = operation.lower()
    if cell == "gru" and not attributes.get("linear_before_reset"):
        cell = "gru_reset_before"
    result = {name: tensor for name, tensor in tensors.items() if name not in names}
    for d, suffix in enumerate(("", "_reverse")[:count]):
        (weight_ih,), (weight_hh,), (bias_ih, bias_hh) = (arrays[letter][d] for letter in "WRB")
        weights = {"weight_ih": weight_ih, "weight_hh": weight_hh, "bias_ih": bias_ih, "bias_hh": bias_hh}
        for weight_name, array in weights.items():
            name = f"{cell}.{weight_name}_l0{suffix}"
            values = array[list(GATES[operation])].reshape(rows, *array.shape[2:])
            result[name] = StoredTensor("F32", values.shape, memoryview(values).cast("B"), f"{where}: {name}")
    return result


def _attribute(message: memoryview, where: str) -> tuple[str, Any]:
    """(name, value) of a node's attribute, an integer or text; the value is "" where it has another type."""
    fields = dict(_fields(message, where))
    name = _text(fields.get(ATTRIBUTE_NAME, memoryview(b"")), where)
    if ATTRIBUTE_TEXT in fields:
        return name, _text(fields[ATTRIBUTE_TEXT], where)
    return name, fields.get(ATTRIBUTE_INTEGER, "")
