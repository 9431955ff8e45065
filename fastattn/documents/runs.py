"""Presentations of PowerPoint and workbooks of Excel: paragraphs whose runs have formats, as in Word, but flat."""

import copy
import re
from collections import Counter
from collections.abc import Sequence, Set
from functools import partial

from fastattn.documents.marks import Mark, Marked, join_marked, split_at_marks, untranslated_text
from fastattn.documents.office import XML_SPACE, Readers, format_of, translate_archive, translate_properties_part
from fastattn.documents.texts import DocumentPlan
from fastattn.documents.xml import Element, local_name, parse_xml, serialize_xml

READ = {"cNvPr": ("descr", "title")}  # element -> attributes that people read: alternative texts
DRAWN, INLINE = frozenset("p"), frozenset(("is",))


def translate_pptx(data: bytes, name: str) -> DocumentPlan:
    """A presentation: slides, notes, charts, diagrams, alternative texts and properties."""
    readers: Readers = {
        r"ppt/(slides|notesSlides|charts|diagrams)/[^/]*\.xml": partial(_part, paragraphs=DRAWN),
        r"docProps/core\.xml": translate_properties_part,
    }
    return translate_archive(data, name, "ppt/presentation.xml", readers)


def translate_xlsx(data: bytes, name: str) -> DocumentPlan:
    """A workbook: the texts of cells, charts, alternative texts and properties.

    Formulas, names of sheets, and heads of tables stay, since formulas refer to them.
    """
    heads = set[str]()
    readers: Readers = {
        r"xl/tables/[^/]*\.xml": partial(_read_table, heads=heads),
        r"xl/sharedStrings\.xml": partial(_part, paragraphs=frozenset(("si",)), excluded=heads),
        r"xl/worksheets/[^/]*\.xml": partial(_part, paragraphs=INLINE, excluded=heads),
        r"xl/(charts|drawings)/[^/]*\.xml": partial(_part, paragraphs=DRAWN),
        r"docProps/core\.xml": translate_properties_part,
    }
    return translate_archive(data, name, "xl/workbook.xml", readers)


def _read_table(data: bytes, name: str, heads: set[str]) -> DocumentPlan:
    """Add the texts that a table and its cells both have to ``heads``; nothing is translated."""
    yield []
    for column in parse_xml(data, name).iter("{*}tableColumn"):
        texts = [column.get(key, "") for key in ("name", "totalsRowLabel")]
        heads |= {re.sub("(_x000[dD]_)?_x000[aA]_", "\n", text) for text in texts}
    return data


def _part(data: bytes, name: str, paragraphs: frozenset[str], excluded: Set[str] = frozenset()) -> DocumentPlan:
    """A part of an archive. paragraphs: names of the elements that hold runs; excluded: texts that stay."""
    if paragraphs == INLINE and b"is>" not in data and b"i\0s" not in data:  # as in most sheets, which may be large
        return data
    root = parse_xml(data, name)
    elements = list(root.iter())
    attributes = [
        (element, key) for element in elements for key in READ.get(local_name(element), ()) if element.get(key)
    ]
    run_paragraphs = [RunParagraph(element) for element in elements if local_name(element) in paragraphs]
    kept = [paragraph.texts[0].text for paragraph in run_paragraphs if paragraph.texts[0].text in excluded]
    run_paragraphs = [paragraph for paragraph in run_paragraphs if paragraph.texts[0].text not in excluded]
    texts = [text for paragraph in run_paragraphs for text in paragraph.texts]
    texts = [Marked(element.get(key)) for element, key in attributes] + texts + [*map(untranslated_text, kept)]
    answers = iter((yield texts))
    for element, key in attributes:
        element.set(key, next(answers).text)
    for paragraph in run_paragraphs:
        paragraph.write([next(answers) for _ in paragraph.texts])
    return serialize_xml(root)


class RunParagraph:
    """The texts of a paragraph between line breaks, with a mark around each run in a less usual format.

    Runs are elements r with a t, or the paragraph's own t; fields, breaks and phonetic signs stay.
    """

    def __init__(self, element: Element):
        self._element = element
        formats = {child: format_of(child) for child in element if _text_element(child) is not None}
        lengths = Counter[bytes]()
        for run, run_format in formats.items():
            lengths[run_format] += len(_text_element(run).text or "")
        usual_format = lengths.most_common(1)[0][0] if lengths else b""
        self._sample = next((run for run, run_format in formats.items() if run_format == usual_format), None)
        text, marks = "", list[Mark]()
        self._first = next((number for number, child in enumerate(element) if _is_inline(child)), len(element))
        self._children = [child for child in list(element)[self._first :] if _is_inline(child)]
        for child in self._children:
            text_element = _text_element(child)
            run_text = "" if text_element is None else (text_element.text or "").replace("_x000D_\n", "\n")
            if text_element is None or formats[child] != usual_format:
                marks.append(Mark(len(text), len(text) + len(run_text), child))
            text += run_text
        self.texts = split_at_marks(Marked(text, tuple(marks)), lambda tag: local_name(tag) == "br")

    def write(self, answers: Sequence[Marked]) -> None:
        """Put translations in place of the texts; a paragraph with none that changes stays as it is."""
        if list(answers) == self.texts:
            return
        for child in self._children:
            self._element.remove(child)
        runs, run, is_usual = list[Element](), None, False  # run: that whose mark is open
        for kind, text, tag in join_marked(answers).pieces():
            if kind == "close":
                run = None
            elif kind == "open":
                runs.append(tag)
                run, is_usual = tag, False
                if _text_element(run) is not None:
                    _set_text(run, "")
            elif text:
                in_mark = run is not None and _text_element(run) is not None
                if not in_mark and not is_usual:
                    runs.append(copy.deepcopy(self._sample))
                    _set_text(runs[-1], "")
                target, is_usual = run if in_mark else runs[-1], not in_mark
                _set_text(target, (_text_element(target).text or "") + text)
        self._element[self._first : self._first] = runs


def _is_inline(element: Element) -> bool:
    """Whether an element is a run, a field or a break, and no properties of the paragraph, which frame the runs."""
    return local_name(element) in ("r", "t", "br", "fld")


def _text_element(run: Element) -> Element:
    """The element of a run's text: itself, or its t; None for a field or a break."""
    if local_name(run) == "t":
        return run
    return next((child for child in run if local_name(child) == "t"), None) if local_name(run) == "r" else None


def _set_text(run: Element, text: str) -> None:
    element = _text_element(run)
    element.text = text
    if element.tag.startswith("{http://schemas.openxmlformats.org/spreadsheetml") and text != text.strip():
        element.set(XML_SPACE, "preserve")
