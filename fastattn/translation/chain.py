"""Translators by their languages, and TranslatorChain: two models, where none goes from one language to the other."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any

from fastattn.errors import FastattnError, check_several, check_text
from fastattn.text.languages import iso_code
from fastattn.translation.calls import ChainedTranslation, Translation
from fastattn.translation.scoring import ScoringTranslator
from fastattn.translation.streamed import StreamedTranslator, check_details
from fastattn.weights import download

AUTO = "auto"
# What concerns the source text, and what concerns its translation; both models search as the other options say.
OF_SOURCE = frozenset({"source_lang", "split"})
OF_TARGET = frozenset({"target_lang", "target_prefix", "suppress_sequences", "callback", "return_alternatives"})

EACH = ("target_lang", "target_prefix")  # of OF_TARGET, what may be given for each text


class TranslatorByLanguage(ScoringTranslator):
    """The base of Translator: models found by their languages, and one behind another."""

    @staticmethod
    def chain(first: Any, second: Any) -> "TranslatorChain":
        """A translator by way of a language between: ``second`` translates what ``first`` makes."""
        return TranslatorChain(first, second)

    def with_glossary(self, glossary: Any = None, keep: Sequence[str] = ()) -> Any:
        """A translator whose translations have a glossary's terms, and keep what regular expressions find.

        glossary  term -> translation, or a file of them: two columns with a tab between them, or TBX
        """
        from fastattn.translation.glossary import GlossaryTranslator

        return GlossaryTranslator(self, _read(glossary, "read_glossary"), keep)

    def guarded(self) -> Any:
        """A translator that decodes loops again, without repetitions, and marks them."""
        from fastattn.translation.guarded import GuardedTranslator

        return GuardedTranslator(self)

    def with_memory(self, memory: Any) -> Any:
        """A translator that takes the translations which a memory has: text -> translation, or a file of them (TMX)."""
        from fastattn.translation.memory import MemoryTranslator

        return MemoryTranslator(self, _read(memory, "read_memory"))

    @classmethod
    def for_languages(cls, source: str, target: str, *, quality: str | None = None, **options: Any) -> Any:
        """A Translator, or a TranslatorChain by way of English, between two languages: codes or English names.

        Models are the catalog's, else Firefox's, which are downloaded if they are not here yet. From "auto" it is a
        DetectingTranslator, which opens them as it finds texts' languages.
        quality  which of Firefox's models is preferred: "tiny", "base-memory" or "base" (None: the best)
        options  of Translator
        Raises InputError where no model is known, DownloadError where one cannot be had.
        """
        if source == AUTO:
            from fastattn.translation.detecting import DetectingTranslator

            return DetectingTranslator(
                iso_code(check_text("target", target)),
                lambda code: cls.for_languages(code, target, quality=quality, **options),
            )
        made = [cls(download.fetch(model), **options) for model in download.models_between(source, target, quality)]
        return made[0] if len(made) == 1 else cls.chain(*made)


def _read(given: Any, reader: str) -> Any:
    """A mapping, or that of a file."""
    from fastattn.translation import term_files

    return getattr(term_files, reader)(given) if isinstance(given, str | os.PathLike) else given


class TranslatorChain(StreamedTranslator):
    """Two translators, the second of which translates what the first makes; ``Translator.chain`` makes it.

    A text has the bits that both models give one after the other. With ``num_hypotheses`` above 1 the first model's
    hypotheses are each translated so often, and the best pairs are kept by the sum of their scores.
    """

    def __init__(self, first: Any, second: Any):
        self.first, self.second = first, second

    def translate_iter(
        self, texts: Iterable[str], *, details: bool = False, return_exceptions: bool = False, **options: Any
    ) -> Iterator[Any]:
        """As ``Translator.translate_iter``, with ChainedTranslations as details; the second model works at what the
        first has done so far.

        source_lang and split are the first model's, target_lang, target_prefix, suppress_sequences and callback the
        second's; every other option is both's.
        """
        check_details(details, options)
        count = options.get("num_hypotheses", 1)
        made: deque[Any] = deque()
        first = {name: value for name, value in options.items() if name not in OF_TARGET}
        second = {name: value for name, value in options.items() if name not in OF_SOURCE}
        told = {"details": True, "return_exceptions": return_exceptions}
        several = {name: second[name] for name in EACH if not isinstance(second.get(name), str | None)}
        counts: list[deque[int]] = [deque() for _ in several]  # of each text's hypotheses, for each option of EACH
        for (name, values), of_texts in zip(several.items(), counts):
            second[name] = _repeated(check_several(name, values), of_texts)
        between = self._between(self.first.translate_iter(texts, **told, **first), made, counts)
        return self._pairs(self.second.translate_iter(between, **told, **second), made, count, details)

    @staticmethod
    def _between(results: Iterator[Any], made: "deque[Any]", counts: "list[deque[int]]") -> Iterator[str]:
        for result in results:
            made.append(result)
            texts = [""] if isinstance(result, FastattnError) else result.hypotheses
            for each in counts:
                each.append(len(texts))
            yield from texts

    @staticmethod
    def _pairs(results: Iterator[Any], made: "deque[Any]", count: int, details: bool) -> Iterator[Any]:
        for result in results:
            first = made.popleft()
            if isinstance(first, FastattnError):
                yield first
                continue
            answers = [result, *islice(results, len(first.hypotheses) - 1)]
            failed = next((answer for answer in answers if isinstance(answer, FastattnError)), None)
            if failed is not None:
                yield failed
            else:
                yield _best(first, answers, count) if details else result.text

    def close(self) -> None:
        """Close both translators."""
        self.first.close()
        self.second.close()


def _repeated(values: Iterable[Any], counts: "deque[int]") -> Iterator[Any]:
    """The value of each text, for each of its hypotheses; ``counts`` has them once they are read."""
    for value in values:
        yield from repeat(value, counts.popleft() if counts else 1)


def _best(first: Translation, answers: list[Translation], count: int) -> ChainedTranslation:
    """The ``count`` best of all pairs, each text once."""
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
