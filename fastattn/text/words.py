"""Words by Moses' rules around subword units, by the sacremoses package where it is installed."""

from collections.abc import Iterable
from typing import Any

from fastattn.errors import TokenizerError
from fastattn.spec.text_spec import TranslationText
from fastattn.system.records import lazy
from fastattn.text import check_text
from fastattn.text.subword_units import SubwordUnits


class WordsAndUnits:
    """``pieces`` of a text and ``text`` of pieces: words and punctuation apart, then units, as ``text.words`` asks for.

    Raises TokenizerError where sacremoses is not installed, at first use.
    """

    def __init__(self, units: SubwordUnits, text: TranslationText):
        self._units, self._normalizes = units, text.words == "argos"
        self._languages = text.source_language or "en", text.target_language or "en"

    def wait(self) -> None:
        """As of a SentencePiece: what is missing is told."""
        assert self._moses

    @lazy
    def _moses(self) -> tuple[Any, Any, Any]:
        """(what makes punctuation uniform, what cuts words, what joins them)."""
        try:
            import sacremoses as moses
        except ImportError:
            raise TokenizerError("this model's words are cut by Moses' rules: pip install sacremoses") from None
        source, target = self._languages
        return moses.MosesPunctNormalizer(source), moses.MosesTokenizer(source), moses.MosesDetokenizer(target)

    def pieces(self, text: str) -> list[str]:
        """The units of a text; InputError where it holds a lone surrogate."""
        check_text(text)
        normalizer, cutter, _ = self._moses
        if self._normalizes:
            text = normalizer.normalize(text)
        words: str = cutter.tokenize(text, aggressive_dash_splits=not self._normalizes, return_str=True)
        return self._units.pieces(words)

    def text(self, pieces: Iterable[str]) -> str:
        """The text of units."""
        _, _, joiner = self._moses
        text: str = joiner.detokenize(self._units.text(pieces).split(" "))
        return text
