"""A translator's Checkpoint -> a CTranslate2 folder (``model.bin`` of binary version 6), by the tables of its reader.

The format's reader decides what the format can express: the attributes to be written are read back as from a file, and
a stack that differs from the original is refused.
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
from fastattn.weights.ctranslate2.file import NEWEST_VERSION, STORED_AS, TYPES, Variable
from fastattn.weights.tensor_mapping import NAME

SPECIFICATION, REVISION = "TransformerSpec", 7
PRECISIONS = ("float32", "int8")
CODES = {dtype: code for code, dtype in TYPES.items()}
MOST_POSITIONS = 4096  # rows of a table of sinusoids, where the format cannot count positions as the model does
RELATIVE = "self_attention/relative_attention_bias"
_LAYER = {canonical: stored for stored, canonical in spec.LAYER_PARTS.items()}
_STACK = {canonical: stored for stored, canonical in spec.STACK_PARTS.items()}  # embeddings_0: an encoder's
_POSITIONS = {canonical: stored for stored, canonical in spec.POSITIONS.items()}
_NORM_ENDS = {canonical: stored for stored, canonical in spec.ENDS.items() if stored in ("gamma", "beta")}


@dataclass(frozen=True)
class Entry:
    """A variable to be written, and a function that returns the values when the variable is written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: Callable[[], Any]

    @property
    def size(self) -> int:
        """The size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(STORED_AS[self.dtype]).itemsize


def write(
    path: Path,
    checkpoint: Checkpoint,
    precision: str,
    progress: Callable[[int, int], None] | None = None,
    factors: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a translator to an empty folder, its matrices as float32, or int8 with a scale for each row.

    Arguments as native.convert's ``write``. Decoding settings are not written: CTranslate2's callers pass them. Raises
    CheckpointError for a model that the format cannot express.
    """
    if precision not in PRECISIONS:
        raise CheckpointError(f"CTranslate2's folder is written as {' or '.join(PRECISIONS)}, not as {precision}")
    text, stacks = checkpoint.input, checkpoint.spec.stacks
    if not isinstance(text, TranslationText) or not all(isinstance(stack, StackSpec) for stack in stacks.values()):
        raise CheckpointError("CTranslate2's folder is written of translators with attention, which this model is not")
    tensors = dict(checkpoint.tensors)
    stacks = {name: _with_table(name, stack, tensors) for name, stack in stacks.items()}
    entries, aliases = _entries(tensors, precision)
    for name, stack in stacks.items():
        entries += _attributes(name, stack)
    _check_readable(stacks, entries, aliases)
    files = _text_files(text, stacks["encoder"])
    for name, content in files.items():
        (path / name).write_bytes(content)
    with open(path / "model.bin", "xb") as stream:
        _write_model(stream, entries, aliases, progress)


def _with_table(name: str, stack: StackSpec, tensors: dict[str, Tensor]) -> StackSpec:
    """The stack, whose sinusoids become a table if positions do not count from 1 or have a greatest length."""
    if stack.positions.kind != "sinusoid" or (stack.positions.start, stack.positions.limit) == (1, 0):
        return stack
    rows = stack.positions.limit or MOST_POSITIONS
    tensors[f"{name}.positions"] = sinusoid_table(rows, stack.width, start=stack.positions.start)
    return replace(stack, positions=PositionSpec("table", limit=rows))


def _entries(tensors: Mapping[str, Tensor], precision: str) -> tuple[list[Entry], dict[str, str]]:
    """(the weights, {alias: name of the tensor that is written for both})."""
    first_names: dict[int, str] = {}
    entries, aliases = [], {}
    for canonical, tensor in tensors.items():
        name = _variable_name(canonical)
        if id(tensor) in first_names:
            aliases[name] = first_names[id(tensor)]
            continue
        first_names[id(tensor)] = name
        if precision == "float32" or len(tensor.shape) != 2 or not name.endswith("/weight"):
            entries.append(Entry(name, "float32", tensor.shape, partial(as_float32, tensor)))
        else:
            entries.append(Entry(name, "int8", tensor.shape, partial(_int8, tensor, canonical)))
            entries.append(Entry(f"{name}_scale", "float32", tensor.shape[:1], partial(_scales, tensor, canonical)))
    return entries, aliases


def _variable_name(canonical: str) -> str:
    """The variable's name for a canonical name; CheckpointError for a tensor that the format does not have."""
    if canonical in _POSITIONS:
        return _POSITIONS[canonical]
    stack, layer, number, member, end = NAME.fullmatch(canonical).groups()  # type: ignore[union-attr]
    if member.endswith("relative_bias"):  # each layer's own, or the first layer's, which all layers share
        return f"{stack}/layer_{number or 0}/{RELATIVE}"
    stored = (_LAYER if layer else _STACK).get(member)
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


