"""A translator's Checkpoint -> a CTranslate2 folder (``model.bin`` of binary version 6), by the tables of its reader.

The format's reader decides what the format can express: the new attributes are read back as if from a file, and a stack
that differs from the original is refused.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fastattn.errors import CheckpointError, warn
from fastattn.spec.architecture import PositionSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.positions import sinusoid_table
from fastattn.spec.quantized import QuantizedTensor, Tensor, as_float32
from fastattn.spec.rounding import quantize, row_multipliers
from fastattn.spec.text_spec import TranslationText
from fastattn.weights.containers.json_file import as_json
from fastattn.weights.ctranslate2 import spec
from fastattn.weights.ctranslate2.file import NEWEST_VERSION, NUMPY_TYPES, TYPES, Variable
from fastattn.weights.tensor_mapping import NAME

SPECIFICATION, REVISION = "TransformerSpec", 7
PRECISIONS = ("float32", "int8")
Progress = Callable[[int, int], None]  # called with (bytes written, bytes in all)
CODES = {dtype: code for code, dtype in TYPES.items()}
MOST_POSITIONS = 4096  # rows of a table of sinusoids, where the format cannot count positions as the model does
RELATIVE = "self_attention/relative_attention_bias"
# Canonical name -> the format's name.
_LAYER_PARTS = {canonical: stored for stored, canonical in spec.LAYER_PARTS.items()}
_STACK_PARTS = {canonical: stored for stored, canonical in spec.STACK_PARTS.items()}  # "embedding": an encoder's name
_POSITIONS = {canonical: stored for stored, canonical in spec.POSITIONS.items()}
_NORM_ENDS = {canonical: stored for stored, canonical in spec.ENDS.items() if stored in ("gamma", "beta")}


@dataclass(frozen=True)
class NewVariable:
    """A variable to be written, with a function that returns its values when it is written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: Callable[[], Any]

    @property
    def size(self) -> int:
        """The size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(NUMPY_TYPES[self.dtype]).itemsize


def write(
    path: Path,
    checkpoint: Checkpoint,
    precision: str,
    progress: Progress | None = None,
    factors: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a translator to an empty folder, its matrices as float32, or int8 with a scale for each row.

    The arguments are those of ``native.convert.write``. Decoding settings are not written: CTranslate2's callers pass
    them. Raises CheckpointError for a model that the format cannot express.
    """
    if precision not in PRECISIONS:
        raise CheckpointError(f"CTranslate2's folder is written as {' or '.join(PRECISIONS)}, not as {precision}")
    text, stacks = checkpoint.input, checkpoint.spec.stacks
    if not isinstance(text, TranslationText) or not all(isinstance(stack, StackSpec) for stack in stacks.values()):
        raise CheckpointError("CTranslate2's folder is written of translators with attention, which this model is not")
    tensors = dict(checkpoint.tensors)
    stacks = {name: _with_table(name, stack, tensors) for name, stack in stacks.items()}
    variables, aliases = _weights(tensors, precision)
    for name, stack in stacks.items():
        variables += _attributes(name, stack)
        if stack.positions.kind == "relative" and not stack.positions.of_each_layer:  # one table for all layers
            aliases |= {f"{name}/layer_{i}/{RELATIVE}": f"{name}/layer_0/{RELATIVE}" for i in range(1, stack.layers)}
    _check_readable(stacks, variables, aliases)
    for name, content in _text_files(text, stacks["encoder"]).items():
        (path / name).write_bytes(content)
    with open(path / "model.bin", "xb") as stream:
        _write_model(stream, variables, aliases, progress)


def _with_table(name: str, stack: StackSpec, tensors: dict[str, Tensor]) -> StackSpec:
    """The stack. Sinusoids become a table among ``tensors`` if positions do not count from 1 or have a limit."""
    if stack.positions.kind != "sinusoid" or (stack.positions.start, stack.positions.limit) == (1, 0):
        return stack
    rows = stack.positions.limit or MOST_POSITIONS
    tensors[f"{name}.positions"] = sinusoid_table(rows, stack.width, start=stack.positions.start)
    return replace(stack, positions=PositionSpec("table", limit=rows))


