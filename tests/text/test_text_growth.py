"""The work on a text grows with its length and not with its square: steps and characters are counted, not time."""

from collections.abc import Callable

import pytest

from fastattn.text.sentencepiece import SentencePiece, _decode_bytes
from fastattn.text.splitting import split_sentences, split_to_fit
from tests import GOLDENS
from tests.weights.run_hostile import Steps

MODELS = (
    "unigram",
    "unigram_bytes",
    "unigram_symbols",
    "unigram_suffix",
    "bpe",
    "bpe_across",
    "bpe_bytes",
    "characters",
)
UNITS = (
    "some words here ", "a", ". ", "1. A ", "This is one. ", "so, it; ", '"。"', "\n", " x  ", "J. R. ", "a\u0301",
    "中", "\U0001f600\u200d", "。", "12. ", 'e.g. a, "b" (c). D',
)  # fmt: skip
WHOLE = 1_000_000


def counted(work: Callable[[str], object], text: str) -> int:
    with Steps(float("inf")) as steps:
        work(text)
    return steps.count


def grown(work: Callable[[str], object], unit: str, size: int) -> float:
    """How many times the steps for a text of ``size`` characters those for four times as many are."""
    return counted(work, (unit * 4 * size)[: 4 * size]) / (500 + counted(work, (unit * size)[:size]))


class Copied(str):
    """A piece that counts the characters that are copied when another is put behind it."""

    count = 0

    def __add__(self, other: str) -> "Copied":
        Copied.count += len(self) + len(other)
        return Copied(str(self) + other)


def test_a_run_of_unknown_characters_is_joined_once() -> None:
    model = SentencePiece((GOLDENS / "text_unigram.model").read_bytes())
    model._segment = lambda text: [(Copied(character), model.unk_id) for character in text]
    Copied.count = 0
    run = "\U0001f600" * 1000
    (piece,) = model.pieces(run)
    assert piece.endswith(run)
    assert Copied.count <= 2 * len(run)


class Cut(bytes):
    """Bytes that count those which are copied when a part is taken."""

    count = 0

    def __getitem__(self, place):
        part = super().__getitem__(place)
        Cut.count += len(part) if isinstance(part, bytes) else 0
        return Cut(part) if isinstance(part, bytes) else part


def test_bytes_that_are_no_text_are_read_once() -> None:
    Cut.count = 0
    assert _decode_bytes(Cut(b"\xff" * 1000)) == "\ufffd" * 1000
    assert Cut.count <= 2000


@pytest.mark.parametrize("unit", UNITS)
def test_splitting(unit: str) -> None:
    assert grown(split_sentences, unit, 10_000) < 4.5
    text = (unit * WHOLE)[:WHOLE]
    measured = 0

    def length_of(part: str) -> int:
        nonlocal measured
        measured += len(part)
        return 2 + sum(-(-len(word) // 4) for word in part.split())

    assert "".join(split_to_fit(text, length_of, 100)) == text
    assert measured <= 30 * WHOLE


@pytest.mark.parametrize("name", MODELS)
def test_pieces(name: str) -> None:
    model = SentencePiece((GOLDENS / f"text_{name}.model").read_bytes())
    for unit in UNITS[::2]:
        text = (unit * 4000)[:4000]
        model.pieces(text)  # what is remembered from here on costs nothing more
        assert grown(model.pieces, unit, 1000) < 8, (
            unit
        )  # words are remembered up to a sum of scores; a square would be 16
        pieces = model.pieces(text)
        assert counted(model.text, pieces) < 8 * counted(model.text, pieces[: len(pieces) // 4 + 1]), unit
