"""The description of an encoder's or a decoder's architecture, and readers of config.json that architectures share."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, HeadSpec, NormSpec, Rotary, StackSpec, Stretch
from fastattn.weights.containers.json_file import JsonObject, shorten
from fastattn.weights.huggingface.weights import ACTIVATIONS
from fastattn.weights.tensor_mapping import TensorSources, sources

ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3")
MOST_LAYERS = 1024  # more than any model has: lists of layers are made before the tensors are counted

# model_type with rotary positions -> transformers' default of max_position_embeddings.
DEFAULT_POSITIONS = {
    **dict.fromkeys(("gpt_neox", "hunyuan_v1_dense", "llama", "olmo2"), 2048),
    **dict.fromkeys(("qwen2", "qwen3", "smollm3"), 32_768),
    **dict.fromkeys(("gemma3_text", "mistral"), 131_072),
    **dict.fromkeys(("gemma2", "modernbert"), 8192),
    "phi3": 4096,
}

Ties = Callable[[JsonObject], Mapping[str, str]]
MOST_WIDTH = 1 << 20  # more than any model has: scales are made of widths before the tensors are looked at


@dataclass(frozen=True)
class HeadSource:
    """A head after an encoder in a Hugging Face directory."""

    # (config.json, the stack, the number of labels) -> the head
    spec: Callable[[JsonObject, StackSpec, int], HeadSpec]
    # (config.json, the stack) -> the sources of the head's tensors, whose names have no prefix
    table: Callable[[JsonObject, StackSpec], Mapping[str, TensorSources]]
    has_labels: bool = True  # whether the head has an output for each label of config.json
    ties: Ties = lambda config: {}  # as ``Architecture.ties``


@dataclass(frozen=True)
class Architecture:
    """An encoder or a decoder in a Hugging Face directory."""

    # (config.json) -> the stack; raises CheckpointError for settings that are not supported
    spec: Callable[[JsonObject], StackSpec]
    # (config.json, the stack) -> the sources of the stack's tensors
    table: Callable[[JsonObject, StackSpec], Mapping[str, TensorSources]]
    prefixes: tuple[str, ...] = ()  # that all tensors' names may have, in files of an encoder with a head
    ignored_prefixes: tuple[str, ...] = ()  # of tensors that do not affect the last hidden states
    # (config.json) -> what stands for each layer's number in the file; None: the number
    numbers: Callable[[JsonObject], list[str]] | None = None
    current_ends: Mapping[str, str] = field(default_factory=dict)  # old end of a tensor's name -> the current end
    # the end of a class's name in ``architectures`` -> the head of that class
    heads: Mapping[str, HeadSource] = field(default_factory=dict)
    # (config.json) -> {name: name} of pairs of tied tensors
    ties: Ties = lambda config: {}
    # (config.json) -> prefixes of tensors that its settings make unused
    unused_prefixes: Callable[[JsonObject], tuple[str, ...]] = lambda config: ()
    buffers: tuple[str, ...] = ()  # ends of the names of tensors that are no weights, which old files have

    def current_name(self, name: str) -> str:
        """A tensor's name without a prefix, old ends replaced."""
        for prefix in self.prefixes:
            name = name.removeprefix(prefix)
        for old, new in self.current_ends.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        return name

    def needs(self, name: str, config: JsonObject) -> bool:
        """Whether the stack, without a head, needs the tensor of this current name."""
        ignored_prefixes = self.ignored_prefixes + self.unused_prefixes(config)
        return not name.startswith(ignored_prefixes) and not name.endswith(self.buffers)


def as_table(table: Mapping[str, TensorSources]) -> Callable[[JsonObject, Any], Mapping[str, TensorSources]]:
    """``table`` as the ``table`` of an Architecture that does not depend on config.json."""
    return lambda config, stack: table


def count_layers(config: JsonObject, name: str = "num_hidden_layers") -> int:
    layers = config.integer(name, minimum=1)
    if layers > MOST_LAYERS:
        raise config.error(name, f"at most {MOST_LAYERS}", layers)
    return layers


