"""XML elements as marked texts and back, for XLIFF, OpenDocument and Word files."""

from collections.abc import Callable
from typing import Any

from fastattn.documents.marks import Mark, Marked
from fastattn.documents.texts import check_tags, reports_missing_library
from fastattn.errors import InputError

Element = Any  # of lxml, which has no types


def parse_xml(data: bytes, name: str) -> Element:
    """The root element of an XML file; entities and external files are not read."""
    with reports_missing_library("XML"):
        from lxml import etree

    check_tags(data, name)
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise InputError(f"{name}: not XML: {error}") from None
    document_type = root.getroottree().docinfo.internalDTD
    if document_type is not None and any(document_type.iterentities()):
        raise InputError(f"{name}: declares entities, which are not read")
    return root


def serialize_xml(root: Element) -> bytes:
    from lxml import etree

    tree = root.getroottree()
    encoding, standalone = tree.docinfo.encoding or "UTF-8", tree.docinfo.standalone or None
    return bytes(etree.tostring(tree, xml_declaration=True, encoding=encoding, standalone=standalone))


def local_name(element: Element) -> str:
    """An element's name without its namespace; "" for comments and processing instructions."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def take_text(
    element: Element, encloses: Callable[[Element], bool], shows_blank: Callable[[Element, int], bool] | None = None
) -> Marked:
    """Empty an element and return its text, with a mark for each inner element.

    encloses     whether an inner element's text is a part of the sentence; the content of other elements stays
    shows_blank  (inner element, depth) -> whether the element is shown as a blank between words
    """
    text, marks = element.text or "", list[Mark]()

    def take_children(parent: Element, depth: int) -> None:
        nonlocal text
        for child in list(parent):
            number, is_blank = len(marks), shows_blank is not None and shows_blank(child, depth)
            marks.append(Mark(len(text), len(text), child, is_blank, depth))
            if is_blank:
                text += " "
            elif encloses(child):
                text += child.text or ""
                take_children(child, depth + 1)
                child.text = None
            marks[number] = marks[number]._replace(end=len(text))
            text += child.tail or ""
            child.tail = None
            parent.remove(child)

    take_children(element, 0)
    element.text = None
    return Marked(text, tuple(marks))


def give_text(element: Element, marked: Marked) -> None:
    """Put a text and its marks' elements into an element that ``take_text`` emptied."""
    open_elements, previous = [element], None  # previous: the closed element whose tail is the next text
    for kind, text, child in marked.pieces():
        if kind == "open":
            open_elements[-1].append(child)
            open_elements.append(child)
            previous = None
        elif kind == "kept" and child is not None:
            open_elements[-1].append(child)
            previous = child
        elif kind == "close":
            previous = open_elements.pop()
        elif not text:
            continue
        elif previous is not None:
            previous.tail = (previous.tail or "") + text
        else:
            open_elements[-1].text = (open_elements[-1].text or "") + text
