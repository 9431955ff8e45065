"""French and English sentences of tatoeba.org as words: what is learned, and what is held out.

``fra-eng.zip`` of www.manythings.org/anki, CC BY 2.0.
"""

import random
import re
import zipfile
from collections import Counter
from pathlib import Path

SPECIAL = ("SOS", "EOS", "<unk>")
SOS, EOS, UNKNOWN = range(3)
LONGEST = 12  # words of a pair that is learned, in either language
Pair = tuple[list[str], list[str]]


def words(text: str) -> list[str]:
    """Lower-case words and signs; an apostrophe ends its word."""
    return re.findall(r"\w+'?|[^\w\s]", text.lower().replace("’", "'"))


def pairs(archive: Path) -> tuple[list[Pair], list[Pair]]:
    """(learned, held out), each (French, English); one in 40 English sentences is held out, with all its translations.

    Of the held-out ones the longer are as many as there are.
    """
    lines = zipfile.ZipFile(archive).read("fra.txt").decode().splitlines()
    split = [(words(french), words(english)) for english, french, _ in (line.split("\t") for line in lines)]
    chosen = random.Random(5)
    held = {english for english in sorted({" ".join(english) for _, english in split}) if chosen.random() < 1 / 40}
    short = [pair for pair in split if max(map(len, pair)) <= LONGEST]
    return (
        [pair for pair in short if " ".join(pair[1]) not in held],
        [(french, english) for french, english in split if " ".join(english) in held],
    )


def vocabulary(sentences: list[list[str]], size: int) -> list[str]:
    """The special words, then the most frequent, ``size`` in all."""
    counts = Counter(word for sentence in sentences for word in sentence)
    return [*SPECIAL, *(word for word, _ in counts.most_common(size - len(SPECIAL)))]


def ids(sentence: list[str], numbers: dict[str, int]) -> list[int]:
    """Of its words, then EOS."""
    return [*(numbers.get(word, UNKNOWN) for word in sentence), EOS]
