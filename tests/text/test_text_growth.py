"""The work on a text grows with its length and not with its square: steps and characters are counted, not time."""

import subprocess
import sys
from collections.abc import Callable

import pytest

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


# In a process of its own, which can be ended: what takes the square of such a text's length would take many minutes.
LONG_TEXTS = f"""
import sys
from pathlib import Path
from fastattn.text.sentencepiece import SentencePiece

for path in sys.argv[1:]:
    model = SentencePiece(Path(path).read_bytes())
    for unit in {UNITS[::2]}:
        text = (unit * 100_000)[:100_000]
        model.text(model.pieces(text))
"""


def test_pieces() -> None:
    paths = [GOLDENS / f"text_{name}.model" for name in MODELS]
    subprocess.run([sys.executable, "-c", LONG_TEXTS, *paths], check=True, timeout=120)
