"""A Marian model's options (``special:model.yml``) as a ModelSpec.

Every option is followed, has no effect on a translation, or is refused by name, all in one error.
(marian-dev, src/models/transformer.h, src/models/encoder_decoder.cpp.)
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import (
    AlignmentSpec,
    AttentionSpec,
    FeedForwardSpec,
    ModelSpec,
    NormSpec,
    PositionSpec,
    RecurrenceSpec,
    StackSpec,
)
from fastattn.weights.containers.json_file import shorten
from fastattn.weights.marian.model_file import Item
from fastattn.weights.marian.yml import Value

# Marian's gelu is x sigmoid(1.702 x).
ACTIVATIONS = {"relu": "relu", "swish": "swish", "gelu": "gelu_sigmoid", "sigmoid": "sigmoid"}
# (transformer-preprocess, transformer-postprocess), without dropout -> (whether norms precede blocks, kind of norm).
BLOCK_NORMS = {
    ("", "an"): (False, "layer"), ("n", "a"): (True, "layer"), ("", "ar"): (False, "rms"), ("r", "a"): (True, "rms")
}  # fmt: skip
NORMS = {"n": "layer", "r": "rms"}
RECURRENCES = {"self-attention": "", "rnn": "ssru", "average-attention": "average-attention"}
EPSILON = 1e-6
# Option -> its values without effect; a model with another value is not supported.
HARMLESS_VALUES: dict[str, tuple[Value, ...]] = {
    **dict.fromkeys(("right-left", "ulr"), ("false",)),
    "lemma-dim-emb": ("0",),
    "lemma-dependency": ("",),
    "factors-dim-emb": ("0",),
    "input-types": ([], ["sequence"], ["sequence", "sequence"]),
    "special-vocab": ([],),
    "transformer-pool": ("false",),
    "transformer-attention-mask": ("default",),
    **dict.fromkeys(("transformer-alibi-shift", "transformer-alibi-trainable"), ("false",)),
    **dict.fromkeys(("transformer-no-bias", "transformer-no-affine"), ("false",)),
}
# Options that are not read: those of other kinds of models and of training, and Marian's version.
IGNORED = frozenset(
    "version skip dim-rnn enc-type enc-cell enc-cell-depth dec-cell-base-depth dec-cell-high-depth separator-symbol "
    "bert-train-type-embeddings bert-type-vocab-size ulr-dim-emb ulr-trainable-transformation factors-combine "
    "transformer-depth-scaling".split()
)
NUMBER = re.compile(r"[-+]?([0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9})")
TRUE, FALSE = ("true", "yes", "on", "y"), ("false", "no", "off", "n")


class Options:
    """Options read by type; ``problems`` collects messages about invalid and unsupported options."""

    def __init__(self, values: Mapping[str, Value], harmless: Mapping[str, tuple[Value, ...]]) -> None:
        self.values = values
        self._names: set[str] = set(harmless)
        self.problems: list[str] = []
        for name, choices in harmless.items():
            value = values.get(name)
            if value is not None and value not in choices and not (isinstance(value, str) and value.lower() in choices):
                self.problems.append(f"{name} {shorten(value)}")

    def text(self, name: str, default: str) -> str:
        value = self._value(name)
        if isinstance(value, list):
            self.problems.append(f"{name} should be one value, is {shorten(value)}")
            return default
        return default if value is None else value

    def texts(self, name: str) -> list[str]:
        value = self._value(name)
        return value if isinstance(value, list) else [] if value is None else [value]

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.text(name, "true" if default else "false").lower()
        if value not in TRUE + FALSE:
            self.problems.append(f"{name} should be true or false, is {shorten(value)}")
        return value in TRUE

    def count(self, name: str, default: int | None = None, minimum: int = 1) -> int:
        value = self.text(name, "" if default is None else str(default))
        if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) < minimum:
            self.problems.append(
                f"{name} should be a whole number of at least {minimum}, is {shorten(value) if value else 'missing'}"
            )
            return max(minimum, default or 1)
        return int(value)

    def number(self, name: str) -> float | None:
        """A finite number; None if the option is absent or has no finite number."""
        value = self._value(name)
        return float(value) if isinstance(value, str) and NUMBER.fullmatch(value) else None

    def choice(self, name: str, choices: Mapping[str, str], default: str) -> str:
        value = self.text(name, default)
        if value not in choices:
            self.problems.append(f"{name} {shorten(value)} (known: {', '.join(choices)})")
            return choices[default]
        return choices[value]

    def find_unknown(self, ignored: frozenset[str]) -> list[str]:
        names = self._names | ignored
        return [f"option {name} is not known" for name in self.values if name not in names]

    def _value(self, name: str) -> Value:
        self._names.add(name)
        return self.values.get(name)


@dataclass(frozen=True)
class MarianArchitecture:
    """A model's spec, and what else determines the arrays' names in its file."""

    model: ModelSpec
    tied_source: bool  # encoder and decoder share one table of embeddings
    tied_output: bool  # the projection is the decoder's table of embeddings
    has_projection: bool  # attention ends with a linear layer
    tied_layers: tuple[int, ...]  # the number, from 1, in the names of each decoder layer's tensors


def read_architecture(values: Mapping[str, Value], items: Mapping[str, Item], where: str) -> MarianArchitecture:
    """The architecture of the options; CheckpointError lists all that is not supported."""
    options = Options(values, HARMLESS_VALUES)
    model_type = options.text("type", "")
    if model_type != "transformer":
        raise CheckpointError(f"{where}: type {shorten(model_type)} is not supported; supported: transformer")
    tied_all = options.flag("tied-embeddings-all")
    tied_source = options.flag("tied-embeddings-src") or tied_all
    tied_output = options.flag("tied-embeddings") or tied_all
    common = _common_fields(options, values)
    activation = common.pop("activation")
    encoder_layers, decoder_layers = options.count("enc-depth"), options.count("dec-depth")
    for name, layers in (("enc-depth", encoder_layers), ("dec-depth", decoder_layers)):
        if layers > len(items):
            options.problems.append(f"{name} is {layers}, but there are {len(items)} arrays")
    tied_layers = _tied_layers(options, decoder_layers)
    inner, depth = options.count("transformer-dim-ffn", 2048), options.count("transformer-ffn-depth", 2)
    decoder_inner = options.count("transformer-decoder-dim-ffn", 0, minimum=0) or inner
    decoder_depth = options.count("transformer-decoder-ffn-depth", 0, minimum=0) or depth
    if (depth, decoder_depth) != (2, 2):
        options.problems.append(f"feed-forward layers of other depths than 2 ({depth}, in the decoder {decoder_depth})")
    sizes = options.texts("dim-vocabs")
    source_tokens = _vocabulary_size(options, items, "Wemb" if tied_source else "encoder_Wemb", sizes[:1])
    target_tokens = _vocabulary_size(options, items, "Wemb" if tied_source else "decoder_Wemb", sizes[1:])
    recurrence, alignment = _recurrence(options), _alignment(options, decoder_layers)
    projection_bias = not options.flag("output-omit-bias")
    has_projection = not options.flag("transformer-no-projection")
    if common["positions"].kind == "table":
        common["positions"] = PositionSpec("table", limit=items["Wpos"].shape[0] if "Wpos" in items else 1)
    problems = options.problems + options.find_unknown(IGNORED)
    if problems:
        raise CheckpointError(f"{where}: not supported: {'; '.join(dict.fromkeys(problems))}")
    common |= {"feed_forward": FeedForwardSpec(inner, activation)}
    decoder = common | {"feed_forward": FeedForwardSpec(decoder_inner, activation), "cross_attention": True}
    decoder |= {"recurrence": recurrence, "alignment": alignment, "projection_bias": projection_bias}
    decoder |= {"layers": decoder_layers, "vocabulary": target_tokens, "start_from_zero_embedding": True}
    try:
        encoder_spec = StackSpec(layers=encoder_layers, vocabulary=source_tokens, **common)
        model = ModelSpec("encoder-decoder", encoder_spec, StackSpec(**decoder))
    except CheckpointError as error:
        raise CheckpointError(f"{where}: {error}") from None
    return MarianArchitecture(model, tied_source, tied_output, has_projection, tied_layers)


def _common_fields(options: Options, values: Mapping[str, Value]) -> dict:
    """The fields of a StackSpec that both stacks share, and the feed-forward's activation."""
    width, heads = options.count("dim-emb", 512), options.count("transformer-heads", 8)
    if width % heads:
        options.problems.append(f"dim-emb {width} is not a multiple of transformer-heads {heads}")
    before, after = options.text("transformer-preprocess", ""), options.text("transformer-postprocess", "dan")
    steps_of_block = (before.replace("d", ""), after.replace("d", ""))
    if steps_of_block not in BLOCK_NORMS:
        options.problems.append(
            f"transformer-preprocess {shorten(before)} with transformer-postprocess {shorten(after)}"
        )
    pre_norm, norm = BLOCK_NORMS.get(steps_of_block, (False, "layer"))
    version = re.match(r"v?([0-9]{1,4})\.([0-9]{1,4})\b", str(values.get("version")))
    if pre_norm and version and (int(version[1]), int(version[2])) < (1, 11):
        options.problems.append("norms before each block as Marian before 1.11 had them, not of keys and values")
    ends = {}  # steps, without dropout, behind the embedding and behind the last block
    for name in ("emb", "top"):
        steps = options.text(f"transformer-postprocess-{name}", "d" if name == "emb" else "")
        ends[name] = steps.replace("d", "")
        if ends[name] and NORMS.get(ends[name]) != norm:
            options.problems.append(f"transformer-postprocess-{name} {shorten(steps)} with {norm} norms in each block")
    trains_positions = [options.flag(f"transformer-train-{name}") for name in ("positions", "position-embeddings")]
    positions = "table" if any(trains_positions) else "sinusoid"
    if options.flag("transformer-disable-position-embeddings"):
        positions = "none"
    return {
        "width": width,
        "attention": AttentionSpec(heads, key_heads=heads, head_width=max(1, width // heads)),
        "activation": options.choice("transformer-ffn-activation", ACTIVATIONS, "swish"),
        "norms": NormSpec(norm, EPSILON, before=pre_norm, final=bool(ends["top"]), embedding=bool(ends["emb"])),
        # Embeddings are scaled only if sinusoids are added to them.
        "embedding_scale": float(np.float32(math.sqrt(width))) if positions == "sinusoid" else 1.0,
        "positions": PositionSpec(positions, start=0 if positions == "sinusoid" else 1),
    }


def _tied_layers(options: Options, layers: int) -> tuple[int, ...]:
    """``MarianArchitecture.tied_layers``; () where they are invalid or unknown."""
    numbers = options.texts("transformer-tied-layers")
    if not numbers:
        return tuple(range(1, layers + 1)) if not options.problems else ()
    if len(numbers) != layers or not all(re.fullmatch("[0-9]{1,9}", number) and int(number) for number in numbers):
        options.problems.append(f"transformer-tied-layers should be {layers} numbers from 1, is {shorten(numbers)}")
        return ()
    return tuple(map(int, numbers))


def _vocabulary_size(options: Options, items: Mapping[str, Item], name: str, sizes: list[str]) -> int:
    """The size of a vocabulary: the number of rows of its embedding table."""
    rows = items[name].shape[0] if name in items and items[name].shape else 1
    if name in items and sizes and sizes[0] not in ("0", str(rows)):
        options.problems.append(f"dim-vocabs says {shorten(sizes[0])}, {name} has {rows} rows")
    return rows


def _recurrence(options: Options) -> RecurrenceSpec | None:
    kind = options.choice("transformer-decoder-autoreg", RECURRENCES, "self-attention")
    cell, has_norms = options.text("dec-cell", "gru"), options.flag("layer-normalization")
    has_projection = options.flag("transformer-rnn-projection")
    if kind == "ssru":
        if cell != "ssru":
            options.problems.append(f"dec-cell {shorten(cell)} (known: ssru)")
        options.problems += ["layer-normalization in a recurrent decoder"] * has_norms
        options.problems += ["transformer-rnn-projection"] * has_projection
    inner, depth = options.count("transformer-dim-aan", 2048), options.count("transformer-aan-depth", 2)
    activation = options.text("transformer-aan-activation", "swish")
    gates = not options.flag("transformer-aan-nogate")
    if kind != "average-attention":
        return RecurrenceSpec(kind) if kind else None
    if depth > 2:
        options.problems.append(f"transformer-aan-depth {depth} (known: 1, 2)")
    if activation not in ACTIVATIONS:
        options.problems.append(f"transformer-aan-activation {shorten(activation)} (known: {', '.join(ACTIVATIONS)})")
    return RecurrenceSpec(kind, inner if depth == 2 else 0, ACTIVATIONS.get(activation, "swish"), gates)


def _alignment(options: Options, layers: int) -> AlignmentSpec:
    layer = options.text("transformer-guided-alignment-layer", "last")
    if layer == "last":
        return AlignmentSpec()
    if not re.fullmatch("[0-9]{1,9}", layer) or not 1 <= int(layer) <= layers:
        options.problems.append(f"transformer-guided-alignment-layer {shorten(layer)} of {layers}")
        return AlignmentSpec()
    return AlignmentSpec(int(layer) - 1)
