"""config.json of fastattn's own folder: the ModelSpec, the text settings, which files and tensors stand for others."""

from dataclasses import dataclass

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec import EncoderText, ModelSpec, StackSpec, TranslationText
from fastattn.weights.containers.json_file import read_object, shorten
from fastattn.weights.containers.plain_data import from_plain
from fastattn.weights.folder import Folder

FORMAT = "fastattn"
VERSION = 1
PRECISIONS = ("float32", "bfloat16", "int8")
# Field of a text -> its file; a target's may be its source's.
FILES = {
    "source_vocabulary": "source_vocabulary.json",
    "target_vocabulary": "target_vocabulary.json",
    "source_model": "source.spm",
    "target_model": "target.spm",
    "vocabulary_map": "vmap.txt",
    "tokenizer": "tokenizer.json",
}
# What config.json does not hold of a text, and what stands there until it is read.
KEPT_APART: dict[type, dict[str, object]] = {
    TranslationText: {
        "source_vocabulary": (),
        "target_vocabulary": (),
        "source_model": None,
        "target_model": None,
        "vocabulary_map": None,
    },
    EncoderText: {"tokenizer": b"", "dense": ()},
}

Text = TranslationText | EncoderText


@dataclass(frozen=True)
class Config:
    """What config.json holds.

    text   the fields of a TranslationText (a model with a decoder) or of an EncoderText, less those KEPT_APART
    files  field of the text -> the file in which it is
    dense  the activation of each dense layer after an encoder
    tied   name of a tensor -> that of the one which is stored for both
    details  what the loader told of the checkpoint
    copied  of a shortlist: whether a sentence may choose the ids of its own source too
    """

    format: str
    version: int
    precision: str
    model: ModelSpec
    text: dict
    files: dict[str, str]
    dense: tuple[str, ...]
    tied: dict[str, str]
    details: dict[str, str]
    copied: bool = False


def read_config(folder: Folder) -> tuple[Config, Text]:
    """config.json, and the text as far as it is there; one error holds everything that is wrong."""
    values = read_object(folder, "config.json")
    version = values.integer("version")
    if version != VERSION:
        raise CheckpointError(f"{values.where}: version {version} of fastattn's folders is not known; known: {VERSION}")
    problems: list[str] = []
    config = from_plain(Config, values.values, "", problems)
    kind: type = TranslationText if values.nested("model").has("decoder") else EncoderText
    text = from_plain(kind, values.values.get("text", {}), "text", problems, KEPT_APART[kind])
    if config is not None:
        problems += _faults(config)
    if text is not None:
        problems += _text_faults(text)
    if config is None or text is None or problems:
        raise CheckpointError(f"{values.where}: {'; '.join(dict.fromkeys(problems))}")
    return config, text


def _faults(config: Config) -> list[str]:
    """What is wrong with a Config whose fields are of the right types."""
    model = config.model
    faults = []
    if config.precision not in PRECISIONS:
        faults.append(f"precision should be one of {', '.join(PRECISIONS)}, is {shorten(config.precision)}")
    if model.kind != ("encoder" if model.decoder is None else "encoder-decoder"):
        faults.append(f"model.kind {shorten(model.kind)} does not go with its stacks")
    if model.encoder.cross_attention or (model.decoder is not None and not model.decoder.cross_attention):
        faults.append("cross_attention should be the decoder's, and the decoder's alone")
    if config.dense and model.decoder is not None:
        faults.append("dense layers follow an encoder, not an encoder-decoder")
    needed = {"tokenizer"} if model.decoder is None else {"source_vocabulary", "target_vocabulary"}
    allowed = needed if model.decoder is None else needed | {"source_model", "target_model", "vocabulary_map"}
    faults += [f"files.{field} is missing" for field in sorted(needed) if field not in config.files]
    for field, file in config.files.items():
        if field not in allowed:
            faults.append(f"files.{shorten(field)} is unknown")
        elif file not in (FILES[field], FILES[field.replace("target", "source")]):
            faults.append(f"files.{field} should be {FILES[field]!r}, is {shorten(file)}")
    for name, stack in (("model.encoder", model.encoder), ("model.decoder", model.decoder)):
        faults += [f"{name}.{fault}" for fault in ([] if stack is None else _stack_faults(stack))]
    return faults


def _stack_faults(stack: StackSpec) -> list[str]:
    """What the shapes of the tensors do not tell of."""
    counts = ("max_positions", "relative_buckets", "relative_max_distance", "alignment_heads")
    faults = [f"{name} should not be negative" for name in counts if getattr(stack, name) < 0]
    if not -stack.layers <= stack.alignment_layer < stack.layers or stack.alignment_heads > stack.heads:
        faults.append(f"alignment_layer and alignment_heads do not fit {stack.layers} layers of {stack.heads} heads")
    rotary = stack.rotary
    if rotary is not None:
        if rotary.width % 2 or not 2 <= rotary.width <= stack.head_width:
            faults.append(f"rotary.width should be even, from 2 to the head's {stack.head_width}, is {rotary.width}")
        if not (np.float32(rotary.base) > 0 and np.float32(rotary.scale) > 0):
            faults.append("rotary.base and rotary.scale should be above zero")
    return faults


def _text_faults(text: Text) -> list[str]:
    faults = []
    if isinstance(text, EncoderText):
        if text.max_length < 1:
            faults.append(f"text.max_length should be at least 1, is {text.max_length}")
        if text.default_prompt is not None and text.default_prompt not in text.prompts:
            faults.append(f"text.default_prompt {shorten(text.default_prompt)} is none of the prompts")
    return faults
