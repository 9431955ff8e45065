"""A translator whose translations are known: it writes each sentence's words in the reverse order, and says so."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from fastattn.documents.translating import translate_document
from fastattn.translation.calls import TokenTranslation, Translation
from tests.weights.run_hostile import Steps


class Backwards:
    """Words are what stands between blanks, and end without their stop or comma."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.told: list[tuple[str, dict[str, Any]]] = []  # each text with its options

    def translate_iter(self, texts: Iterable[str], *, details: bool = False, **options: Any) -> Iterator[Any]:
        for text in texts:
            self.seen.append(text)
            self.told.append((text, options | ({"details": True} if details else {})))
            lines = [self._line(line) for line in text.split("\n")]
            whole = "\n".join(" ".join(tokens[::-1]) for tokens in lines)
            attention = options.get("return_attention", False)
            yield self._details(whole, lines, attention) if details else whole

    @staticmethod
    def _line(line: str) -> list[str]:
        return line.split()

    @staticmethod
    def _details(whole: str, lines: list[list[str]], attention: bool) -> Translation:
        parts = [
            TokenTranslation(
                [f"\u2581{word}" for word in line],
                [[f"\u2581{word}" for word in line[::-1]]],
                [0.0],
                [0.0],
                [len(line)],
                [np.eye(len(line), dtype=np.float32)[::-1]] if attention else None,
            )
            for line in lines
        ]
        return Translation(whole, [whole], [0.0], parts)


class Unchanged(Backwards):
    """Its translations are the texts."""

    def translate_iter(self, texts: Iterable[str], *, details: bool = False, **options: Any) -> Iterator[Any]:
        for text in texts:
            yield Translation(text, [text], [0.0], []) if details else text


def grows_as_its_length(form: str, page: Callable[[int], str], translator: type[Backwards] = Unchanged) -> None:
    """Assert that eight times the page takes about eight times the steps, and not their square."""

    def steps(n: int) -> int:
        text = page(n).encode()
        with Steps(most=math.inf) as counted:
            translate_document(translator(), text, form)
        return counted.count

    assert steps(800) < 16 * steps(100)
