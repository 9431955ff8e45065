"""Archives of XML: Word's documents, OpenDocument's texts and EPUB books."""

import copy
import io
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator

from fastattn.documents.html import translate_html
from fastattn.documents.marks import Mark, Marked
from fastattn.documents.texts import Steps
from fastattn.documents.xml import Element, give_text, local, parsed, serialized, take_text
from fastattn.errors import InputError

LARGEST = 1 << 30  # bytes of all that an archive holds
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
SPACE = "{http://www.w3.org/XML/1998/namespace}space"
OPEN_TEXTS = frozenset(("p", "h"))
OPEN_ENCLOSES = frozenset(("span", "a", "meta", "ruby", "ruby-base"))
# Runs of a Word document stand in these as they do in a paragraph.
WORD_ENCLOSES = frozenset(WORD + name for name in ("hyperlink", "ins", "smartTag", "fldSimple"))
WORD_PARTS = ("document.xml", "header", "footer", "footnotes.xml", "endnotes.xml", "comments.xml")

Reader = Callable[[bytes, str], Steps]


def translate_docx(data: bytes, name: str) -> Steps:
    """A Word document: its text, headers, footers, notes and comments; formats stay with the words that have them."""

    def reader(part: str) -> Reader | None:
        folder, _, file = part.rpartition("/")
        return _word_part if folder == "word" and file.startswith(WORD_PARTS) and file.endswith(".xml") else None

    return _archive(data, name, reader, "word/document.xml")


def translate_odt(data: bytes, name: str) -> Steps:
    """An OpenDocument text."""
    return _archive(
        data, name, lambda part: _open_part if part in ("content.xml", "styles.xml") else None, "content.xml"
    )


def translate_epub(data: bytes, name: str) -> Steps:
    """An EPUB book: its pages and its table of contents."""

    def reader(part: str) -> Reader | None:
        if part.lower().endswith((".xhtml", ".html", ".htm")):
            return translate_html
        return _contents_part if part.lower().endswith(".ncx") else None

    return _archive(data, name, reader, "META-INF/container.xml")


def _archive(data: bytes, name: str, reader: Callable[[str], Reader | None], wanted: str) -> Steps:
    """An archive with some of its parts translated."""
    written = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(written, "w") as made:
            parts = archive.infolist()
            if wanted not in archive.namelist():
                raise InputError(f"{name}: expected a part {wanted}, which it does not have")
            if sum(part.file_size for part in parts) > LARGEST:
                raise InputError(f"{name}: unpacked it is larger than {LARGEST:,} bytes")
            for part in parts:
                read = reader(part.filename)
                content = archive.read(part)
                if read is not None:
                    content = yield from read(content, f"{name}, {part.filename}")
                made.writestr(part, content)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise InputError(f"{name}: cannot be unpacked: {error}") from None
    return written.getvalue()


def _open_part(data: bytes, name: str) -> Steps:
    return (yield from _elements(data, name, OPEN_TEXTS, OPEN_ENCLOSES))


def _contents_part(data: bytes, name: str) -> Steps:
    return (yield from _elements(data, name, frozenset(("text",)), frozenset()))


def _elements(data: bytes, name: str, texts: frozenset[str], encloses: frozenset[str]) -> Steps:
    """XML with the texts of elements of some names translated; inner ones, such as a note's, before outer ones."""
    root = parsed(data, name)
    found = [one for one in root.iter() if local(one) in texts][::-1]
    taken = [take_text(one, lambda child: local(child) in encloses) for one in found]
    for one, answer in zip(found, (yield taken)):
        give_text(one, answer)
    return serialized(root)


def _word_part(data: bytes, name: str) -> Steps:
    root = parsed(data, name)
    paragraphs = [Paragraph(one) for one in list(root.iter(WORD + "p"))[::-1]]
    for paragraph, answer in zip(paragraphs, (yield [one.text for one in paragraphs])):
        paragraph.write(answer)
    return serialized(root)


