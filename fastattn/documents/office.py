"""Archives of XML: Word documents, OpenDocument texts and EPUB books."""

import copy
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice, takewhile
from lzma import LZMAError
from pathlib import PurePosixPath

from fastattn.documents.html import translate_html
from fastattn.documents.marks import Mark, Marked, joined, split_at, unread
from fastattn.documents.texts import Steps
from fastattn.documents.xml import Element, give_text, local, parsed, serialized, take_text
from fastattn.errors import InputError

DUBLIN = "{http://purl.org/dc/elements/1.1/}"
PROPERTIES = frozenset("title subject description keywords keyword".split())
LARGEST = 1 << 30  # bytes of an archive, unpacked
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
SPACE = "{http://www.w3.org/XML/1998/namespace}space"
OPEN_TEXTS = frozenset(("p", "h", "title", "desc"))
OPEN_BREAKS = frozenset(("line-break", "tab"))
OPEN_ENCLOSES = frozenset(("span", "a", "meta", "ruby", "ruby-base"))
# Elements of our own: while a paragraph is read, they hold a field from its beginning to its end, and its result.
FIELD, RESULT = "field", "result"
# Elements of a Word document that contain runs, as paragraphs do.
WORD_ENCLOSES = frozenset(
    (FIELD, *(WORD + name for name in "hyperlink ins moveTo smartTag customXml fldSimple sdt dir bdo".split()))
)
# Elements of a run that are text -> their character, or None for the element's text; other elements it may have;
# elements that end a text, like HTML's <br>.
SPOKEN = {WORD + "t": None, WORD + "noBreakHyphen": "\u2011", WORD + "softHyphen": "\u00ad"}
UNSPOKEN = frozenset((WORD + "rPr", WORD + "lastRenderedPageBreak"))
BREAKS = frozenset(WORD + name for name in ("br", "cr", "tab", "ptab"))
DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
VML = "{urn:schemas-microsoft-com:vml}"
# Attributes that people read.
READ = {
    "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}docPr": ("title", "descr"),
    VML + "shape": ("title", "alt"),
    VML + "textpath": ("string",),
    WORD + "tblCaption": (WORD + "val",),
    WORD + "tblDescription": (WORD + "val",),
    WORD + "hyperlink": (WORD + "tooltip",),
    WORD + "listItem": (WORD + "displayText",),
}

Readers = dict[str, Callable[[bytes, str], Steps]]  # pattern of the names of an archive's parts -> reader


def translate_docx(data: bytes, name: str, extras: Sequence[str] = ()) -> Steps:
    """A Word document with headers, notes, boxes, charts, alternative texts and properties; formats move with words."""
    readers: Readers = {
        r"word/(charts|diagrams)/(chart|data|drawing)[^/]*\.xml": _drawing_part,
        r"docProps/core\.xml": _properties_part,
        r"word/comments\.xml": _word_part if "comments" in extras else _unread_part,
        r"word/(document|header[^/]*|footer[^/]*|footnotes|endnotes)\.xml": _word_part,
    }
    return _archive(data, name, "word/document.xml", readers)


def translate_odt(data: bytes, name: str, extras: Sequence[str] = ()) -> Steps:
    """An OpenDocument text, its charts and properties; comments on request."""
    of_text = partial(_open_part, comments="comments" in extras)
    readers: Readers = {r"meta\.xml": _properties_part, r"styles\.xml|(.*/)?content\.xml": of_text}
    return _archive(data, name, "content.xml", readers)


def translate_epub(data: bytes, name: str, language: str | None = None) -> Steps:
    """An EPUB book: its pages, its table of contents, its title and description."""
    readers: Readers = {
        r"(?i:.*\.(xhtml|html|htm))": partial(translate_html, language=language),
        r"(?i:.*\.opf)": partial(_properties_part, language=language),
        r"(?i:.*\.ncx)": _contents_part,
    }
    return _archive(data, name, "META-INF/container.xml", readers)


