"""The base of translators that are made of others: what follows from translating a stream of texts."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from typing import Any, TypeVar

from fastattn.errors import FastattnError, InputError, check_bool, check_several, check_texts
from fastattn.scheduling.request import read_ahead
from fastattn.translation.calls import Direction, check_details

_Self = TypeVar("_Self", bound="StreamedTranslator")


class StreamCall:
    """The arguments of a ``translate_iter``, but for the texts.

    shared  the options that all texts have
    each    by its name, an option of which each text has a value of its own: these are read along with the texts
    """

    def __init__(self, options: dict[str, Any], details: bool, return_exceptions: bool):
        self.details = details
        self.return_exceptions = check_bool("return_exceptions", return_exceptions)
        self.shared = {
            name: value
            for name, value in options.items()
            if name not in Direction._fields or isinstance(value, str | None)
        }
        self.each = {name: iter(check_several(name, options[name])) for name in options.keys() - self.shared.keys()}

    def read(self, count: int) -> list[dict[str, Any]]:
        """The next texts' own options; InputError where there are fewer. At the end of the texts ``count`` is 0."""
        columns = {name: list(islice(values, count or 1)) for name, values in self.each.items()}
        for name, column in columns.items():
            if len(column) != count:
                fewer = "texts" if len(column) > count else "values"
                raise InputError(f"{name} should be one str, or one for each text: there are fewer {fewer}")
        return [{name: column[b] for name, column in columns.items()} for b in range(count)]

    def of(self, own: list[dict[str, Any]]) -> dict[str, Any]:
        """The options of a call for texts that have these of their own."""
        return self.shared | {name: [options[name] for options in own] for name in self.each}


class StreamedTranslator:
    """Translates by another translator. A class of its own has ``_results``, or ``_translated`` for each window."""

    window = 64  # texts that are looked at together

    def __init__(self, translator: Any):
        self._translator = translator

    def translate_iter(
        self, texts: Iterable[str], *, details: bool = False, return_exceptions: bool = False, **options: Any
    ) -> Iterator[Any]:
        """As ``Translator.translate_iter``, with details of this class."""
        details = check_details(details, options)
        self._check(options)
        call = StreamCall(options, details, return_exceptions)
        return self._presented(self._results(iter(check_several("texts", texts, "an iterable of str")), call), call)

    def _check(self, options: dict[str, Any]) -> None:
        """Raise InputError for options that the class cannot take."""

    @staticmethod
    def _presented(results: Iterator[Any], call: StreamCall) -> Iterator[Any]:
        for result in results:
            if isinstance(result, FastattnError) and not call.return_exceptions:
                raise result
            yield result if call.details or isinstance(result, str | FastattnError) else result.text

    def _results(self, texts: Iterator[str], call: StreamCall) -> Iterator[Any]:
        """Each text's result with its details, or its error."""
        return self._windows(texts, call, self._translated)

    def _windows(
        self, texts: Iterator[str], call: StreamCall, translated: Callable[..., Iterable[Any]]
    ) -> Iterator[Any]:
        """What ``translated`` gives for each window of texts; an error of the iterable comes after the results."""
        pairs, failure = zip(repeat(1), texts), None
        while failure is None:
            window, _, failure = read_ahead(pairs, self.window)
            if window:
                yield from translated(window, call, call.read(len(window)))
        if not isinstance(failure, StopIteration):
            raise failure
        call.read(0)

    def _translated(self, texts: list[str], call: StreamCall, own: list[dict[str, Any]]) -> Iterable[Any]:
        """The results of a window of texts, which have these options of their own."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all translators that it is made of."""
        self._translator.close()

    def translate(self, texts: str | Iterable[str], *, details: bool = False, **options: Any) -> Any:
        """As ``Translator.translate``, with what ``translate_iter`` yields."""
        listed = [texts] if isinstance(texts, str) else check_texts("texts", texts)
        results = list(self.translate_iter(listed, details=details, **options))
        return results[0] if isinstance(texts, str) else results

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def details_of(result: Any) -> dict[str, Any]:
    """What translations of all classes have, by name: for one of another class."""
    names = ("text", "hypotheses", "scores", "parts")
    return {name: getattr(result, name) for name in names} | {"first": getattr(result, "first", None)}
