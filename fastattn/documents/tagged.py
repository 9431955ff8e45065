"""Text with XML tags, as clients send it to translation services: tags stay around their words, byte for byte."""

import html
import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from fastattn.documents.html import match_tags
from fastattn.documents.markup import Paragraph, Piece, edits_of
from fastattn.documents.texts import DocumentPlan, apply_edits, decode_text

# The beginning of a section that stays whole -> its end.
_SECTIONS = {"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>", "<!": ">"}
_DOCTYPE = re.compile(r"<!DOCTYPE[^<>\[]*\[")
_TAG = re.compile(r"</?[^\s<>/=\"'!?]+(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>")
# An entity that XML does not define: its meaning is the document's own.
_ENTITY = re.compile(r"(&(?!(?:amp|lt|gt|quot|apos);)\w+;)")
_NAME = re.compile(r"</?([^\s<>/]+)")


class XmlRules(NamedTuple):
    """Which tags end a sentence.

    outline  whether tags of elements whose parents have no text of their own do; else only ``splitting`` ones
    splitting, inside, ignored  names of tags that end a sentence, that end none, whose text stays untranslated
    """

    outline: bool = True
    splitting: frozenset[str] = frozenset()
    inside: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()


OUTLINE = XmlRules()


def translate_xml(data: bytes, name: str, rules: XmlRules = OUTLINE) -> DocumentPlan:
    """Translate the text's sentences; attributes, comments and CDATA stay."""
    page = decode_text(data, name)
    tokens = xml_tokens(page)
    closers = match_tags([(token.kind, token.name) for token in tokens])
    inline, sentences, position, index = _inline_names(tokens, closers, rules), [Paragraph(0, [])], 0, 0
    while index < len(tokens):
        token, end = tokens[index], index + 1
        if token.name in rules.ignored and token.kind == "open":
            end = closers.get(index, index) + 1
            token = whole_piece(tokens[index:end])
        position += len(token.source)
        if token.kind in ("text", "alone") or token.name in inline:
            sentences[-1].pieces.append(token)
        else:
            sentences.append(Paragraph(position, []))
        index = end
    return apply_edits(page, (yield from edits_of(page, sentences, partial(html.escape, quote=False), True))).encode()


def whole_piece(tokens: Sequence[Piece]) -> Piece:
    """An element as a piece that stays."""
    return Piece("alone", "".join(inner.source for inner in tokens), "".join(inner.text for inner in tokens))


def xml_tokens(source: str) -> list[Piece]:
    """Texts, tags, and what stays: sections and entities, which have no names."""
    tokens, position, absent = list[Piece](), 0, set[str]()  # absent: ends of sections that do not follow any more
    while position < len(source):
        end, kind, name = _section_end(source, position, absent), "alone", ""
        if end < 0 and (tag := _TAG.match(source, position)):
            end, kind, name = tag.end(), "open", _NAME.match(tag[0])[1]  # type: ignore[index]
            kind = "close" if tag[0].startswith("</") else "alone" if tag[0].endswith("/>") else kind
        if end >= 0:
            tokens.append(Piece(kind, source[position:end], "", name))
        else:
            end = source.find("<", position + 1)
            end = len(source) if end < 0 else end
            for number, piece in enumerate(_ENTITY.split(source[position:end])):
                kind, text = ("alone", piece) if number % 2 else ("text", html.unescape(piece))
                tokens += [Piece(kind, piece, text)] if piece else []
        position = end
    return tokens


def _section_end(source: str, position: int, absent: set[str]) -> int:
    """The end of a comment, CDATA, declaration or instruction that begins here; -1 if none does. Extends ``absent``."""
    for opening, closing in _SECTIONS.items():
        if source.startswith(opening, position):
            closing = "]>" if _DOCTYPE.match(source, position) else closing
            end = -1 if closing in absent else source.find(closing, position + len(opening))
            if end < 0:
                absent.add(closing)
                return -1
            return end + len(closing)
    return -1


def _inline_names(tokens: Sequence[Piece], closers: dict[int, int], rules: XmlRules) -> frozenset[str]:
    """The names of tags that do not end a sentence."""
    names = frozenset(token.name for token in tokens)
    if rules.outline:
        parents, parent_of, parents_of_text = [-1], dict[int, int](), set[int]()
        closing = set(closers.values())
        for number, token in enumerate(tokens):
            if number in closing:
                parents.pop()
            elif token.kind == "text" and token.source.strip():
                parents_of_text.add(parents[-1])
            elif token.kind == "open":
                parent_of[number] = parents[-1]
                if number in closers:
                    parents.append(number)
        names = frozenset(tokens[number].name for number, parent in parent_of.items() if parent in parents_of_text)
    return (names - rules.splitting) | rules.inside
