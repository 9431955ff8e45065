"""Archives of XML: Word documents, OpenDocument texts and EPUB books."""

import copy
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice, product, takewhile
from pathlib import PurePosixPath

from fastattn.documents.html import translate_html
from fastattn.documents.marks import Mark, Marked, join_marked, split_at_marks, untranslated_text
from fastattn.documents.texts import DocumentPlan, check_most
from fastattn.documents.xml import Element, give_text, local_name, parse_xml, serialize_xml, take_text
from fastattn.errors import InputError

DUBLIN_CORE = "{http://purl.org/dc/elements/1.1/}"
TRANSLATED_PROPERTIES = frozenset("title subject description keywords keyword".split())
LARGEST_ARCHIVE = 1 << 28  # bytes of an archive, unpacked
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
ODT_TEXTS, LABELS = frozenset(("p", "h", "title", "desc")), frozenset(("t", "text"))
ODT_BREAKS = frozenset(("line-break", "tab"))
ODT_ENCLOSING = frozenset(("span", "a", "meta", "ruby", "ruby-base"))
# Elements of our own in a paragraph that is read: a FIELD holds a whole field, a RESULT within it the field's result.
FIELD, RESULT = "field", "result"
# Elements within a Word paragraph that contain runs.
WORD_ENCLOSING = frozenset(
    (FIELD, *(WORD + name for name in "hyperlink ins moveTo smartTag customXml fldSimple sdt dir bdo".split()))
)
# In a run: elements of text -> their character, or None for the element's own text; other elements that a run with only
# text may have; elements that end a text, like HTML's <br>.
TEXT_ELEMENTS = {WORD + "t": None, WORD + "noBreakHyphen": "\u2011", WORD + "softHyphen": "\u00ad"}
IGNORED_ELEMENTS = frozenset((WORD + "rPr", WORD + "lastRenderedPageBreak"))
BREAK_ELEMENTS = frozenset(WORD + name for name in ("br", "cr", "tab", "ptab"))
VML = "{urn:schemas-microsoft-com:vml}"
# Attributes that people read.
READ_ATTRIBUTES = {
    "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}docPr": ("title", "descr"),
    VML + "shape": ("title", "alt"),
    VML + "textpath": ("string",),
    WORD + "tblCaption": (WORD + "val",),
    WORD + "tblDescription": (WORD + "val",),
    WORD + "hyperlink": (WORD + "tooltip",),
    WORD + "listItem": (WORD + "displayText",),
}

Readers = dict[str, Callable[[bytes, str], DocumentPlan]]  # pattern of the names of an archive's parts -> their reader


def translate_docx(data: bytes, name: str, extras: Sequence[str] = ()) -> DocumentPlan:
    """A Word document with headers, notes, boxes, charts, alternative texts and properties; formats stay on words."""
    readers: Readers = {
        r"word/(charts|diagrams)/(chart|data|drawing)[^/]*\.xml": _translate_labels,
        r"docProps/core\.xml": translate_properties_part,
        r"word/comments\.xml": _translate_word_part if "comments" in extras else _keep_part,
        r"word/(document|header[^/]*|footer[^/]*|footnotes|endnotes)\.xml": _translate_word_part,
    }
    return translate_archive(data, name, "word/document.xml", readers)


def translate_odt(data: bytes, name: str, extras: Sequence[str] = ()) -> DocumentPlan:
    """An OpenDocument text with its charts and properties, on request also its comments."""
    text_part = partial(_translate_odt_part, comments="comments" in extras)
    readers: Readers = {r"meta\.xml": translate_properties_part, r"styles\.xml|(.*/)?content\.xml": text_part}
    return translate_archive(data, name, "content.xml", readers)


def translate_epub(data: bytes, name: str, language: str | None = None) -> DocumentPlan:
    """An EPUB book with its pages, table of contents, title and description."""
    readers: Readers = {
        r"(?i:.*\.(xhtml|html|htm))": partial(translate_html, language=language),
        r"(?i:.*\.opf)": partial(translate_properties_part, language=language),
        r"(?i:.*\.ncx)": _translate_labels,
    }
    return translate_archive(data, name, "META-INF/container.xml", readers)


