"""Byte pair encoding of words and back, by a file of merges that subword-nmt or fastBPE has written.

Sennrich 2016, section 3.2. A unit inside a word ends in "@@". Tokenization by Moses' rules comes from the sacremoses
package, if it is installed.
"""

import heapq
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from fastattn.errors import TokenizerError
from fastattn.spec.text_spec import TranslationText
from fastattn.system.records import lazy
from fastattn.text import check_text

FILE = "BPE codes"  # its name in errors
CONTINUATION, END_OF_WORD = "@@", "</w>"
VERSION = "#version: "
MOST_CACHED = 1 << 16  # words whose units are remembered
LONGEST_EXCERPT = 80  # characters of a line that an error shows


class SubwordUnits:
    """Cuts a text with spaces between its words into ``pieces``, and joins pieces to a ``text``, for any thread.

    codes  the bytes of a file of merges; TokenizerError for other bytes
    """

    def __init__(self, codes: bytes):
        try:
            lines = bytes(codes).decode().replace("\r\n", "\n").rstrip("\n").split("\n")
        except UnicodeDecodeError as error:
            raise TokenizerError(f"{FILE}: not UTF-8 at byte {error.start}") from None
        version = lines.pop(0).removeprefix(VERSION).strip() if lines[0].startswith(VERSION) else ""
        lines = lines or [""]
        if version not in ("", "0.1", "0.2"):
            raise TokenizerError(f"{FILE}: version {version[:LONGEST_EXCERPT]!r} is not known; known: 0.1, 0.2")
        self._ranks: dict[tuple[str, ...], int] = {}
        has_counts = len(lines[0].split(" ")) == 3  # fastBPE writes the count of each pair
        for number, line in enumerate(lines):
            pair = tuple(line.strip("\r\n ").split(" "))
            if len(pair) != 2 + has_counts:
                excerpt = line[:LONGEST_EXCERPT]
                raise TokenizerError(f"{FILE}: line {number + 1 + bool(version)} should be two units, is {excerpt!r}")
            self._ranks.setdefault(pair[:2], number)
        # In subword-nmt's first version the end of a word is a symbol of its own.
        self._has_end_symbol = version != "0.2" and not has_counts
        self._cache: dict[str, tuple[str, ...]] = {}

    def pieces(self, text: str) -> list[str]:
        """The units of a text; InputError for a lone surrogate."""
        check_text(text)
        units: list[str] = []
        for word in filter(None, text.strip("\r\n ").split(" ")):
            if (word_units := self._cache.get(word)) is None:
                word_units = self._units(word)
                if len(self._cache) < MOST_CACHED:
                    self._cache[word] = word_units
            units += word_units
        return " ".join(units).split()  # only now split at spaces other than " ", as fairseq does

    def text(self, pieces: Iterable[str]) -> str:
        return " ".join([*pieces, ""]).replace(CONTINUATION + " ", "").rstrip()

    def _units(self, word: str) -> tuple[str, ...]:
        if len(word) == 1:
            return (word,)
        units = self._merge([*word, END_OF_WORD] if self._has_end_symbol else [*word[:-1], word[-1] + END_OF_WORD])
        if units[-1] == END_OF_WORD:
            units.pop()
        units[-1] = units[-1].removesuffix(END_OF_WORD)
        return (*(unit + CONTINUATION for unit in units[:-1]), units[-1])

    def _merge(self, symbols: list[str]) -> list[str]:
        """Merge all occurrences of the pair that comes first in the file, then of the next, until the file has no pair.

        By a heap of pairs, so that a word of n symbols takes O(n log n).
        """
        ranks, count = self._ranks, len(symbols)
        next_of, previous_of = list(range(1, count + 1)), list(range(-1, count - 1))
        heap = [(ranks[pair], i) for i, pair in enumerate(pairwise(symbols)) if pair in ranks]
        heapq.heapify(heap)
        while heap:
            rank = heap[0][0]
            positions = []
            while heap and heap[0][0] == rank:
                positions.append(heapq.heappop(heap)[1])
            for i in positions:
                j = next_of[i]
                if not symbols[i] or j == count or ranks.get((symbols[i], symbols[j])) != rank:
                    continue  # already merged, as in the middle of three equal symbols
                symbols[i] += symbols[j]
                symbols[j], next_of[i] = "", next_of[j]
                if next_of[i] < count:
                    previous_of[next_of[i]] = i
                for first in (previous_of[i], i):
                    if first >= 0 and next_of[first] < count:
                        new_rank = ranks.get((symbols[first], symbols[next_of[first]]))
                        if new_rank is not None:
                            heapq.heappush(heap, (new_rank, first))
        return [symbol for symbol in symbols if symbol]


class MosesUnits:
    """Like SubwordUnits, but for texts as they are written: cuts them into words by Moses' rules, then into units.

    Raises TokenizerError at first use if sacremoses is not installed.
    """

    def __init__(self, units: SubwordUnits, text: TranslationText):
        self._units, self._normalizes = units, text.words == "argos"
        self._languages = text.source_language or "en", text.target_language or "en"

    @lazy
    def _moses(self) -> tuple[Any, Any, Any]:
        """(punctuation normalizer, tokenizer, detokenizer)."""
        try:
            import sacremoses as moses
        except ImportError:
            raise TokenizerError("this model's words are cut by Moses' rules: pip install sacremoses") from None
        source, target = self._languages
        return moses.MosesPunctNormalizer(source), moses.MosesTokenizer(source), moses.MosesDetokenizer(target)

    def pieces(self, text: str) -> list[str]:
        """The units of a text; InputError for a lone surrogate."""
        check_text(text)
        normalizer, tokenizer, _ = self._moses
        if self._normalizes:
            text = normalizer.normalize(text)
        words = tokenizer.tokenize(text, aggressive_dash_splits=not self._normalizes, return_str=True)
        return self._units.pieces(words)

    def text(self, pieces: Iterable[str]) -> str:
        return str(self._moses[2].detokenize(self._units.text(pieces).split(" ")))
