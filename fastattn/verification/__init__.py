"""Compares a model in fastattn with the same model in its source framework, layer by layer, for the same texts.

The frameworks are no dependencies: only this package imports them, when a model is verified.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fastattn.errors import InputError
from fastattn.spec.checkpoint import Checkpoint, resolve_precision
from fastattn.spec.text_spec import TranslationText
from fastattn.verification.comparison import Bounds, Comparison
from fastattn.verification.sides import (
    CTranslate2Translator,
    EncoderSide,
    FastattnEncoder,
    FastattnTranslator,
    MarianTranslator,
    SentenceTransformersEncoder,
    TransformersEncoder,
    TranslatorSide,
    compare_encoders,
    compare_translators,
)


def _transformers_side(path: Path, checkpoint: Checkpoint) -> EncoderSide | TranslatorSide:
    model_type = checkpoint.details.get("model type", "")
    if isinstance(checkpoint.text, TranslationText) and model_type != "marian":
        raise InputError(f"{path}: verify compares encoder-decoders of MarianMT alone, this is {model_type}")
    side = MarianTranslator if isinstance(checkpoint.text, TranslationText) else TransformersEncoder
    return side(path, checkpoint)


# The format of a checkpoint -> the side of its source framework.
SOURCES: dict[str, Callable[[Path, Checkpoint], Any]] = {
    "huggingface": _transformers_side,
    "sentence-transformers": SentenceTransformersEncoder,
    "ctranslate2": CTranslate2Translator,
    "argos": CTranslate2Translator,
}


class Verification:
    """A checkpoint's model on both sides, in fastattn and in its source framework.

    path        the checkpoint's folder
    checkpoint  what ``fastattn.weights.read`` returns for that folder
    precision   of fastattn's products; the source framework computes in float32
    bound       replaces both numbers of the Bounds; None: those of the precision
    source      the framework's name, with versions
    Raises InputError if no framework in Python reads the checkpoint, or if the framework is not installed.
    """

    def __init__(self, path: Path, checkpoint: Checkpoint, precision: str = "auto", bound: float | None = None):
        if checkpoint.format not in SOURCES:
            raise InputError(
                f"{path}: no source framework to compare with: nothing that Python can import reads "
                f"{checkpoint.format or 'this'} checkpoints; known: {', '.join(SOURCES)}"
            )
        self.precision = resolve_precision(precision, checkpoint).name
        theirs = SOURCES[checkpoint.format](path, checkpoint)
        self.source = theirs.name
        self.bounds = Bounds.of_precision(self.precision, bound)
        self._compare: Callable[[Sequence[str], Bounds], list[Comparison]]
        if isinstance(checkpoint.text, TranslationText):
            self._compare = partial(compare_translators, FastattnTranslator(path, checkpoint, precision), theirs)
        else:
            self._compare = partial(compare_encoders, FastattnEncoder(path, checkpoint, precision), theirs)

    def compare(self, texts: Sequence[str]) -> list[Comparison]:
        """The comparisons in the order of the computation; tokens come first, since all others depend on them."""
        return self._compare(texts, self.bounds)
