"""The base of translators that translate by others: all calls follow from one stream of results."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from typing import Any, TypeVar

from fastattn.errors import FastattnError, InputError, check_bool, check_several, check_texts
from fastattn.scheduling.request import read_ahead
from fastattn.translation.calls import Direction, check_details

_Self = TypeVar("_Self", bound="StreamedTranslator")


class StreamCall:
    """The arguments of a ``translate_iter`` call, without the texts.

    shared  the options that hold for all texts
    each    option -> an iterator over one value per text, read in step with the texts
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
        """The options of the next ``count`` texts; InputError if there are fewer, or with 0 if any are left."""
        columns = {name: list(islice(values, count or 1)) for name, values in self.each.items()}
        for name, column in columns.items():
            if len(column) != count:
                fewer = "texts" if len(column) > count else "values"
                raise InputError(f"{name} should be one str, or one for each text: there are fewer {fewer}")
        return [{name: column[b] for name, column in columns.items()} for b in range(count)]

    def of(self, own: list[dict[str, Any]]) -> dict[str, Any]:
        """The options of a call for texts with these options."""
        return self.shared | {name: [options[name] for options in own] for name in self.each}


class StreamedTranslator:
    """Translates by another translator. A subclass defines ``_translated``, or ``_results`` for the whole stream."""

    window = 64  # texts a call of ``_translated``

    def __init__(self, translator: Any):
        self._translator = translator

    def translate_iter(
        self, texts: Iterable[str], *, details: bool = False, return_exceptions: bool = False, **options: Any
    ) -> Iterator[Any]:
        """As ``Translator.translate_iter``, with this class's kind of details."""
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
        """The results of ``translated`` for each window; an error of the iterable is raised after them."""
        pairs, failure = zip(repeat(1), texts), None
        while failure is None:
            window, _, failure = read_ahead(pairs, self.window)
            if window:
                yield from translated(window, call, call.read(len(window)))
        if not isinstance(failure, StopIteration):
            raise failure
        call.read(0)

    def _translated(self, texts: list[str], call: StreamCall, own: list[dict[str, Any]]) -> Iterable[Any]:
        """The results of a window of texts; ``own``: the options of each."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the translators that this one uses."""
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
    """The fields that all kinds of translations have, by name, to make another kind."""
    names = ("text", "hypotheses", "scores", "parts")
    return {name: getattr(result, name) for name in names} | {"first": getattr(result, "first", None)}
