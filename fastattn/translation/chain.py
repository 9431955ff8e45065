"""TranslatorChain: two models that translate by way of an intermediate language."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from typing import Any

from fastattn.errors import FastattnError
from fastattn.translation.calls import ChainedTranslation, Translation
from fastattn.translation.streamed import StreamCall, StreamedTranslator

# Options for the first model alone, and for the second model alone; both models get all others.
FIRST_OPTIONS = frozenset({"source_lang", "split"})
SECOND_OPTIONS = frozenset({"target_lang", "target_prefix", "suppress_sequences", "callback", "return_alternatives"})


class TranslatorChain(StreamedTranslator):
    """Two translators, the second of which translates the first one's translations; ``Translator.chain`` makes one.

    The result has the same bits as both models called in turn; the second model starts before the first has finished.
    With ``num_hypotheses`` above 1, the second model makes as many hypotheses of each of the first model's hypotheses,
    and the result has the pairs with the highest sums of scores.

    source_lang and split go to the first model; target_lang, target_prefix, suppress_sequences, callback and
    return_alternatives to the second; all other options to both. Details are ChainedTranslations.
    """

    def __init__(self, first: Any, second: Any):
        self.first, self.second = first, second

    def _results(self, texts: Iterator[str], call: StreamCall) -> Iterator[Any]:
        # option -> a queue of how many hypotheses each text has
        counts = {name: deque[int]() for name in call.per_text if name in SECOND_OPTIONS}
        repeated = {name: _repeat_values(call.per_text[name], queue) for name, queue in counts.items()}
        options = call.shared | call.per_text | repeated
        options |= {"details": True, "return_exceptions": call.return_exceptions}
        first = {name: value for name, value in options.items() if name not in SECOND_OPTIONS}
        second = {name: value for name, value in options.items() if name not in FIRST_OPTIONS}
        translations = deque[Any]()  # of the first model, until the second model's arrive
        hypotheses = self._hypotheses(self.first.translate_iter(texts, **first), translations, counts.values())
        pair_count = call.shared.get("num_hypotheses", 1) if call.details else 0
        return self._combined(self.second.translate_iter(hypotheses, **second), translations, pair_count)

    @staticmethod
    def _hypotheses(results: Iterator[Any], translations: deque[Any], counts: Iterable[deque[int]]) -> Iterator[str]:
        """Yield the first model's hypotheses; results go to ``translations``, hypothesis counts to all ``counts``."""
        for result in results:
            translations.append(result)
            texts = [""] if isinstance(result, FastattnError) else result.hypotheses
            for queue in counts:
                queue.append(len(texts))
            yield from texts

    @staticmethod
    def _combined(results: Iterator[Any], translations: deque[Any], pair_count: int) -> Iterator[Any]:
        """Yield each text's best ``pair_count`` pairs of ``translations`` and ``results``; 0: yield texts alone."""
        for result in results:
            first = translations.popleft()
            if isinstance(first, FastattnError):
                yield first
                continue
            answers = [result, *islice(results, len(first.hypotheses) - 1)]
            error = next((answer for answer in answers if isinstance(answer, FastattnError)), None)
            yield error or (_best_pairs(first, answers, pair_count) if pair_count else result.text)

    def close(self) -> None:
        """Close both translators."""
        self.first.close()
        self.second.close()


def _repeat_values(values: Iterable[Any], counts: deque[int]) -> Iterator[Any]:
    """Each text's value, once for each of its hypotheses; ``counts`` has their number once the text is read."""
    for value in values:
        yield from repeat(value, counts.popleft() if counts else 1)


def _best_pairs(first: Translation, answers: list[Translation], pair_count: int) -> ChainedTranslation:
    """The ``pair_count`` best pairs of hypotheses, without duplicate texts."""
    pairs = [
        (first_score + second_score, text, through)
        for through, first_score, answer in zip(first.hypotheses, first.scores, answers)
        for text, second_score in zip(answer.hypotheses, answer.scores)
    ]
    best: dict[str, tuple[float, str, str]] = {}
    for pair in sorted(pairs, key=lambda pair: -pair[0]):
        best.setdefault(pair[1], pair)
    scores, texts, through = map(list, zip(*list(best.values())[:pair_count]))
    parts = answers[first.hypotheses.index(through[0])].parts
    return ChainedTranslation(texts[0], texts, scores, parts, through, first if through[0] == first.text else None)
