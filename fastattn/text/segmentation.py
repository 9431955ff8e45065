"""How sentencepiece cuts a normalised text into pieces: unigram, BPE, word and character models.

Each segmenter is called with the normalised text and yields (surface, id) pairs whose surfaces join to that text.
Written out here rather than given to the ``tokenizers`` library, because its unigram model sums scores in float64 and
sentencepiece in float32, which settles near-ties differently, and because it has no user-defined pieces.
"""

import heapq
import math
import re
from array import array
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from fastattn.errors import TokenizerError
from fastattn.text.normalizer import SPACE, LongestMatch
from fastattn.text.spm_file import BPE, CHAR, FILE, NORMAL, UNIGRAM, UNUSED, USER_DEFINED, SpmFile

Segments = list[tuple[str, int]]
Segmenter = Callable[[str], Segments]

UNKNOWN_PENALTY = 10.0  # an unknown character scores this much below the worst piece
USER_SYMBOL_BONUS = 0.1  # a user-defined piece scores this for each byte of UTF-8 after its first

REMEMBERED_WORDS = 1 << 16
LONGEST_REMEMBERED_WORD = 48
# Sums of scores above this are exact to the float32's step below: on a word's path each piece rounds by half of it.
LOWEST_SUM = -4096.0
SUM_STEP = 2.0**-11


def build_segmenter(spm: SpmFile) -> Segmenter:
    """The segmenter of a model file."""
    if spm.model_type == UNIGRAM:
        return _Unigram(spm)
    if spm.model_type == BPE:
        return _Bpe(spm)
    return _Characters(spm) if spm.model_type == CHAR else _Words(spm)


def matched_pieces(spm: SpmFile) -> dict[str, int]:
    """The pieces that text can turn into, with their ids; control, byte and unknown pieces are not among them."""
    ids = spm.ids.copy()
    for index in spm.special:
        if spm.types[index] not in (USER_DEFINED, UNUSED):
            del ids[spm.pieces[index]]
    return ids


def user_symbols(spm: SpmFile) -> tuple[str, ...]:
    """The user-defined pieces, which are never cut nor merged."""
    return tuple(spm.pieces[index] for index in spm.special if spm.types[index] == USER_DEFINED)


_ONCE = ()  # of a word that was met once: most are never met again


