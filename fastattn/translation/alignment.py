"""Which words of a text a translation's words look at, by the attention of the model."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fastattn.text.sentencepiece import SPACE
from fastattn.text.translation import is_spaceless
from fastattn.translation.calls import TokenTranslation, Translation


class WordLink(NamedTuple):
    """A word of the translation and the one of the text that it looks at most: [start, end) in characters of each."""

    source: tuple[int, int]
    target: tuple[int, int]


class Word(NamedTuple):
    """A word's tokens, by their numbers, and its characters."""

    tokens: range
    span: tuple[int, int]


def word_links(text: str, translation: Translation) -> Iterator[WordLink]:
    """The link of each word of the best translation that both texts show as the tokenizer wrote it."""
    read = written = 0
    for part in translation.parts:
        sources, read = _words(part.source, text, read)
        targets, written = _words(part.tokens, translation.text, written)
        yield from _links(part, sources, targets)


def _links(part: TokenTranslation, sources: Sequence[Word], targets: Sequence[Word]) -> Iterator[WordLink]:
    if not part.attention or not sources:
        return
    attention_TS = part.attention[0]
    for word in targets:
        looks_S = attention_TS[word.tokens.start : word.tokens.stop].sum(axis=0)
        most = max(sources, key=lambda one: float(np.sum(looks_S[one.tokens.start : one.tokens.stop])))
        yield WordLink(most.span, word.span)


def _words(tokens: Sequence[str], text: str, start: int) -> tuple[list[Word], int]:
    """(the words that tokens are pieces of, where the text goes on)."""
    words, first = list[Word](), 0
    for end in range(1, len(tokens) + 1):
        if end < len(tokens) and not _begins_word(tokens[end - 1], tokens[end]):
            continue
        surface = "".join(tokens[first:end]).replace(SPACE, " ").strip()
        at = text.find(surface, start)
        if surface and at >= 0:
            start = at + len(surface)
            words.append(Word(range(first, end), (at, start)))
        first = end
    return words, start


def _begins_word(before: str, token: str) -> bool:
    """Whether a token begins a word; signs are words of their own, which look at signs."""
    return token.startswith(SPACE) or is_spaceless(token[:1]) or _is_sign(token) or _is_sign(before)


def _is_sign(token: str) -> bool:
    return token != SPACE and not any(map(str.isalnum, token))