def count_columns(config: JsonObject, name: str = "hidden_size", default: int | None = None) -> int:
    columns = config.integer(name, default, minimum=1)
    if columns > MOST_WIDTH:
        raise config.error(name, f"at most {MOST_WIDTH}", columns)
    return columns


def activation(config: JsonObject, name: str = "hidden_act", default: str = "gelu") -> str:
    """fastattn's name of the activation under ``name``."""
    return ACTIVATIONS[config.choice(name, ACTIVATIONS, default)]


def even_heads(config: JsonObject, width: str = "hidden_size", heads: str = "num_attention_heads") -> AttentionSpec:
    """Attention whose heads share the width evenly; ``width`` and ``heads`` are names of settings."""
    D, H = count_columns(config, width), config.integer(heads, minimum=1)
    if D % H:
        raise CheckpointError(f"{config.where}: {width} {D} is not a multiple of {heads} {shorten(H)}")
    return AttentionSpec(H, key_heads=H, head_width=D // H)


SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")


def stack_sizes(
    config: JsonObject,
    names: tuple[str, str, str, str] = SIZES,
    act: tuple[str, str] = ("hidden_act", "gelu"),
    gated: bool = False,
) -> dict[str, Any]:
    """Fields of a StackSpec; ``names``: of settings as SIZES; ``act``: the activation's setting and its default."""
    layers, width, heads, inner = names
    attention = even_heads(config, width, heads)
    return {
        "layers": count_layers(config, layers),
        "width": attention.query_width,
        "vocabulary": config.integer("vocab_size", minimum=1),
        "attention": attention,
        "feed_forward": FeedForwardSpec(config.integer(inner, minimum=1), activation(config, *act), gated),
    }


def refuse(config: JsonObject, **harmless: object) -> None:
    """Raise a CheckpointError that lists settings that are neither absent, null nor the ``harmless`` value."""
    problems = [
        f"{name} {shorten(config.values[name])}"
        for name, value in harmless.items()
        if config.values.get(name) not in (None, value)
    ]
    if problems:
        raise CheckpointError(f"{config.where}: not supported: {'; '.join(problems)}")


def rope_parameters(config: JsonObject, layer_type: str = "") -> JsonObject:
    """The settings of rotary positions, under their current or old name; ``layer_type`` as in ``rotary``."""
    if not config.has("rope_parameters"):
        return config.nested("rope_scaling")
    if config.nested("rope_scaling").values not in ({}, config.values["rope_parameters"]):
        raise CheckpointError(f"{config.where}: rope_parameters and rope_scaling are both there, and differ")
    parameters = config.nested("rope_parameters")
    return parameters.nested(layer_type) if layer_type else parameters


def rotary(
    config: JsonObject,
    width: int,
    base: float,
    layer_type: str = "",
    base_name: str = "rope_theta",
    share: float | None = None,
) -> Rotary:
    """Rotary positions with paired halves, of heads of ``width``, by transformers' current or old settings.

    base        the default base
    layer_type  the type of layers, where each type has its own positions
    base_name   the name of the base's setting before there were ``rope_parameters``
    share       the default share of a head's dimensions that are rotated; None: always all dimensions
    """
    parameters = rope_parameters(config, layer_type)
    type_name = "rope_type" if parameters.has("rope_type") else "type"
    rope_type = parameters.choice(type_name, ROPE_TYPES, "default")
    rotated_share = parameters.number("partial_rotary_factor", config.number("partial_rotary_factor", share or 1.0))
    if share is not None:
        if not 0 < rotated_share <= 1:
            raise parameters.error("partial_rotary_factor", "above 0 and at most 1", rotated_share)
        head_width, rotated_width = width, int(width * rotated_share)
        is_widened = rotated_width % 2 and rotated_width < head_width and rope_type in ("default", "linear")
        width = rotated_width + bool(is_widened)
    if width % 2 or not width:
        raise CheckpointError(f"{config.where}: rotary positions need heads of an even width, got {width}")
    # transformers ignores the factor with the default type, and fails with other types.
    if share is None and rope_type != "default" and rotated_share != 1:
        raise parameters.error("partial_rotary_factor", f"1 with rope_type {rope_type}", rotated_share)
    base = parameters.number("rope_theta", config.number(base_name, base))
    # In place of an odd number of dimensions, transformers rotates one more, with the exponents of the odd number.
    if share is not None and width > rotated_width:
        base = base ** (width / rotated_width)
    scale = parameters.number("factor") if rope_type == "linear" else 1.0
    # The type "dynamic" changes nothing within max_position_embeddings, which is the limit of texts here.
    read_stretch = _STRETCHES.get(rope_type)
    stretch = read_stretch(parameters, trained_length(config, parameters, layer_type)) if read_stretch else None
    return Rotary(width, base, interleaved=False, scale=scale, stretch=stretch)


def trained_length(config: JsonObject, parameters: JsonObject, layer_type: str = "") -> int:
    """The length in positions of the longest texts in training."""
    name = "original_max_position_embeddings"
    holder = config if config.has(name) and not layer_type else parameters
    return holder.integer(name, count_positions(config), minimum=1)


def count_positions(config: JsonObject) -> int:
    """The length in positions of the longest text."""
    default = DEFAULT_POSITIONS.get(config.string("model_type"))
    return config.integer("max_position_embeddings", default, minimum=1)


def _read_yarn(parameters: JsonObject, length: int) -> Stretch:
    factor = parameters.number("factor")
    weights = [parameters.number(name, 0.0) for name in ("mscale", "mscale_all_dim")]
    upper, lower = weights if all(weights) else (1.0, 0.0)
    growth = math.log(max(factor, 1.0)) / 10  # equation 22 of YaRN (Peng 2023)
    size = parameters.number("attention_factor", (upper * growth + 1) / ((lower * growth + 1) or math.inf))
    defaults = {"beta_slow": 1.0, "beta_fast": 32.0}
    slow, fast = (parameters.number(name, 0.0) or default for name, default in defaults.items())
    return Stretch("yarn", factor, length, slow, fast, parameters.boolean("truncate", True), size)


def _read_llama3(parameters: JsonObject, length: int) -> Stretch:
    factor, slow, fast = (parameters.number(name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    return Stretch("llama3", factor, length, slow, fast)


_STRETCHES: dict[str, Callable[[JsonObject, int], Stretch]] = {"yarn": _read_yarn, "llama3": _read_llama3}


def local_layers(config: JsonObject, layers: int, is_local: Callable[[int], bool]) -> tuple[int, ...]:
    """The numbers of the layers with local attention: by the setting ``layer_types``, else by ``is_local``."""
    if not config.has("layer_types"):
        return tuple(i for i in range(layers) if is_local(i))
    types = config.values["layer_types"]
    choices = ("full_attention", "sliding_attention")
    if not isinstance(types, list) or len(types) != layers or not all(name in choices for name in types):
        raise config.error("layer_types", f"{' or '.join(choices)} for each of {layers} layers", types)
    return tuple(i for i, name in enumerate(types) if name == choices[1])


# Ends of the names of transformers' classes that have heads.
SEQUENCE, TOKENS, MASKED = "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM"


def dense_head(rows: str, inner: str, outer: str, act: str) -> HeadSource:
    """A classifier of ``rows`` (see HeadSpec): a layer of the stack's width with activation ``act``, and a layer."""
    table = as_table({"head.inner.*": sources(f"{inner}.*"), "head.output.*": sources(f"{outer}.*")})
    return HeadSource(lambda config, stack, labels: HeadSpec(rows, labels, True, stack.width, activation=act), table)


def linear_head(rows: str, outer: str) -> HeadSource:
    """A classifier of ``rows`` (see HeadSpec) in one layer."""
    table = as_table({"head.output.*": sources(f"{outer}.*")})
    return HeadSource(lambda config, stack, labels: HeadSpec(rows, labels), table)


def last_row_head(outer: str, padding: int = -1) -> HeadSource:
    """A classifier of one layer without a bias, of the last row that is not padding.

    padding  the default padding id; -1: no id is padding, as where config.json has null
    """

    def spec(config: JsonObject, stack: StackSpec, labels: int) -> HeadSpec:
        default = -1 if "pad_token_id" in config.values else padding
        return HeadSpec("last", labels, bias=False, padding=config.integer("pad_token_id", default, minimum=-1))

    return HeadSource(spec, as_table({"head.output.*": sources(f"{outer}.*")}))


def masked_head(
    inner: str, norm: str, output: str, bias: str = "", act: str = "", embedding: str = "embeddings.word_embeddings"
) -> HeadSource:
    """A head that predicts tokens: a layer of the embedding's width, a norm, an output layer.

    output  the name of the output layer, whose weight is tied to the embedding unless config.json says otherwise
    bias    the tensor to which the output layer's bias is tied; "": none
    act     the activation of the first layer; "": that of the feed-forwards
    """

    def spec(config: JsonObject, stack: StackSpec, labels: int) -> HeadSpec:
        width, activation_name = stack.embedding_width or stack.width, act or stack.feed_forward.activation
        norms = NormSpec(epsilon=stack.norms.epsilon)
        return HeadSpec("each", stack.vocabulary, inner_width=width, activation=activation_name, norm=norms)

    names = {"head.inner": inner, "head.norm": norm, "head.output": output}
    table = as_table({f"{name}.*": sources(f"{source}.*") for name, source in names.items()})
    ties = {f"{output}.weight": f"{embedding}.weight"} | ({f"{output}.bias": bias} if bias else {})
    return HeadSource(spec, table, has_labels=False, ties=tied_by_setting(ties))


def tied_by_setting(names: Mapping[str, str], default: bool = True) -> Ties:
    """The pairs ``names``, if ``tie_word_embeddings`` in config.json, which is ``default`` if absent, is true."""
    return lambda config: names if config.boolean("tie_word_embeddings", default) else {}


def decoder(
    spec: Callable[[JsonObject], StackSpec],
    table: Callable[[JsonObject, StackSpec], Mapping[str, TensorSources]],
    embedding: str = "embed_tokens.weight",
    tied_by_default: bool = False,
    prefix: str = "model.",
    **fields: Any,
) -> Architecture:
    """The Architecture of a decoder with a projection ``lm_head``.

    embedding        the name of the table to which the projection is tied if config.json says so
    tied_by_default  whether projection and table are tied if config.json does not say
    fields           further fields of the Architecture
    """
    projection = {"decoder.projection.weight": sources("lm_head.weight")}
    # Old files have Llama's and GPT-NeoX's frequencies and masks.
    buffers = (".rotary_emb.inv_freq", ".attention.bias", ".masked_bias")
    ties = tied_by_setting({"lm_head.weight": embedding}, tied_by_default)
    defaults: dict[str, Any] = {"prefixes": (prefix,), "ties": ties, "buffers": buffers}
    return Architecture(spec, lambda config, stack: {**table(config, stack), **projection}, **defaults | fields)


def known_type(config: JsonObject, choices: Collection[str]) -> str:
    """A config.json's model_type; CheckpointError for one not in ``choices``, with those, the most similar first."""
    model_type = config.string("model_type")
    if model_type not in choices:
        from difflib import SequenceMatcher  # not at the top: no start needs it

        by_similarity = sorted(choices, key=lambda name: (-SequenceMatcher(None, model_type[:100], name).ratio(), name))
        names = ", ".join(by_similarity)
        raise CheckpointError(f"{config.where}: model type {shorten(model_type)} is not supported; known: {names}")
    return model_type


def architecture_in(table: Mapping[str, str], config: JsonObject) -> Any:
    """The object of this package that ``table`` names for a config.json's model_type; raises as ``known_type``."""
    module, name = table[known_type(config, table)].split(".")
    return getattr(import_module(f"{__package__}.{module}"), name)