class _Unigram:
    """The best path by the sum of the pieces' scores (Kudo 2018), rounded to float32 at each piece as the original is.

    The trie is nested dicts by character; the key "" of a node holds (score, id) where a piece ends. It grows where
    texts lead: a node to which none has led yet is the list of the pieces below it.

    Where no piece crosses from one word to the next, words are segmented alone and remembered, but for those whose
    best two paths are so close that the rounding of what comes before them could settle which is the better.
    """

    def __init__(self, spm: SpmFile):
        normal = [score for score, kind in zip(spm.scores, spm.types, strict=True) if kind == NORMAL]
        ids = matched_pieces(spm)
        if not ids or not normal:
            raise TokenizerError(f"{FILE}: a unigram model without normal pieces")
        self._unknown_score = array("f", [min(normal) - UNKNOWN_PENALTY])[0]
        self._unk_id = spm.unk_id
        self._ids = ids
        self._scores = spm.scores.copy()
        for index in spm.special:
            piece, kind = spm.pieces[index], spm.types[index]
            if kind == UNUSED:
                del ids[piece]
            elif kind == USER_DEFINED:
                self._scores[index] = array("f", [USER_SYMBOL_BONUS * (len(piece.encode("utf-8")) - 1)])[0]
        self._trie = self._grow(ids, 0)
        self._suffix = spm.treat_whitespace_as_suffix
        self._by_word = not any(map(_WORD_ENDS[self._suffix].search, ids))
        self._remembered: dict[str, Any] = {}  # word -> _ONCE, False, or its segments and scores

    def _grow(self, pieces: Iterable[str], depth: int) -> dict[str, Any]:
        """The node of pieces that share their first ``depth`` characters; two threads that grow it make the same."""
        node: dict[str, Any] = {}
        for piece in pieces:
            if len(piece) == depth:
                index = self._ids[piece]
                node[""] = (self._scores[index], index)
            else:
                node.setdefault(piece[depth], []).append(piece)
        return node

    def __call__(self, text: str) -> Segments:
        if not self._by_word:
            return self._search(text, 0.0)[0]
        segments: Segments = []
        total = array("f", [0.0])  # rounds what is stored in it
        for word in _split_words(text, self._suffix):
            known = self._remembered.get(word)
            if known == _ONCE:
                known = self._remembered[word] = self._verify(word)
            if known and total[0] > LOWEST_SUM:
                segments += known[0]
                for score in known[1]:
                    total[0] += score
                continue
            if known is None and len(word) <= LONGEST_REMEMBERED_WORD:
                if len(self._remembered) >= REMEMBERED_WORDS:
                    self._remembered.clear()
                self._remembered[word] = _ONCE
            found, total[0] = self._search(word, total[0])
            segments += found
        return segments

    def _verify(self, word: str) -> tuple[Segments, list[float]] | bool:
        """A word's segments and their scores; False where they could depend on what comes before it."""
        segments, _ = self._search(word, 0.0)
        edges = self._edges(word)
        ahead, back = ([-math.inf] * (len(word) + 1) for _ in range(2))
        ahead[0] = back[-1] = 0.0
        for start, end, score in edges:
            ahead[end] = max(ahead[end], ahead[start] + score)
        for start, end, score in reversed(edges):
            back[start] = max(back[start], score + back[end])
        chosen, start = {}, 0
        for surface, _ in segments:
            chosen[start] = start = start + len(surface)
        bound = back[0] - len(word) * SUM_STEP
        if any(ahead[start] + score + back[end] > bound for start, end, score in edges if chosen.get(start) != end):
            return False
        return segments, [score for start, end, score in edges if chosen.get(start) == end]

    def _edges(self, word: str) -> list[tuple[int, int, float]]:
        """(start, end, score) of every piece in a word, unknown characters among them, by their starts."""
        edges = []
        for start in range(len(word)):
            single = False
            node: Any = self._trie
            for end in range(start + 1, len(word) + 1):
                node = node.get(word[end - 1])
                if type(node) is not dict:  # a search of the word has grown all that lies on its way
                    break
                if "" in node:
                    edges.append((start, end, node[""][0]))
                    single = single or end == start + 1
            if not single:
                edges.append((start, start + 1, self._unknown_score))
        return edges

    def _search(self, text: str, before: float) -> tuple[Segments, float]:
        """The best path through a text, and the score at its end, which starts from ``before``."""
        length = len(text)
        # What ends at each position: the path's score (float32), where its last piece starts, that piece's id.
        scores = array("f", bytes(4 * (length + 1)))
        scores[0] = before
        starts = [-1] * (length + 1)
        ids = [self._unk_id] * (length + 1)
        for start in range(length):
            here = scores[start]
            node = self._trie
            single = False
            for end in range(start + 1, length + 1):
                character = text[end - 1]
                below = node.get(character)
                if below is None:
                    break
                if type(below) is list:
                    below = node[character] = self._grow(below, end - start)
                node = below
                if "" in node:
                    score, index = node[""]
                    if end == start + 1:
                        single = True
                    best = scores[end]
                    if starts[end] < 0 or score + here > best:
                        scores[end] = score + here  # rounds to float32; a gain that rounds away is none
                        if starts[end] < 0 or scores[end] > best:
                            starts[end] = start
                            ids[end] = index
            if not single:
                self._add_unknown(start, here, scores, starts, ids)
        segments = []
        end = length
        while end > 0:
            start = starts[end]
            segments.append((text[start:end], ids[end]))
            end = start
        segments.reverse()
        return segments, scores[length]

    def _add_unknown(self, start: int, here: float, scores: "array[float]", starts: list[int], ids: list[int]) -> None:
        score = array("f", [here + self._unknown_score])[0]
        end = start + 1
        if starts[end] < 0 or score > scores[end]:
            scores[end] = score
            starts[end] = start
            ids[end] = self._unk_id


