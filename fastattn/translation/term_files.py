"""Files of glossaries and translation memories: two columns (TSV), TBX and TMX."""

import os
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any
from xml.etree import ElementTree

from fastattn.errors import InputError
from fastattn.system.files import checked_path, open_bytes, open_text
from fastattn.text.languages import iso_code

LARGEST_FILE = 1 << 30  # bytes
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def read_glossary(path: str | os.PathLike[str], source: str = "", target: str = "") -> dict[str, str]:
    """term -> translation, from two columns with a tab between them, or from a .tbx file.

    source, target  codes of the languages to read from a .tbx file; "": the two languages of each entry, in its order
    Empty lines and lines that begin with # are skipped. Raises InputError for other content, and for entries in more
    than two languages if source and target are not given.
    """
    if PurePath(path).suffix.lower() == ".tbx":
        return dict(_pairs(_parse(path), "termEntry conceptEntry", "langSet langSec", "term", source, target, path))
    pairs: dict[str, str] = {}
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            term, tab, translation = line.partition("\t")
            if not tab or "\t" in translation or not term.strip() or not translation.strip():
                raise InputError(f"{path}, line {number}: expected a term, a tab and its translation")
            pairs[term.strip()] = translation.strip()
    return pairs


def read_memory(path: str | os.PathLike[str], source: str = "", target: str = "") -> dict[str, str]:
    """text -> translation, from a .tmx file or from two columns; otherwise as ``read_glossary``."""
    if PurePath(path).suffix.lower() != ".tmx":
        return read_glossary(path, source, target)
    return dict(_pairs(_parse(path), "tu", "tuv", "seg", source, target, path))


def _parse(path: str | os.PathLike[str]) -> Any:
    """The root of an XML file. Refuses a file that declares entities, a few lines of which can fill the memory."""
    with open_bytes(checked_path(path)) as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise InputError(f"{path}: larger than {LARGEST_FILE:,} bytes")
    if b"<!ENTITY" in data.replace(b"\0", b""):  # in UTF-16 too
        raise InputError(f"{path}: declares entities, which are not read")
    try:
        return ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise InputError(f"{path}: not XML: {error}") from None


def _pairs(
    root: Any, entries: str, languages: str, text_name: str, source: str, target: str, path: Any
) -> Iterator[tuple[str, str]]:
    """(text, translation) of each entry that has both languages; ``entries`` to ``text_name``: names of elements."""
    codes, has_entries = [iso_code(code) if code else "" for code in (source, target)], False
    for entry in root.iter():
        if _local_name(entry) not in entries.split():
            continue
        has_entries = True
        elements = [element for element in entry.iter() if _local_name(element) in languages.split()]
        variants = [(_language(element), _text(element, text_name)) for element in elements]
        if all(codes):
            texts = [_in_language(variants, code) for code in codes]
        elif len({code for code, _ in variants}) > 2:
            variant_codes = ", ".join(code for code, _ in variants[:9])
            raise InputError(f"{path}: has {variant_codes}: name the two languages to use")
        else:
            texts = [text for _, text in variants[:2]]
        if len(texts) == 2 and all(texts):
            yield texts[0], texts[1]
    if not has_entries:
        raise InputError(f"{path}: has no {entries.replace(' ', ' or ')}")


def _in_language(variants: list[tuple[str, str]], code: str) -> str:
    """The first text with this code, else the first text in any variant of the language; "" if there is none."""
    base = code.partition("-")[0]
    same_code = (text for variant, text in variants if variant == code)
    same_language = (text for variant, text in variants if variant.partition("-")[0] == base)
    return next(filter(None, same_code), "") or next(filter(None, same_language), "")


def _local_name(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _language(element: Any) -> str:
    code = element.get(XML_LANG) or element.get("lang") or ""
    try:
        return iso_code(code)
    except InputError:
        return ""


def _text(parent: Any, name: str) -> str:
    """The text of the first descendant of that name, with highlighted parts, without the text of other markup."""
    element = next((inner for inner in parent.iter() if _local_name(inner) == name), None)
    return "" if element is None else " ".join(_inner_text(element).split())


def _inner_text(element: Any) -> str:
    inner = ((_inner_text(child) if _local_name(child) == "hi" else "") + (child.tail or "") for child in element)
    return (element.text or "") + "".join(inner)
