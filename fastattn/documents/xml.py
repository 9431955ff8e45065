"""XML elements as marked texts and back, for XLIFF, OpenDocument and Word files."""

from collections.abc import Callable
from typing import Any

from fastattn.documents.marks import Mark, Marked
from fastattn.documents.texts import needed
from fastattn.errors import InputError

Element = Any  # of lxml, which has no types


def parsed(data: bytes, name: str) -> Element:
    """The root of an XML file; entities and external files are not read."""
    with needed("XML"):
        from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise InputError(f"{name}: not XML: {error}") from None
    declared = root.getroottree().docinfo.internalDTD
    if declared is not None and any(declared.iterentities()):
        raise InputError(f"{name}: declares entities, which are not read")
    return root


def serialized(root: Element) -> bytes:
    from lxml import etree

    tree = root.getroottree()
    encoding, alone = tree.docinfo.encoding or "UTF-8", tree.docinfo.standalone or None
    return bytes(etree.tostring(tree, xml_declaration=True, encoding=encoding, standalone=alone))


def local(element: Element) -> str:
    """An element's name without its namespace; "" for comments and processing instructions."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def take_text(
    element: Element, encloses: Callable[[Element], bool], blank: Callable[[Element, int], bool] | None = None
) -> Marked:
    """The text of an element, which is removed from it, with a mark for each inner element.

    encloses  whether an inner element's text is a part of the sentence; other elements stay as they are
    blank     (inner element, depth) -> whether it is shown as a blank between words
    """
    text, marks = element.text or "", list[Mark]()

    def take(parent: Element, depth: int) -> None:
        nonlocal text
        for child in list(parent):
            number, is_blank = len(marks), blank is not None and blank(child, depth)
            marks.append(Mark(len(text), len(text), child, is_blank, depth))
            if is_blank:
                text += " "
            elif encloses(child):
                text += child.text or ""
                take(child, depth + 1)
                child.text = None
            marks[number] = marks[number]._replace(end=len(text))
            text += child.tail or ""
            child.tail = None
            parent.remove(child)

    take(element, 0)
    element.text = None
    return Marked(text, tuple(marks))


def give_text(element: Element, answer: Marked) -> None:
    """Put a text and its marks' elements into an element that ``take_text`` emptied."""
    path, last = [element], None  # the open elements; the closed one that text follows
    for kind, text, child in answer.pieces():
        if kind == "open":
            path[-1].append(child)
            path.append(child)
            last = None
        elif kind == "kept" and child is not None:
            path[-1].append(child)
            last = child
        elif kind == "close":
            last = path.pop()
        elif not text:
            continue
        elif last is not None:
            last.tail = (last.tail or "") + text
        else:
            path[-1].text = (path[-1].text or "") + text
