"""Markdown: sentences are translated in place; code, links, tables and front matter stay as they are written."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fastattn.documents.html import VOID, match_tags
from fastattn.documents.marks import Marked, keep_matches, marked_from_tags, untranslated_text
from fastattn.documents.texts import DocumentPlan, apply_edits, break_into_lines, decode_text, reports_missing_library

_TITLE = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)"
_ADDRESS = r"<[^<>\n]*>|(?:[^\s()\\<]|\\.|\((?:[^\s()\\]|\\.|\([^\s()]*\))*\))*"
_LINK_END = re.compile(rf"\]\(\s*(?:{_ADDRESS})(?:\s+(?:{_TITLE}))?\s*\)|\]\[[^\[\]]*\]|\]")
_LINK_TITLE = re.compile(rf"\s({_TITLE})\s*\)\Z")
# Front matter; a text that YAML takes without quotes; a value of front matter that is translated.
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?\n\1[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_PLAIN_YAML = re.compile(
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
SHORT_LINK_ENDS = ("]", "][]")  # closing tags of a reference whose text is its label
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]")
_KEPT = re.compile(rf"{_FOOTNOTE.pattern}|\$\$[^$]+\$\$|\$(?=[^\s$])[^$\n]*(?<=[^\s\\])\$(?!\d)")  # formulas too
_ESCAPED_SIGNS = {sign: f"\\{sign}" for sign in "\\`*_[]<>|"} | {"&": "&amp;"}
# The name before a footnote's text. The parser reads a list item instead, whose further paragraphs are indented alike.
_FOOTNOTE_START = re.compile(rf"^ {{0,3}}{_FOOTNOTE.pattern}:[ \t]+(?=\S)", re.MULTILINE)
_DEFINITION_START = re.compile(r"^( {0,3}):(?=[ \t]+\S)", re.MULTILINE)  # of a list of terms; read as an item too
_LINE_END = re.compile(r"(?<![ \t])[ \t]*\n[ \t]*")
# The beginnings of lists, headings, quotations, tables and rules: no further line of a sentence may begin with these.
NO_LINE_START = re.compile(r"[-+*#>|=~<]|`{3}|\d+[.)]|\[[^\]]*\]:")

_TAG_ALONE = re.compile(r"</?[A-Za-z][^<>]*>\s*\Z")  # as the first line of a paragraph, a tag would begin an HTML block
# The beginnings of blocks that are no paragraphs: the translation of a paragraph may not begin with these.
_BLOCK_START = re.compile(r"(?:[-+*]|#{1,6}|\d{1,9}[.)])(?:\s|\Z)|>|~{3}|\[[^\]]*\]:|(?:-[ \t]*){3,}\Z")


class SourcePiece(NamedTuple):
    """A piece of a paragraph's source. Kinds: "text", "escaped", "kept", "open", "close", "point" (a lone tag), "hard".

    text    the piece's text in the sentence
    name    of a tag
    values  [start, end) of texts in the source that are read apart from the sentence, such as a picture's
    """

    kind: str
    source: str
    text: str = ""
    name: str = ""
    values: tuple[tuple[int, int], ...] = ()


class MarkdownSentence(NamedTuple):
    """A text, the characters that its source escapes, and [start, end) of its lines in the page."""

    text: Marked
    escaped: str
    spans: list[tuple[int, int]]
    pieces_with_values: list[SourcePiece]

    @property
    def texts(self) -> list[Marked]:
        values = [piece.source[start:end] for piece in self.pieces_with_values for start, end in piece.values]
        return [self.text, *map(Marked, values)]


SourceLine = tuple[int, int, int]  # a line's start in its paragraph; its start and its end in the page


class FrontValue(NamedTuple):
    """A value of front matter: [start, end) in the page, text, quotation mark or ""."""

    start: int
    end: int
    text: str
    quote: str

    def render(self, text: str) -> str:
        """The source of another text in the value's quotes; if it has none, in double quotes where YAML needs them."""
        if self.quote == "'":
            return text.replace("'", "''")
        is_plain = not self.quote and _PLAIN_YAML.fullmatch(text)
        escaped = text if is_plain else text.replace("\\", "\\\\").replace('"', '\\"')
        return escaped if is_plain or self.quote else f'"{escaped}"'


def _front_values(page: str) -> list[FrontValue]:
    """The title and the description of YAML front matter, each only if it is one line."""
    front, values = _FRONT_MATTER.match(page), list[FrontValue]()
    for match in _FRONT_VALUE.finditer(front[0] if front and front[1] == "---" else ""):
        quote = match[1][0] if match[1][0] in "\"'" else ""
        start, end = match.start(1) + len(quote), match.end(1) - len(quote)
        text = page[start:end]
        text = text.replace("''", "'") if quote == "'" else re.sub(r"\\([\"\\/])", r"\1", text) if quote else text
        values.append(FrontValue(start, end, text, quote))
    return values


