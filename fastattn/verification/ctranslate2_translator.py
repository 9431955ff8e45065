"""CTranslate2 directories in CTranslate2, float32."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fastattn.errors import InputError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import TranslationText
from fastattn.verification.frameworks import blaming, framework, versions

PACKAGES = ("ctranslate2",)


class CTranslate2Translator:
    """CTranslate2's side of a comparison, a ``TranslatorSide``; shows no layers."""

    def __init__(self, path: Path, checkpoint: Checkpoint):
        if not isinstance(checkpoint.text, TranslationText):
            raise InputError(f"{path}: verify compares translation models with CTranslate2, this is an encoder")
        if path.is_file():
            raise InputError(f"{path}: CTranslate2 reads no archives; unpack it, and verify the folder")
        (ctranslate2,) = framework(*PACKAGES)
        self.name = versions(*PACKAGES)
        folder = path / "model" if checkpoint.format == "argos" else path
        with blaming(f"{path}: CTranslate2 cannot read it"):
            self._translator = ctranslate2.Translator(str(folder), compute_type="float32")

    def source_ids(self, text: str) -> list[int] | None:
        return None

    def states(self, source: Sequence[str], target: Sequence[str]) -> Mapping[str, np.ndarray]:
        return {}

    def log_probs(self, source: Sequence[str], target: Sequence[str]) -> np.ndarray:
        with blaming("CTranslate2 fails"):
            (scored,) = self._translator.score_batch([list(source)], [list(target)])
        return np.array(scored.log_probs, np.float32)

    def translate(self, source: Sequence[str], beam_size: int, lengths: tuple[int, int]) -> list[str]:
        least, most = lengths
        with blaming("CTranslate2 fails"):
            (found,) = self._translator.translate_batch(
                [list(source)], beam_size=beam_size, min_decoding_length=least, max_decoding_length=most
            )
        return list(found.hypotheses[0])