class _Bpe:
    """Byte-pair merges by score (Sennrich 2016): the best pair first, among equals the leftmost.

    Where no piece crosses from one word to the next, words are segmented alone and remembered.
    """

    def __init__(self, spm: SpmFile):
        if UNUSED in spm.types:
            # Releases of sentencepiece differ in how they take such a piece apart again.
            raise TokenizerError(f"{FILE}: BPE piece {spm.pieces[spm.types.index(UNUSED)]!r} is marked unused")
        self._suffix = spm.treat_whitespace_as_suffix
        self._by_word = not any(map(_WORD_ENDS[self._suffix].search, matched_pieces(spm)))
        # an object of its own: were it a method, the cache and this object would keep each other alive
        self._merge = _Merges(spm)
        self._remembered = lru_cache(REMEMBERED_WORDS)(self._merge)

    def __call__(self, text: str) -> Segments:
        if not self._by_word:
            return self._merge(text)
        segments: Segments = []
        for word in _split_words(text, self._suffix):
            segments += self._remembered(word) if len(word) <= LONGEST_REMEMBERED_WORD else self._merge(word)
        return segments


class _Merges:
    """The segments of one stretch of text, merged from its characters."""

    def __init__(self, spm: SpmFile):
        self._scores = spm.scores
        self._pieces = matched_pieces(spm)
        self._unk_id = spm.unk_id
        self._symbols = LongestMatch(user_symbols(spm))

    def __call__(self, text: str) -> Segments:
        surfaces, frozen = self._start(text)
        count = len(surfaces)
        before = list(range(-1, count - 1))
        after = [*range(1, count), -1]
        agenda: list[tuple[float, int, int, int]] = []
        pieces, scores = self._pieces, self._scores

        def consider(left: int, right: int) -> None:
            if left < 0 or right < 0 or frozen[left] or frozen[right]:
                return
            merged = surfaces[left] + surfaces[right]
            index = pieces.get(merged)
            if index is not None:
                heapq.heappush(agenda, (-scores[index], left, right, len(merged)))

        for left in range(count - 1):
            consider(left, left + 1)
        while agenda:
            _, left, right, size = heapq.heappop(agenda)
            # Stale where either side has merged since.
            if not surfaces[left] or not surfaces[right] or len(surfaces[left]) + len(surfaces[right]) != size:
                continue
            surfaces[left] += surfaces[right]
            surfaces[right] = ""
            after[left] = after[right]
            if after[left] >= 0:
                before[after[left]] = left
            consider(before[left], left)
            consider(left, after[left])
        return [(surface, pieces.get(surface, self._unk_id)) for surface in surfaces if surface]

    def _start(self, text: str) -> tuple[list[str], list[bool]]:
        surfaces, frozen = [], []
        position = 0
        while position < len(text):
            symbol = self._symbols.match(text, position)
            surfaces.append(symbol or text[position])
            frozen.append(bool(symbol))
            position += len(surfaces[-1])
        return surfaces, frozen


class _Characters:
    """Every character (or user-defined piece) alone."""

    def __init__(self, spm: SpmFile):
        self._pieces = matched_pieces(spm)
        self._unk_id = spm.unk_id
        self._symbols = LongestMatch(user_symbols(spm))

    def __call__(self, text: str) -> Segments:
        segments = []
        position = 0
        while position < len(text):
            surface = self._symbols.match(text, position) or text[position]
            segments.append((surface, self._pieces.get(surface, self._unk_id)))
            position += len(surface)
        return segments


class _Words:
    """Every word, with the space before it, looked up whole."""

    def __init__(self, spm: SpmFile):
        self._pieces = matched_pieces(spm)
        self._unk_id = spm.unk_id

    def __call__(self, text: str) -> Segments:
        words = text.split(SPACE)
        surfaces = ([words[0]] if words[0] else []) + [SPACE + word for word in words[1:]]
        return [(surface, self._pieces.get(surface, self._unk_id)) for surface in surfaces]


# Where a word ends: before a space that follows a letter or, where spaces are suffixes, before a letter after a space.
_WORD_ENDS = {
    False: re.compile(f"(?<=[^{SPACE}])(?={SPACE})"),
    True: re.compile(f"(?<={SPACE})(?=[^{SPACE}])"),
}


def _split_words(text: str, suffix: bool) -> list[str]:
    return _WORD_ENDS[suffix].split(text) if text else []
