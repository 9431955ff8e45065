"""fastattn's own folder, which ``fastattn convert`` writes: files are mapped, float32 and int8 are never copied.

config.json          Config as JSON
model.safetensors    tensors by canonical name;
                     an int8 matrix NAME (quantized.QuantizedTensor) has NAME.multiplier, float32, one a row, and
                     perhaps NAME.input_scale, float32 [1], or NAME.input_factors, float32, one a column;
                     a 4-bit matrix NAME (quantized.Int4Tensor), uint8, two inputs a byte, has NAME.scales and
                     NAME.minima, float16, one a group of 32 inputs; in models of int4, an int8 matrix may have
                     NAME.scales and no multiplier;
                     dense layers and norms after an encoder are dense.N.weight and perhaps dense.N.bias;
                     a shortlist's arrays are int32, see SHORTLIST
files of FILES       that the text needs; a file that is equal for source and target is stored once, as the source's
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.printable import counted
from fastattn.spec.architecture import ModelSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint, Shortlist, Text
from fastattn.spec.quantized import GROUP_INPUTS, Int4Tensor, QuantizedTensor, Tensor, UnreadTensor, as_float32, unread
from fastattn.spec.recurrent import RecurrentSpec
from fastattn.spec.text_spec import (
    LAYER_NORM,
    PROBABILITIES,
    SCORES,
    TRUNCATION_SIDES,
    UNIT_LENGTH,
    EncoderText,
    GeneratorText,
    TranslationText,
)
from fastattn.system.memory import release_pages
from fastattn.weights.containers.json_file import from_plain, is_text, read_json, read_object, shorten
from fastattn.weights.containers.safetensors import StoredTensor, parse
from fastattn.weights.containers.shortlist import check_shortlist
from fastattn.weights.folder import Directory, Folder
from fastattn.weights.tensor_mapping import canonical_sources, check_sources, make_tensors

DESCRIPTION = "fastattn's own folder (written by fastattn convert)"
WEIGHTS = "model.safetensors"
SHORTLIST = {"shortlist.always": "always", "shortlist.starts": "starts_V1", "shortlist.targets": "targets"}

# config.json: the ModelSpec, the text settings, the names of shared files and tensors.
FORMAT = "fastattn"
VERSION = 2
# Part of a stack -> the part's fields that version 1 had in the stack itself, as OLD=FIELD where their names differed.
# Version 1's autoregression is the recurrence's kind, unless it is self-attention.
_VERSION_1_FIELDS = {
    "attention": "heads key_heads head_width query_scale",
    "feed_forward": "inner_width activation gated",
    "norms": "norm=kind norm_epsilon=epsilon norm_biases=biases pre_norm=before final_norm=final "
    "embedding_norm=embedding",
    "positions": "positions=kind max_positions=limit sinusoid_start=start rotary alibi relative_buckets=buckets "
    "relative_max_distance=max_distance",
    "recurrence": "autoregression=kind average_inner_width=inner_width average_activation=activation "
    "average_gates=gates",
    "alignment": "alignment_layer=layer alignment_heads=heads",
}
# Version 1's field of a stack -> (the part that has the field now, the field's name there).
VERSION_1_NAMES = {
    old: (part, field or old)
    for part, fields in _VERSION_1_FIELDS.items()
    for old, _, field in (name.partition("=") for name in fields.split())
}
# Kind of model -> its stacks.
STACKS = {"encoder": ("encoder",), "decoder": ("decoder",), "encoder-decoder": ("encoder", "decoder")}
PRECISIONS = ("float32", "bfloat16", "int8", "int4")
# Field of a text -> its file; source and target may share one.
FILES = {
    "source_vocabulary": "source_vocabulary.json",
    "target_vocabulary": "target_vocabulary.json",
    "source_model": "source.spm",
    "target_model": "target.spm",
    "vocabulary_map": "vmap.txt",
    "codes": "bpe.codes",
    "tokenizer": "tokenizer.json",
}
# Class of a text -> the fields outside config.json, with their values until they are read.
STORED_SEPARATELY: dict[type, dict[str, object]] = {
    TranslationText: dict.fromkeys(FILES) | {"source_vocabulary": (), "target_vocabulary": ()},
    EncoderText: {"tokenizer": b"", "dense": ()},
    GeneratorText: {"tokenizer": b""},
}
TEXTS: dict[str, type] = {"encoder": EncoderText, "decoder": GeneratorText}  # kind of model -> its text's class


@dataclass(frozen=True)
class Config:
    """The contents of config.json."""

    format: str
    version: int
    precision: str
    model: ModelSpec
    text: dict  # fields of the class in TEXTS, else of a TranslationText, without STORED_SEPARATELY
    files: dict[str, str]  # field of the text -> its file
    dense: tuple[str, ...]  # each layer after the encoder: a dense layer's activation, LAYER_NORM or UNIT_LENGTH
    tied: dict[str, str]  # name of a tensor -> name of the tensor stored for both
    details: dict[str, str]  # the checkpoint's details, as its exporter gave them
    copied: bool = False  # for a shortlist: whether a sentence may also choose the ids of its source


def read_config(folder: Folder) -> tuple[Config, Text]:
    """(config.json, the text settings without the text's files); one CheckpointError lists all faults."""
    values = read_object(folder, "config.json")
    version = values.integer("version")
    if version not in (1, VERSION):
        fault = f"version {version} of fastattn's folders is not known; known: 1, {VERSION}"
        raise CheckpointError(f"{values.where}: {fault}")
    problems: list[str] = []
    fields, model = values.values, values.values.get("model")
    if version == 1 and isinstance(model, dict):
        fields = fields | {"model": {name: _from_version_1(stack) for name, stack in model.items()}}
    variants = {StackSpec: lambda stack: RecurrentSpec if isinstance(stack, dict) and "cell" in stack else StackSpec}
    config = from_plain(Config, fields, "", problems, None, variants)
    text_class = TEXTS.get(str(values.nested("model").values.get("kind")), TranslationText)
    text = from_plain(text_class, values.values.get("text", {}), "text", problems, STORED_SEPARATELY[text_class])
    if config is not None:
        problems += _config_faults(config)
    if isinstance(text, GeneratorText) and config is not None and config.model.decoder is not None:
        problems += _generator_faults(text, config.model.decoder.vocabulary)
    if isinstance(text, EncoderText):
        problems += _text_faults(text, config)
    if config is None or text is None or problems:
        raise CheckpointError(f"{values.where}: {'; '.join(dict.fromkeys(problems))}")
    return config, text


def _from_version_1(stack: object) -> object:
    """A stack of version 1 as version 2 has it; what is no stack stays as it is."""
    if not isinstance(stack, dict):
        return stack
    parts: dict[str, Any] = {}
    for name, (part, field) in VERSION_1_NAMES.items():
        if name in stack:
            parts.setdefault(part, {})[field] = stack[name]
    if parts.get("recurrence", {}).get("kind", "self-attention") == "self-attention":
        parts["recurrence"] = None
    return {name: value for name, value in stack.items() if name not in VERSION_1_NAMES} | parts


def _config_faults(config: Config) -> list[str]:
    model = config.model
    faults = []
    if config.precision not in PRECISIONS:
        faults.append(f"precision should be one of {', '.join(PRECISIONS)}, is {shorten(config.precision)}")
    if STACKS.get(model.kind) != tuple(model.stacks):
        faults.append(f"model.kind {shorten(model.kind)} does not go with its stacks")
    is_encoder_decoder = len(model.stacks) == 2
    if any(stack.cross_attention != (is_encoder_decoder and name == "decoder") for name, stack in model.stacks.items()):
        faults.append("cross_attention should be the decoder's where there is an encoder too, and its alone")
    if config.dense and model.decoder is not None:
        faults.append("dense layers follow an encoder, not an encoder-decoder")
    needed_fields = {"source_vocabulary", "target_vocabulary"} if is_encoder_decoder else {"tokenizer"}
    allowed_fields = FILES if is_encoder_decoder else needed_fields
    faults += [f"files.{field} is missing" for field in sorted(needed_fields) if field not in config.files]
    for field, file in config.files.items():
        if field not in allowed_fields:
            faults.append(f"files.{shorten(field)} is unknown")
        elif file not in (FILES[field], FILES[field.replace("target", "source")]):
            faults.append(f"files.{field} should be {FILES[field]!r}, is {shorten(file)}")
    for name, stack in model.stacks.items():
        faults += [f"model.{name}.{fault}" for fault in _stack_faults(stack)] if isinstance(stack, StackSpec) else []
    return faults


def _stack_faults(stack: StackSpec) -> list[str]:
    """The faults of a stack that a check of its tensors' shapes does not find."""
    positions, alignment, heads = stack.positions, stack.alignment, stack.attention.heads
    counts = ("limit", "buckets", "max_distance")
    faults = [f"positions.{name} should not be negative" for name in counts if getattr(positions, name) < 0]
    if not (-stack.layers <= alignment.layer < stack.layers and 0 <= alignment.heads <= heads):
        faults.append(f"alignment.layer and alignment.heads do not fit {stack.layers} layers of {heads} heads")
    local = stack.local.rotary if stack.local is not None else None
    for name, rotary in (("positions", positions.rotary), ("local", local)):
        width = stack.attention.head_width
        if rotary is not None and (rotary.width % 2 or not 2 <= rotary.width <= width):
            faults.append(f"{name}.rotary.width should be even, from 2 to the head's {width}, is {rotary.width}")
    return faults


def _generator_faults(text: GeneratorText, vocabulary_size: int) -> list[str]:
    faults = [] if text.max_length >= 0 else [f"text.max_length should not be negative, is {text.max_length}"]
    suppressed = (*text.decoding.suppress_sequences, text.decoding.begin_suppress_tokens)
    for name, ids in (("end_ids", text.end_ids), *(("decoding", ids) for ids in suppressed)):
        if not all(0 <= number < vocabulary_size for number in ids):
            faults.append(f"text.{name} should hold ids below {vocabulary_size}, holds {shorten(list(ids))}")
    return faults


def _text_faults(text: EncoderText, config: Config | None) -> list[str]:
    faults = []
    for name, length in (("max_length", text.max_length), ("truncate_dim", text.truncate_dim)):
        if length is not None and length < 1:
            faults.append(f"text.{name} should be at least 1, is {length}")
    if (side := text.truncation_side) not in TRUNCATION_SIDES:
        faults.append(f"text.truncation_side should be one of {', '.join(TRUNCATION_SIDES)}, is {shorten(side)}")
    if text.default_prompt is not None and text.default_prompt not in text.prompts:
        faults.append(f"text.default_prompt {shorten(text.default_prompt)} is none of the prompts")
    minima = {"sparse.most": 1, "multi_vector.expansion": 0}
    minima |= {"multi_vector.query_length": 1, "multi_vector.document_length": 1}
    for name, minimum in minima.items():
        part, field = name.split(".")
        value = getattr(getattr(text, part), field, None)  # the part may be None
        if value is not None and value < minimum:
            faults.append(f"text.{name} should be at least {minimum}")
    if config is None:
        return faults
    head = config.model.head
    if text.labels and (head is None or head.outputs != len(text.labels)):
        faults.append(f"text.labels should be as many as the head's outputs, are {len(text.labels)}")
    choices = ("probabilities", text.probabilities, PROBABILITIES), ("scores", text.scores, ("", *SCORES))
    for name, value, known_values in choices:
        if value not in known_values:
            faults.append(f"text.{name} should be one of {', '.join(filter(None, known_values))}, is {shorten(value)}")
    return faults


def recognize(path: Path) -> bool:
    if not (path / "config.json").exists():
        return False
    try:
        config = read_json(Directory(path), "config.json")
    except CheckpointError:  # the folder is another exporter's, which reports the error
        return False
    return isinstance(config, dict) and config.get("format") == FORMAT


def read(folder: Folder) -> Checkpoint:
    config, text = read_config(folder)
    where = folder.where(WEIGHTS)
    stored = parse(folder.read(WEIGHTS), where)
    for stack in config.model.stacks.values():
        if stack.layers > len(stored):
            fault = f"{counted(stack.layers, 'layer')}, but {counted(len(stored), 'tensor')}"
            raise CheckpointError(f"{folder.where('config.json')}: {fault}")
    dense = _take_dense(stored, config.dense, where)
    shortlist = _take_shortlist(stored, config, where)
    tensors = _canonical_tensors(stored, config, where)
    text, details = _read_text(folder, config, text, dense), {"layout version": str(config.version)} | config.details
    files = tuple(folder.files_read)
    return Checkpoint(config.model, tensors, text, config.precision, FORMAT, details, files, shortlist)


def _read_text(folder: Folder, config: Config, text: Text, dense: tuple) -> Text:
    if isinstance(text, EncoderText | GeneratorText):
        text = replace(text, tokenizer=bytes(folder.read(config.files["tokenizer"])))
        return replace(text, dense=dense) if isinstance(text, EncoderText) else text
    contents = {file: _read_file(folder, file) for file in dict.fromkeys(config.files.values())}
    fields: dict[str, Any] = {field: contents[file] for field, file in config.files.items()}
    encoder, decoder = config.model.stacks.values()
    unk = () if decoder.kind == "recurrent" else (text.unk_token,)  # recurrent models may have no unknown token
    sides = ("source", encoder.vocabulary, unk), ("target", decoder.vocabulary, (*unk, text.eos_token))
    for side, rows, needed_tokens in sides:
        where = folder.where(config.files[f"{side}_vocabulary"])
        vocabulary = fields[f"{side}_vocabulary"]
        if len(vocabulary) != rows:
            raise CheckpointError(f"{where}: the embedding has {rows} rows, the vocabulary {len(vocabulary)} tokens")
        for token in needed_tokens:
            if token not in vocabulary:
                raise CheckpointError(f"{where}: the {side} vocabulary lacks {shorten(token)}")
    sequences = (*text.decoding.suppress_sequences, text.decoding.begin_suppress_tokens)
    if not all(0 <= number < decoder.vocabulary for sequence in sequences for number in sequence):
        raise CheckpointError(f"{folder.where('config.json')}: text.decoding should suppress target ids")
    return replace(text, **fields)


def _read_file(folder: Folder, name: str) -> bytes | tuple[str, ...]:
    if not name.endswith("vocabulary.json"):
        return bytes(folder.read(name))
    tokens = read_json(folder, name)
    if not isinstance(tokens, list) or not all(map(is_text, tokens)):
        raise CheckpointError(f"{folder.where(name)}: should hold a list of strings")
    return tuple(tokens)


def _take_dense(stored: dict[str, StoredTensor], activations: tuple[str, ...], where: str) -> tuple:
    """The dense layers, whose tensors are removed from ``stored``."""
    layers: list[tuple[np.ndarray, np.ndarray | None, str]] = []
    for i, activation in enumerate(activations):
        if activation == UNIT_LENGTH:
            layers.append((np.empty(0, np.float32), None, activation))
            continue
        dimensions = 1 if activation == LAYER_NORM else 2
        weight, bias = stored.pop(f"dense.{i}.weight", None), stored.pop(f"dense.{i}.bias", None)
        if weight is None or len(weight.shape) != dimensions or 0 in weight.shape:
            shape = "[outputs, inputs]" if dimensions == 2 else "[width]"
            raise CheckpointError(f"{where}: dense.{i}.weight should be there, {shape}")
        if bias is not None and bias.shape != weight.shape[:1]:
            raise CheckpointError(f"{bias.where} should be {list(weight.shape[:1])}, is {list(bias.shape)}")
        layers.append((weight.float32(), None if bias is None else bias.float32(), activation))
    return tuple(layers)


def _take_shortlist(stored: dict[str, StoredTensor], config: Config, where: str) -> Shortlist | None:
    """The shortlist, whose arrays are removed from ``stored``, or None."""
    arrays = {name: stored.pop(name) for name in SHORTLIST if name in stored}
    if not arrays:
        return None
    encoder, decoder = config.model.encoder, config.model.decoder
    if encoder is None or decoder is None:
        raise CheckpointError(f"{where}: only a model with an encoder and a decoder has a shortlist")
    for name in SHORTLIST:
        if name not in arrays or arrays[name].dtype != "I32" or len(arrays[name].shape) != 1:
            raise CheckpointError(f"{where}: {name} should be there, I32 of one dimension")
    fields: dict[str, Any] = {field: arrays[name].array() for name, field in SHORTLIST.items()}
    shortlist = Shortlist(**fields, copied=config.copied)
    if len(shortlist.starts_V1) != encoder.vocabulary + 1:
        raise CheckpointError(f"{where}: shortlist.starts should hold {encoder.vocabulary + 1} numbers")
    check_shortlist(shortlist, encoder.vocabulary, decoder.vocabulary, where)
    return shortlist


def _canonical_tensors(stored: dict[str, StoredTensor], config: Config, where: str) -> dict[str, Tensor]:
    """The canonical tensors; one CheckpointError lists all that are missing, left over or misshapen."""
    tensors = pair_factors(stored)
    for name, stored_name in config.tied.items():
        if stored_name not in tensors or name in stored or not name.isprintable():
            raise CheckpointError(f"{where}: {shorten(name)} cannot be tied to {shorten(stored_name)}")
        tensors[name] = tensors[stored_name]
    mapping = canonical_sources(config.model)
    check_sources(mapping, tensors, where, "tensors do not fit the architecture")
    return make_tensors(mapping, tensors)


MULTIPLIER, INPUT_SCALE, INPUT_FACTORS = ".multiplier", ".input_scale", ".input_factors"
SCALES, MINIMA = ".scales", ".minima"
# Type of a quantized matrix -> the ends of the names of its factors.
_FACTORS = {"I8": (MULTIPLIER, INPUT_SCALE, INPUT_FACTORS, SCALES), "U8": (SCALES, MINIMA)}


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor may be stored in fewer bits: a linear weight or an embedding table, but no weight of a head."""
    return name.endswith(".weight") and len(shape) == 2 and not name.startswith("head.")


@dataclass(frozen=True)
class SavedTensor:
    """One tensor of the file; ``factors`` has the tensors that dequantize a matrix, by the ends of their names."""

    stored: StoredTensor
    factors: Mapping[str, StoredTensor] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        if self.factors is not None and self.stored.dtype == "U8":
            rows, byte_columns = self.stored.shape
            return rows, 2 * byte_columns
        return self.stored.shape

    @property
    def vector(self) -> np.ndarray:
        return self._float32().reshape(-1)

    def matrix(self, transposed: bool = False) -> Tensor:
        if transposed:
            return np.ascontiguousarray(as_float32(self.matrix()).T)
        if self.factors is None:
            return self._float32()
        if self.stored.dtype == "U8":
            _check_groups(self.stored, self.factors, 2 * self.stored.shape[1], SCALES, MINIMA)
            return Int4Tensor(self.stored.array(), self.factors[SCALES].array(), self.factors[MINIMA].array())
        return (_grouped_int8_matrix if SCALES in self.factors else _int8_matrix)(self.stored, self.factors)

    def unread(self) -> UnreadTensor:
        if self.factors is None:
            SavedTensor(self.stored.rows(0, 0))._float32()  # raises for another type
            return self.stored.unread()
        matrix, stored_tensors = self.matrix(), (self.stored, *self.factors.values())

        def forget(first: int, last: int) -> None:
            for tensor in stored_tensors:
                if len(tensor.shape) == 2:
                    release_pages(tensor.rows(first, last).data)

        return replace(unread(matrix), forget=forget)

    def _float32(self) -> np.ndarray:
        if self.stored.dtype not in ("F32", "BF16"):
            raise CheckpointError(f"{self.stored.where} should be F32 or BF16, is {self.stored.dtype}")
        return self.stored.float32()


def pair_factors(stored: Mapping[str, StoredTensor]) -> dict[str, SavedTensor]:
    """The file's tensors by name, each quantized matrix with its factors."""
    factors_of = {
        name: {end: stored[name + end] for end in _FACTORS[tensor.dtype] if name + end in stored}
        for name, tensor in stored.items()
        if tensor.dtype in _FACTORS and is_matrix(name, tensor.shape)
    }
    factor_names = {name + end for name, factors in factors_of.items() for end in factors}
    names = [name for name in stored if name not in factor_names]
    return {name: SavedTensor(stored[name], factors_of.get(name)) for name in names}


def _int8_matrix(values: StoredTensor, factors: Mapping[str, StoredTensor]) -> QuantizedTensor:
    rows, columns = values.shape
    multipliers = factors.get(MULTIPLIER)
    if multipliers is None or multipliers.dtype != "F32" or multipliers.shape != (rows,):
        raise CheckpointError(f"{values.where}{MULTIPLIER} should be there, F32 [{rows}]")
    input_arrays: dict[str, np.ndarray | None] = {}  # end of a name -> the array, None if the file lacks it
    for end, count in ((INPUT_SCALE, 1), (INPUT_FACTORS, columns)):
        tensor = factors.get(end)
        if tensor is not None and (tensor.dtype != "F32" or tensor.shape != (count,)):
            raise CheckpointError(f"{tensor.where} should be F32 [{count}]")
        input_arrays[end] = None if tensor is None else tensor.float32()
    scale, factors_D = input_arrays[INPUT_SCALE], input_arrays[INPUT_FACTORS]
    input_scale = None if scale is None else scale.item()
    try:
        return QuantizedTensor(values.array(), multipliers.float32(), input_scale, factors_D)
    except CheckpointError as error:
        raise CheckpointError(f"{values.where}: {error}") from None


def _grouped_int8_matrix(values: StoredTensor, factors: Mapping[str, StoredTensor]) -> UnreadTensor:
    _check_groups(values, factors, values.shape[1], SCALES)
    values_FD, scales_FG = values.array(), factors[SCALES].array()

    def read(first: int, last: int) -> np.ndarray:
        values_FGI = values_FD[first:last].reshape(last - first, scales_FG.shape[1], GROUP_INPUTS)
        weight_FGI = np.multiply(values_FGI, scales_FG[first:last, :, None], dtype=np.float32)
        return weight_FGI.reshape(last - first, values.shape[1])

    return UnreadTensor(values.shape, read, "blocks")


def _check_groups(values: StoredTensor, factors: Mapping[str, StoredTensor], inputs: int, *ends: str) -> None:
    shape = values.shape[0], inputs // GROUP_INPUTS
    for end in ends:
        tensor = factors.get(end)
        if tensor is None or tensor.dtype != "F16" or tensor.shape != shape or inputs % GROUP_INPUTS:
            raise CheckpointError(f"{values.where}{end} should be there, F16, one for each group of {GROUP_INPUTS}")