def translate_archive(data: bytes, name: str, required: str, readers: Readers) -> DocumentPlan:
    """Translate the parts of an archive, one reader's after another's; InputError without the part ``required``."""
    output, contents = io.BytesIO(), dict[zipfile.ZipInfo, bytes]()  # contents: translated parts
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(output, "w") as new_archive:
            parts = archive.infolist()
            if required not in archive.namelist():
                raise InputError(f"{name}: expected a part {required}, which it does not have")
            check_most(name, sum(part.file_size for part in parts), LARGEST_ARCHIVE, "bytes when it is unpacked")
            for part in parts:
                if _is_outside(part.filename):
                    raise InputError(f"{name}: has a part {part.filename!r}, which is outside its folder")
                if part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise InputError(f"{name}: has a part {part.filename!r} that is neither stored nor deflated")
            for (names, read), part in product(readers.items(), parts):
                if part not in contents and re.fullmatch(names, part.filename, re.DOTALL):
                    contents[part] = yield from read(_read_part(archive, part), f"{name}, {part.filename}")
            for part in parts:
                new_archive.writestr(part, contents[part] if part in contents else _read_part(archive, part))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise InputError(f"{name}: cannot be unpacked: {error}") from None
    return output.getvalue()


def _read_part(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> bytes:
    """The bytes of a part, as many as it says: without their number ``read`` unpacks more, and then cuts them off."""
    with archive.open(part) as file:
        return file.read(part.file_size + 1)


def _is_outside(part: str) -> bool:
    """Whether a part would lie outside the folder into which its archive is unpacked."""
    path = PurePosixPath(part.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or ":" in part.partition("/")[0]


def _translate_odt_part(data: bytes, name: str, comments: bool) -> DocumentPlan:
    root = parse_xml(data, name)
    annotations = [] if comments else [element for element in root.iter() if local_name(element) == "annotation"]
    return (yield from _translate_elements(root, ODT_TEXTS, ODT_ENCLOSING, annotations))


def _translate_elements(
    root: Element, names: frozenset[str], enclosing: frozenset[str], excluded: Sequence[Element] = ()
) -> DocumentPlan:
    """Translate the texts of XML elements with these names; an inner element, such as a note, before an outer one.

    enclosing  names of inner elements whose text is a part of the sentence
    excluded   elements whose texts stay, also those of elements within
    """
    kept_ids = {id(inner): inner for element in excluded for inner in element.iter()}
    elements = [element for element in root.iter() if local_name(element) in names and id(element) not in kept_ids]
    elements.reverse()
    parts, untranslated = list[list[Marked]](), list[Marked]()
    for element in elements:
        text = take_text(element, lambda child: local_name(child) in enclosing, _is_shown_as_blank)
        kept_elements = [mark.tag for mark in text.marks if local_name(mark.tag) not in enclosing]
        untranslated += [untranslated_text("".join(_inner_texts(inner))) for inner in kept_elements]
        parts.append(split_at_marks(text, lambda child: local_name(child) in ODT_BREAKS))
    answers = iter((yield [part for element_parts in parts for part in element_parts] + untranslated))
    for element, element_parts in zip(elements, parts):
        give_text(element, join_marked(islice(answers, len(element_parts))))
    return serialize_xml(root)


def _is_shown_as_blank(element: Element, depth: int) -> bool:
    """Whether an element is shown as a blank; a break outside all marks ends the sentence instead."""
    return local_name(element) == "s" or (local_name(element) in ODT_BREAKS and depth > 0)


def _inner_texts(element: Element) -> Iterator[str]:
    """The texts within an element, without the author and the date of a comment."""
    for inner in element.iter():
        if local_name(inner) not in ("", "creator", "date"):
            yield inner.text or ""
        yield (inner.tail or "") if inner is not element else ""


def _keep_part(data: bytes, name: str) -> DocumentPlan:
    yield [untranslated_text(" ".join(run.text or "" for run in parse_xml(data, name).iter(WORD + "t")))]
    return data


def _translate_word_part(data: bytes, name: str) -> DocumentPlan:
    root = parse_xml(data, name)
    elements = root.iter(*READ_ATTRIBUTES)
    attributes = [(element, key) for element in elements for key in READ_ATTRIBUTES[element.tag] if element.get(key)]
    for (element, key), answer in zip(attributes, (yield [Marked(element.get(key)) for element, key in attributes])):
        element.set(key, answer.text)
    paragraphs = [WordParagraph(element) for element in list(root.iter(WORD + "p"))[::-1]]
    untranslated = [untranslated_text(text) for paragraph in paragraphs for text in paragraph.untranslated]
    answers = iter((yield [*(text for paragraph in paragraphs for text in paragraph.texts), *untranslated]))
    for paragraph in paragraphs:
        paragraph.write(answers)
    return serialize_xml(root)


def _translate_labels(data: bytes, name: str) -> DocumentPlan:
    """The titles and labels of a chart, a diagram or a table of contents."""
    return (yield from _translate_elements(parse_xml(data, name), LABELS, frozenset()))


def translate_properties_part(data: bytes, name: str, language: str | None = None) -> DocumentPlan:
    """Titles, subjects, descriptions and keywords; ``language`` replaces the document's language.

    A description with tags, as books have, is read as HTML.
    """
    root = parse_xml(data, name)
    for element in root.iter(DUBLIN_CORE + "language") if language else ():
        element.text = language
    html_descriptions = [element for element in root.iter(DUBLIN_CORE + "description") if "</" in (element.text or "")]
    for element in html_descriptions:
        element.text = (yield from translate_html(element.text.encode(), name, charset="utf-8")).decode()
    return (yield from _translate_elements(root, TRANSLATED_PROPERTIES, frozenset(), html_descriptions))


class WordParagraph:
    """A Word paragraph's texts between line breaks and tabs, with marks around text that has not the usual format."""

    def __init__(self, element: Element):
        self._element = element
        has_inner = next(element.iterdescendants(WORD + "p"), None) is not None
        # The original elements; None with an inner paragraph, whose translation they would replace by its source.
        self._original = None if has_inner else copy.deepcopy(list(element))
        for run in list(element.iter(WORD + "r")):
            _split_run(run)
        _gather_fields(element)
        runs = list(self._runs(element))
        lengths: Counter[bytes] = Counter()
        for run in runs:
            lengths[format_of(run)] += len(_text_of(run) or "")
        self._usual_format = lengths.most_common(1)[0][0] if lengths else b""
        self._sample_run = next((run for run in runs if format_of(run) == self._usual_format), None)
        self.texts: list[Marked] = []
        self.untranslated: list[str] = []  # texts of elements that are not translated, such as ruby
        self._parts: list[Element] = []  # elements between texts, and None in place of each text
        children: list[Element] = []  # of the current text
        for child in [child for child in element if child.tag != WORD + "pPr"]:
            element.remove(child)
            if _has_break(child):
                self._end_text(children)
                self._parts.append(child)
            elif child.tag != WORD + "proofErr":
                children.append(child)
        self._end_text(children)

    @staticmethod
    def _runs(element: Element) -> Iterator[Element]:
        """The runs with only text, also within hyperlinks and the like, but not those of inner paragraphs."""
        for child in element:
            if child.tag in WORD_ENCLOSING:
                yield from WordParagraph._runs(_content_of(child))
            elif _text_of(child) is not None:
                yield child

    def _end_text(self, children: list[Element]) -> None:
        """Add the text of the children, if there are any, and clear the list."""
        if children:
            self.texts.append(self._take_text(children))
            self._parts.append(None)
            children.clear()

    def _take_text(self, elements: list[Element]) -> Marked:
        """The text of elements, with a mark for each that is no run in the usual format; empties enclosing elements."""
        text, marks = "", list[Mark]()

        def take_runs(children: list[Element], depth: int) -> None:
            nonlocal text
            for child in children:
                run_text = _text_of(child)
                if run_text is not None and format_of(child) == self._usual_format:
                    text += run_text
                    continue
                if run_text is None or not self._continues(marks, child, len(text), depth):
                    marks.append(Mark(len(text), len(text), child, depth=depth))
                number = len(marks) - 1
                if child.tag in WORD_ENCLOSING:
                    content = _content_of(child)
                    inner = list(content)
                    content[:] = []
                    take_runs(inner, depth + 1)
                elif run_text is None:
                    self.untranslated.append(" ".join(inner.text or "" for inner in child.iter(WORD + "t")))
                    text += " " if _has_break(child) else ""
                    continue
                text += run_text or ""
                marks[number] = marks[number]._replace(end=len(text))

        take_runs(elements, 0)
        return Marked(text, tuple(marks))

    @staticmethod
    def _continues(marks: list[Mark], run: Element, start: int, depth: int) -> bool:
        """Whether a run continues the last mark's run in the same format, as after a spell checker has split a word."""
        last = marks[-1] if marks else None
        if last is None or last.end != start or last.depth != depth or _text_of(last.tag) is None:
            return False
        return format_of(last.tag) == format_of(run)

    def write(self, answers: Iterator[Marked]) -> None:
        """Put the next answers in place of the texts; a paragraph whose texts all stay gets its original elements."""
        translations = list(islice(answers, len(self.texts)))
        if translations == self.texts and self._original is not None:
            self._element[:] = self._original
            return
        for part in self._parts:
            if part is None:
                self._write_text(translations.pop(0))
            else:
                self._element.append(part)
        for field in list(self._element.iter(FIELD)):
            _dissolve_field(field)

    def _write_text(self, answer: Marked) -> None:
        path = [self._element]
        for kind, text, child in answer.pieces():
            if kind == "open" and path[-1].tag == WORD + "r":  # a run within a run: only the outer one's format counts
                path.append(path[-1])
            elif kind == "open":
                path[-1].append(child)
                path.append(_content_of(child))
                if _text_of(child) is not None:
                    _set_text(child, "")
            elif kind == "close":
                path.pop()
            elif text and path[-1].tag == WORD + "r":
                _set_text(path[-1], (_text_of(path[-1]) or "") + text)
            elif text:
                run = path[-1].makeelement(WORD + "r") if self._sample_run is None else copy.deepcopy(self._sample_run)
                _set_text(run, text)
                path[-1].append(run)


def _split_run(run: Element) -> None:
    """Replace a run by runs of the same format, one for each text and one for each element between texts."""
    content = [child for child in run if child.tag not in IGNORED_ELEMENTS]
    groups = [list(group) for _, group in groupby(content, key=lambda child: child.tag in TEXT_ELEMENTS or id(child))]
    properties = run.find(WORD + "rPr")
    if len(groups) < 2:
        return
    for group in groups:
        group_run = run.makeelement(run.tag, run.attrib)
        if properties is not None:
            group_run.append(copy.deepcopy(properties))
        group_run.extend(group)
        run.addprevious(group_run)
    run.getparent().remove(run)


def _gather_fields(parent: Element) -> None:
    """Put each field that has a result, and whose beginning and end are siblings, into an element FIELD."""
    open_fields = list[list[Element]]()  # of each open field: its beginning, and the separator before a result
    for run in list(parent):
        field_char = run.find(WORD + "fldChar") if run.tag == WORD + "r" else None
        field_char_type = None if field_char is None else field_char.get(WORD + "fldCharType")
        if run.tag in WORD_ENCLOSING:
            _gather_fields(_content_of(run))
        elif field_char_type == "begin":
            open_fields.append([run])
        elif field_char_type == "separate" and open_fields:
            open_fields[-1].append(run)
        elif field_char_type == "end" and open_fields:
            begin, *separators = open_fields.pop()
            if separators:
                _enclose_field(begin, separators[0], run)


def _enclose_field(begin: Element, separator: Element, end: Element) -> None:
    """Put a field into a FIELD, and the field's result into a RESULT within it, unless the result has breaks."""
    instructions = list(takewhile(lambda run: run is not separator, begin.itersiblings()))
    result = list(takewhile(lambda run: run is not end, separator.itersiblings()))
    if result and not any(map(_has_break, result)):
        field, result_element = begin.makeelement(FIELD), begin.makeelement(RESULT)
        begin.addprevious(field)
        result_element.extend(result)
        field.extend([begin, *instructions, separator, result_element, end])


def _dissolve_field(field: Element) -> None:
    """Replace a FIELD and its RESULT by their contents."""
    for child in list(field):
        for part in list(child) if child.tag == RESULT else [child]:
            field.addprevious(part)
    field.getparent().remove(field)


def _content_of(element: Element) -> Element:
    """The element that holds the runs of an element in WORD_ENCLOSING: a child of it, or the element itself."""
    name = {WORD + "sdt": WORD + "sdtContent", FIELD: RESULT}.get(element.tag)
    content = None if name is None else element.find(name)
    return element if content is None else content


def _has_break(run: Element) -> bool:
    """Whether a run has a line break or a tab, which ends a text."""
    return run.tag == WORD + "r" and any(child.tag in BREAK_ELEMENTS for child in run)


def _text_of(run: Element) -> str | None:
    """The text of a run with only text; None for any other element."""
    parts = [child for child in run if child.tag in TEXT_ELEMENTS] if run.tag == WORD + "r" else []
    if not parts or any(child.tag not in TEXT_ELEMENTS and child.tag not in IGNORED_ELEMENTS for child in run):
        return None
    return "".join(TEXT_ELEMENTS[child.tag] or child.text or "" for child in parts)


def format_of(run: Element) -> bytes:
    """A run's properties without what a spell checker writes: its language, and whether it has seen the run."""
    from lxml import etree

    properties = next((child for child in run if local_name(child) == "rPr"), None)
    if properties is None:
        return b""
    if properties.attrib:  # as presentations have them
        properties = copy.deepcopy(properties)
        for key in ("lang", "altLang", "dirty", "err", "smtClean", "noProof"):
            properties.attrib.pop(key, None)
    # Exclusive: without the namespaces that elements around the run declare.
    return bytes(etree.tostring(properties, method="c14n", exclusive=True))


def _set_text(run: Element, text: str) -> None:
    for child in [child for child in run if child.tag in TEXT_ELEMENTS]:
        run.remove(child)
    text_element = run.makeelement(WORD + "t", {XML_SPACE: "preserve"})
    text_element.text = text
    run.append(text_element)
