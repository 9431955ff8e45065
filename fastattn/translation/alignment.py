"""Word alignment: links each word of a translation to the word of the text to which it attends most."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastattn.text.sentencepiece import SPACE
from fastattn.text.translation import is_spaceless
from fastattn.translation.calls import TokenTranslation


class WordLink(NamedTuple):
    """A word of the translation and the source word to which it attends most, as [start, end) in their texts.

    mutual  whether no other word attends more to that source word: then the link is reliable
    """

    source: tuple[int, int]
    target: tuple[int, int]
    mutual: bool = True


class Word(NamedTuple):
    """The indices of a word's tokens, and its [start, end) in characters."""

    tokens: range
    span: tuple[int, int]


def word_links(text: str, translation: Any) -> Iterator[WordLink]:
    """The link of each word of the best translation; words that the tokenizer has normalized have no links.

    translation  made with ``return_attention``; for a chain's, the first model's links are composed with the second's
    """
    first = getattr(translation, "first", None)
    if first is None:
        return _text_links(text, translation.text, translation.parts)
    return _compose(list(word_links(text, first)), _text_links(first.text, translation.text, translation.parts))


def _text_links(text: str, translated: str, parts: Sequence[TokenTranslation]) -> Iterator[WordLink]:
    source_end = target_end = 0
    for part in parts:
        sources, source_end = _words(part.source, text, source_end)
        targets, target_end = _words(part.tokens, translated, target_end)
        yield from _part_links(part, sources, targets)


def _compose(first: Sequence[WordLink], second: Iterable[WordLink]) -> Iterator[WordLink]:
    """Links from source words of ``first`` to target words of ``second``, by overlaps in the intermediate language."""
    for second_link in second:
        overlaps = [
            (min(link.target[1], second_link.source[1]) - max(link.target[0], second_link.source[0]), link)
            for link in first
        ]
        common, best = max(overlaps, key=lambda pair: pair[0], default=(0, None))
        if best is not None and common > 0:
            yield WordLink(best.source, second_link.target, best.mutual and second_link.mutual)


def pharaoh(text: str, translated: str, links: Iterable[WordLink]) -> str:
    """Mutual links in Pharaoh's format, as 0-0 1-2: indices of words, or of characters in scripts without blanks."""
    pairs = {
        (s, t)
        for link in links
        if link.mutual
        for t in _units_of(translated, link.target)
        for s in _units_of(text, link.source)
    }
    return " ".join(f"{s}-{t}" for s, t in sorted(pairs))


def units(text: str) -> list[tuple[int, int]]:
    """[start, end) of each unit that Pharaoh's format counts in a text."""
    spans: list[tuple[int, int]] = []
    for position, character in enumerate(text):
        if character.isspace():
            continue
        if spans and spans[-1][1] == position and not is_spaceless(character) and not is_spaceless(text[position - 1]):
            spans[-1] = spans[-1][0], position + 1
        else:
            spans.append((position, position + 1))
    return spans


def _units_of(text: str, span: tuple[int, int]) -> list[int]:
    """The indices of a word's units; a punctuation mark has no unit that has letters, such as the word before it."""
    is_sign = not any(map(str.isalnum, text[slice(*span)]))
    return [
        number
        for number, (start, end) in enumerate(units(text))
        if start < span[1] and span[0] < end and not (is_sign and any(map(str.isalnum, text[start:end])))
    ]


def _part_links(part: TokenTranslation, sources: Sequence[Word], targets: Sequence[Word]) -> Iterator[WordLink]:
    """Links of words to words and of signs to signs. Attention to a word counts less if many words attend to it."""
    if not part.attention or not sources or not targets:
        return
    attention_TS = part.attention[0]
    sums_WS = np.stack([attention_TS[word.tokens.start : word.tokens.stop].sum(axis=0) for word in targets])
    sums_WV = np.stack([sums_WS[:, word.tokens.start : word.tokens.stop].sum(axis=1) for word in sources], axis=1)
    is_sign_W, is_sign_V = (
        [_is_sign("".join(tokens[n] for n in word.tokens)) for word in words]
        for tokens, words in ((part.tokens, targets), (part.source, sources))
    )
    sums_WV = np.where(np.equal.outer(is_sign_W, is_sign_V), sums_WV, 0)
    shares_WV = sums_WV**2 / np.maximum(sums_WV.sum(axis=0), 1e-9)
    for w, word in enumerate(targets):
        v = int(shares_WV[w].argmax())
        if sums_WV[w, v] > 0:
            yield WordLink(sources[v].span, word.span, bool(sums_WV[:, v].argmax() == w))


def _words(tokens: Sequence[str], text: str, start: int) -> tuple[list[Word], int]:
    """(the words that tokens form and that the text has from ``start`` on, the position behind the last word)."""
    words, first = list[Word](), 0
    for end in range(1, len(tokens) + 1):
        if end < len(tokens) and not _begins_word(tokens[end - 1], tokens[end]):
            continue
        surface = "".join(tokens[first:end]).replace(SPACE, " ").strip()
        position = text.find(surface, start)
        if surface and position >= 0:
            start = position + len(surface)
            words.append(Word(range(first, end), (position, start)))
        first = end
    return words, start


def _begins_word(previous: str, token: str) -> bool:
    """Whether a token begins a word; a sign is a word of its own."""
    return token.startswith(SPACE) or is_spaceless(token[:1]) or _is_sign(token) or _is_sign(previous)


def _is_sign(token: str) -> bool:
    return token != SPACE and not any(map(str.isalnum, token))
