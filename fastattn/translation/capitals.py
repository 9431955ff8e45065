"""Texts in capitals, on which small models fail: translated in small letters, and set in capitals again."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fastattn.errors import FastattnError
from fastattn.translation.calls import TokenTranslation
from fastattn.translation.guarded import fault_of
from fastattn.translation.streamed import StreamCall, StreamedTranslator

_WORD = re.compile(r"[^\W\d_]{2,}")
# The share of a text's words that a translation may leave as they are: names and words of both languages.
MOST_UNTRANSLATED = 0.34


class CapitalsTranslator(StreamedTranslator):
    """Decodes a text in capitals again, in small letters, if its translation is a loop or leaves many of its words.

    The second translation, set in capitals, is taken if it leaves fewer words. A word that mixed-case texts near by
    have in capitals alone, such as NASA, stays in capitals. Other texts have the bits of the inner translator.
    """

    def _translate_window(self, texts: list[str], call: StreamCall, values: list[dict[str, Any]]) -> Iterator[Any]:
        options = {"details": True, "return_exceptions": True}
        results = list(self._translator.translate_iter(texts, **call.options_for(values) | options))
        answers = ["" if isinstance(result, FastattnError) else result.text for result in results]
        failed = [n for n, text in enumerate(texts) if is_in_capitals(text) and is_failed(text, answers[n])]
        if failed:
            names = {word for text in texts if not text.isupper() for word in _WORD.findall(text) if word.isupper()}
            small = [_small(texts[n], names) for n in failed]
            attempts = self._translator.translate_iter(small, **call.options_for([values[n] for n in failed]) | options)
            for n, attempt in zip(failed, attempts):
                is_error = isinstance(attempt, FastattnError)
                if not is_error and _untranslated(texts[n], attempt.text) < _untranslated(texts[n], answers[n]):
                    results[n] = _in_capitals(attempt)
        yield from results


def is_in_capitals(text: str) -> bool:
    """Whether a text has two words or more, all of them in capitals."""
    return text.isupper() and len(_WORD.findall(text)) > 1


def is_failed(text: str, translation: str) -> bool:
    """Whether a translation is a loop, has run away, or leaves too many words of a text in capitals as they are."""
    return bool(fault_of(text, translation)) or (
        is_in_capitals(text) and _untranslated(text, translation) > MOST_UNTRANSLATED
    )


def _untranslated(text: str, translation: str) -> float:
    """The share of a text's words that its translation has too, in any case."""
    words, translated = _WORD.findall(text.lower()), {*_WORD.findall(translation.lower())}
    return sum(word in translated for word in words) / len(words)


def _small(text: str, names: set[str]) -> str:
    """A text in small letters, of the same length, but for its first letter and names."""

    def small_word(match: "re.Match[str]") -> str:
        lowered = "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in match[0])
        return match[0] if match[0] in names else lowered

    lowered = _WORD.sub(small_word, text)
    first = next(n for n, letter in enumerate(lowered) if letter.isalpha())
    return lowered[:first] + text[first] + lowered[first + 1 :]


def _in_capitals(result: Any) -> Any:
    """A result in capitals; its tokens too, since words are found by them."""
    hypotheses = [text.upper() for text in result.hypotheses]
    parts = [_part_in_capitals(part) for part in result.parts]
    return replace(result, text=result.text.upper(), hypotheses=hypotheses, parts=parts)


def _part_in_capitals(part: TokenTranslation) -> TokenTranslation:
    hypotheses = [[token.upper() for token in tokens] for tokens in part.hypotheses]
    return replace(part, source=[token.upper() for token in part.source], hypotheses=hypotheses)
