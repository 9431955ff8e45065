"""The base of translators that are made of others: what follows from translating a stream of texts."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from fastattn.errors import InputError, check_bool, check_several, check_texts
from fastattn.translation.calls import Beside

_Self = TypeVar("_Self", bound="StreamedTranslator")


class StreamedTranslator:
    """Has ``translate_iter`` and ``close`` of its own."""

    def translate_iter(
        self, texts: Iterable[str], *, details: bool = False, return_exceptions: bool = False, **options: Any
    ) -> Iterator[Any]:
        """As ``Translator.translate_iter``."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all translators that it is made of."""
        raise NotImplementedError

    def translate(self, texts: str | Iterable[str], *, details: bool = False, **options: Any) -> Any:
        """As ``Translator.translate``, with what ``translate_iter`` yields."""
        listed = [texts] if isinstance(texts, str) else check_texts("texts", texts)
        results = list(self.translate_iter(listed, details=details, **options))
        return results[0] if isinstance(texts, str) else results

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class OwnOptions:
    """A call's options: ``of_all`` texts, and the values that each text has, which are read along with the texts."""

    def __init__(self, options: dict[str, Any]):
        self.of_all = {
            name: one for name, one in options.items() if name not in Beside._fields or isinstance(one, str | None)
        }
        self._each = {name: iter(check_several(name, options[name])) for name in options.keys() - self.of_all.keys()}

    def read(self, count: int) -> list[dict[str, Any]]:
        """What each of the next texts has; InputError where there is less. At the end of the texts ``count`` is 0."""
        columns = {name: list(islice(values, count or 1)) for name, values in self._each.items()}
        for name, column in columns.items():
            if len(column) != count:
                fewer = "texts" if len(column) > count else "values"
                raise InputError(f"{name} should be one str, or one for each text: there are fewer {fewer}")
        return [{name: column[b] for name, column in columns.items()} for b in range(count)]

    def of(self, own: list[dict[str, Any]]) -> dict[str, Any]:
        """The options of a call for texts that have these."""
        return self.of_all | {name: [one[name] for one in own] for name in self._each}


def check_details(details: bool, options: dict[str, Any]) -> None:
    """Raise InputError for what a text alone would not show."""
    if check_bool("details", details):
        return
    if options.get("num_hypotheses", 1) != 1:
        raise InputError("num_hypotheses above 1 needs details=True: a text alone shows only the best")
    if options.get("return_attention"):
        raise InputError("return_attention needs details=True: a text alone does not show it")
