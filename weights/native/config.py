"""config.json of fastattn's own folder: the ModelSpec, the text settings, the names of shared files and tensors."""

from dataclasses import dataclass
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec, StackSpec
from fastattn.spec.recurrent import RecurrentSpec
from fastattn.spec.text_spec import PROBABILITIES, SCORES, TRUNCATION_SIDES, EncoderText, GeneratorText, TranslationText
from fastattn.weights.containers.json_file import from_plain, read_object, shorten
from fastattn.weights.folder import Folder

FORMAT = "fastattn"
VERSION = 2
# Version 1's field of a stack -> (the part that has it now, its field). Version 1 also had an autoregression, which is
# the recurrence's kind unless it is self-attention.
FIRST_NAMES = {
    **{name: ("attention", name) for name in ("heads", "key_heads", "head_width", "query_scale")},
    **{name: ("feed_forward", name) for name in ("inner_width", "activation", "gated")},
    "norm": ("norms", "kind"),
    "norm_epsilon": ("norms", "epsilon"),
    "norm_biases": ("norms", "biases"),
    "pre_norm": ("norms", "before"),
    "final_norm": ("norms", "final"),
    "embedding_norm": ("norms", "embedding"),
    "positions": ("positions", "kind"),
    "max_positions": ("positions", "limit"),
    "sinusoid_start": ("positions", "start"),
    "rotary": ("positions", "rotary"),
    "alibi": ("positions", "alibi"),
    "relative_buckets": ("positions", "buckets"),
    "relative_max_distance": ("positions", "max_distance"),
    "autoregression": ("recurrence", "kind"),
    "average_inner_width": ("recurrence", "inner_width"),
    "average_activation": ("recurrence", "activation"),
    "average_gates": ("recurrence", "gates"),
    "alignment_layer": ("alignment", "layer"),
    "alignment_heads": ("alignment", "heads"),
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
# Fields of a text outside config.json -> their values until they are read.
STORED_SEPARATELY: dict[type, dict[str, object]] = {
    TranslationText: dict.fromkeys(FILES) | {"source_vocabulary": (), "target_vocabulary": ()},
    EncoderText: {"tokenizer": b"", "dense": ()},
    GeneratorText: {"tokenizer": b""},
}

Text = TranslationText | EncoderText | GeneratorText
TEXTS: dict[str, type] = {"encoder": EncoderText, "decoder": GeneratorText}  # kind of model -> its text's class


@dataclass(frozen=True)
class Config:
    """The contents of config.json."""

    format: str
    version: int
    precision: str
    model: ModelSpec
    text: dict  # the fields of a TranslationText, or of the kind of model's class in TEXTS, without STORED_SEPARATELY
    files: dict[str, str]  # field of the text -> its file
    dense: tuple[str, ...]  # the activation of each dense layer after an encoder
    tied: dict[str, str]  # name of a tensor -> name of the tensor stored for both
    details: dict[str, str]  # the loader's details of the checkpoint
    copied: bool = False  # for a shortlist: whether a sentence may also choose the ids of its source


def read_config(folder: Folder) -> tuple[Config, Text]:
    """(config.json, the text without its files); raises one CheckpointError with all faults."""
    values = read_object(folder, "config.json")
    version = values.integer("version")
    if version not in (1, VERSION):
        raise CheckpointError(
            f"{values.where}: version {version} of fastattn's folders is not known; known: 1, {VERSION}"
        )
    problems: list[str] = []
    plain, model = values.values, values.values.get("model")
    if version == 1 and isinstance(model, dict):
        plain = plain | {"model": {name: _in_parts(stack) for name, stack in model.items()}}
    kinds = {StackSpec: lambda stack: RecurrentSpec if isinstance(stack, dict) and "cell" in stack else StackSpec}
    config = from_plain(Config, plain, "", problems, None, kinds)
    kind = TEXTS.get(str(values.nested("model").values.get("kind")), TranslationText)
    text = from_plain(kind, values.values.get("text", {}), "text", problems, STORED_SEPARATELY[kind])
    if config is not None:
        problems += _faults(config)
    if isinstance(text, GeneratorText) and config is not None and config.model.decoder is not None:
        problems += _generator_faults(text, config.model.decoder.vocabulary)
    if isinstance(text, EncoderText):
        problems += _text_faults(text, config)
    if config is None or text is None or problems:
        raise CheckpointError(f"{values.where}: {'; '.join(dict.fromkeys(problems))}")
    return config, text


def _in_parts(stack: object) -> object:
    if not isinstance(stack, dict):
        return stack
    parts: dict[str, Any] = {}
    for name, (part, field) in FIRST_NAMES.items():
        if name in stack:
            parts.setdefault(part, {})[field] = stack[name]
    if parts.get("recurrence", {}).get("kind", "self-attention") == "self-attention":
        parts["recurrence"] = None
    return {name: value for name, value in stack.items() if name not in FIRST_NAMES} | parts


def _faults(config: Config) -> list[str]:
    model = config.model
    faults = []
    if config.precision not in PRECISIONS:
        faults.append(f"precision should be one of {', '.join(PRECISIONS)}, is {shorten(config.precision)}")
    if STACKS.get(model.kind) != tuple(model.stacks):
        faults.append(f"model.kind {shorten(model.kind)} does not go with its stacks")
    both = len(model.stacks) == 2
    if any(stack.cross_attention != (both and name == "decoder") for name, stack in model.stacks.items()):
        faults.append("cross_attention should be the decoder's where there is an encoder too, and its alone")
    if config.dense and model.decoder is not None:
        faults.append("dense layers follow an encoder, not an encoder-decoder")
    needed = {"source_vocabulary", "target_vocabulary"} if both else {"tokenizer"}
    allowed = FILES if both else needed
    faults += [f"files.{field} is missing" for field in sorted(needed) if field not in config.files]
    for field, file in config.files.items():
        if field not in allowed:
            faults.append(f"files.{shorten(field)} is unknown")
        elif file not in (FILES[field], FILES[field.replace("target", "source")]):
            faults.append(f"files.{field} should be {FILES[field]!r}, is {shorten(file)}")
    for name, stack in model.stacks.items():
        faults += [f"model.{name}.{fault}" for fault in _stack_faults(stack)] if isinstance(stack, StackSpec) else []
    return faults


def _stack_faults(stack: StackSpec) -> list[str]:
    """The faults of a stack that the tensors' shapes do not reveal."""
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


def _generator_faults(text: GeneratorText, vocabulary: int) -> list[str]:
    faults = [] if text.max_length >= 0 else [f"text.max_length should not be negative, is {text.max_length}"]
    never = (*text.decoding.suppress_sequences, text.decoding.begin_suppress_tokens)
    for name, ids in (("end_ids", text.end_ids), *(("decoding", ids) for ids in never)):
        if not all(0 <= number < vocabulary for number in ids):
            faults.append(f"text.{name} should hold ids below {vocabulary}, holds {shorten(list(ids))}")
    return faults


def _text_faults(text: EncoderText, config: Config | None) -> list[str]:
    faults = []
    for name, length in (("max_length", text.max_length), ("truncate_dim", text.truncate_dim)):
        if length is not None and length < 1:
            faults.append(f"text.{name} should be at least 1, is {length}")
    if text.truncation_side not in TRUNCATION_SIDES:
        sides = ", ".join(TRUNCATION_SIDES)
        faults.append(f"text.truncation_side should be one of {sides}, is {shorten(text.truncation_side)}")
    if text.default_prompt is not None and text.default_prompt not in text.prompts:
        faults.append(f"text.default_prompt {shorten(text.default_prompt)} is none of the prompts")
    least = {"sparse.most": 1, "multi_vector.expansion": 0}
    least |= {"multi_vector.query_length": 1, "multi_vector.document_length": 1}
    for name, smallest in least.items():
        part, field = name.split(".")
        value = getattr(getattr(text, part), field, None)  # of a part that may not be there
        if value is not None and value < smallest:
            faults.append(f"text.{name} should be at least {smallest}")
    if config is None:
        return faults
    head = config.model.head
    if text.labels and (head is None or head.outputs != len(text.labels)):
        faults.append(f"text.labels should be as many as the head's outputs, are {len(text.labels)}")
    choices = ("probabilities", text.probabilities, PROBABILITIES), ("scores", text.scores, ("", *SCORES))
    for name, stated, known in choices:
        if stated not in known:
            faults.append(f"text.{name} should be one of {', '.join(filter(None, known))}, is {shorten(stated)}")
    return faults
