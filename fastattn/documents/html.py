"""HTML and XHTML: tags stay around their words, and everything that nobody reads stays byte for byte."""

import html
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import accumulate, cycle, islice, pairwise, takewhile
from typing import Any, NamedTuple

from fastattn.documents.marks import Marked, marked_from_tags, untranslated_text
from fastattn.documents.texts import DocumentPlan, apply_edits, check_tags, decode_text

# Tags within a sentence; any other tag, also <br>, ends a sentence.
INLINE = frozenset(
    "a abbr acronym b bdi bdo big button cite data del dfn em font i img ins label mark meter output progress q rb rp "
    "rt rtc ruby s small span strike strong sub sup time u wbr".split()
)
VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
# Elements whose content is not translated: code words belong to a sentence, opaque elements stand in a sentence like a
# picture, preformatted ones end a sentence. The text of undisplayed elements is not counted as untranslated.
CODE_WORDS = frozenset("code kbd samp tt var".split())
OPAQUE = frozenset("iframe math noscript object script style svg template".split())
PREFORMATTED = frozenset("listing plaintext pre xmp".split())
UNDISPLAYED = frozenset("script style template".split())
VISIBLE_ATTRS = frozenset(("alt", "title", "placeholder", "aria-label", "aria-description"))
_ROOT = re.compile(r"<!--.*?-->|<html\b[^>]*>", re.IGNORECASE | re.DOTALL)  # comments too, whose tags are no roots
VISIBLE_METAS = frozenset("description keywords og:title og:description twitter:title twitter:description".split())
BUTTON_TYPES = frozenset(("button", "reset", "submit"))
LABELLED_ELEMENTS = frozenset(("optgroup", "option", "track"))
_TAG_NAME = re.compile(r"<[^\s/>]*")
_ATTRIBUTE = re.compile(r"[\s/]*([^\s/>][^\s/>=]*)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+)))?")
_SECTION = re.compile(r"<!\[(?:temp|cdata|ignore|include|rcdata|if|else|endif)(?![\w.-])", re.IGNORECASE)
_UNFINISHED = re.compile(r"</?[A-Za-z]|<[!?]|</[^>]")
_VISIBLE_BLANKS = re.compile("(?:(?:&nbsp;?|&#160;?|&#[xX][aA]0;?|\u00a0) ?){2,}")
_CHARSET = re.compile(rb"<(?:meta|\?xml)[^>]*?(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)


class SourceToken(NamedTuple):
    """A piece of the source. Kinds: "open", "close", "alone" (a tag that encloses nothing), "kept", "text" and "other".

    text   the source as a browser shows it
    parts  an "alone" element without text has all its tokens here, a "kept" element its tag and a token of the rest
    """

    kind: str
    name: str
    source: str
    attributes: dict[str, str]
    text: str
    parts: tuple["SourceToken", ...] = ()


class HtmlTokenizer(HTMLParser):
    """Splits a page into tokens, whose sources joined are the page.

    An unfinished tag or comment at the end is "other", and so is everything that the parser does not report.
    """

    def __init__(self, page: str):
        super().__init__()
        self._lines = [0, *(match.end() for match in re.finditer("\n", page))]
        self._starts: list[tuple[int, str, str, dict[str, str], str]] = [(0, "other", "", {}, "")]
        self.feed(page)
        if self.cdata_elem is None and _UNFINISHED.match(self.rawdata):  # browsers do not show it
            self._add("other")
        else:
            self.close()
        ends = [*(begin for begin, *_ in self._starts[1:]), len(page)]
        self.tokens = [
            SourceToken(kind, name, page[begin:end], attributes, text)
            for (begin, kind, name, attributes, text), end in zip(self._starts, ends)
            if end > begin
        ]

    def _add(self, kind: str, name: str = "", attributes: Sequence[Any] = (), text: str = "") -> None:
        line, column = self.getpos()
        values = {key: value or "" for key, value in reversed(attributes)}
        self._starts.append((self._lines[line - 1] + column, kind, name, values, text))

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """A section that the parser does not know is a comment, as in browsers."""
        section = _SECTION.match(self.rawdata, i)
        return super().parse_marked_section(i, report) if section else self.parse_bogus_comment(i, report)

    def parse_endtag(self, i: int) -> int:
        """``</>``, which the parser skips, is a token too."""
        if self.rawdata.startswith("</>", i):
            self._add("other")
        return super().parse_endtag(i)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._add("alone" if tag in VOID else "open", tag, attrs)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self._add("alone", tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._add("close", tag)

    def handle_data(self, data: str) -> None:
        self._add("text", text=data)

    def handle_comment(self, data: str) -> None:
        self._add("other")

    handle_decl = handle_pi = unknown_decl = handle_comment  # type: ignore[assignment]


class Page:
    """A page cut into sentences, in whose places ``render`` puts their translations."""

    def __init__(self, source: str):
        self.texts: list[Marked] = []
        self._parts: list[int | SourceToken] = []  # in order: the index of a sentence's text, or a token between them
        # id of a tag -> (start, end, index of the text) of each attribute value that people read
        self._visible_spans: dict[int, list[tuple[int, int, int]]] = {}
        self._sentence_tokens: list[SourceToken] = []  # tokens of the current sentence
        self._sentences: dict[int, list[SourceToken]] = {}  # index of a text -> its tokens
        tokens = HtmlTokenizer(source).tokens
        closers, index = _match_tags_across(tokens), 0
        while index < len(tokens):
            token = tokens[index]
            is_kept = token.kind == "open" and (
                _is_protected(token) or token.name in CODE_WORDS | OPAQUE | PREFORMATTED
            )
            last = closers.get(index, index)
            kept_end = last + 1 if is_kept or self._is_multiline_field(tokens[index:last]) else None
            if kept_end is not None:
                self._add_kept(token, tokens[index:kept_end])
            elif token.kind == "text" or token.name in INLINE:
                self._sentence_tokens += _split_at_blanks(token)
            else:
                self._end_sentence()
                self._parts.append(token)
            if not _is_protected(token):
                self._add_attributes(token)
            index = kept_end or index + 1
        self._end_sentence()

    @staticmethod
    def _is_multiline_field(element: Sequence[SourceToken]) -> bool:
        """Whether an element is a text field with several lines, which are not translated."""
        is_field = bool(element) and element[0].name == "textarea"
        return is_field and "\n" in "".join(token.source for token in element[1:]).strip()

    def _add_kept(self, token: SourceToken, tokens: list[SourceToken]) -> None:
        """Add an element whose content stays. ``token``: its first tag; ``tokens``: all its tokens."""
        source, text = "".join(inner.source for inner in tokens), "".join(inner.text for inner in tokens)
        if token.name in OPAQUE - UNDISPLAYED | PREFORMATTED | {"textarea"}:
            self.texts.append(untranslated_text(text))
        content = SourceToken("other", "", source[len(token.source) :], {}, "")
        element = SourceToken("kept", token.name, source, {}, "" if token.name in OPAQUE else text, (token, content))
        if token.name in PREFORMATTED or token.name == "textarea":
            self._end_sentence()
            self._parts.append(element)
        else:
            self._sentence_tokens.append(element)

    def _end_sentence(self) -> None:
        tokens, self._sentence_tokens = _join_empty_elements(self._sentence_tokens), []
        if not any(map(str.isalpha, "".join(token.text for token in tokens if token.kind == "text"))):
            self._parts += tokens
            self.texts += (untranslated_text(token.text) for token in tokens if token.kind == "kept")
            return
        self._sentences[len(self.texts)] = tokens
        self._parts.append(len(self.texts))
        self.texts.append(_marked(tokens))

    def _add_attributes(self, token: SourceToken) -> None:
        """Add the values of a tag's attributes that people read to the texts."""
        if token.kind not in ("open", "alone"):
            return
        names = VISIBLE_ATTRS & token.attributes.keys()
        meta_name = token.attributes.get("name", token.attributes.get("property", ""))
        if token.name == "meta":
            names = frozenset({"content"} if meta_name.lower() in VISIBLE_METAS else ())
        elif token.name in LABELLED_ELEMENTS:
            names |= {"label"} & token.attributes.keys()
        elif token.name == "input" and token.attributes.get("type", "").lower() in BUTTON_TYPES:
            names |= {"value"} & token.attributes.keys()
        for name, (start, end) in _attribute_spans(token.source).items() if names else ():
            if name in names and any(map(str.isalpha, token.source[start:end])):
                text = " ".join(html.unescape(token.source[start:end]).split())
                self._visible_spans.setdefault(id(token), []).append((start, end, len(self.texts)))
                self.texts.append(Marked(text))

    def render(self, answers: list[Marked]) -> str:
        """The page with the translation of each of its texts."""
        return "".join(
            self._render_sentence(part, answers) if isinstance(part, int) else self._render_token(part, answers)
            for part in self._parts
        )

    def _render_token(self, token: SourceToken, answers: list[Marked]) -> str:
        if token.parts:
            return "".join(self._render_token(part, answers) for part in token.parts)
        edits = list[tuple[int, int, str]]()
        for start, end, number in self._visible_spans.get(id(token), ()):
            if answers[number] != self.texts[number]:
                value = html.escape(answers[number].text)
                edits.append((start, end, value if token.source[start - 1] in "\"'" else f'"{value}"'))
        return apply_edits(token.source, edits)

    def _render_sentence(self, number: int, answers: list[Marked]) -> str:
        """A sentence's translation with the blanks around the sentence; an unchanged sentence stays byte for byte."""
        tokens, answer = self._sentences[number], answers[number]
        if answer == self.texts[number]:
            return "".join(self._render_token(token, answers) for token in tokens)
        leading = "".join(_leading_texts(tokens))
        trailing = "".join(_leading_texts(tokens[::-1])[::-1])
        output = [leading[: len(leading) - len(leading.lstrip())]]
        for kind, text, tags in answer.pieces():
            if kind == "close":
                output.append(tags[1].source if tags[1] else "")
            else:
                output.append(self._render_token(tags[0], answers) if tags else html.escape(text, quote=False))
        return "".join(output) + trailing[len(trailing.rstrip()) :]


def _attribute_spans(tag: str) -> dict[str, tuple[int, int]]:
    """Attribute -> [start, end) of its value without quotes, of the first value if it is repeated, as in browsers."""
    spans, tag_name = dict[str, tuple[int, int]](), _TAG_NAME.match(tag)
    position = tag_name.end() if tag_name else len(tag)
    while match := _ATTRIBUTE.match(tag, position):
        position = match.end()
        if match.lastindex and match.lastindex > 1:
            spans.setdefault(match[1].lower(), match.span(match.lastindex))
    return spans


def _with_language(tag: str, language: str) -> str:
    """A tag in which each language attribute, if there is one, has the value ``language``."""
    spans, edits = _attribute_spans(tag), list[tuple[int, int, str]]()
    for start, end in (spans[name] for name in ("lang", "xml:lang") if name in spans):
        quotes = tag[start - 1] in "\"'"
        edits.append((start - quotes, end + quotes, f'"{language}"'))
    return apply_edits(tag, edits)


def _split_at_blanks(token: SourceToken) -> Sequence[SourceToken]:
    """A text token split at runs of blanks that a browser shows as they are; any other token whole."""
    runs = [match.span() for match in _VISIBLE_BLANKS.finditer(token.source)] if token.kind == "text" else []
    borders = [0, *(border for run in runs for border in run), len(token.source)]
    parts = [token.source[start:end] for start, end in pairwise(borders)] if runs else []
    kinds = cycle(("text", "kept"))
    return [SourceToken(kind, "", part, {}, html.unescape(part)) for kind, part in zip(kinds, parts) if part] or [token]


def _join_empty_elements(tokens: Sequence[SourceToken]) -> list[SourceToken]:
    """A sentence's tokens, in which each element without text is one token of kind "alone", like a picture."""
    closers, joined, index = match_tags([(token.kind, token.name) for token in tokens]), list[SourceToken](), 0
    lengths = list(accumulate((len(token.text) + (token.kind == "kept") for token in tokens), initial=0))
    while index < len(tokens):
        token, last = tokens[index], closers.get(index, index)
        if index < last and lengths[index] == lengths[last]:
            parts = tuple(tokens[index : last + 1])
            token = SourceToken("alone", token.name, "".join(part.source for part in parts), {}, "", parts)
            index = last
        joined.append(token)
        index += 1
    return joined


def _is_protected(token: SourceToken) -> bool:
    """Whether the page says that an element and its attributes must not be translated."""
    names = token.attributes.get("class", "").split()
    return token.attributes.get("translate", "").lower() == "no" or "notranslate" in names


def _match_tags_across(tokens: Sequence[SourceToken]) -> dict[int, int]:
    """Index of an opening tag -> index of its closing tag; a pair may overlap another pair."""
    closers, open_tags = dict[int, int](), dict[str, list[int]]()
    for number, token in enumerate(tokens):
        if token.kind == "open":
            open_tags.setdefault(token.name, []).append(number)
        elif token.kind == "close" and open_tags.get(token.name):
            closers[open_tags[token.name].pop()] = number
    return closers


def match_tags(tags: Sequence[tuple[str, str]]) -> dict[int, int]:
    """Index of an opening tag -> index of its closing tag, for pairs that do not overlap; tags are (kind, name)."""
    closers, open_tags, open_counts = dict[int, int](), list[int](), Counter[str]()
    for number, (kind, name) in enumerate(tags):
        if kind == "open":
            open_tags.append(number)
            open_counts[name] += 1
        elif kind == "close" and open_counts[name]:
            while tags[open_tags[-1]][1] != name:
                open_counts[tags[open_tags.pop()][1]] -= 1
            open_counts[name] -= 1
            closers[open_tags.pop()] = number
    return closers


def _leading_texts(tokens: list[SourceToken]) -> list[str]:
    """The texts of the tokens before the first token of kind "alone" or "kept", such as a picture."""
    return [token.text for token in takewhile(lambda token: token.kind not in ("alone", "kept"), tokens)]


def _marked(tokens: list[SourceToken]) -> Marked:
    """A sentence with blanks as a browser shows them. A lone tag, which has no closing tag, is a mark at a position."""
    closers = match_tags([(token.kind, token.name) for token in tokens])
    paired = {*closers, *closers.values()}
    lone_tags = (number for number, token in enumerate(tokens) if token.kind != "text" and number not in paired)
    first_lone_tag = next(lone_tags, len(tokens))  # blanks beside a lone tag belong to the text

    def text_of(number: int, previous_character: str, begins_mark: bool) -> str:
        is_leading = not previous_character and number <= first_lone_tag
        own_text = re.sub(r"\s+", " ", tokens[number].text)
        drops_blank = is_leading or (previous_character == " " and not begins_mark)
        return own_text.removeprefix(" ") if drops_blank else own_text

    def tag_of(tag: int, closer: int | None) -> tuple[SourceToken, SourceToken | None]:
        return tokens[tag], None if closer is None else tokens[closer]

    text, marks = marked_from_tags([token.kind for token in tokens], closers, text_of, tag_of)
    end = max(len(text.rstrip()), *(mark.end for mark in marks if mark.start == mark.end and not mark.tag[1]), 0)
    cut_marks = (mark._replace(start=min(mark.start, end), end=min(mark.end, end)) for mark in marks)
    return Marked(text[:end], tuple(cut_marks))


def _charset(data: bytes) -> str:
    """The charset that a page names; UTF-8 if the page names UTF-16 in ASCII, as in browsers."""
    match = _CHARSET.search(data[:2048])
    charset = match[1].decode() if match else "utf-8"
    try:
        return charset if "<a>".encode(charset) == b"<a>" else "utf-8"
    except (LookupError, UnicodeError):
        return charset  # ``decode_text`` reports it


def translate_html(data: bytes, name: str, language: str | None = None, charset: str = "") -> DocumentPlan:
    """Translate a page; ``charset`` replaces the charset that it names, ``language`` its root's language attributes."""
    check_tags(data, name)
    charset = charset or _charset(data)
    text = decode_text(data, name, charset)  # a byte order mark of UTF-16 takes precedence
    charset = "utf-16" if text and not data.startswith(text[0].encode(charset)) else charset
    if language is not None:
        roots = (match for match in _ROOT.finditer(text) if not match[0].startswith("<!"))
        text = apply_edits(text, [(*root.span(), _with_language(root[0], language)) for root in islice(roots, 1)])
    page = Page(text)
    return page.render((yield page.texts)).encode(charset, "xmlcharrefreplace")
