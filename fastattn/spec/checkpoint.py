"""What a loader returns, the same for all exporters."""

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

import numpy as np

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


@dataclass
class Checkpoint:
    """What a loader returns: the architecture, its tensors by canonical name, and the tokenizer's data.

    ``tensors`` are float32 arrays, or QuantizedTensors for linear weights and embedding tables; tied weights are one
    object under both names. ``precision`` is that of the weights in the file. ``headless`` says why an encoder has no
    head.
    """

    spec: ModelSpec
    tensors: Mapping[str, Tensor]
    text: TranslationText | EncoderText
    precision: str = "float32"
    format: str = ""
    details: dict[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()  # that it was read from
    shortlist: Shortlist | None = None
    headless: str = ""

    def without_head(self) -> "Checkpoint":
        """The encoder alone."""
        if self.spec.head is None:
            return self
        kept = {name: tensor for name, tensor in self.tensors.items() if not name.startswith("head.")}
        text = replace(self.text, labels=()) if isinstance(self.text, EncoderText) else self.text
        return replace(self, spec=replace(self.spec, head=None), tensors=kept, text=text)