class Paragraph:
    """A paragraph of a Word document: its text, with marks where the format is not the one that most of it has."""

    def __init__(self, element: Element):
        self._element = element
        runs = [(child, parent) for child, parent in self._leaves(element)]
        lengths: Counter[bytes] = Counter()
        for run, _ in runs:
            if (text := _text_of(run)) is not None:
                lengths[_format_of(run)] += len(text)
        self._usual = lengths.most_common(1)[0][0] if lengths else b""
        self._sample = next(
            (run for run, _ in runs if _text_of(run) is not None and _format_of(run) == self._usual), None
        )
        self.text = self._taken()

    @staticmethod
    def _leaves(element: Element) -> Iterator[tuple[Element, Element]]:
        for child in element:
            if child.tag in WORD_ENCLOSES:
                yield from Paragraph._leaves(child)
            else:
                yield child, element

    def _taken(self) -> Marked:
        text, marks = "", list[Mark]()

        def take(parent: Element, depth: int) -> None:
            nonlocal text
            for child in list(parent):
                if child.tag == WORD + "pPr":
                    continue
                parent.remove(child)
                number, said = len(marks), _text_of(child)
                if child.tag == WORD + "proofErr":
                    continue
                if child.tag in WORD_ENCLOSES:
                    marks.append(Mark(len(text), len(text), child, depth=depth))
                    take(child, depth + 1)
                    marks[number] = marks[number]._replace(end=len(text))
                elif said is None:
                    marks.append(Mark(len(text), len(text), child, depth=depth))
                elif _format_of(child) == self._usual:
                    text += said
                elif self._goes_on(marks, child, len(text), depth):
                    text += said
                    marks[-1] = marks[-1]._replace(end=len(text))
                else:
                    marks.append(Mark(len(text), len(text) + len(said), child, depth=depth))
                    text += said

        take(self._element, 0)
        return Marked(text, tuple(marks))

    @staticmethod
    def _goes_on(marks: list[Mark], run: Element, at: int, depth: int) -> bool:
        """Whether a run has the format of the one before, as where a spell checker cut a word."""
        last = marks[-1] if marks else None
        if last is None or last.end != at or last.depth != depth or _text_of(last.what) is None:
            return False
        return _format_of(last.what) == _format_of(run)

    def write(self, answer: Marked) -> None:
        """Put the translation in the text's place."""
        path = [self._element]
        for kind, text, child in answer.pieces():
            if kind == "open":
                path[-1].append(child)
                path.append(child)
                if _text_of(child) is not None:
                    _set_text(child, "")
            elif kind == "close":
                path.pop()
            elif text and path[-1].tag == WORD + "r":
                _set_text(path[-1], (_text_of(path[-1]) or "") + text)
            elif text:
                path[-1].append(_like(self._sample, text, path[-1]))


def _text_of(run: Element) -> str | None:
    """What a run says; None for what is no run of text alone."""
    if run.tag != WORD + "r":
        return None
    names = {child.tag for child in run}
    if WORD + "t" not in names or not names <= {WORD + "t", WORD + "rPr", WORD + "lastRenderedPageBreak"}:
        return None
    return "".join(child.text or "" for child in run.iter(WORD + "t"))


def _format_of(run: Element) -> bytes:
    from lxml import etree

    found = run.find(WORD + "rPr")
    return b"" if found is None else bytes(etree.tostring(found, method="c14n"))


def _set_text(run: Element, text: str) -> None:
    first, *others = run.iter(WORD + "t")
    for other in others:
        run.remove(other)
    first.text = text
    first.set(SPACE, "preserve")


def _like(sample: Element, text: str, parent: Element) -> Element:
    """A run with a text and the format of another."""
    if sample is None:
        run = parent.makeelement(WORD + "r")
        run.append(run.makeelement(WORD + "t"))
    else:
        run = copy.deepcopy(sample)
    _set_text(run, text)
    return run
