"""Loops in translations: detects them, decodes them again without repetitions, and marks them."""

import re
from collections.abc import Iterator
from itertools import tee
from typing import Any

from fastattn.errors import FastattnError
from fastattn.system.records import dataclass
from fastattn.translation.calls import TokenTranslation, Translation
from fastattn.translation.streamed import StreamCall, StreamedTranslator, details_of

LOOP, RUNAWAY = "loop", "length"
# A loop repeats up to LONGEST words more than MOST times.
MOST, LONGEST = 4, 4
# A translation has run away if it has more than TIMES * the text's characters + MORE.
TIMES, MORE = 4, 80
AGAIN = (3, 2, 1)  # no_repeat_ngram_size of each attempt; with 1 no token comes twice


@dataclass(frozen=True)
class GuardedTranslation:
    """A translation that was a loop or ran away, decoded again; ``remarks`` says which; ``first``: a chain's."""

    text: str
    hypotheses: list[str]
    scores: list[float]
    parts: list[TokenTranslation]
    remarks: tuple[str, ...]
    first: Translation | None = None


class GuardedTranslator(StreamedTranslator):
    """Decodes translations that are loops again, without repetitions; ``Translator.guarded`` makes it.

    The translation of a text that repeats itself may repeat itself. Translations that were decoded again are
    GuardedTranslations; all others are unchanged.
    """

    def _results(self, texts: Iterator[str], call: StreamCall) -> Iterator[Any]:
        texts, read = tee(texts)
        each = {name: tee(values) for name, values in call.each.items()}
        options = call.shared | {name: values for name, (values, _) in each.items()}
        options |= {"details": True, "return_exceptions": call.return_exceptions}
        results = self._translator.translate_iter(texts, **options)  # reads a text before ``read`` gives it
        return self._checked(zip(results, read, *(values for _, values in each.values())), call)

    def _checked(self, results: Iterator[tuple[Any, ...]], call: StreamCall) -> Iterator[Any]:
        """The final results of (result, text, values of its own options)."""
        for result, text, *own in results:
            if not isinstance(result, FastattnError):
                try:
                    result = self._again(text, result, call.shared | dict(zip(call.each, own)))
                except FastattnError as error:
                    result = error
            yield result

    def _again(self, text: str, result: Any, options: dict[str, Any]) -> Any:
        remark = what_is_wrong(text, result.text)
        if not remark or options.get("no_repeat_ngram_size"):
            return result
        better = result
        for size in AGAIN:
            attempt = self._translator.translate(text, **options | {"details": True, "no_repeat_ngram_size": size})
            if what_is_wrong(text, attempt.text) != LOOP and len(attempt.text) <= len(result.text):
                better = attempt
                break
        return GuardedTranslation(**details_of(better), remarks=(remark,))


def what_is_wrong(text: str, translation: str) -> str:
    """LOOP, RUNAWAY or "", for a text's translation."""
    if loops(translation) > max(MOST, loops(text)):
        return LOOP
    return RUNAWAY if len(translation) > TIMES * len(text) + MORE else ""


def loops(text: str) -> int:
    """The most times that up to LONGEST words are repeated in a row; 0 if not more than MOST."""
    words, most = text.lower().split(), 0
    for length in range(1, LONGEST + 1):
        run = 0
        for at in range(length, len(words)):
            run = run + 1 if words[at] == words[at - length] else 0
            most = max(most, run // length + 1 if run >= length else 0)
    for match in re.finditer(rf"([^\W\d_]{{2,8}}?)\1{{{MOST},}}", text):  # within a word, or without blanks
        most = max(most, len(match[0]) // len(match[1]))
    return most if most > MOST else 0