def _attributes(name: str, stack: StackSpec) -> list[Entry]:
    attention, positions = stack.attention, stack.positions
    codes = {activation: code for code, activation in spec.ACTIVATIONS.items()}
    values: dict[str, tuple[str, float]] = {
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
    cross: dict[str, tuple[str, float]] = {}  # attributes of cross-attention; self-attention has them too
    if attention.query_scale is not None:
        cross["queries_scale"] = ("float32", attention.query_scale)
    if attention.key_heads != attention.heads:
        cross["num_heads_kv"] = ("int32", attention.key_heads)
    if attention.query_width != stack.width:
        cross["head_dim"] = ("int32", attention.head_width)
    relative: dict[str, tuple[str, float]] = {"relative_attention_max_distance": ("int32", positions.max_distance)}
    own = cross | (relative if positions.kind == "relative" else {})
    for i in range(stack.layers):
        values |= {f"layer_{i}/self_attention/{attribute}": value for attribute, value in own.items()}
        if stack.cross_attention:
            values |= {f"layer_{i}/attention/{attribute}": value for attribute, value in cross.items()}
    return [
        Entry(f"{name}/{attribute}", dtype, (), partial(float, value)) for attribute, (dtype, value) in values.items()
    ]


def _check_readable(stacks: Mapping[str, StackSpec], entries: list[Entry], aliases: dict[str, str]) -> None:
    """Raise CheckpointError unless the reader would read the same stacks; adds aliases of shared relative biases."""
    for name, stack in stacks.items():
        if stack.positions.kind == "relative" and not stack.positions.of_each_layer:
            for i in range(1, stack.layers):
                aliases[f"{name}/layer_{i}/{RELATIVE}"] = f"{name}/layer_0/{RELATIVE}"
    variables = {entry.name: Variable(entry.name, entry.dtype, _placeholder(entry)) for entry in entries}
    variables |= {alias: variables[target] for alias, target in aliases.items()}
    attributes, problems = spec.Attributes(variables, "CTranslate2's format"), list[str]()
    for name, stack in stacks.items():
        read_back = spec.read_stack(attributes, name, stack.norms.epsilon, problems)
        read_back = replace(read_back, embedding_scale=stack.embedding_scale)  # the format rounds it to float32
        differences = [field for field, value in vars(stack).items() if getattr(read_back, field) != value]
        problems += [f"the {name}'s {field.replace('_', ' ')}" for field in differences]
    if len({stack.norms.epsilon for stack in stacks.values()}) > 1:
        problems.append("norms of two epsilons")
    if problems:
        raise CheckpointError(f"CTranslate2's format cannot say {', '.join(problems)} of this model")


def _placeholder(entry: Entry) -> np.ndarray:
    """An array of the variable's shape and type, to save memory zeros but for attributes and small tables."""
    if entry.shape and not entry.name.endswith(RELATIVE):
        return np.broadcast_to(np.zeros((), STORED_AS[entry.dtype]), entry.shape)
    return np.array(entry.values(), STORED_AS[entry.dtype])


def _text_files(text: TranslationText, encoder: StackSpec) -> dict[str, bytes]:
    """File -> content: settings, vocabularies, and the tokenizer files that CTranslate2's callers use."""
    unsupported = [name for name in ("lowercase", "source_characters", "target_characters") if getattr(text, name)]
    if unsupported:
        raise CheckpointError(f"CTranslate2's folder cannot say this of a model's text: {', '.join(unsupported)}")
    if text.words:
        warn("CTranslate2's folder does not say how words are cut before their codes: cut them as before")
    config = {
        "unk_token": text.unk_token,
        "bos_token": text.bos_token,
        "eos_token": text.eos_token,
        "decoder_start_token": text.decoder_start_token,
        "add_source_bos": text.add_source_bos,
        "add_source_eos": text.add_source_eos,
        "layer_norm_epsilon": encoder.norms.epsilon,
        "multi_query_attention": encoder.attention.key_heads != encoder.attention.heads,
    }
    vocabularies = {"source_vocabulary": text.source_vocabulary, "target_vocabulary": text.target_vocabulary}
    if text.source_vocabulary == text.target_vocabulary:
        vocabularies = {"shared_vocabulary": text.source_vocabulary}
    files = {"config.json": as_json(config)}
    for name, tokens in vocabularies.items():
        names = [token or f"<unused{i}>" for i, token in enumerate(tokens)]  # "": a row that no token has
        files[f"{name}.json"] = as_json(names)
    source, target = text.source_model, text.target_model
    optional = {
        "source.spm": source,
        "target.spm": target or source,
        "vmap.txt": text.vocabulary_map,
        "bpe.codes": text.codes,
        "tokenizer.json": text.tokenizer,
    }
    if text.languages is not None and text.languages.source == "after" and text.decoder_start_token is not None:
        optional["tokenizer_config.json"] = as_json({"legacy_behaviour": True})
    return files | {name: content for name, content in optional.items() if content is not None}


def _write_model(
    stream: BinaryIO, entries: list[Entry], aliases: Mapping[str, str], progress: Callable[[int, int], None] | None
) -> None:
    total, written = sum(entry.size for entry in entries), 0
    stream.write(struct.pack("<I", NEWEST_VERSION) + _bytes(SPECIFICATION) + struct.pack("<II", REVISION, len(entries)))
    for entry in entries:
        stream.write(_bytes(entry.name) + struct.pack(f"<B{len(entry.shape)}I", len(entry.shape), *entry.shape))
        stream.write(struct.pack("<BI", CODES[entry.dtype], entry.size))
        values = np.require(np.asarray(entry.values()), STORED_AS[entry.dtype], "C")
        stream.write(values.reshape(-1).view(np.uint8).data)
        written += entry.size
        if progress is not None:
            progress(written, total)
    stream.write(struct.pack("<I", len(aliases)))
    for alias, target in aliases.items():
        stream.write(_bytes(alias) + _bytes(target))


def _bytes(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data
