"""TranslatorChain: two models, where no single one translates between two languages."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from typing import Any

from fastattn.errors import FastattnError
from fastattn.translation.calls import ChainedTranslation, Translation
from fastattn.translation.streamed import StreamCall, StreamedTranslator

# Options of the source text, and options of its translation; both models get all others.
OF_SOURCE = frozenset({"source_lang", "split"})
OF_TARGET = frozenset({"target_lang", "target_prefix", "suppress_sequences", "callback", "return_alternatives"})


class TranslatorChain(StreamedTranslator):
    """Two translators, the second of which translates what the first makes; ``Translator.chain`` makes it.

    The result has the same bits as both models called in turn; the second one starts before the first has finished.
    With ``num_hypotheses`` above 1 each hypothesis of the first gets as many of the second, and the pairs with the
    highest sums of scores are returned.

    source_lang and split go to the first model; target_lang, target_prefix, suppress_sequences and callback to the
    second; all other options to both. Details are ChainedTranslations.
    """

    def __init__(self, first: Any, second: Any):
        self.first, self.second = first, second

    def _results(self, texts: Iterator[str], call: StreamCall) -> Iterator[Any]:
        counts = {name: deque[int]() for name in call.each if name in OF_TARGET}  # of each text's hypotheses
        repeated = {name: _repeated(call.each[name], of_texts) for name, of_texts in counts.items()}
        options = call.shared | call.each | repeated
        options |= {"details": True, "return_exceptions": call.return_exceptions}
        first, second = ({n: v for n, v in options.items() if n not in names} for names in (OF_TARGET, OF_SOURCE))
        translations = deque[Any]()  # of the first model, until the second's arrive
        between = self._between(self.first.translate_iter(texts, **first), translations, counts.values())
        count = call.shared.get("num_hypotheses", 1) if call.details else 0
        return self._pairs(self.second.translate_iter(between, **second), translations, count)

    @staticmethod
    def _between(results: Iterator[Any], translations: deque[Any], counts: Iterable[deque[int]]) -> Iterator[str]:
        for result in results:
            translations.append(result)
            texts = [""] if isinstance(result, FastattnError) else result.hypotheses
            for numbers in counts:
                numbers.append(len(texts))
            yield from texts

    @staticmethod
    def _pairs(results: Iterator[Any], translations: deque[Any], count: int) -> Iterator[Any]:
        for result in results:
            first = translations.popleft()
            if isinstance(first, FastattnError):
                yield first
                continue
            answers = [result, *islice(results, len(first.hypotheses) - 1)]
            error = next((answer for answer in answers if isinstance(answer, FastattnError)), None)
            yield error or (_best(first, answers, count) if count else result.text)

    def close(self) -> None:
        """Close both translators."""
        self.first.close()
        self.second.close()


def _repeated(values: Iterable[Any], counts: deque[int]) -> Iterator[Any]:
    """Each text's value, once for each of its hypotheses, whose number ``counts`` has when the text has been read."""
    for value in values:
        yield from repeat(value, counts.popleft() if counts else 1)


def _best(first: Translation, answers: list[Translation], count: int) -> ChainedTranslation:
    """The ``count`` best pairs of hypotheses, without duplicate texts."""
    pairs = [
        (score + further, text, through)
        for through, score, answer in zip(first.hypotheses, first.scores, answers)
        for text, further in zip(answer.hypotheses, answer.scores)
    ]
    best: dict[str, tuple[float, str, str]] = {}
    for pair in sorted(pairs, key=lambda pair: -pair[0]):
        best.setdefault(pair[1], pair)
    chosen = list(best.values())[:count]
    scores, texts, through = map(list, zip(*chosen))
    parts = answers[first.hypotheses.index(through[0])].parts
    return ChainedTranslation(texts[0], texts, scores, parts, through, first if through[0] == first.text else None)