def translate_markdown(data: bytes, name: str, extras: Sequence[str] = ()) -> DocumentPlan:
    """Translate a page of Markdown: CommonMark with tables and strikethrough."""
    page = decode_text(data, name)
    values = _front_values(page)
    texts = [Marked(value.text) if "front-matter" in extras else untranslated_text(value.text) for value in values]
    sentences, edits = list(_sentences(page)), list[tuple[int, int, str]]()
    answers = iter((yield [*texts, *(text for sentence in sentences for text in sentence.texts)]))
    for value, answer in zip(values, answers):
        if answer.text != value.text:
            edits.append((value.start, value.end, value.render(answer.text)))
    for sentence in sentences:
        answer = next(answers)
        sources = {piece.source: _source_with_values(piece, answers) for piece in sentence.pieces_with_values}
        if answer == sentence.text and all(source == translated for source, translated in sources.items()):
            continue  # the source stays byte for byte
        text = _render_sentence(answer, sentence.escaped, sources).strip()
        if _BLOCK_START.match(text) and not _BLOCK_START.match(page, sentence.spans[0][0]):
            text = re.sub(r"\A(\d*)", r"\1\\", text)
        lines = break_into_lines(text, [end - start for start, end in sentence.spans], NO_LINE_START)
        if len(lines) > 1 and _TAG_ALONE.match(lines[0]):
            lines[:2] = [" ".join(lines[:2]), ""]
        previous_end = 0
        for (start, end), line in zip(sentence.spans, lines):  # without empty lines, which would end the paragraph
            start = end - len(page[start:end].lstrip())
            edits.append((start if line or not previous_end else previous_end, end, line))
            previous_end = end
    return apply_edits(page, edits).encode()


def _sentences(page: str) -> Any:
    """The sentences of a page, and its code blocks and other untranslated texts, which have no lines."""
    with reports_missing_library("Markdown"):
        from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    masked = page  # with blanks in place of front matter and directives
    for pattern in (_FRONT_MATTER, _DIRECTIVE):
        masked = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), masked)
    masked = _DEFINITION_START.sub(r"\1-", _FOOTNOTE_START.sub("-   ", masked))
    starts = [0, *(match.end() for match in re.finditer("\n", page))]  # of lines, behind a footnote's name
    starts = [name.end() if (name := _FOOTNOTE_START.match(page, start)) else start for start in starts]
    paragraph_start = 0
    references: dict[str, Any] = {}
    for token in parser.parse(masked, references):
        if token.type in ("fence", "code_block", "html_block"):
            yield MarkdownSentence(untranslated_text(re.sub(r"<[^>]*>", "", token.content)), "", [], [])
        if token.type != "inline" or not token.children or token.map is None:
            continue
        paragraph_start = max(paragraph_start, starts[min(token.map[0], len(starts) - 1)])
        spans = list[SourceLine]()
        position, content_position = paragraph_start, 0
        for line in token.content.split("\n"):
            candidates = {line, line.replace("|", "\\|")}  # in a cell of a table, the page escapes each pipe
            start, source_line = min((page.find(source, position) % (len(page) + 1), source) for source in candidates)
            if start == len(page):
                break
            spans.append((content_position, start, start + len(source_line)))
            position, content_position = start + len(source_line), content_position + len(line) + 1
        else:
            paragraph_start, escaped_pipe = position, "|" * (position - spans[0][1] > len(token.content))
            if pieces := _pieces(token.children, token.content):
                yield from _paragraph_sentences(pieces, spans, escaped_pipe)
                continue
        yield MarkdownSentence(untranslated_text(token.content), "", [], [])
    for reference in references.get("references", {}).values():
        yield MarkdownSentence(untranslated_text(reference["title"]), "", [], [])


def _paragraph_sentences(pieces: list[SourcePiece], lines: list[SourceLine], escaped: str) -> Any:
    """The sentences between a paragraph's hard breaks, without a footnote's name at its beginning.

    escaped  characters that the page escapes, besides pieces of kind "escaped"
    """
    start, pieces = _split_footnote_name(pieces)
    sentence, starts = list[SourcePiece](), [start for start, *_ in lines]
    last_piece = SourcePiece("hard", "")
    for piece in [*pieces, last_piece]:
        if piece.kind != "hard":
            sentence.append(piece)
            continue
        end = start + sum(len(inner.source) for inner in sentence)
        first, last = (bisect_right(starts, position) - 1 for position in (start, max(start, end - 1)))
        spans = [[line_start, line_end] for _, line_start, line_end in lines[first : last + 1]]
        if sentence:
            spans[0][0] += start - lines[first][0]
            if piece is not last_piece:
                spans[-1][1] = lines[last][1] + end - lines[last][0]
            signs = escaped + "".join(inner.text for inner in sentence if inner.kind == "escaped")
            with_values = [inner for inner in sentence if inner.values]
            yield MarkdownSentence(_marked(sentence), signs, [(begin, end) for begin, end in spans], with_values)
        start, sentence = end + len(piece.source), []


