"""DetectingTranslator: detects the language of each text and sends it to the model for that language."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from fastattn.errors import FastattnError, InputError
from fastattn.system.records import dataclass
from fastattn.text import check_text
from fastattn.text.languages import NO_LANGUAGE, likely_languages
from fastattn.translation.calls import Direction, TokenTranslation, Translation
from fastattn.translation.streamed import StreamCall, StreamedTranslator, details_of

SURE = 0.8  # the least probability of a language that counts as certain


@dataclass(frozen=True)
class DetectedTranslation:
    """A text's translation with its language; other fields as in Translation.

    language    ISO 639-1; "" for a text without letters or in no language; such a text stays as it is
    confidence  the probability of that language, 0 to 1
    through, first  a chain's, as in ChainedTranslation
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
        """Whether the language counts as certain."""
        return self.confidence >= SURE


class DetectingTranslator(StreamedTranslator):
    """Translates texts of any language to one; ``Translator.for_languages("auto", target)`` makes it.

    target     ISO 639-1; texts in this language stay as they are
    open_from  a language's code -> the translator from that language; its InputError is the result of such texts

    py3langid detects the languages (Lui and Baldwin 2012). A translator is opened for the first text that needs it, and
    stays open. A text of uncertain language, such as two words, counts as a text in the most frequent certain language
    of the texts so far, its whole window included.
    """

    def __init__(self, target: str, open_from: Callable[[str], Any]):
        self._target, self._open_from = target, open_from
        self._translators: dict[str, Any] = {}
        self._opening_lock = Lock()

    def _check(self, options: dict[str, Any]) -> None:
        for name in Direction._fields:
            if not isinstance(options.get(name), str | None):
                raise InputError(f"{name} should be one str for texts whose languages are found")

    def _results(self, texts: Iterator[str], call: StreamCall) -> Iterator[Any]:
        return self._windows(texts, call, partial(self._translate_detected, _StreamState(Counter(), {})))

    def _translate_detected(self, stream: "_StreamState", texts: list[str], call: StreamCall, _: Any) -> list[Any]:
        """A DetectedTranslation of each text of a window, or its error."""
        results: list[Any] = [None] * len(texts)
        detections: dict[int, tuple[str, float]] = {}
        for b, text in enumerate(texts):
            try:
                detections[b] = _likeliest_language(text)
            except InputError as error:
                results[b] = error
        stream.counts.update(code for code, probability in detections.values() if probability >= SURE)
        by_language: dict[str, dict[int, float]] = {}  # language -> index of a text -> probability
        for b, (code, probability) in detections.items():
            if code and probability < SURE and stream.counts:  # take the most frequent language
                ((code, probability),) = likely_languages(texts[b], stream.counts.most_common(1)[0][:1])
            by_language.setdefault(code, {})[b] = probability
        for code, probabilities in by_language.items():
            answers = self._answers(code, [texts[b] for b in probabilities], stream.opened, call.shared)
            for b, answer in zip(probabilities, answers):
                if not isinstance(answer, FastattnError):
                    details = details_of(answer) | {"through": getattr(answer, "through", None)}
                    answer = DetectedTranslation(**details, language=code, confidence=probabilities[b])
                results[b] = answer
        return results

    def _answers(self, code: str, texts: list[str], opened: dict[str, Any], options: dict[str, Any]) -> Iterable[Any]:
        """Each text's translation from a language, or its error."""
        if code in ("", self._target):
            return [Translation(text, [text], [0.0], []) for text in texts]
        if code not in opened:
            with self._opening_lock:  # two threads must not open the same translator
                try:
                    if code not in self._translators:
                        self._translators[code] = self._open_from(code)
                    opened[code] = self._translators[code]
                except InputError as error:
                    opened[code] = error
        if isinstance(opened[code], InputError):
            return [opened[code]] * len(texts)
        return iter(opened[code].translate_iter(texts, details=True, return_exceptions=True, **options))

    def close(self) -> None:
        """Close all translators that are open."""
        for translator in self._translators.values():
            translator.close()


class _StreamState(NamedTuple):
    """The state of a stream of texts.

    counts  language -> how many texts are certainly in that language
    opened  language -> its translator, or the error of opening it, which is not tried again: it may use the network
    """

    counts: Counter[str]
    opened: dict[str, Any]


def _likeliest_language(text: str) -> tuple[str, float]:
    """(the likeliest language of a text, its probability); ("", 0) for a text without letters or in no language."""
    check_text(text)
    if not any(map(str.isalpha, text)):
        return "", 0.0
    ((code, probability),) = likely_languages(text, most=1)
    return ("", 0.0) if code == NO_LANGUAGE else (code, probability)
