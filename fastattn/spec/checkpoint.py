"""Checkpoints: what a loader returns, the same for all exporters."""

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.quantized import Tensor
from fastattn.spec.text_spec import EncoderText, TranslationText
from fastattn.system.records import dataclass


@dataclass(frozen=True, eq=False)
class Shortlist:
    """A lexical shortlist: which target ids a sentence may choose from, by its source ids (int32 ids throughout).

    always     the ids that every sentence may choose
    starts_V1  where the ids of each source id start in ``targets``; [source vocabulary + 1]
    targets    the ids that a source id adds
    copied     whether a sentence may also choose the ids of its source (a shared vocabulary)
    """

    always: np.ndarray
    starts_V1: np.ndarray
    targets: np.ndarray
    copied: bool = False


@dataclass(frozen=True)
class IdsInput:
    """The input of a model that is given token ids, for which the checkpoint has no tokenizer."""


@dataclass(frozen=True)
class ArrayInput:
    """The input of a model that is given an array: an image, a grid of features, frames of sound.

    axes   a letter for each axis, such as "HWC"
    shape  its sizes; 0: any
    """

    axes: str
    shape: tuple[int, ...]


Text = TranslationText | EncoderText


@dataclass
class Checkpoint:
    """A model as read from files: its architecture, its tensors by canonical name, and what its input is.

    ``tensors`` are float32 arrays, or QuantizedTensors for linear weights and embedding tables; tied weights are one
    object under both names. ``precision`` is that of the weights in the file. ``headless`` says why an encoder has no
    head.
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

    @property
    def text(self) -> Text:
        """How text becomes ids. Raises CheckpointError for a model whose input is no text."""
        if not isinstance(self.input, Text):
            kind = "token ids" if isinstance(self.input, IdsInput) else f"an array {'x'.join(self.input.axes)}"
            raise CheckpointError(f"the model takes {kind}, not text")
        return self.input

    @text.setter
    def text(self, text: Text) -> None:
        self.input = text

    def without_head(self) -> "Checkpoint":
        """The encoder alone."""
        if self.spec.head is None:
            return self
        kept = {name: tensor for name, tensor in self.tensors.items() if not name.startswith("head.")}
        unlabelled = replace(self.input, labels=()) if isinstance(self.input, EncoderText) else self.input
        return replace(self, spec=replace(self.spec, head=None), tensors=kept, input=unlabelled)
