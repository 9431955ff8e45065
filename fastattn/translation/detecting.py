"""DetectingTranslator: texts in any language, each of which goes to the model for the one that it is found to be in."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple

from fastattn.errors import FastattnError, InputError, check_bool, check_several
from fastattn.system.records import dataclass
from fastattn.text import check_text
from fastattn.text.detecting import NO_LANGUAGE, likely_languages
from fastattn.translation.calls import Beside, TokenTranslation, Translation
from fastattn.translation.streamed import StreamedTranslator, check_details

SURE = 0.8  # a probability from which on a language is taken as certain
WINDOW = 64  # texts that are looked at together


@dataclass(frozen=True)
class DetectedTranslation:
    """A text's translation with its language, and what a Translation has.

    language    ISO 639-1; "" of a text without letters or in no language, which stays as it is
    confidence  the probability of that language, 0 to 1
    through, first  of a chain's, as in ChainedTranslation
    """

    text: str
    hypotheses: list[str]
    scores: list[float]
    parts: list[TokenTranslation]
    language: str
    confidence: float
    through: list[str] | None = None
    first: Translation | None = None

    @property
    def sure(self) -> bool:
        """Whether the language can be taken as certain."""
        return self.confidence >= SURE


class DetectingTranslator(StreamedTranslator):
    """Translates texts of any language to one; ``Translator.for_languages("auto", target)`` makes it.

    target     ISO 639-1; texts in it stay as they are
    open_from  of a language's code, the translator from it; an InputError where there is none is that of its texts

    Languages are found by py3langid (Lui and Baldwin 2012). A translator is opened for the first text that needs
    it, and stays open. A text whose language is unsure, such as two words, is taken to be in the one that most texts
    before it, or with it, are certainly in.
    """

    def __init__(self, target: str, open_from: Callable[[str], Any]):
        self._target, self._open_from = target, open_from
        self._open: dict[str, Any] = {}
        self._opening = Lock()

    def translate_iter(
        self, texts: Iterable[str], *, details: bool = False, return_exceptions: bool = False, **options: Any
    ) -> Iterator[Any]:
        """As ``Translator.translate_iter``, with DetectedTranslations as details; so many as WINDOW are read ahead."""
        check_details(details, options)
        for name in Beside._fields:
            if not isinstance(options.get(name), str | None):
                raise InputError(f"{name} should be one str for texts whose languages are found")
        read = iter(check_several("texts", texts, "an iterable of str"))
        return self._translated(read, details, check_bool("return_exceptions", return_exceptions), options)

    def _translated(
        self, texts: Iterator[str], details: bool, return_exceptions: bool, options: dict[str, Any]
    ) -> Iterator[Any]:
        stream = _Stream(Counter(), {}, options)
        while True:
            window, failure = _window(texts)
            for result in self._together(window, stream):
                if isinstance(result, FastattnError) and not return_exceptions:
                    raise result
                yield result if details or isinstance(result, FastattnError) else result.text
            if failure is not None:
                raise failure
            if not window:
                return

    def _together(self, texts: list[str], stream: "_Stream") -> list[Any]:
        """A DetectedTranslation of each text, or its error."""
        results: list[Any] = [None] * len(texts)
        likely: dict[int, tuple[str, float]] = {}
        for b, text in enumerate(texts):
            try:
                likely[b] = _language(text)
            except InputError as error:
                results[b] = error
        stream.seen.update(code for code, probability in likely.values() if probability >= SURE)
        found: dict[str, dict[int, float]] = {}  # language -> number of a text -> how probable that is
        for b, (code, probability) in likely.items():
            if code and probability < SURE and stream.seen:  # it is taken for what most others are
                ((code, probability),) = likely_languages(texts[b], stream.seen.most_common(1)[0][:1])
            found.setdefault(code, {})[b] = probability
        for code, numbers in found.items():
            for b, answer in zip(numbers, self._from(code, [texts[b] for b in numbers], stream)):
                if not isinstance(answer, FastattnError):
                    known = answer.text, answer.hypotheses, answer.scores, answer.parts
                    answer = DetectedTranslation(
                        *known, code, numbers[b], getattr(answer, "through", None), getattr(answer, "first", None)
                    )
                results[b] = answer
        return results

    def _from(self, code: str, texts: list[str], stream: "_Stream") -> Iterator[Any]:
        """Each text's translation from a language, or its error."""
        if code in ("", self._target):
            return (Translation(text, [text], [0.0], []) for text in texts)
        if code not in stream.opened:
            stream.opened[code] = self._opened(code)
        found = stream.opened[code]
        if isinstance(found, InputError):
            return iter([found] * len(texts))
        translated: Iterator[Any] = found.translate_iter(texts, details=True, return_exceptions=True, **stream.options)
        return translated

    def _opened(self, code: str) -> Any:
        """The translator from a language, or the InputError that there is none."""
        with self._opening:  # else two threads would open one each
            try:
                if code not in self._open:
                    self._open[code] = self._open_from(code)
            except InputError as error:
                return error
            return self._open[code]

    def close(self) -> None:
        """Close all translators that are open."""
        for translator in self._open.values():
            translator.close()


class _Stream(NamedTuple):
    """What a stream of texts has found.

    seen    how many texts are certainly in each language
    opened  language -> its translator, or why there is none: looking for that again may take the network
    """

    seen: "Counter[str]"
    opened: dict[str, Any]
    options: dict[str, Any]


def _window(texts: Iterator[str]) -> tuple[list[str], Exception | None]:
    """(the next texts, the error of the iterable behind them)."""
    window: list[str] = []
    try:
        for text in islice(texts, WINDOW):
            window.append(text)
    except Exception as error:  # noqa: BLE001  whatever it is, it is raised behind the texts before it
        return window, error
    return window, None


def _language(text: str) -> tuple[str, float]:
    """(the likeliest language of a text, its probability); ("", 0) where it has no letters or is in none."""
    check_text(text)
    if not any(map(str.isalpha, text)):
        return "", 0.0
    ((code, probability),) = likely_languages(text, most=1)
    return ("", 0.0) if code == NO_LANGUAGE else (code, probability)