def _weights(tensors: Mapping[str, Tensor], precision: str) -> tuple[list[NewVariable], dict[str, str]]:
    """(the weights, {a tied tensor's further name: the name under which the tensor is written})."""
    first_names: dict[int, str] = {}
    variables, aliases = [], {}
    for canonical, tensor in tensors.items():
        name = _variable_name(canonical)
        if id(tensor) in first_names:
            aliases[name] = first_names[id(tensor)]
            continue
        first_names[id(tensor)] = name
        if precision == "float32" or len(tensor.shape) != 2 or not name.endswith("/weight"):
            variables.append(NewVariable(name, "float32", tensor.shape, partial(as_float32, tensor)))
        else:
            scales = partial(_scales, tensor, canonical)
            variables.append(NewVariable(name, "int8", tensor.shape, partial(_int8, tensor, canonical)))
            variables.append(NewVariable(f"{name}_scale", "float32", tensor.shape[:1], scales))
    return variables, aliases


def _variable_name(canonical: str) -> str:
    """The variable's name for a canonical name; CheckpointError for a tensor that the format does not have."""
    if canonical in _POSITIONS:
        return _POSITIONS[canonical]
    stack, layer, number, member, end = NAME.fullmatch(canonical).groups()  # type: ignore[union-attr]
    if member.endswith("relative_bias"):  # each layer's own, or the first layer's, which all layers share
        return f"{stack}/layer_{number or 0}/{RELATIVE}"
    stored = (_LAYER_PARTS if layer else _STACK_PARTS).get(member)
    if stored is None or end is None:
        raise CheckpointError(f"CTranslate2's format has no place for {canonical}")
    if canonical == "decoder.embedding.weight":
        stored = "embeddings"
    scope = f"{stack}/layer_{number}" if layer else stack
    return f"{scope}/{stored}/{_NORM_ENDS[end] if member.endswith('norm') else end}"


def _int8(tensor: Tensor, name: str) -> np.ndarray:
    stored = _stored_int8(tensor)
    return stored.values_FD if stored is not None else quantize(as_float32(tensor), name).values_FD


def _scales(tensor: Tensor, name: str) -> np.ndarray:
    stored = _stored_int8(tensor)
    return np.float32(1) / (stored.multipliers_F if stored is not None else row_multipliers(as_float32(tensor), name))


def _stored_int8(tensor: Tensor) -> QuantizedTensor | None:
    """The tensor if it is int8 already, without factors of inputs, which the format cannot express; else None."""
    return tensor if isinstance(tensor, QuantizedTensor) and tensor.input_factors_D is None else None


def _attributes(name: str, stack: StackSpec) -> list[NewVariable]:
    """The attributes of the stack ``name``."""
    attention, positions = stack.attention, stack.positions
    codes = {activation: code for code, activation in spec.ACTIVATIONS.items()}
    values: dict[str, tuple[str, float]] = {  # attribute -> (type, value)
        "num_heads": ("int16", attention.heads),
        "pre_norm": ("int8", stack.norms.before),
        "activation": ("int8", codes.get(stack.feed_forward.activation, -1)),
        "scale_embeddings": ("float32", stack.embedding_scale),
    }
    if name == "decoder":
        values |= {
            "alignment_layer": ("int16", stack.alignment.layer),
            "alignment_heads": ("int16", stack.alignment.heads),
            "start_from_zero_embedding": ("int8", stack.start_from_zero_embedding),
        }
        if stack.output_scale != 1:
            values["scale_outputs"] = ("float32", stack.output_scale)
    cross_attention: dict[str, tuple[str, float]] = {}
    if attention.query_scale is not None:
        cross_attention["queries_scale"] = ("float32", attention.query_scale)
    if attention.key_heads != attention.heads:
        cross_attention["num_heads_kv"] = ("int32", attention.key_heads)
    if attention.query_width != stack.width:
        cross_attention["head_dim"] = ("int32", attention.head_width)
    self_attention = dict(cross_attention)
    if positions.kind == "relative":
        self_attention["relative_attention_max_distance"] = ("int32", positions.max_distance)
    for i in range(stack.layers):
        values |= {f"layer_{i}/self_attention/{attribute}": value for attribute, value in self_attention.items()}
        if stack.cross_attention:
            values |= {f"layer_{i}/attention/{attribute}": value for attribute, value in cross_attention.items()}
    typed_values = ((f"{name}/{attribute}", *typed_value) for attribute, typed_value in values.items())
    return [NewVariable(full_name, dtype, (), partial(float, value)) for full_name, dtype, value in typed_values]


