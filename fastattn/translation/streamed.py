"""The base of translators that are made of others: what follows from translating a stream of texts."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from fastattn.errors import InputError, check_bool, check_texts

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


def check_details(details: bool, options: dict[str, Any]) -> None:
    """Raise InputError for what a text alone would not show."""
    if check_bool("details", details):
        return
    if options.get("num_hypotheses", 1) != 1:
        raise InputError("num_hypotheses above 1 needs details=True: a text alone shows only the best")
    if options.get("return_attention"):
        raise InputError("return_attention needs details=True: a text alone does not show it")
