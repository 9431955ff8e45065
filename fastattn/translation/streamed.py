"""The base of translators that use another translator: all calls follow from one stream of results."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from typing import Any, TypeVar

from fastattn.errors import FastattnError, InputError, check_bool, check_several, check_texts
from fastattn.scheduling.request import read_ahead
from fastattn.translation.calls import Direction, check_details

_Self = TypeVar("_Self", bound="StreamedTranslator")


class StreamCall:
    """The arguments of a ``translate_iter`` call, without the texts.

    shared    the options that hold for all texts
    per_text  option -> an iterator over a value for each text, read in step with the texts
    """

    def __init__(self, options: dict[str, Any], details: bool, return_exceptions: bool):
        self.details = details
        self.return_exceptions = check_bool("return_exceptions", return_exceptions)
        self.shared = {
            name: value
            for name, value in options.items()
            if name not in Direction._fields or isinstance(value, str | None)
        }
        self.per_text = {name: iter(check_several(name, options[name])) for name in options.keys() - self.shared.keys()}

    def read(self, count: int) -> list[dict[str, Any]]:
        """The ``per_text`` values of the next ``count`` texts; InputError for too few, or for any if ``count`` is 0."""
        columns = {name: list(islice(values, count or 1)) for name, values in self.per_text.items()}
        for name, column in columns.items():
            if len(column) != count:
                fewer = "texts" if len(column) > count else "values"
                raise InputError(f"{name} should be one str, or one for each text: there are fewer {fewer}")
        return [{name: column[b] for name, column in columns.items()} for b in range(count)]

    def options_for(self, values: list[dict[str, Any]]) -> dict[str, Any]:
        """The options of a call on texts with these ``per_text`` values."""
        return self.shared | {name: [text_values[name] for text_values in values] for name in self.per_text}


class StreamedTranslator:
    """Translates with another translator. A subclass defines ``_translate_window``, or ``_results`` of all texts."""

    window = 64  # texts for each call of ``_translate_window``

    def __init__(self, translator: Any):
        self._translator = translator

    def translate_iter(
        self, texts: Iterable[str], *, details: bool = False, return_exceptions: bool = False, **options: Any
    ) -> Iterator[Any]:
        """As ``Translator.translate_iter``; with ``details`` the results are of this class's own type."""
        details = check_details(details, options)
        self._check(options)
        call = StreamCall(options, details, return_exceptions)
        return self._finish(self._results(iter(check_several("texts", texts, "an iterable of str")), call), call)

    def _check(self, options: dict[str, Any]) -> None:
        """Raise InputError for options that the class cannot take."""

    @staticmethod
    def _finish(results: Iterator[Any], call: StreamCall) -> Iterator[Any]:
        """Yield the results, as texts without ``details``; raises the first error without ``return_exceptions``."""
        for result in results:
            if isinstance(result, FastattnError) and not call.return_exceptions:
                raise result
            yield result if call.details or isinstance(result, str | FastattnError) else result.text

    def _results(self, texts: Iterator[str], call: StreamCall) -> Iterator[Any]:
        """Each text's result with its details, or its error."""
        return self._windows(texts, call, self._translate_window)

    def _windows(
        self, texts: Iterator[str], call: StreamCall, translate_window: Callable[..., Iterable[Any]]
    ) -> Iterator[Any]:
        """The results of ``translate_window`` for each window; an error of ``texts`` is raised after them."""
        pairs, end = zip(repeat(1), texts), None
        while end is None:
            window, _, end = read_ahead(pairs, self.window)
            if window:
                yield from translate_window(window, call, call.read(len(window)))
        if not isinstance(end, StopIteration):
            raise end
        call.read(0)

    def _translate_window(self, texts: list[str], call: StreamCall, values: list[dict[str, Any]]) -> Iterable[Any]:
        """The results of a window of texts; ``values``: the ``per_text`` values of each text."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the translator that this translator uses."""
        self._translator.close()

    def translate(self, texts: str | Iterable[str], *, details: bool = False, **options: Any) -> Any:
        """As ``Translator.translate``, with the results of ``translate_iter``."""
        several = [texts] if isinstance(texts, str) else check_texts("texts", texts)
        results = list(self.translate_iter(several, details=details, **options))
        return results[0] if isinstance(texts, str) else results

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def details_of(result: Any) -> dict[str, Any]:
    """The fields that all classes of translations have, by name, to make a translation of another class."""
    names = ("text", "hypotheses", "scores", "parts")
    return {name: getattr(result, name) for name in names} | {"first": getattr(result, "first", None)}
