"""Checkpoints: what a loader returns, the same for all exporters; and the precisions that they run in."""

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

import numpy as np

from fastattn.errors import CheckpointError, InputError, warn
from fastattn.spec.architecture import GREATEST, HeadSpec, ModelSpec, StackSpec
from fastattn.spec.images import PictureSpec
from fastattn.spec.quantized import Tensor, as_float32, take, without_input_scales
from fastattn.spec.text_spec import EncoderText, GeneratorText, PairPrompt, TranslationText
from fastattn.system.records import dataclass

# "intgemm" is int8 with the checkpoint's static input scales, where it has them, instead of a scale for each row: what
# Marian computes, a little farther from float32. "int4" has weights of 4 bits and rows of int8, both by
# groups; the projection onto a vocabulary stays int8. "auto" is int8 or int4 where the checkpoint holds that, else
# float32.
PRECISIONS = ("float32", "bfloat16", "int8", "intgemm", "int4", "auto")
# CTranslate2's other names -> what they run as, never less exact than what was asked for: bfloat16 has 8 significant
# bits, float16 has 11. What is not a product is float32 here, so those in _MORE_EXACT are not quite what they say.
_FOREIGN = {"default": "auto", **dict.fromkeys(("float16", "int16"), "float32")}
_FOREIGN |= dict.fromkeys(("int8_float32", "int8_float16", "int8_bfloat16"), "int8")
_MORE_EXACT = ("float16", "int16", "int8_float16", "int8_bfloat16")


@dataclass(frozen=True, eq=False)
class Shortlist:
    """A lexical shortlist: which target ids a sentence may choose from, by its source ids (int32 ids throughout)."""

    always: np.ndarray  # the ids that every sentence may choose
    starts_V1: np.ndarray  # where the ids of each source id start in ``targets``; [source vocabulary + 1]
    targets: np.ndarray  # the ids that a source id adds
    copied: bool = False  # whether a sentence may also choose the ids of its source (a shared vocabulary)


@dataclass(frozen=True)
class IdsInput:
    """The input of a model that is given token ids, for which the checkpoint has no tokenizer."""

    description = "token ids"


@dataclass(frozen=True)
class ArrayInput:
    """The input of a model that is given an array: an image, a grid of features, frames of sound."""

    axes: str  # a letter for each axis, such as "HWC"
    shape: tuple[int, ...]  # its sizes; 0: any

    @property
    def description(self) -> str:
        return f"an array {'x'.join(self.axes)}"


Text = TranslationText | EncoderText | GeneratorText


@dataclass
class Checkpoint:
    """A model as read from files: its architecture, its tensors by canonical name, and what its input is.

    ``tensors`` are float32 arrays, for linear weights and embedding tables QuantizedTensors or Int4Tensors too; tied
    weights are one object under both names. ``precision`` is that of the weights in the file. ``headless`` says why an
    encoder has no head.
    """

    spec: ModelSpec
    tensors: Mapping[str, Tensor]
    input: Text | IdsInput | ArrayInput
    precision: str = "float32"
    format: str = ""
    details: dict[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()  # that it was read from
    shortlist: Shortlist | None = None
    headless: str = ""
    pictures: PictureSpec | None = None

    @property
    def text(self) -> Text:
        """How text becomes ids. Raises CheckpointError for a model whose input is no text."""
        if not isinstance(self.input, Text):
            use = ": use Encoder.encode_images" if self.pictures is not None else ""
            raise CheckpointError(f"the model takes {self.input.description}, not text{use}")
        return self.input

    @text.setter
    def text(self, text: Text) -> None:
        self.input = text

    def as_encoder(self) -> "Checkpoint":
        """A language model's stack as a causal encoder, without its projection; any other checkpoint as it is."""
        text, stack = self.input, self.spec.decoder
        if not isinstance(text, GeneratorText) or not isinstance(stack, StackSpec):
            return self
        spec = ModelSpec("encoder", replace(stack, causal=True, projection_bias=False, output_cap=0.0))
        own = {name: tensor for name, tensor in self.tensors.items() if not name.startswith("decoder.projection.")}
        tensors = {name.replace("decoder.", "encoder.", 1): tensor for name, tensor in own.items()}
        length = text.max_length or stack.max_positions or GREATEST
        encoder_text = EncoderText(text.tokenizer, length, token_types=False, pooling=text.pooling)
        return replace(self, spec=spec, tensors=tensors, input=encoder_text)

    def as_reranker(self, yes: int, no: int, prompt: PairPrompt) -> "Checkpoint":
        """A language model's stack as an encoder whose head gives the logit of the id ``yes`` less that of ``no``."""
        encoder = self.as_encoder()
        assert isinstance(encoder.input, EncoderText)
        tensors, projection_VD = dict(encoder.tensors), self.tensors.get("decoder.projection.weight")
        if projection_VD is not None:  # a kept model has the head's own
            yes_D, no_D = as_float32(take(projection_VD, np.array([yes, no])))
            tensors["head.output.weight"] = (yes_D - no_D)[None]
        spec = replace(encoder.spec, head=HeadSpec("last", 1, bias=False))
        text = replace(encoder.input, labels=("yes",), scores="sigmoid", pair=prompt)
        return replace(encoder, spec=spec, tensors=tensors, input=text)

    def without_head(self) -> "Checkpoint":
        if self.spec.head is None:
            return self
        tensors = {name: tensor for name, tensor in self.tensors.items() if not name.startswith("head.")}
        unlabelled = replace(self.input, labels=()) if isinstance(self.input, EncoderText) else self.input
        return replace(self, spec=replace(self.spec, head=None), tensors=tensors, input=unlabelled)


@dataclass(frozen=True)
class Precision:
    """The precision of the matrix products."""

    name: str  # "float32", "bfloat16", "int8", "intgemm" or "int4"

    @property
    def arithmetic(self) -> str:
        """Its name in the operations: "float32", "bfloat16", "int8" or "int4"."""
        return "int8" if self.name == "intgemm" else self.name

    @property
    def variety(self) -> str:
        """A suffix for files of packed weights, different for precisions of the same arithmetic."""
        return "-intgemm" if self.name == "intgemm" else ""

    def applied(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint, without its static input scales unless they are used."""
        if self.name == "intgemm":
            return checkpoint
        return replace(checkpoint, tensors=without_input_scales(checkpoint.tensors))


def resolve_precision(precision: str, checkpoint: Checkpoint) -> Precision:
    """The Precision of that name, "auto" decided by the checkpoint. Raises InputError for an unknown name.

    CTranslate2's other names are accepted; a UserWarning says what they run as. An encoder alone has no static input
    scales, so intgemm is int8 there.
    """
    request = precision
    if request in tuple(_FOREIGN):
        precision = _FOREIGN[request]
    if request in _MORE_EXACT:
        rest = "" if precision == "float32" else ", all but its products as float32"
        warn(f"precision {request!r} runs as {precision!r}{rest}, which is no less exact")
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}; known: {', '.join(PRECISIONS)}")
    if precision == "auto":
        precision = checkpoint.precision if checkpoint.precision in ("int8", "int4") else "float32"
    if precision == "intgemm" and checkpoint.spec.decoder is None:
        precision = "int8"
    return Precision(precision)
