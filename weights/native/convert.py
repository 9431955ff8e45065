"""Any Checkpoint -> fastattn's own folder (``native``), with matrices as float32, bfloat16, int8 or int4."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint, Text
from fastattn.spec.quantized import GROUP_INPUTS, PROJECTIONS, Tensor, as_float32, form_of, unread
from fastattn.spec.rounding import bfloat16_bits, round_groups, round_on_read, row_multipliers
from fastattn.spec.text_spec import EncoderText
from fastattn.weights import native
from fastattn.weights.containers.json_file import to_plain
from fastattn.weights.containers.safetensors import NewTensor, write_tensors
from fastattn.weights.native import FILES, FORMAT, STORED_SEPARATELY, VERSION, Config

# Precision of a checkpoint -> bytes of a matrix's element.
WIDTHS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "int8": 1}

Progress = Callable[[int, int], None]


def write(
    path: Path,
    checkpoint: Checkpoint,
    precision: str,
    progress: Progress | None = None,
    factors: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a checkpoint to an empty folder, its matrices at ``precision``, other tensors as float32.

    bfloat16 rounds to nearest, ties to even. int8 rounds each row to multiples of its greatest magnitude / 127. int4
    rounds linear layers by groups of 32 inputs; tables, the projection and layers without whole groups become int8.
    Matrices that are int8 already do not change, nor do matrices of 4 bits for int4; for int4, blocks of 5 to 8 bits
    become int8 with a scale for each group of 32 inputs.
    progress  called with (bytes of weights written, bytes in all)
    factors   {tensor's name: factors of its inputs}, which divide its columns first; see quantized.QuantizedTensor
    The files are on disk on return. Raises OSError, and CheckpointError where values to round to int8 or int4 are not
    finite.
    """
    if checkpoint.pictures is not None:
        raise CheckpointError("models of pictures have no form in this format: they are loaded from where they are")
    tensors, tied_names = _new_tensors(checkpoint, precision, factors or {})
    dense = checkpoint.text.dense if isinstance(checkpoint.text, EncoderText) else ()
    files, contents = _text_files(checkpoint.text)
    origin = {"converted from": f"{checkpoint.format or 'memory'}, {checkpoint.precision}"}
    details = origin | checkpoint.details  # an earlier conversion's origin stays
    details.pop("layout version", None)
    text = to_plain(checkpoint.text, STORED_SEPARATELY[type(checkpoint.text)])
    fields: dict[str, Any] = {"files": files, "tied": tied_names, "details": details}
    fields["dense"] = tuple(activation for _, _, activation in dense)
    fields["copied"] = checkpoint.shortlist is not None and checkpoint.shortlist.copied
    config = Config(FORMAT, VERSION, precision, checkpoint.spec, text, **fields)
    contents["config.json"] = json.dumps(to_plain(config), ensure_ascii=False, indent=2).encode()
    for name, content in contents.items():
        with open(path / name, "xb") as stream:
            stream.write(content)
            _sync(stream)
    with open(path / native.WEIGHTS, "xb") as stream:
        write_tensors(stream, tensors, progress)
        _sync(stream)


def weight_bytes(checkpoint: Checkpoint, precision: str) -> int:
    """The bytes of the weights in a file of this precision, without the header; tied weights count once."""
    if precision == "int4":
        return sum(tensor.size for tensor in _new_tensors(checkpoint, precision, {})[0].values())
    tensors: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in checkpoint.tensors.items():
        tensors.setdefault(id(tensor), (name, tensor))  # a tied tensor is stored under its first name
    matrices = [tensor for name, tensor in tensors.values() if native.is_matrix(name, tensor.shape)]
    rows = sum(tensor.shape[0] for tensor in matrices) if precision == "int8" else 0
    elements = sum(tensor.size for tensor in matrices)
    other_elements = sum(tensor.size for _, tensor in tensors.values()) - elements
    return elements * WIDTHS.get(precision, 4) + 4 * (rows + other_elements)