def _archive(data: bytes, name: str, required: str, readers: Readers) -> Steps:
    written = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(written, "w") as output:
            parts = archive.infolist()
            if required not in archive.namelist():
                raise InputError(f"{name}: expected a part {required}, which it does not have")
            if sum(part.file_size for part in parts) > LARGEST:
                raise InputError(f"{name}: unpacked it is larger than {LARGEST:,} bytes")
            outside = next((part.filename for part in parts if _leaves(part.filename)), None)
            if outside is not None:
                raise InputError(f"{name}: has a part {outside!r}, which is outside its folder")
            for part in parts:
                forms = (read for form, read in readers.items() if re.fullmatch(form, part.filename, re.DOTALL))
                read, content = next(forms, None), archive.read(part)
                if read is not None:
                    content = yield from read(content, f"{name}, {part.filename}")
                output.writestr(part, content)
    except (zipfile.BadZipFile, zlib.error, LZMAError, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise InputError(f"{name}: cannot be unpacked: {error}") from None
    return written.getvalue()


def _leaves(part: str) -> bool:
    """Whether a part would lie outside the folder into which its archive is unpacked."""
    path = PurePosixPath(part.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or ":" in part.partition("/")[0]


def _open_part(data: bytes, name: str, comments: bool) -> Steps:
    root = parsed(data, name)
    without = [] if comments else [element for element in root.iter() if local(element) == "annotation"]
    return (yield from _elements(root, OPEN_TEXTS, OPEN_ENCLOSES, without))


def _contents_part(data: bytes, name: str) -> Steps:
    return (yield from _elements(parsed(data, name), frozenset(("text",)), frozenset()))


def _elements(root: Element, texts: frozenset[str], encloses: frozenset[str], without: Sequence[Element] = ()) -> Steps:
    """XML with the texts of elements of these names translated; inner elements, such as a note's, before outer ones.

    without  elements in which texts stay
    """
    stay = {id(inner): inner for element in without for inner in element.iter()}
    elements = [element for element in root.iter() if local(element) in texts and id(element) not in stay][::-1]
    parts, untranslated = list[list[Marked]](), list[Marked]()
    for element in elements:
        text = take_text(element, lambda child: local(child) in encloses, _shows_blank)
        alone = [mark.what for mark in text.marks if local(mark.what) not in encloses]
        untranslated += [unread("".join(_said(inner))) for inner in alone]
        parts.append(split_at(text, lambda child: local(child) in OPEN_BREAKS))
    answers = iter((yield [part for element_parts in parts for part in element_parts] + untranslated))
    for element, element_parts in zip(elements, parts):
        give_text(element, joined(islice(answers, len(element_parts))))
    return serialized(root)


def _shows_blank(element: Element, depth: int) -> bool:
    """Whether an element is shown as a blank; a break outside marks ends the sentence instead."""
    return local(element) == "s" or (local(element) in OPEN_BREAKS and depth > 0)


def _said(element: Element) -> Iterator[str]:
    """The texts in an element, without a comment's author and date."""
    for inner in element.iter():
        if local(inner) not in ("", "creator", "date"):
            yield inner.text or ""
        yield (inner.tail or "") if inner is not element else ""


def _unread_part(data: bytes, name: str) -> Steps:
    yield [unread(" ".join(run.text or "" for run in parsed(data, name).iter(WORD + "t")))]
    return data


def _word_part(data: bytes, name: str) -> Steps:
    root = parsed(data, name)
    described = [(element, key) for element in root.iter(*READ) for key in READ[element.tag] if element.get(key)]
    for (element, key), answer in zip(described, (yield [Marked(element.get(key)) for element, key in described])):
        element.set(key, answer.text)
    paragraphs = [Paragraph(element) for element in list(root.iter(WORD + "p"))[::-1]]
    untranslated = [unread(text) for paragraph in paragraphs for text in paragraph.untranslated]
    answers = iter((yield [*(text for paragraph in paragraphs for text in paragraph.texts), *untranslated]))
    for paragraph in paragraphs:
        paragraph.write(answers)
    return serialized(root)


def _drawing_part(data: bytes, name: str) -> Steps:
    """A chart's or a diagram's titles and labels."""
    root = parsed(data, name)
    labels = list(root.iter(DRAWING + "t"))
    for label, answer in zip(labels, (yield [Marked(label.text or "") for label in labels])):
        label.text = answer.text
    return serialized(root)


def _properties_part(data: bytes, name: str, language: str | None = None) -> Steps:
    """Titles, subjects, descriptions and keywords; ``language`` replaces the language.

    A description with tags, as in books, is read as HTML.
    """
    root = parsed(data, name)
    for element in root.iter(DUBLIN + "language") if language else ():
        element.text = language
    with_tags = [element for element in root.iter(DUBLIN + "description") if "</" in (element.text or "")]
    for element in with_tags:
        element.text = (yield from translate_html(element.text.encode(), name, charset="utf-8")).decode()
    return (yield from _elements(root, PROPERTIES, frozenset(), with_tags))


class Paragraph:
    """The texts of a Word paragraph between line breaks and tabs, with marks around text in less usual formats."""

    def __init__(self, element: Element):
        self._element = element
        inner = next(element.iterdescendants(WORD + "p"), None)  # an inner paragraph needs the original elements
        self._before = copy.deepcopy(list(element)) if inner is None else None
        for run in list(element.iter(WORD + "r")):
            _split(run)
        _gather_fields(element)
        runs = list(self._runs(element))
        lengths: Counter[bytes] = Counter()
        for run in runs:
            lengths[_format_of(run)] += len(_text_of(run) or "")
        self._usual = lengths.most_common(1)[0][0] if lengths else b""
        self._sample = next((run for run in runs if _format_of(run) == self._usual), None)
        self.texts: list[Marked] = []
        self.untranslated: list[str] = []  # texts of elements that stay, such as ruby
        self._parts: list[Element] = []  # the elements between the texts; None: a text
        children: list[Element] = []
        for child in [child for child in element if child.tag != WORD + "pPr"]:
            element.remove(child)
            if _breaks(child):
                self._end_text(children)
                self._parts.append(child)
            elif child.tag != WORD + "proofErr":
                children.append(child)
        self._end_text(children)

    @staticmethod
    def _runs(element: Element) -> Iterator[Element]:
        """The runs with only text, without those of inner paragraphs."""
        for child in element:
            if child.tag in WORD_ENCLOSES:
                yield from Paragraph._runs(_inside(child))
            elif _text_of(child) is not None:
                yield child

    def _end_text(self, children: list[Element]) -> None:
        if children:
            self.texts.append(self._marked(children))
            self._parts.append(None)
            children.clear()

    def _marked(self, elements: list[Element]) -> Marked:
        text, marks = "", list[Mark]()

        def take(children: list[Element], depth: int) -> None:
            nonlocal text
            for child in children:
                run_text = _text_of(child)
                if run_text is not None and _format_of(child) == self._usual:
                    text += run_text
                    continue
                if run_text is None or not self._goes_on(marks, child, len(text), depth):
                    marks.append(Mark(len(text), len(text), child, depth=depth))
                number = len(marks) - 1
                if child.tag in WORD_ENCLOSES:
                    within = _inside(child)
                    inner = list(within)
                    within[:] = []
                    take(inner, depth + 1)
                elif run_text is None:
                    self.untranslated.append(" ".join(inner.text or "" for inner in child.iter(WORD + "t")))
                    text += " " if _breaks(child) else ""
                    continue
                text += run_text or ""
                marks[number] = marks[number]._replace(end=len(text))

        take(elements, 0)
        return Marked(text, tuple(marks))

    @staticmethod
    def _goes_on(marks: list[Mark], run: Element, at: int, depth: int) -> bool:
        """Whether a run continues the run before in the same format, as where a spell checker splits a word."""
        last = marks[-1] if marks else None
        if last is None or last.end != at or last.depth != depth or _text_of(last.what) is None:
            return False
        return _format_of(last.what) == _format_of(run)

    def write(self, answers: Iterator[Marked]) -> None:
        """Put the translations in place of the texts; an unchanged paragraph stays as it was."""
        translations = list(islice(answers, len(self.texts)))
        if translations == self.texts and self._before is not None:
            self._element[:] = self._before
            return
        for part in self._parts:
            if part is None:
                self._write(translations.pop(0))
            else:
                self._element.append(part)
        for field in list(self._element.iter(FIELD)):
            _dissolve(field)

    def _write(self, answer: Marked) -> None:
        path = [self._element]
        for kind, text, child in answer.pieces():
            if kind == "open" and path[-1].tag == WORD + "r":  # a word has one format
                path.append(path[-1])
            elif kind == "open":
                path[-1].append(child)
                path.append(_inside(child))
                if _text_of(child) is not None:
                    _set_text(child, "")
            elif kind == "close":
                path.pop()
            elif text and path[-1].tag == WORD + "r":
                _set_text(path[-1], (_text_of(path[-1]) or "") + text)
            elif text:
                run = path[-1].makeelement(WORD + "r") if self._sample is None else copy.deepcopy(self._sample)
                _set_text(run, text)
                path[-1].append(run)


def _split(run: Element) -> None:
    """Split a run into runs with the same format, one for each text and one for each element between texts."""
    content = [child for child in run if child.tag not in (WORD + "rPr", WORD + "lastRenderedPageBreak")]
    groups = [list(group) for _, group in groupby(content, key=lambda child: child.tag in SPOKEN or id(child))]
    format_ = run.find(WORD + "rPr")
    for group in groups if len(groups) > 1 else ():
        part = run.makeelement(run.tag, run.attrib)
        if format_ is not None:
            part.append(copy.deepcopy(format_))
        part.extend(group)
        run.addprevious(part)
    if len(groups) > 1:
        run.getparent().remove(run)


def _gather_fields(parent: Element) -> None:
    """Put each field with a result, whose beginning and end are siblings, into an element FIELD."""
    open_fields = list[list[Element]]()  # of each open field: its beginning, the separator before its result
    for run in list(parent):
        field_char = run.find(WORD + "fldChar") if run.tag == WORD + "r" else None
        end = None if field_char is None else field_char.get(WORD + "fldCharType")
        if run.tag in WORD_ENCLOSES:
            _gather_fields(_inside(run))
        elif end == "begin":
            open_fields.append([run])
        elif end == "separate" and open_fields:
            open_fields[-1].append(run)
        elif end == "end" and open_fields:
            begin, *separate = open_fields.pop()
            if separate:
                _enclose(begin, separate[0], run)


def _enclose(begin: Element, separate: Element, end: Element) -> None:
    """Put a field into an element FIELD, and its result into a RESULT within; one with breaks in its result stays."""
    before = list(takewhile(lambda run: run is not separate, begin.itersiblings()))
    result = list(takewhile(lambda run: run is not end, separate.itersiblings()))
    if result and not any(map(_breaks, result)):
        field, within = begin.makeelement(FIELD), begin.makeelement(RESULT)
        begin.addprevious(field)
        within.extend(result)
        field.extend([begin, *before, separate, within, end])


def _dissolve(field: Element) -> None:
    """Replace a FIELD by its contents."""
    for child in list(field):
        for part in list(child) if child.tag == RESULT else [child]:
            field.addprevious(part)
    field.getparent().remove(field)


def _inside(element: Element) -> Element:
    """The element that holds the runs of an element which encloses some."""
    name = {WORD + "sdt": WORD + "sdtContent", FIELD: RESULT}.get(element.tag)
    within = None if name is None else element.find(name)
    return element if within is None else within


def _breaks(run: Element) -> bool:
    """Whether a run has a line break or a tab, which ends a text."""
    return run.tag == WORD + "r" and any(child.tag in BREAKS for child in run)


def _text_of(run: Element) -> str | None:
    """The text of a run; None for an element that is no run with only text."""
    parts = [child for child in run if child.tag in SPOKEN] if run.tag == WORD + "r" else []
    if not parts or any(child.tag not in SPOKEN and child.tag not in UNSPOKEN for child in run):
        return None
    return "".join(SPOKEN[child.tag] or child.text or "" for child in parts)


def _format_of(run: Element) -> bytes:
    from lxml import etree

    properties = run.find(WORD + "rPr")
    # exclusive: without the namespaces of the elements around the run
    return b"" if properties is None else bytes(etree.tostring(properties, method="c14n", exclusive=True))


def _set_text(run: Element, text: str) -> None:
    for child in [child for child in run if child.tag in SPOKEN]:
        run.remove(child)
    written = run.makeelement(WORD + "t", {SPACE: "preserve"})
    written.text = text
    run.append(written)
