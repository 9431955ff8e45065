"""Checkpoints, which readers of all formats return, and the precisions that they run in."""

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
# CTranslate2's further names -> the precision that they run in, which is never less exact: bfloat16 has 8 significant
# bits, float16 has 11. Only products have a precision here, all else is float32: names in _MORE_EXACT promise less.
_FOREIGN = {"default": "auto", **dict.fromkeys(("float16", "int16"), "float32")}
_FOREIGN |= dict.fromkeys(("int8_float32", "int8_float16", "int8_bfloat16"), "int8")
_MORE_EXACT = ("float16", "int16", "int8_float16", "int8_bfloat16")


@dataclass(frozen=True, eq=False)
class Shortlist:
    """A lexical shortlist: the target ids that a sentence may choose from, by its source ids; all ids are int32."""

    always: np.ndarray  # the ids that every sentence may choose
    starts_V1: np.ndarray  # where the ids of each source id start in ``targets``; [source vocabulary + 1]
    targets: np.ndarray  # the ids that a source id adds
    copied: bool = False  # whether a sentence may also choose the ids of its source (a shared vocabulary)


@dataclass(frozen=True)
class IdsInput:
    """The input of a model that takes token ids, without a tokenizer."""

    description = "token ids"


@dataclass(frozen=True)
class ArrayInput:
    """The input of a model that takes an array: an image, a grid of features, frames of sound."""

    axes: str  # a letter for each axis, such as "HWC"
    shape: tuple[int, ...]  # its sizes; 0: any

    @property
    def description(self) -> str:
        return f"an array {'x'.join(self.axes)}"


Text = TranslationText | EncoderText | GeneratorText


@dataclass
class Checkpoint:
    """A model as read from files: its architecture, its tensors by canonical name, its kind of input."""

    spec: ModelSpec
    tensors: Mapping[str, Tensor]  # float32 arrays; matrices may be quantized; tied weights are one object
    input: Text | IdsInput | ArrayInput
    precision: str = "float32"  # of the weights in the file
    format: str = ""
    details: dict[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()  # that it was read from
    shortlist: Shortlist | None = None
    headless: str = ""  # why an encoder has no head
    pictures: PictureSpec | None = None

    @property
    def text(self) -> Text:
        """The settings for text; CheckpointError for a model whose input is not text."""
        if not isinstance(self.input, Text):
            use = ": use Encoder.encode_images" if self.pictures is not None else ""
            raise CheckpointError(f"the model takes {self.input.description}, not text{use}")
        return self.input

    @text.setter
    def text(self, text: Text) -> None:
        self.input = text

    def as_encoder(self) -> "Checkpoint":
        """A language model's stack as a causal encoder, without its projection; other checkpoints do not change."""
        text, stack = self.input, self.spec.decoder
        if not isinstance(text, GeneratorText) or not isinstance(stack, StackSpec):
            return self
        spec = ModelSpec("encoder", replace(stack, causal=True, projection_bias=False, output_cap=0.0))
        inner = {name: tensor for name, tensor in self.tensors.items() if not name.startswith("decoder.projection.")}
        tensors = {name.replace("decoder.", "encoder.", 1): tensor for name, tensor in inner.items()}
        length = text.max_length or stack.max_positions or GREATEST
        encoder_text = EncoderText(text.tokenizer, length, token_types=False, pooling=text.pooling)
        return replace(self, spec=spec, tensors=tensors, input=encoder_text)

    def as_reranker(self, yes: int, no: int, prompt: PairPrompt) -> "Checkpoint":
        """A language model's stack as an encoder whose head gives the logit of id ``yes`` minus that of ``no``."""
        encoder = self.as_encoder()
        assert isinstance(encoder.input, EncoderText)
        tensors, projection_VD = dict(encoder.tensors), self.tensors.get("decoder.projection.weight")
        if projection_VD is not None:  # a model from the cache has the head's own
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
        """The checkpoint without static input scales, unless this precision uses them."""
        if self.name == "intgemm":
            return checkpoint
        return replace(checkpoint, tensors=without_input_scales(checkpoint.tensors))


def resolve_precision(precision: str, checkpoint: Checkpoint) -> Precision:
    """The Precision of that name; the checkpoint decides "auto". Raises InputError for an unknown name.

    For CTranslate2's further names a UserWarning tells the precision that they run in. An encoder alone has no static
    input scales, so intgemm is int8 there.
    """
    request = precision
    if request in tuple(_FOREIGN):
        precision = _FOREIGN[request]
    if request in _MORE_EXACT:
        exception = "" if precision == "float32" else ", all but its products as float32"
        warn(f"precision {request!r} runs as {precision!r}{exception}, which is no less exact")
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}; known: {', '.join(PRECISIONS)}")
    if precision == "auto":
        precision = checkpoint.precision if checkpoint.precision in ("int8", "int4") else "float32"
    if precision == "intgemm" and checkpoint.spec.decoder is None:
        precision = "int8"
    return Precision(precision)