def _sync(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _new_tensors(
    checkpoint: Checkpoint, precision: str, factors: Mapping[str, np.ndarray]
) -> tuple[dict[str, NewTensor], dict[str, str]]:
    """(tensors to store by name, {name of a tied tensor: name of the tensor stored for both})."""
    first_names: dict[int, str] = {}
    tied_names = {}
    tensors: dict[str, NewTensor] = {}
    for name, tensor in checkpoint.tensors.items():
        if id(tensor) in first_names:
            tied_names[name] = first_names[id(tensor)]
            continue
        first_names[id(tensor)] = name
        if not native.is_matrix(name, tensor.shape) or precision == "float32":
            tensors[name] = _float32_tensor(tensor)
        elif precision == "bfloat16":
            values = _by_rows(tensor, lambda rows: bfloat16_bits(as_float32(rows)))
            tensors[name] = NewTensor("BF16", tensor.shape, values)
        elif precision == "int4" and _has_groups(checkpoint, name, tensor):
            tensors |= _int4_tensors(name, tensor)
        elif precision == "int4" and form_of(tensor) == "blocks" and tensor.shape[1] % GROUP_INPUTS == 0:
            tensors |= _grouped_int8_tensors(name, tensor)
        else:
            tensors |= _int8_tensors(name, tensor, factors.get(name))
    dense = checkpoint.text.dense if isinstance(checkpoint.text, EncoderText) else ()
    for i, (weight_FD, bias_F, _) in enumerate(dense):
        if weight_FD.size:  # UNIT_LENGTH, a division by the length, has no weight
            tensors[f"dense.{i}.weight"] = _float32_tensor(weight_FD)
        if bias_F is not None:
            tensors[f"dense.{i}.bias"] = _float32_tensor(bias_F)
    if checkpoint.shortlist is not None:
        for name, field in native.SHORTLIST.items():
            ids = getattr(checkpoint.shortlist, field)
            tensors[name] = NewTensor("I32", ids.shape, partial(np.asarray, ids))
    return tensors, tied_names


def _float32_tensor(tensor: Tensor) -> NewTensor:
    return NewTensor("F32", tensor.shape, _by_rows(tensor, as_float32))


def _by_rows(tensor: Tensor, convert: Callable[[Any], np.ndarray]) -> Callable[[], Iterable[np.ndarray]]:
    """A function that converts a matrix some rows at a time: only those rows of an UnreadTensor are in memory."""
    return (lambda: map(convert, unread(tensor).rows())) if tensor.ndim == 2 else (lambda: convert(tensor))


def _has_groups(checkpoint: Checkpoint, name: str, tensor: Tensor) -> bool:
    """Whether a linear layer runs in int4 with this matrix, by the rule of Parameters: no table, not recurrent."""
    stack, layer = checkpoint.spec.stacks.get(name.split(".")[0]), name.removesuffix(".weight")
    is_linear = layer not in PROJECTIONS and not layer.endswith("embedding") and form_of(tensor) in ("float32", "int4")
    return is_linear and stack is not None and stack.kind == "attention" and tensor.shape[1] % GROUP_INPUTS == 0


def _int4_tensors(name: str, tensor: Tensor) -> dict[str, NewTensor]:
    # Three tensors come of one rounding, whose result is cached; it has a sixth of the matrix's size in float32.
    unread_tensor = unread(tensor) if form_of(tensor) == "int4" else round_on_read(tensor, "int4", name)
    quantized = cache(lambda: unread_tensor.whole().half())
    (F, D), groups = tensor.shape, (tensor.shape[0], tensor.shape[1] // GROUP_INPUTS)
    return {
        name: NewTensor("U8", (F, D // 2), lambda: quantized().values_FE),
        name + native.SCALES: NewTensor("F16", groups, lambda: quantized().scales_FG),
        name + native.MINIMA: NewTensor("F16", groups, lambda: quantized().minima_FG),
    }


def _grouped_int8_tensors(name: str, tensor: Tensor) -> dict[str, NewTensor]:
    rounded_groups = cache(lambda: round_groups(as_float32(tensor), name))
    rows, inputs = tensor.shape
    return {
        name: NewTensor("I8", tensor.shape, lambda: rounded_groups()[0]),
        name + native.SCALES: NewTensor("F16", (rows, inputs // GROUP_INPUTS), lambda: rounded_groups()[1]),
    }


def _int8_tensors(name: str, tensor: Tensor, factors_D: np.ndarray | None) -> dict[str, NewTensor]:
    row_shape, column_shape = tensor.shape[:1], tensor.shape[1:]
    is_int8 = form_of(tensor) == "int8"
    source = unread(tensor) if is_int8 else round_on_read(tensor, "int8", name, factors_D)

    def multipliers(rows: Any) -> np.ndarray:
        return rows.multipliers_F if is_int8 else row_multipliers(as_float32(rows), name, factors_D)

    # The matrix is read twice: values and multipliers are written apart, and not all matrices fit into memory.
    stored = {
        name: NewTensor("I8", tensor.shape, _by_rows(source, lambda rows: rows.values_FD)),
        name + native.MULTIPLIER: NewTensor("F32", row_shape, _by_rows(tensor, multipliers)),
    }
    if is_int8:
        quantized = source.read(0, 0)
        factors_D = quantized.input_factors_D
        if quantized.input_scale is not None:
            input_scale = np.array([quantized.input_scale], np.float32)
            stored[name + native.INPUT_SCALE] = NewTensor("F32", (1,), lambda: input_scale)
    if factors_D is not None:
        stored[name + native.INPUT_FACTORS] = NewTensor("F32", column_shape, partial(np.asarray, factors_D))
    return stored


def _text_files(text: Text) -> tuple[dict[str, str], dict[str, bytes]]:
    """({field of the text: its file}, {file: content}); fields of equal content share a file."""
    files: dict[str, str] = {}
    contents: dict[str, bytes] = {}
    for field, name in FILES.items():
        value = getattr(text, field, None)
        if value is not None:
            content = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
            files[field] = next((file for file, stored in contents.items() if stored == content), name)
            contents[files[field]] = content
    return files, contents