def _check_readable(stacks: Mapping[str, StackSpec], variables: list[NewVariable], aliases: dict[str, str]) -> None:
    """Raise CheckpointError unless the reader would read the same stacks."""
    written = {one.name: Variable(one.name, one.dtype, _placeholder(one)) for one in variables}
    written |= {alias: written[target] for alias, target in aliases.items()}
    attributes, problems = spec.Attributes(written, "CTranslate2's format"), list[str]()
    for name, stack in stacks.items():
        read_back = spec.read_stack(attributes, name, stack.norms.epsilon, problems)
        read_back = replace(read_back, embedding_scale=stack.embedding_scale)  # the format rounds it to float32
        differences = [field for field, value in vars(stack).items() if getattr(read_back, field) != value]
        problems += [f"the {name}'s {field.replace('_', ' ')}" for field in differences]
    if len({stack.norms.epsilon for stack in stacks.values()}) > 1:
        problems.append("norms of two epsilons")
    if problems:
        raise CheckpointError(f"CTranslate2's format cannot say {', '.join(problems)} of this model")


def _placeholder(variable: NewVariable) -> np.ndarray:
    """The values of an attribute or of relative biases; for other variables zeros of the same shape, to save memory."""
    if variable.shape and not variable.name.endswith(RELATIVE):
        return np.broadcast_to(np.zeros((), NUMPY_TYPES[variable.dtype]), variable.shape)
    return np.array(variable.values(), NUMPY_TYPES[variable.dtype])


def _text_files(text: TranslationText, encoder: StackSpec) -> dict[str, bytes]:
    """File -> content: settings, vocabularies, and the tokenizer files that CTranslate2's callers use."""
    unsupported = [name for name in ("lowercase", "source_characters", "target_characters") if getattr(text, name)]
    if unsupported:
        raise CheckpointError(f"CTranslate2's folder cannot say this of a model's text: {', '.join(unsupported)}")
    if text.words:
        warn("CTranslate2's folder does not say how words are cut before their codes: cut them as before")
    settings = "unk_token", "bos_token", "eos_token", "decoder_start_token", "add_source_bos", "add_source_eos"
    config: dict[str, Any] = {name: getattr(text, name) for name in settings}
    config["layer_norm_epsilon"] = encoder.norms.epsilon
    config["multi_query_attention"] = encoder.attention.key_heads != encoder.attention.heads
    vocabularies = {"source_vocabulary": text.source_vocabulary, "target_vocabulary": text.target_vocabulary}
    if text.source_vocabulary == text.target_vocabulary:
        vocabularies = {"shared_vocabulary": text.source_vocabulary}
    files = {"config.json": as_json(config)}
    for name, tokens in vocabularies.items():
        names = [token or f"<unused{i}>" for i, token in enumerate(tokens)]  # "" is the name of a row without a token
        files[f"{name}.json"] = as_json(names)
    source, target = text.source_model, text.target_model
    optional = {
        "source.spm": source, "target.spm": target or source, "vmap.txt": text.vocabulary_map, "bpe.codes": text.codes,
        "tokenizer.json": text.tokenizer,
    }  # fmt: skip
    if text.languages is not None and text.languages.source == "after" and text.decoder_start_token is not None:
        optional["tokenizer_config.json"] = as_json({"legacy_behaviour": True})
    return files | {name: content for name, content in optional.items() if content is not None}


def _write_model(
    stream: BinaryIO, variables: list[NewVariable], aliases: Mapping[str, str], progress: Progress | None
) -> None:
    total, written = sum(variable.size for variable in variables), 0
    stream.write(struct.pack("<I", NEWEST_VERSION) + _text(SPECIFICATION))
    stream.write(struct.pack("<II", REVISION, len(variables)))
    for variable in variables:
        shape = variable.shape
        stream.write(_text(variable.name) + struct.pack(f"<B{len(shape)}I", len(shape), *shape))
        stream.write(struct.pack("<BI", CODES[variable.dtype], variable.size))
        values = np.require(np.asarray(variable.values()), NUMPY_TYPES[variable.dtype], "C")
        stream.write(values.reshape(-1).view(np.uint8).data)
        written += variable.size
        if progress is not None:
            progress(written, total)
    stream.write(struct.pack("<I", len(aliases)))
    for alias, target in aliases.items():
        stream.write(_text(alias) + _text(target))


def _text(text: str) -> bytes:
    """A text as the format has it: its length in bytes, UTF-8, a NUL."""
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data
