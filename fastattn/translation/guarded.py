"""Loops in translations: found, decoded again without repetitions, and marked."""

import re
from collections.abc import Iterator
from itertools import tee
from typing import Any

from fastattn.errors import FastattnError
from fastattn.system.records import dataclass
from fastattn.translation.calls import TokenTranslation, Translation
from fastattn.translation.streamed import StreamCall, StreamedTranslator, details_of

LOOP, RUNAWAY = "loop", "length"
# A loop is more than MOST repetitions of up to LONGEST words.
MOST, LONGEST = 4, 4
# A translation of more characters than these times its text's, and so many more, has run away.
TIMES, MORE = 4, 80
AGAIN = (3, 2, 1)  # no_repeat_ngram_size, one after the other: at last no token comes twice


@dataclass(frozen=True)
class GuardedTranslation:
    """A text's translation that was a loop or ran away, decoded again; ``remarks`` says which.

    first  as in ChainedTranslation
    """

    text: str
    hypotheses: list[str]
    scores: list[float]
    parts: list[TokenTranslation]
    remarks: tuple[str, ...]
    first: Translation | None = None


class GuardedTranslator(StreamedTranslator):
    """Translates again, without repetitions, what has become a loop; ``Translator.guarded`` makes it.

    A text that repeats itself may be translated so. All other translations are what they are without; those that were
    decoded again are GuardedTranslations.
    """

    def _results(self, texts: Iterator[str], call: StreamCall) -> Iterator[Any]:
        texts, read = tee(texts)
        each = {name: tee(values) for name, values in call.each.items()}
        options = call.shared | {name: values for name, (values, _) in each.items()}
        options |= {"details": True, "return_exceptions": call.return_exceptions}
        results = self._translator.translate_iter(texts, **options)  # which it reads before ``read`` is
        return self._checked(zip(results, read, *(values for _, values in each.values())), call)

    def _checked(self, results: Iterator[tuple[Any, ...]], call: StreamCall) -> Iterator[Any]:
        """What is left of (result, text, its own options) each."""
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
    """LOOP, RUNAWAY or "" of a text's translation."""
    if loops(translation) > max(MOST, loops(text)):
        return LOOP
    return RUNAWAY if len(translation) > TIMES * len(text) + MORE else ""


def loops(text: str) -> int:
    """How often up to LONGEST words come one behind the other at most; 0 where it is not more than MOST."""
    words, most = text.lower().split(), 0
    for length in range(1, LONGEST + 1):
        run = 0
        for at in range(length, len(words)):
            run = run + 1 if words[at] == words[at - length] else 0
            most = max(most, run // length + 1 if run >= length else 0)
    for match in re.finditer(rf"([^\W\d_]{{2,8}}?)\1{{{MOST},}}", text):  # within a word, or without blanks
        most = max(most, len(match[0]) // len(match[1]))
    return most if most > MOST else 0
