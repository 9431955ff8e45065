"""HTML and XHTML: tags stay around their words, and everything invisible stays as it is, byte for byte."""

import html
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import accumulate, cycle, islice, pairwise, takewhile
from typing import Any, NamedTuple

from fastattn.documents.marks import Mark, Marked, from_tags, unread
from fastattn.documents.texts import Steps, decoded, replaced

# Tags within a sentence; any other tag, also <br>, ends one.
INLINE = frozenset(
    "a abbr acronym b bdi bdo big button cite data del dfn em font i img ins label mark meter output progress q rb rp "
    "rt rtc ruby s small span strike strong sub sup time u wbr".split()
)
VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
# Elements whose content is not translated: WORDS are parts of a sentence, HIDDEN are not.
WORDS = frozenset("code kbd samp tt var".split())
HIDDEN = frozenset("iframe math noscript object script style svg template".split())
WHOLE = frozenset("listing plaintext pre xmp".split())
UNSEEN = frozenset("script style template".split())
READ = frozenset(("alt", "title", "placeholder", "aria-label", "aria-description"))
_ROOT = re.compile(r"<!--.*?-->|<html\b[^>]*>", re.IGNORECASE | re.DOTALL)
METAS = frozenset("description keywords og:title og:description twitter:title twitter:description".split())
BUTTONS = frozenset(("button", "reset", "submit"))
LABELLED = frozenset(("optgroup", "option", "track"))
_TAG_NAME = re.compile(r"<[^\s/>]*")
_ATTRIBUTE = re.compile(r"[\s/]*([^\s/>][^\s/>=]*)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+)))?")
_SECTION = re.compile(r"<!\[(?:temp|cdata|ignore|include|rcdata|if|else|endif)(?![\w.-])", re.IGNORECASE)
_UNENDED = re.compile(r"</?[A-Za-z]|<[!?]|</[^>]")
_SHOWN_BLANKS = re.compile("(?:(?:&nbsp;?|&#160;?|&#[xX][aA]0;?|\u00a0) ?){2,}")
_CHARSET = re.compile(rb"<(?:meta|\?xml)[^>]*?(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)


class SourceToken(NamedTuple):
    """A piece of the source. Kinds: "open", "close", "alone" (a tag that encloses nothing), "kept", "text" and "other".

    parts  the tags of an element without text, which is "alone"; the first tag and the rest of one that is "kept"
    """

    kind: str
    name: str
    source: str
    attributes: dict[str, str]
    text: str
    parts: tuple["SourceToken", ...] = ()


class SourceTokens(HTMLParser):
    """The pieces of a page; joined, they are the page.

    An unfinished tag or comment at the end is "other", as is everything that the parser does not report.
    """

    def __init__(self, page: str):
        super().__init__()
        self._lines = [0, *(match.end() for match in re.finditer("\n", page))]
        self._begun: list[tuple[int, str, str, dict[str, str], str]] = [(0, "other", "", {}, "")]
        self.feed(page)
        if self.cdata_elem is None and _UNENDED.match(self.rawdata):  # browsers show nothing of it either
            self._add("other")
        else:
            self.close()
        ends = [*(begin for begin, *_ in self._begun[1:]), len(page)]
        self.tokens = [
            SourceToken(kind, name, page[begin:end], attributes, text)
            for (begin, kind, name, attributes, text), end in zip(self._begun, ends)
            if end > begin
        ]

    def _add(self, kind: str, name: str = "", attributes: Sequence[Any] = (), text: str = "") -> None:
        line, column = self.getpos()
        values = {key: value or "" for key, value in reversed(attributes)}
        self._begun.append((self._lines[line - 1] + column, kind, name, values, text))

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """As in browsers: a section that the parser does not know is a comment."""
        section = _SECTION.match(self.rawdata, i)
        return super().parse_marked_section(i, report) if section else self.parse_bogus_comment(i, report)

    def parse_endtag(self, i: int) -> int:
        """``</>``, which the parser skips, is a piece of its own."""
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
    """A page's sentences and their places."""

    def __init__(self, source: str):
        self.texts: list[Marked] = []
        self._parts: list[int | SourceToken] = []  # the index of a text, or a tag
        self._values: dict[
            int, list[tuple[int, int, int]]
        ] = {}  # id of a tag -> start and end of a value, index of its text
        self._pending: list[SourceToken] = []  # of the current sentence
        self._sentences: dict[int, list[SourceToken]] = {}  # index of a text -> its tokens
        tokens = SourceTokens(source).tokens
        closers = _closers(tokens)
        at = 0
        while at < len(tokens):
            token = tokens[at]
            stays = token.kind == "open" and (_is_protected(token) or token.name in WORDS | HIDDEN | WHOLE)
            end = closers.get(at, at) + 1 if stays or self._has_lines(tokens[at : closers.get(at, at)]) else at
            if end > at:
                self._keep(token, tokens[at:end])
            elif token.kind == "text" or token.name in INLINE:
                self._pending += _apart(token)
            else:
                self._end_sentence()
                self._parts.append(token)
            if not _is_protected(token):
                self._read_values(token)
            at = max(end, at + 1)
        self._end_sentence()

    @staticmethod
    def _has_lines(element: Sequence[SourceToken]) -> bool:
        """Whether an element is a text field with several lines, which stay."""
        is_field = bool(element) and element[0].name == "textarea"
        return is_field and "\n" in "".join(token.source for token in element[1:]).strip()

    def _keep(self, token: SourceToken, tokens: list[SourceToken]) -> None:
        source, text = "".join(inner.source for inner in tokens), "".join(inner.text for inner in tokens)
        if token.name in HIDDEN - UNSEEN | WHOLE | {"textarea"}:
            self.texts.append(unread(text))
        within = SourceToken("other", "", source[len(token.source) :], {}, "")
        element = SourceToken("kept", token.name, source, {}, "" if token.name in HIDDEN else text, (token, within))
        if token.name in WHOLE or token.name == "textarea":
            self._end_sentence()
            self._parts.append(element)
        else:
            self._pending.append(element)

    def _end_sentence(self) -> None:
        tokens, self._pending = _joined(self._pending), []
        if not any(map(str.isalpha, "".join(token.text for token in tokens if token.kind == "text"))):
            self._parts += tokens
            self.texts += (unread(token.text) for token in tokens if token.kind == "kept")
            return
        self._sentences[len(self.texts)] = tokens
        self._parts.append(len(self.texts))
        self.texts.append(_marked(tokens))

    def _read_values(self, token: SourceToken) -> None:
        """Find a tag's attributes that people read."""
        if token.kind not in ("open", "alone"):
            return
        names = READ & token.attributes.keys()
        named = token.attributes.get("name", token.attributes.get("property", ""))
        if token.name == "meta":
            names = frozenset({"content"} if named.lower() in METAS else ())
        elif token.name in LABELLED:
            names |= {"label"} & token.attributes.keys()
        elif token.name == "input" and token.attributes.get("type", "").lower() in BUTTONS:
            names |= {"value"} & token.attributes.keys()
        for name, (start, end) in _values(token.source).items() if names else ():
            if name in names and any(map(str.isalpha, token.source[start:end])):
                text = " ".join(html.unescape(token.source[start:end]).split())
                self._values.setdefault(id(token), []).append((start, end, len(self.texts)))
                self.texts.append(Marked(text))

    def written(self, answers: list[Marked]) -> str:
        return "".join(
            self._sentence(part, answers) if isinstance(part, int) else self._tag(part, answers) for part in self._parts
        )

    def _tag(self, token: SourceToken, answers: list[Marked]) -> str:
        if token.parts:
            return "".join(self._tag(part, answers) for part in token.parts)
        edits = list[tuple[int, int, str]]()
        for start, end, number in self._values.get(id(token), ()):
            if answers[number] != self.texts[number]:
                value = html.escape(answers[number].text)
                edits.append((start, end, value if token.source[start - 1] in "\"'" else f'"{value}"'))
        return replaced(token.source, edits)

    def _sentence(self, number: int, answers: list[Marked]) -> str:
        """A sentence's translation with the blanks around it; an unchanged sentence stays byte for byte."""
        tokens, answer = self._sentences[number], answers[number]
        if answer == self.texts[number]:
            return "".join(self._tag(token, answers) for token in tokens)
        first = "".join(_outer_texts(tokens))
        last = "".join(_outer_texts(tokens[::-1])[::-1])
        written = first[: len(first) - len(first.lstrip())]
        for kind, text, tags in answer.pieces():
            if kind == "close":
                written += tags[1].source if tags[1] else ""
            else:
                written += self._tag(tags[0], answers) if tags else html.escape(text, quote=False)
        return written + last[len(last.rstrip()) :]


def _values(tag: str) -> dict[str, tuple[int, int]]:
    """Attribute -> [start, end) of its value without quotes; the first of several with one name, as in browsers."""
    spans, name = dict[str, tuple[int, int]](), _TAG_NAME.match(tag)
    at = name.end() if name else len(tag)
    while match := _ATTRIBUTE.match(tag, at):
        at = match.end()
        if match.lastindex and match.lastindex > 1:
            spans.setdefault(match[1].lower(), match.span(match.lastindex))
    return spans


def _with_language(tag: str, language: str) -> str:
    """A tag with its language attributes, if it has some, set to a language."""
    spans, edits = _values(tag), list[tuple[int, int, str]]()
    for start, end in (spans[name] for name in ("lang", "xml:lang") if name in spans):
        quotes = tag[start - 1] in "\"'"
        edits.append((start - quotes, end + quotes, f'"{language}"'))
    return replaced(tag, edits)


def _apart(token: SourceToken) -> Sequence[SourceToken]:
    """A text token split at runs of blanks that a browser shows as they are."""
    runs = [match.span() for match in _SHOWN_BLANKS.finditer(token.source)] if token.kind == "text" else []
    places = [0, *(place for run in runs for place in run), len(token.source)]
    parts = [token.source[start:end] for start, end in pairwise(places)] if runs else []
    kinds = cycle(("text", "kept"))
    return [SourceToken(kind, "", part, {}, html.unescape(part)) for kind, part in zip(kinds, parts) if part] or [token]


def _joined(tokens: Sequence[SourceToken]) -> list[SourceToken]:
    """A sentence's tokens; an element without text becomes one token that stands alone, like a picture."""
    closers, sentence, at = partners([(token.kind, token.name) for token in tokens]), list[SourceToken](), 0
    lengths = list(accumulate((len(token.text) + (token.kind == "kept") for token in tokens), initial=0))
    while at < len(tokens):
        token, end = tokens[at], closers.get(at, at)
        if at < end and lengths[at] == lengths[end]:
            parts = tuple(tokens[at : end + 1])
            token = SourceToken("alone", token.name, "".join(part.source for part in parts), {}, "", parts)
            at = end
        sentence.append(token)
        at += 1
    return sentence


def _is_protected(token: SourceToken) -> bool:
    """Whether an element and its attributes are marked as not to be translated."""
    names = token.attributes.get("class", "").split()
    return token.attributes.get("translate", "").lower() == "no" or "notranslate" in names


def _closers(tokens: Sequence[SourceToken]) -> dict[int, int]:
    """Index of an opening tag -> index of its closing tag, whatever is unclosed between them."""
    closers, open_tags = dict[int, int](), dict[str, list[int]]()
    for number, token in enumerate(tokens):
        if token.kind == "open":
            open_tags.setdefault(token.name, []).append(number)
        elif token.kind == "close" and open_tags.get(token.name):
            closers[open_tags[token.name].pop()] = number
    return closers


def partners(tags: Sequence[tuple[str, str]]) -> dict[int, int]:
    """Index of an opening tag -> index of its closing tag, for tags of (kind, name)."""
    closers, open_tags, names = dict[int, int](), list[int](), Counter[str]()
    for number, (kind, name) in enumerate(tags):
        if kind == "open":
            open_tags.append(number)
            names[name] += 1
        elif kind == "close" and names[name]:
            while tags[open_tags[-1]][1] != name:
                names[tags[open_tags.pop()][1]] -= 1
            names[name] -= 1
            closers[open_tags.pop()] = number
    return closers


def _outer_texts(tokens: list[SourceToken]) -> list[str]:
    """The texts of the tokens before the first one that stands alone, such as a picture."""
    return [token.text for token in takewhile(lambda token: token.kind not in ("alone", "kept"), tokens)]


def _marked(tokens: list[SourceToken]) -> Marked:
    """A sentence with blanks as a browser shows them. A tag without a closing tag marks a position."""
    closers = partners([(token.kind, token.name) for token in tokens])
    tags = {*closers, *closers.values()}
    stand = (number for number, token in enumerate(tokens) if token.kind != "text" and number not in tags)
    first = next(stand, len(tokens))  # token that stands alone: blanks beside it belong to the text

    def shown(number: int, text: str, marks: Sequence[Mark]) -> str:
        blank = (not text and number <= first) or (text.endswith(" ") and not (marks and marks[-1].start == len(text)))
        own_text = re.sub(r"\s+", " ", tokens[number].text)
        return own_text.removeprefix(" ") if blank else own_text

    def what(tag: int, closer: int | None) -> tuple[SourceToken, SourceToken | None]:
        return tokens[tag], None if closer is None else tokens[closer]

    text, marks = from_tags([token.kind for token in tokens], closers, shown, what)
    end = max(len(text.rstrip()), *(mark.end for mark in marks if mark.start == mark.end and not mark.what[1]), 0)
    moved = (mark._replace(start=min(mark.start, end), end=min(mark.end, end)) for mark in marks)
    return Marked(text[:end], tuple(moved))


def _charset(data: bytes) -> str:
    """The charset that a page names. For UTF-16, named in ASCII, it is UTF-8, as in browsers."""
    match = _CHARSET.search(data[:2048])
    charset = match[1].decode() if match else "utf-8"
    try:
        return charset if "<a>".encode(charset) == b"<a>" else "utf-8"
    except (LookupError, UnicodeError):
        return charset  # ``decoded`` reports it


def translate_html(data: bytes, name: str, language: str | None = None, charset: str = "") -> Steps:
    """A page, in ``charset``, else the one that it names, else UTF-8. ``language`` replaces its root's language."""
    charset = charset or _charset(data)
    text = decoded(data, name, charset)
    charset = "utf-16" if text and not data.startswith(text[0].encode(charset)) else charset
    if language is not None:
        roots = (match for match in _ROOT.finditer(text) if not match[0].startswith("<!"))
        text = replaced(text, [(*root.span(), _with_language(root[0], language)) for root in islice(roots, 1)])
    page = Page(text)
    return page.written((yield page.texts)).encode(charset, "xmlcharrefreplace")
