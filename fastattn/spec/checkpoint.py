"""Checkpoints, which the readers of all formats return, and the precisions in which models run."""

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

import numpy as np

from fastattn.errors import CheckpointError, InputError, warn
from fastattn.spec.architecture import MAX_INT32, HeadSpec, ModelSpec, StackSpec
from fastattn.spec.images import PictureSpec
from fastattn.spec.quantized import Tensor, as_float32, take, without_input_scales
from fastattn.spec.text_spec import EncoderText, GeneratorText, PairPrompt, TranslationText
from fastattn.system.records import dataclass

# "intgemm" is int8 with the checkpoint's static input scales, if any, instead of a scale for each row: Marian's own
# computation, a little farther from float32. "int4" has weights of 4 bits and rows of int8, both in groups with scales;
# the projection onto a vocabulary stays int8. "auto" is the checkpoint's own int8 or int4, else float32.
PRECISIONS = ("float32", "bfloat16", "int8", "intgemm", "int4", "auto")
# CTranslate2's other names -> the precision for them, which is never less exact: bfloat16 has 8 significant bits,
# float16 has 11. Products alone have a precision, all else is float32: more exact than names in _RUN_MORE_EXACT say.
_CTRANSLATE2_NAMES = {"default": "auto", **dict.fromkeys(("float16", "int16"), "float32")}
_CTRANSLATE2_NAMES |= dict.fromkeys(("int8_float32", "int8_float16", "int8_bfloat16"), "int8")
_RUN_MORE_EXACT = ("float16", "int16", "int8_float16", "int8_bfloat16")


@dataclass(frozen=True, eq=False)
class Shortlist:
    """A lexical shortlist: the target ids that a sentence may choose from, by its source ids. Ids are int32."""

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
    shape: tuple[int, ...]  # the sizes of the axes; 0: any

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
    files: tuple[Path, ...] = ()  # from which the checkpoint was read
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
        """A language model's stack, without the projection, as a causal encoder; any other checkpoint itself."""
        text, stack = self.input, self.spec.decoder
        if not isinstance(text, GeneratorText) or not isinstance(stack, StackSpec):
            return self
        spec = ModelSpec("encoder", replace(stack, causal=True, projection_bias=False, output_cap=0.0))
        inner = {name: tensor for name, tensor in self.tensors.items() if not name.startswith("decoder.projection.")}
        tensors = {name.replace("decoder.", "encoder.", 1): tensor for name, tensor in inner.items()}
        length = text.max_length or stack.max_positions or MAX_INT32
        encoder_text = EncoderText(text.tokenizer, length, token_types=False, pooling=text.pooling)
        return replace(self, spec=spec, tensors=tensors, input=encoder_text)

    def as_reranker(self, yes: int, no: int, prompt: PairPrompt) -> "Checkpoint":
        """A language model's stack as an encoder whose head gives the logit of id ``yes`` minus that of ``no``."""
        encoder = self.as_encoder()
        assert isinstance(encoder.input, EncoderText)
        tensors, projection_VD = dict(encoder.tensors), self.tensors.get("decoder.projection.weight")
        if projection_VD is not None:  # None in a cached model, which has the head's tensor
            yes_D, no_D = as_float32(take(projection_VD, np.array([yes, no])))
            tensors["head.output.weight"] = (yes_D - no_D)[None]
        spec = replace(encoder.spec, head=HeadSpec("last", 1, bias=False))
        text = replace(encoder.input, labels=("yes",), scores="sigmoid", pair=prompt)
        return replace(encoder, spec=spec, tensors=tensors, input=text)

    def without_head(self) -> "Checkpoint":
        if self.spec.head is None:
            return self
        tensors = {name: tensor for name, tensor in self.tensors.items() if not name.startswith("head.")}
        text = replace(self.input, labels=()) if isinstance(self.input, EncoderText) else self.input
        return replace(self, spec=replace(self.spec, head=None), tensors=tensors, input=text)


@dataclass(frozen=True)
class Precision:
    """The precision of the matrix products."""

    name: str  # "float32", "bfloat16", "int8", "intgemm" or "int4"

    @property
    def arithmetic(self) -> str:
        """The name for the operations: "float32", "bfloat16", "int8" or "int4"."""
        return "int8" if self.name == "intgemm" else self.name

    @property
    def file_suffix(self) -> str:
        """A suffix for the names of files of packed weights, different for precisions of the same arithmetic."""
        return "-intgemm" if self.name == "intgemm" else ""

    def without_unused_scales(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint without static input scales, unless this precision uses them."""
        if self.name == "intgemm":
            return checkpoint
        return replace(checkpoint, tensors=without_input_scales(checkpoint.tensors))


def resolve_precision(precision: str, checkpoint: Checkpoint) -> Precision:
    """The Precision of that name; the checkpoint decides "auto". Raises InputError for an unknown name.

    A UserWarning tells that a name of CTranslate2 runs in a more exact precision. A model without a decoder has no
    static input scales, so that "intgemm" is int8.
    """
    request = precision
    if request in tuple(_CTRANSLATE2_NAMES):
        precision = _CTRANSLATE2_NAMES[request]
    if request in _RUN_MORE_EXACT:
        exception = "" if precision == "float32" else ", all but its products as float32"
        warn(f"precision {request!r} runs as {precision!r}{exception}, which is no less exact")
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}; known: {', '.join(PRECISIONS)}")
    if precision == "auto":
        precision = checkpoint.precision if checkpoint.precision in ("int8", "int4") else "float32"
    if precision == "intgemm" and checkpoint.spec.decoder is None:
        precision = "int8"
    return Precision(precision)
