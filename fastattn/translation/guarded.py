"""Loops in translations: finds them, decodes their texts again without repetitions, and marks the results."""

import re
from collections.abc import Iterator
from itertools import groupby, tee
from operator import eq
from typing import Any

from fastattn.errors import FastattnError
from fastattn.system.records import dataclass
from fastattn.translation.calls import TokenTranslation, Translation
from fastattn.translation.streamed import StreamCall, StreamedTranslator, details_of

LOOP, RUNAWAY = "loop", "length"
# In a loop, up to LOOP_WORDS words occur more than MOST_REPEATS times in a row.
MOST_REPEATS, LOOP_WORDS = 4, 4
# A translation has run away if it has more than LENGTH_FACTOR * the text's characters + EXTRA_CHARACTERS.
LENGTH_FACTOR, EXTRA_CHARACTERS = 4, 80
NGRAM_SIZES = (3, 2, 1)  # no_repeat_ngram_size of each attempt; with 1 no token occurs twice


@dataclass(frozen=True)
class GuardedTranslation:
    """A text's translation after a LOOP or a RUNAWAY (``remarks``); ``first``: a chain's first translation."""

    text: str
    hypotheses: list[str]
    scores: list[float]
    parts: list[TokenTranslation]
    remarks: tuple[str, ...]
    first: Translation | None = None


class GuardedTranslator(StreamedTranslator):
    """Decodes a text again, without repetitions, if its translation is a loop; ``Translator.guarded`` makes one.

    The translation of a text that repeats itself may repeat itself. Translations of texts that were decoded again are
    GuardedTranslations; all others are unchanged.
    """

    def _results(self, texts: Iterator[str], call: StreamCall) -> Iterator[Any]:
        texts, texts_again = tee(texts)
        columns = {name: tee(values) for name, values in call.per_text.items()}
        options = call.shared | {name: values for name, (values, _) in columns.items()}
        options |= {"details": True, "return_exceptions": call.return_exceptions}
        results = self._translator.translate_iter(texts, **options)  # reads a text before ``texts_again`` yields it
        return self._guard(zip(results, texts_again, *(values for _, values in columns.values())), call)

    def _guard(self, rows: Iterator[tuple[Any, ...]], call: StreamCall) -> Iterator[Any]:
        """The final results; ``rows``: (result, text, the text's ``per_text`` values)."""
        for result, text, *values in rows:
            if not isinstance(result, FastattnError):
                try:
                    result = self._decode_again(text, result, call.shared | dict(zip(call.per_text, values)))
                except FastattnError as error:
                    result = error
            yield result

    def _decode_again(self, text: str, result: Any, options: dict[str, Any]) -> Any:
        """The result, or the first better attempt if the result is a loop or has run away."""
        remark = fault_of(text, result.text)
        if not remark or options.get("no_repeat_ngram_size"):
            return result
        chosen = result
        for size in NGRAM_SIZES:
            attempt = self._translator.translate(text, **options | {"details": True, "no_repeat_ngram_size": size})
            if fault_of(text, attempt.text) != LOOP and len(attempt.text) <= len(result.text):
                chosen = attempt
                break
        return GuardedTranslation(**details_of(chosen), remarks=(remark,))


def fault_of(text: str, translation: str) -> str:
    """LOOP, RUNAWAY or "", for a text's translation."""
    if (repeats := most_repeats(translation)) and repeats > most_repeats(text):
        return LOOP
    return RUNAWAY if len(translation) > LENGTH_FACTOR * len(text) + EXTRA_CHARACTERS else ""


def most_repeats(text: str) -> int:
    """The most times that up to LOOP_WORDS words occur in a row; 0 if not more than MOST_REPEATS times."""
    words, most = text.lower().split(), 0
    for length in range(1, LOOP_WORDS + 1):
        runs = groupby(map(eq, words, words[length:]))
        most = max([most, *(len([*run]) // length + 1 for is_repeated, run in runs if is_repeated)])
    for match in re.finditer(rf"([^\W\d_]{{2,8}}?)\1{{{MOST_REPEATS},}}", text):  # within a word, or without blanks
        most = max(most, len(match[0]) // len(match[1]))
    return most if most > MOST_REPEATS else 0
