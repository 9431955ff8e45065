"""Markdown: sentences are translated in place; code, links, tables and front matter keep their form."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fastattn.documents.html import VOID, partners
from fastattn.documents.marks import Marked, from_tags, unread, with_kept
from fastattn.documents.texts import Steps, decoded, in_lines, needed, replaced

_TITLE = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)"
_ADDRESS = r"<[^<>\n]*>|(?:[^\s()\\<]|\\.|\((?:[^\s()\\]|\\.|\([^\s()]*\))*\))*"
_LINK_END = re.compile(rf"\]\(\s*(?:{_ADDRESS})(?:\s+(?:{_TITLE}))?\s*\)|\]\[[^\[\]]*\]|\]")
_LINK_TITLE = re.compile(rf"\s({_TITLE})\s*\)\Z")
# Lines and parts of lines that are no text: front matter, directives of containers, identifiers and classes of
# headings, kinds of admonitions.
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?\n\1[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_PLAIN = re.compile(
    r"(?!(?:true|false|null|yes|no|on|off|~)\Z)(?![-?:] )[^\W\d](?:(?!: | #)[^\n])*(?<![:\s])", re.IGNORECASE
)
_FRONT_VALUE = re.compile(
    r"^(?:title|description):[ \t]+(\"(?:[^\"\\\n]|\\[\"\\/])*\"|'(?:[^'\n]|'')*'|"
    r"[^\s\"'|>&*!#\[{%@`](?:(?! #)[^\r\n])*?)"
    r"[ \t]*(?:[ \t]#[^\n]*)?\r?$(?!\n[ \t]+\S)",
    re.MULTILINE,
)
_DIRECTIVE = re.compile(
    r"^[ \t]*:{3,}.*$|(?<![ \t])[ \t]*\{:?[ \t]*[#.][^{}\n]*\}[ \t]*$|(?<=[> ])\[!\w+\][-+]?|"
    r"^[ \t]*(?:!!!|\?\?\?\+?)[ \t]+[\w-]+",
    re.MULTILINE,
)
SHORT = ("]", "][]")  # ends of a reference whose text is its label
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]")
_KEPT = re.compile(rf"{_FOOTNOTE.pattern}|\$\$[^$]+\$\$|\$(?=[^\s$])[^$\n]*(?<=[^\s\\])\$(?!\d)")  # formulas too
_ESCAPES = {sign: f"\\{sign}" for sign in "\\`*_[]<>|"} | {"&": "&amp;"}
# Before a footnote's text. The parser reads it as a list, whose further paragraphs are indented in the same way.
_NOTE = re.compile(rf"^ {{0,3}}{_FOOTNOTE.pattern}:[ \t]+(?=\S)", re.MULTILINE)
_DEFINITION = re.compile(r"^( {0,3}):(?=[ \t]+\S)", re.MULTILINE)  # in a definition list, read as a list too
_LINE_END = re.compile(r"(?<![ \t])[ \t]*\n[ \t]*")
# The beginnings of lists, headings, quotations, tables and rules, which no line of a sentence may have.
BLOCK = re.compile(r"[-+*#>|=~<]|`{3}|\d+[.)]|\[[^\]]*\]:")

_TAG_ALONE = re.compile(r"</?[A-Za-z][^<>]*>\s*\Z")  # the first line of a paragraph, it would begin an HTML block
# The beginnings of blocks that are no paragraphs.
_OPENS = re.compile(r"(?:[-+*]|#{1,6}|\d{1,9}[.)])(?:\s|\Z)|>|~{3}|\[[^\]]*\]:|(?:-[ \t]*){3,}\Z")


class SourcePiece(NamedTuple):
    """A piece of a paragraph's source, its text in the sentence, and the name of a tag.

    values  [start, end) of texts in it that are read apart from the sentence, such as a picture's
    """

    kind: str
    source: str
    text: str = ""
    name: str = ""
    values: tuple[tuple[int, int], ...] = ()


class MarkdownSentence(NamedTuple):
    """A text, the characters escaped in it, [start, end) of its lines in the document, and pieces with values."""

    text: Marked
    escaped: str
    spans: list[tuple[int, int]]
    valued: list[SourcePiece]

    @property
    def texts(self) -> list[Marked]:
        values = [piece.source[start:end] for piece in self.valued for start, end in piece.values]
        return [self.text, *map(Marked, values)]


class FrontValue(NamedTuple):
    """A value of front matter: [start, end) in the document, text, quotes."""

    start: int
    end: int
    text: str
    quote: str

    def written(self, text: str) -> str:
        """Another text in its form, in quotes if it is no plain value."""
        if self.quote == "'":
            return text.replace("'", "''")
        plain = not self.quote and _PLAIN.fullmatch(text)
        escaped = text if plain else text.replace("\\", "\\\\").replace('"', '\\"')
        return escaped if plain or self.quote else f'"{escaped}"'


def _front_values(page: str) -> list[FrontValue]:
    """Title and description of YAML front matter, if each is one line."""
    front, values = _FRONT_MATTER.match(page), list[FrontValue]()
    for match in _FRONT_VALUE.finditer(front[0] if front and front[1] == "---" else ""):
        quote = match[1][0] if match[1][0] in "\"'" else ""
        start, end = match.start(1) + len(quote), match.end(1) - len(quote)
        text = page[start:end]
        text = text.replace("''", "'") if quote == "'" else re.sub(r"\\([\"\\/])", r"\1", text) if quote else text
        values.append(FrontValue(start, end, text, quote))
    return values


def translate_markdown(data: bytes, name: str, extras: Sequence[str] = ()) -> Steps:
    """A page of Markdown: CommonMark with tables and strikethrough."""
    page = decoded(data, name)
    values = _front_values(page)
    front_texts = [Marked(value.text) if "front-matter" in extras else unread(value.text) for value in values]
    sentences = list(_sentences(page))
    edits: list[tuple[int, int, str]] = []
    answers = iter((yield [*front_texts, *(text for sentence in sentences for text in sentence.texts)]))
    for value, answer in zip(values, answers):
        if answer.text != value.text:
            edits.append((value.start, value.end, value.written(answer.text)))
    for sentence in sentences:
        answer, sources = next(answers), {piece.source: _with_values(piece, answers) for piece in sentence.valued}
        if answer == sentence.text and all(source == renewed for source, renewed in sources.items()):
            continue  # byte for byte
        text = _written(answer, sentence.escaped, sources).strip()
        if _OPENS.match(text) and not _OPENS.match(page, sentence.spans[0][0]):
            text = re.sub(r"\A(\d*)", r"\1\\", text)
        lines = in_lines(text, [end - start for start, end in sentence.spans], BLOCK)
        if len(lines) > 1 and _TAG_ALONE.match(lines[0]):
            lines[:2] = [" ".join(lines[:2]), ""]
        before = 0
        for (start, end), line in zip(sentence.spans, lines):  # an empty line would end the paragraph
            start = end - len(page[start:end].lstrip())
            edits.append((start if line or not before else before, end, line))
            before = end
    return replaced(page, edits).encode()


def _sentences(page: str) -> Any:
    with needed("Markdown"):
        from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    hidden = _DEFINITION.sub(r"\1-", _NOTE.sub("-   ", _DIRECTIVE.sub(_blanks, _FRONT_MATTER.sub(_blanks, page))))
    starts = [0, *(match.end() for match in re.finditer("\n", page))]
    starts = [name.end() if (name := _NOTE.match(page, start)) else start for start in starts]
    at = 0
    references: dict[str, Any] = {}
    for token in parser.parse(hidden, references):
        if token.type in ("fence", "code_block", "html_block"):
            yield MarkdownSentence(unread(re.sub(r"<[^>]*>", "", token.content)), "", [], [])
        if token.type != "inline" or not token.children or token.map is None:
            continue
        at = max(at, starts[min(token.map[0], len(starts) - 1)])
        spans = list[tuple[int, int, int]]()  # of each line: start in the paragraph; start and end in the page
        place, begin = at, 0
        for line in token.content.split("\n"):
            forms = {line, line.replace("|", "\\|")}  # as in a cell of a table
            start, form = min((page.find(candidate, place) % (len(page) + 1), candidate) for candidate in forms)
            if start == len(page):
                break
            spans.append((begin, start, start + len(form)))
            place, begin = start + len(form), begin + len(line) + 1
        else:
            at, pipes = place, "|" * (place - spans[0][1] > len(token.content))
            if pieces := _pieces(token.children, token.content):
                yield from _of_paragraph(pieces, spans, pipes)
                continue
        yield MarkdownSentence(unread(token.content), "", [], [])
    for reference in references.get("references", {}).values():
        yield MarkdownSentence(unread(reference["title"]), "", [], [])


def _of_paragraph(pieces: list[SourcePiece], lines: list[tuple[int, int, int]], escaped: str) -> Any:
    """The sentences between hard breaks, without the name of a footnote before them.

    lines    of each line: start in the paragraph; start and end in the page
    escaped  characters that the page escapes, besides those in pieces
    """
    begin, pieces = _without_name(pieces)
    sentence, starts = list[SourcePiece](), [start for start, *_ in lines]
    last_piece = SourcePiece("hard", "")
    for piece in [*pieces, last_piece]:
        if piece.kind != "hard":
            sentence.append(piece)
            continue
        end = begin + sum(len(item.source) for item in sentence)
        first, last = (bisect_right(starts, place) - 1 for place in (begin, max(begin, end - 1)))
        spans = [[start, stop] for _, start, stop in lines[first : last + 1]]
        if sentence:
            spans[0][0] += begin - lines[first][0]
            if piece is not last_piece:
                spans[-1][1] = lines[last][1] + end - lines[last][0]
            signs = escaped + "".join(item.text for item in sentence if item.kind == "escaped")
            valued = [item for item in sentence if item.values]
            yield MarkdownSentence(_marked(sentence), signs, [(start, stop) for start, stop in spans], valued)
        begin, sentence = end + len(piece.source), []


def _pieces(children: list[Any], content: str) -> list[SourcePiece]:
    """The source of each token of a paragraph; [] if they cannot be separated: the paragraph then stays as it is."""
    pieces, at, skipped = list[SourcePiece](), 0, 0
    for token in children:
        if skipped:
            skipped -= 1
            continue
        kind, pattern, text = _form(token)
        match = re.compile(pattern, re.DOTALL).match(content, at)
        if match is None:
            return []
        if token.markup == "autolink":
            skipped = 2
        pieces.append(SourcePiece(kind, match[0], text, _name(token), _values(token, match[0])))
        at = match.end()
    return pieces if at == len(content) else []


def _form(token: Any) -> tuple[str, str, str]:
    """(kind of a token's piece, pattern of its source, text)."""
    if token.type == "text":
        return "text", re.escape(token.content), token.content
    if token.type == "text_special":
        return "escaped" if token.content != token.markup else "text", re.escape(token.markup), token.content
    if token.type == "softbreak":
        return "text", r"[ \t]*\n[ \t]*", " "
    if token.type == "hardbreak":
        return "hard", r"(?: {2,}|\\)\n[ \t]*", ""
    if token.type == "code_inline":
        return "kept", rf"(?<!`){token.markup}(?!`).*?(?<!`){token.markup}(?!`)", token.content
    if token.type == "html_inline":
        alone = token.content.endswith("/>") or _name(token) in VOID or token.content[1] in "!?"
        kind = "point" if alone else "close" if token.content.startswith("</") else "open"
        return kind, re.escape(token.content), ""
    if token.type == "image":
        return "point", rf"!\[{re.escape(token.content)}(?:{_LINK_END.pattern})", ""
    if token.markup == "autolink":
        return "kept", r"<[^<>]*>", token.attrGet("href") or ""
    if token.type == "link_open":
        return "open", r"\[", ""
    if token.type == "link_close":
        return "close", _LINK_END.pattern, ""
    return "open" if token.nesting > 0 else "close", re.escape(token.markup), ""


def _blanks(match: "re.Match[str]") -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _without_name(pieces: list[SourcePiece]) -> tuple[int, list[SourcePiece]]:
    """(length of the footnote name at the beginning of a paragraph, the pieces after it)."""
    source = "".join(piece.source for piece in pieces)
    name = re.match(rf"{_FOOTNOTE.pattern}:[ \t]*", source)
    length = remaining = name.end() if name else 0
    while remaining and pieces[0].kind == "text":
        first, *others = pieces
        cut = min(remaining, len(first.source))
        rest = SourcePiece("text", first.source[cut:], first.text[cut:])
        remaining, pieces = remaining - cut, [rest, *others] if rest.source else others
    return length - remaining, pieces


def _values(token: Any, source: str) -> tuple[tuple[int, int], ...]:
    """[start, end) in a piece of a picture's alternative text, unless that has markup, and of a title."""
    title = _LINK_TITLE.search(source) if token.type in ("image", "link_close") else None
    values = [(title.start(1) + 1, title.end(1) - 1)] if title else []
    if token.type == "image" and not re.search(r"[\\`*_\[\]<>&]", token.content):
        values.insert(0, (2, 2 + len(token.content)))
    return tuple((start, end) for start, end in values if any(map(str.isalpha, source[start:end])))


def _with_values(piece: SourcePiece, answers: Iterator[Marked]) -> str:
    """A piece's source with the translations of its values, in which closing characters are escaped."""
    source, written = piece.source, [next(answers).text for _ in piece.values]
    for (start, end), text in reversed(list(zip(piece.values, written))):
        ends = source[end] if source[end] in "\"')" else "[]"
        label = f"[{source[start:end]}]" if source[end:] in SHORT and text != source[start:end] else ""
        source = source[:start] + "".join(f"\\{sign}" if sign in ends else sign for sign in text) + source[end:]
        source = source.removesuffix("[]") + label if label else source
    return source


def _name(token: Any) -> str:
    """A name that a token shares with its other end."""
    tag = re.match(r"</?([A-Za-z][\w-]*)", token.content) if token.type == "html_inline" else None
    return tag[1].lower() if tag else str(token.type.removesuffix("_open").removesuffix("_close"))


def _marked(pieces: list[SourcePiece]) -> Marked:
    def what(tag: int, closer: int | None) -> tuple[str, str, str]:
        end = "" if closer is None else pieces[closer].source
        label = "".join(piece.source for piece in pieces[tag + 1 : closer]) if end in SHORT else ""
        return pieces[tag].source, end, label

    kinds = ["text" if piece.kind == "escaped" else piece.kind for piece in pieces]
    closers = partners([(piece.kind, piece.name) for piece in pieces])
    return with_kept(from_tags(kinds, closers, lambda number, *_: pieces[number].text, what), _KEPT)


def _written(answer: Marked, escaped: str, renewed: Mapping[str, str]) -> str:
    """The source of a sentence; ``renewed``: source of a piece -> the same with translated values."""
    written, starts = "", list[int]()
    for kind, text, sources in answer.pieces():
        if kind in ("open", "close"):
            source = _LINE_END.sub(" ", renewed.get(sources[kind == "close"], sources[kind == "close"]))
            if kind == "close" and written[starts.pop() :] != sources[2] and source in SHORT:
                source = f"][{sources[2]}]"
            written += source
            starts += [len(written)] * (kind == "open")
        elif kind == "kept" and sources:
            written += " " * (written.endswith("`") and sources[0].startswith("`"))  # else both would be one
            written += _LINE_END.sub(" ", sources[0])
        else:
            written += "".join(_ESCAPES.get(sign, sign) if sign in escaped else sign for sign in text)
    return written
