"""A model here beside the framework that it comes from: the same texts through both, compared layer by layer.

The framework is never a dependency: it is imported only here, and only when a model is verified.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fastattn.errors import InputError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.precision import resolve_precision
from fastattn.spec.text_spec import TranslationText
from fastattn.verification.comparison import Bounds, Comparison
from fastattn.verification.encoders import EncoderSide, FastattnEncoder, compare_encoders
from fastattn.verification.translators import FastattnTranslator, TranslatorSide, compare_translators

Maker = Callable[[Path, Checkpoint], Any]


def _transformers(path: Path, checkpoint: Checkpoint) -> EncoderSide | TranslatorSide:
    if isinstance(checkpoint.text, TranslationText):
        from fastattn.verification.marian import MarianTranslator

        return MarianTranslator(path, checkpoint)
    from fastattn.verification.transformers_encoder import TransformersEncoder

    return TransformersEncoder(path, checkpoint)


def _sentence_transformers(path: Path, checkpoint: Checkpoint) -> EncoderSide:
    from fastattn.verification.sentence_transformers_encoder import SentenceTransformersEncoder

    return SentenceTransformersEncoder(path)


def _ctranslate2(path: Path, checkpoint: Checkpoint) -> TranslatorSide:
    from fastattn.verification.ctranslate2_translator import CTranslate2Translator

    return CTranslate2Translator(path, checkpoint)


# The format of a checkpoint -> its source framework's side.
SOURCES: dict[str, Maker] = {
    "huggingface": _transformers,
    "sentence-transformers": _sentence_transformers,
    "ctranslate2": _ctranslate2,
    "argos": _ctranslate2,
}


class Verification:
    """A checkpoint on both sides.

    path        of its folder
    checkpoint  what ``fastattn.weights.read`` found there
    precision   of the products here; the source framework computes in float32
    bound       see Bounds; None: the precision's own

    ``source`` names the framework, with versions. Raises InputError where no framework that can be imported reads the
    checkpoint, or it is not installed.
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
        """What was compared, in the order of the computation: tokens first, since all depends on them."""
        return self._compare(texts, self.bounds)
