"""Mapping files, in TOML: a checkpoint's stacks, which arrays make each tensor, how text becomes ids.

::

    like = "pytorch-attention"          # a mapping of ``mappings/``, whose entries the entries of this file replace
    format = "my networks"              # the format that `fastattn inspect` prints
    unused = ["decoder.loss.weight"]    # arrays that no tensor is made of
    [files]                             # prefix for the names of a file's arrays -> a pattern of the file's name
    "encoder." = "encoder.*"
    [encoder]                           # fields of ``spec.recurrent.RecurrentSpec``; sizes follow from arrays
    cell = "gru"
    [decoder]
    layers = ["pre", "post"]            # what replaces # in names of its arrays; by default 0, 1, ...
    context_first = true                # the columns of a context come before an embedding's
    [tensors]                           # a table of ``weights.tensor_mapping``: a name, names or {names, ...}
    "STACK.embedding.weight" = "STACK.embedding.weight"
    [pictures]                          # side, mean and std of an image; in place of [encoder], for a residual network
                                        # whose arrays have timm's names behind "encoder."
    [text]                              # fields of ``spec.text_spec.TranslationText``, and where vocabularies are;
                                        # without [text] inputs are rows of numbers, and the decoder points
                                        # at input rows (a pointer network)
    source = {lines = "source.txt"}     # a token a line; {json = FILE, key = NAME}: {token: id}; or {metadata = NAME}
"""

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.checkpoint import ArrayInput, Checkpoint
from fastattn.spec.images import MAX_SIDE, PictureSpec, ResidualSpec
from fastattn.spec.recurrent import CELLS, RecurrentSpec
from fastattn.spec.tensors import check_tensors, tensor_shapes
from fastattn.spec.text_spec import TranslationText
from fastattn.weights.containers import onnx, pytorch, safetensors
from fastattn.weights.containers.json_file import JsonObject, decode, from_plain, is_text, read_object, shorten
from fastattn.weights.containers.safetensors import read_metadata
from fastattn.weights.folder import Folder
from fastattn.weights.residual_state import ResidualState
from fastattn.weights.tensor_mapping import (
    Array,
    TensorSources,
    check_sources,
    make_tensors,
    map_shapes,
    sources,
    stored_precision,
    zeros,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_BYTES = 1 << 16  # of a mapping file; those of ``mappings/`` have about a thousand
MAPPINGS = Path(__file__).parent / "mappings"
CONTAINERS: dict[str, Callable[[memoryview, str], dict[str, Any]]] = {
    **dict.fromkeys((".pt", ".pth", ".bin"), pytorch.parse),
    ".safetensors": safetensors.parse,
    ".onnx": onnx.parse,
}
ENTRIES = ("like", "format", "unused", "files", "pictures", "encoder", "decoder", "tensors", "text")
BILINEAR = 2  # Pillow's number of the bilinear filter
# Option of a tensor's sources -> (check of a value, valid values for errors, conversion for TensorSources).
OPTIONS: dict[str, tuple[Callable[[Any], bool], str, Callable[[Any], Any]]] = {
    "transposed": (lambda value: type(value) is bool, "true or false", bool),
    "relu": (lambda value: type(value) is bool, "true or false", bool),
    "absent": (lambda value: value == "zeros", "'zeros'", lambda value: zeros),
    "piece": (
        lambda value: isinstance(value, list) and value in [[i, n] for n in range(1, 9) for i in range(n)],
        "the number of a piece and how many there are, at most 8",
        tuple,
    ),
}
FIELDS = {"absent": "default", "piece": "split"}  # option -> the field of TensorSources, where names differ
# Fields of TranslationText that [text] cannot set, with their values.
FIXED_FIELDS = {
    "source_vocabulary": (), "target_vocabulary": (), "source_model": None, "target_model": None,
    "vocabulary_map": None, "tokenizer": None, "codes": None,
}  # fmt: skip


def shipped_mapping(name: str) -> dict[str, Any]:
    """A mapping of ``mappings/``."""
    file = MAPPINGS / f"{name}.toml"
    return parse(file.read_bytes(), str(file))


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the entries of ``changes``; a table that both have is merged entry by entry."""
    tables = [name for name in changes if isinstance(changes[name], dict) and isinstance(base.get(name), dict)]
    return {**base, **changes, **{name: base[name] | changes[name] for name in tables}}


def parse(data: bytes, where: str) -> dict[str, Any]:
    """The entries of a mapping file, with those of the mapping that the file is like."""
    if len(data) > MAX_BYTES:
        raise CheckpointError(f"{where}: should have at most {MAX_BYTES} bytes, has {len(data)}")
    text = decode(data, where)
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: not TOML: {str(error).splitlines()[0]}") from None
    unknown_name = next((name for name in values if name not in ENTRIES), None)
    if unknown_name is not None:
        raise CheckpointError(f"{where}: {shorten(unknown_name)} is unknown; known: {', '.join(ENTRIES)}")
    if "like" not in values:
        return values
    base_name = JsonObject(values, where).choice("like", sorted(file.stem for file in MAPPINGS.glob("*.toml")))
    return merge(shipped_mapping(base_name), values)


def read_by_mapping(mapping: JsonObject, folder: Folder, names: Sequence[str]) -> Checkpoint:
    """The checkpoint of a folder with files of these names, by a mapping."""
    files = _find_files(mapping, folder, names)
    stored: dict[str, Any] = {}
    for prefix, file in files.items():
        arrays = CONTAINERS[Path(file).suffix](folder.read(file), folder.where(file))
        stored |= {prefix + name: array for name, array in arrays.items()}
    where, format_name = ", ".join(map(folder.where, files.values())), mapping.string("format", "recurrent")
    if not format_name.isprintable():
        raise mapping.error("format", "printable", format_name)
    spec, tensors = map_arrays(mapping, stored, where)
    input_spec = _read_input(mapping, folder, list(files.values()), spec)
    files_read, pictures = tuple(dict.fromkeys(folder.files_read)), _read_pictures(mapping)
    precision = stored_precision(stored)
    return Checkpoint(spec, tensors, input_spec, precision, format_name, files=files_read, pictures=pictures)


def _find_files(mapping: JsonObject, folder: Folder, names: Sequence[str]) -> dict[str, str]:
    """Prefix of arrays' names -> the file with the arrays. A pattern may match one file or none."""
    files: dict[str, str] = {}
    patterns = mapping.nested("files")
    for prefix in patterns.values:
        pattern = patterns.string(prefix)
        candidates = names if pattern and "/" not in pattern else ()
        matches = [name for name in candidates if Path(name).suffix in CONTAINERS and Path(name).match(pattern)]
        if len(matches) > 1:
            where, file_names = folder.where(pattern), ", ".join(map(ascii, matches))
            raise CheckpointError(f"{where}: several files fit, {file_names}; give one")
        if matches:
            files[prefix] = matches[0]
    if not files:
        fault = f"files should name the weights; no such file: {shorten(patterns.values)}"
        raise CheckpointError(f"{mapping.where}: {fault}")
    return files


class _Arrays:
    """The stored arrays, which the table [tensors] finds by canonical names."""

    def __init__(self, table: dict[str, TensorSources], stored: Mapping[str, Array]) -> None:
        self.table, self.stored = table, stored

    def sources(self, name: str, layer: int | str = 0) -> TensorSources | None:
        """The sources of a canonical tensor, with ``layer`` in place of layer 0; None if the file lacks them."""
        numbers = {"encoder": [layer], "decoder": [layer]}
        try:
            entry = map_shapes(self.table, {name: ()}, numbers)[name]
        except LookupError:
            return None
        return entry if all(source is None or source in self.stored for source in entry.names) else None

    def size(self, name: str, layer: int | str = 0) -> tuple[int, int]:
        """(rows, columns) of a weight; (0, 0) if the file lacks it."""
        entry = self.sources(name, layer)
        if entry is None:
            return 0, 0
        shapes = [self.stored[source].shape[:: -1 if entry.transposed else 1] for source in filter(None, entry.names)]
        if not all(len(shape) == 2 for shape in shapes):
            return 0, 0
        return sum(shape[0] for shape in shapes) // entry.split[1], shapes[0][1]


def map_arrays(mapping: JsonObject, stored: Mapping[str, Array], where: str) -> tuple[ModelSpec, dict[str, Any]]:
    """(the architecture, its tensors), from the arrays of a checkpoint."""
    unused_names = mapping.values.get("unused", [])
    if not isinstance(unused_names, list) or not all(map(is_text, unused_names)):
        raise mapping.error("unused", "a list of strings", unused_names)
    stored = {name: array for name, array in stored.items() if name not in unused_names}
    table = {name: _read_sources(mapping.nested("tensors"), name) for name in mapping.nested("tensors").values}
    arrays = _Arrays(table, stored)
    encoder: Any
    encoder_layers: Sequence[int | str] = ()
    if mapping.has("pictures"):
        residual_state = ResidualState(stored, where, "encoder.")
        encoder = residual_state.spec((3, *_image_size(mapping.nested("pictures"))))
        stored = {name: array for name, array in stored.items() if not name.startswith("encoder.")}
    else:
        encoder, encoder_layers = _read_stack(mapping, "encoder", arrays, {})
    memory_sizes = {"memory": encoder.width, "memory_states": encoder.states}
    decoder, decoder_layers = _read_stack(mapping, "decoder", arrays, memory_sizes)
    try:
        spec = ModelSpec("encoder-decoder", encoder, decoder)  # type: ignore[arg-type]
    except CheckpointError as error:
        raise CheckpointError(f"{mapping.where}: {error}") from None
    try:
        shapes = tensor_shapes(spec)
        if isinstance(encoder, ResidualSpec):
            shapes = {name: shape for name, shape in shapes.items() if name.startswith("decoder.")}
        tensor_sources = map_shapes(table, shapes, {"encoder": encoder_layers, "decoder": decoder_layers})
    except LookupError as error:
        raise CheckpointError(f"{mapping.where}: tensors: {error.args[0]}") from None
    if mapping.nested("decoder").boolean("context_first", False) and decoder.attention is not None:
        name = f"decoder.layers.{decoder.attention.after}.input.weight"
        if name in tensor_sources:
            tensor_sources[name] = replace(tensor_sources[name], rolled_columns=decoder.context)
    check_sources(tensor_sources, stored, where, f"arrays do not fit {mapping.where}")
    tensors = make_tensors(tensor_sources, stored)
    if isinstance(encoder, ResidualSpec):
        tensors |= residual_state.tensors(encoder)
        check_tensors(spec, tensors, where)
    return spec, tensors


def _image_size(pictures: JsonObject) -> tuple[int, int]:
    """(height, width) of the images, which are square."""
    side = pictures.integer("side", minimum=1)
    if side > MAX_SIDE:
        raise pictures.error("side", f"at most {MAX_SIDE} pixels", side)
    return side, side


def _read_pictures(mapping: JsonObject) -> PictureSpec | None:
    """The steps from a picture to an image: resizing, then (x / 255 - mean) / std; None without pictures."""
    if not mapping.has("pictures"):
        return None
    pictures = mapping.nested("pictures")
    mean, deviation = pictures.number("mean", 0.0), pictures.number("std", 1.0)
    if abs(deviation) < 1e-30:
        raise pictures.error("std", "a number that is not 0", deviation)
    return PictureSpec(_image_size(pictures), BILINEAR, (0, 0), 1 / 255, (mean,) * 3, (deviation,) * 3)


def _read_sources(tensors: JsonObject, name: str) -> TensorSources:
    value = tensors.values[name]
    options = dict(value) if isinstance(value, dict) else {"names": value}
    names = options.pop("names", None)
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not names or not all(map(is_text, names)):
        raise tensors.error(name, "a name, a list of names, or a table with them as names", value)
    for option, setting in options.items():
        if option not in OPTIONS or not OPTIONS[option][0](setting):
            expected = OPTIONS[option][1] if option in OPTIONS else f"one of names, {', '.join(OPTIONS)}"
            raise tensors.error(name, f"a table whose {shorten(option)} is {expected}", value)
    fields = {FIELDS.get(option, option): OPTIONS[option][2](setting) for option, setting in options.items()}
    return sources(*names, **fields)


def _read_stack(
    mapping: JsonObject, name: str, arrays: _Arrays, memory_sizes: dict[str, int]
) -> tuple[RecurrentSpec, Sequence[int | str]]:
    """(a stack, the numbers or names of its layers in the file); ``memory_sizes``: for a decoder, the encoder's."""
    table = mapping.nested(name)
    cell, layers = table.choice("cell", CELLS), table.values.get("layers")
    if layers is None:
        missing_numbers = (i for i in itertools.count() if arrays.sources(f"{name}.layers.0.state.weight", i) is None)
        layers = range(next(missing_numbers))
    if not isinstance(layers, range | list) or not all(type(layer) is int or is_text(layer) for layer in layers):
        raise table.error("layers", "a list of names", layers)
    if not layers:
        raise CheckpointError(f"{mapping.where}: none of the arrays is a layer of the {name}")
    vocabulary, embedding_width = arrays.size(f"{name}.embedding.weight")
    if not mapping.has("text"):  # the inputs are rows of numbers, and the decoder points at rows
        vocabulary = arrays.size("decoder.projection.weight")[0] if memory_sizes else 0
        embedding_width = arrays.size(f"{name}.layers.0.input.weight", layers[0])[1]
    units = arrays.size(f"{name}.layers.0.state.weight", layers[0])[0] // CELLS[cell][0]
    sizes = {"layers": len(layers), "units": units, "vocabulary": vocabulary, "embedding_width": embedding_width}
    values: dict[str, Any] = {entry: value for entry, value in table.values.items() if entry != "context_first"}
    for table_name, field, weight in (
        ("readout", "width", "readout"),
        ("attention", "width", "attention.query"),
        ("attention", "predictive", "attention.position"),
    ):
        rows, _ = arrays.size(f"{name}.{weight}.weight")
        if rows:
            values[table_name] = table.nested(table_name).values | {field: rows}
    if memory_sizes:
        sizes |= memory_sizes | {"projection_bias": arrays.sources("decoder.projection.bias") is not None}
    problems: list[str] = []
    spec = from_plain(RecurrentSpec, values | sizes, name, problems)
    if spec is None:
        raise CheckpointError(f"{mapping.where}: {'; '.join(problems)}")
    return spec, layers


def _read_input(
    mapping: JsonObject, folder: Folder, weights: list[str], spec: ModelSpec
) -> TranslationText | ArrayInput:
    encoder, decoder = spec.stacks.values()
    if mapping.has("pictures") and not mapping.has("text"):
        raise CheckpointError(f"{mapping.where}: pictures need a text, whose words describe them")
    if not mapping.has("text"):
        return ArrayInput("NE", (0, encoder.embedding_width))
    text = mapping.nested("text")
    vocabularies: dict[str, tuple[str, ...]] = {"source_vocabulary": ()}  # stays empty if pictures are the source
    stacks = {"target": decoder} | ({} if mapping.has("pictures") else {"source": encoder})
    for side, stack in stacks.items():
        vocabularies[f"{side}_vocabulary"] = read_vocabulary(text.nested(side), folder, weights, stack.vocabulary)
    values = {name: value for name, value in text.values.items() if name not in ("source", "target")}
    return make_text(values, vocabularies, mapping.where)


def make_text(values: dict[str, Any], vocabularies: dict[str, tuple[str, ...]], where: str) -> TranslationText:
    """The TranslationText that a mapping's entries set; CheckpointError where a vocabulary lacks a special token."""
    problems: list[str] = []
    text = from_plain(TranslationText, values, "text", problems, {**FIXED_FIELDS, **vocabularies})
    if text is None:
        raise CheckpointError(f"{where}: {'; '.join(problems)}")
    tokens = [(text.eos_token, "target"), (text.decoder_start_token, "target")]
    tokens += [(token, "target") for token in text.decoding.forced_tokens]
    tokens += [(text.bos_token, "source")] * text.add_source_bos + [(text.eos_token, "source")] * text.add_source_eos
    for token, side in tokens:
        if token is not None and token not in vocabularies[f"{side}_vocabulary"]:
            raise CheckpointError(f"{where}: the {side} vocabulary lacks {shorten(token)}")
    return text


# Vocabularies, from the sources that a mapping may name, each of which has an entry in READERS.
def read_vocabulary(source: JsonObject, folder: Folder, weights: Sequence[str], rows: int) -> tuple[str, ...]:
    """The tokens by id, one for each of the embedding's ``rows``; ``weights`` are the files that may have metadata."""
    names = [name for name in READERS if source.has(name)]
    if len(names) != 1:
        raise CheckpointError(f"{source.where} should have one of {', '.join(READERS)}, has {shorten(source.values)}")
    return checked_vocabulary(READERS[names[0]](source, folder, weights), rows, source.where)


def checked_vocabulary(tokens: list[str], rows: int, where: str) -> tuple[str, ...]:
    """The tokens; CheckpointError unless there is one for each of the embedding's ``rows``."""
    if len(tokens) != rows:
        raise CheckpointError(f"{where}: the embedding has {rows} rows, the vocabulary {len(tokens)} tokens")
    return tuple(tokens)


def _file_name(source: JsonObject, entry: str) -> str:
    name = source.string(entry)
    if any(character in name for character in "/\\:"):
        raise source.error(entry, "a file beside the weights", name)
    return name


def _tokens_of_lines(source: JsonObject, folder: Folder, weights: Sequence[str]) -> list[str]:
    name = _file_name(source, "lines")
    lines = decode(folder.read(name), folder.where(name)).split("\n")
    return lines if lines[-1] else lines[:-1]


def _tokens_of_json(source: JsonObject, folder: Folder, weights: Sequence[str]) -> list[str]:
    """Tokens from {token: id} under a key of a JSON object."""
    ids = read_object(folder, _file_name(source, "json")).nested(source.string("key"))
    numbers = [ids.integer(token) for token in ids.values]
    if sorted(numbers) != list(range(len(numbers))):
        raise CheckpointError(f"{ids.where}: should have each id from 0 to {len(numbers) - 1} once")
    return sorted(ids.values, key=lambda token: ids.values[token])


def _tokens_of_metadata(source: JsonObject, folder: Folder, weights: Sequence[str]) -> list[str]:
    """Tokens separated by NULs, from the metadata of the first file in ``weights``, which is a .safetensors file."""
    return read_metadata(folder, weights[0]).string(source.string("metadata")).split("\0")


READERS = {"lines": _tokens_of_lines, "json": _tokens_of_json, "metadata": _tokens_of_metadata}