def _pieces(children: list[Any], content: str) -> list[SourcePiece]:
    """The piece of each token of a paragraph; [] if a token's source is not found: then the paragraph stays."""
    pieces, position, to_skip = list[SourcePiece](), 0, 0
    for token in children:
        if to_skip:
            to_skip -= 1
            continue
        kind, pattern, text = _describe_piece(token)
        match = re.compile(pattern, re.DOTALL).match(content, position)
        if match is None:
            return []
        if token.markup == "autolink":
            to_skip = 2
        pieces.append(SourcePiece(kind, match[0], text, _tag_name(token), _value_spans(token, match[0])))
        position = match.end()
    return pieces if position == len(content) else []


def _describe_piece(token: Any) -> tuple[str, str, str]:
    """(kind of a token's piece, pattern of the piece's source, the piece's text)."""
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
        is_alone = token.content.endswith("/>") or _tag_name(token) in VOID or token.content[1] in "!?"
        kind = "point" if is_alone else "close" if token.content.startswith("</") else "open"
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


def _split_footnote_name(pieces: list[SourcePiece]) -> tuple[int, list[SourcePiece]]:
    """(length of the footnote name at the beginning of a paragraph, the pieces after the name)."""
    source = "".join(piece.source for piece in pieces)
    name = re.match(rf"{_FOOTNOTE.pattern}:[ \t]*", source)
    length = remaining = name.end() if name else 0
    while remaining and pieces[0].kind == "text":
        first, *following = pieces
        cut = min(remaining, len(first.source))
        remainder = SourcePiece("text", first.source[cut:], first.text[cut:])
        remaining, pieces = remaining - cut, [remainder, *following] if remainder.source else following
    return length - remaining, pieces


def _value_spans(token: Any, source: str) -> tuple[tuple[int, int], ...]:
    """[start, end) in a piece's source of a link's title, and of a picture's alternative text if it has no markup."""
    title = _LINK_TITLE.search(source) if token.type in ("image", "link_close") else None
    values = [(title.start(1) + 1, title.end(1) - 1)] if title else []
    if token.type == "image" and not re.search(r"[\\`*_\[\]<>&]", token.content):
        values.insert(0, (2, 2 + len(token.content)))
    return tuple((start, end) for start, end in values if any(map(str.isalpha, source[start:end])))


def _source_with_values(piece: SourcePiece, answers: Iterator[Marked]) -> str:
    """A piece's source with the next answers as its values; escapes characters that would end a value."""
    source, texts = piece.source, [next(answers).text for _ in piece.values]
    for (start, end), text in reversed(list(zip(piece.values, texts))):
        closing = source[end] if source[end] in "\"')" else "[]"
        # A picture's text that is also its reference's label: the old label goes behind a new text.
        label = f"[{source[start:end]}]" if source[end:] in SHORT_LINK_ENDS and text != source[start:end] else ""
        source = source[:start] + "".join(f"\\{sign}" if sign in closing else sign for sign in text) + source[end:]
        source = source.removesuffix("[]") + label if label else source
    return source


def _tag_name(token: Any) -> str:
    """The name that an opening token and its closing token share."""
    tag = re.match(r"</?([A-Za-z][\w-]*)", token.content) if token.type == "html_inline" else None
    return tag[1].lower() if tag else str(token.type.removesuffix("_open").removesuffix("_close"))


def _marked(pieces: list[SourcePiece]) -> Marked:
    def tag_of(tag: int, closer: int | None) -> tuple[str, str, str]:
        end = "" if closer is None else pieces[closer].source
        label = "".join(piece.source for piece in pieces[tag + 1 : closer]) if end in SHORT_LINK_ENDS else ""
        return pieces[tag].source, end, label

    kinds = ["text" if piece.kind == "escaped" else piece.kind for piece in pieces]
    closers = match_tags([(piece.kind, piece.name) for piece in pieces])
    return keep_matches(marked_from_tags(kinds, closers, lambda number, *_: pieces[number].text, tag_of), _KEPT)


def _render_sentence(answer: Marked, escaped: str, translated: Mapping[str, str]) -> str:
    """The source of a sentence; ``translated``: source of a piece -> the source with translated values."""
    output, text_starts = "", list[int]()
    for kind, text, sources in answer.pieces():
        if kind in ("open", "close"):
            source = _LINE_END.sub(" ", translated.get(sources[kind == "close"], sources[kind == "close"]))
            if kind == "close" and output[text_starts.pop() :] != sources[2] and source in SHORT_LINK_ENDS:
                source = f"][{sources[2]}]"
            output += source
            text_starts += [len(output)] * (kind == "open")
        elif kind == "kept" and sources:
            output += " " * (output.endswith("`") and sources[0].startswith("`"))  # else two code spans would be one
            output += _LINE_END.sub(" ", sources[0])
        else:
            output += "".join(_ESCAPED_SIGNS.get(sign, sign) if sign in escaped else sign for sign in text)
    return output
