"""Translators' files: gettext's .po and XLIFF 1.2 and 2; what is translated already stays."""

import copy
import gettext
import re
from typing import Any

from fastattn.documents.marks import Marked
from fastattn.documents.texts import Steps, decoded, needed
from fastattn.documents.xml import Element, give_text, local, parsed, serialized, take_text
from fastattn.errors import InputError


def translate_po(data: bytes, name: str) -> Steps:
    """The entries without a translation, fuzzy ones included; plural forms but that of 1 get the plural's."""
    with needed("PO"):
        import polib

    text = decoded(data, name)
    if "msgid" not in text:
        raise InputError(f"{name}: not a PO file: it has no msgid")
    try:
        catalog = polib.pofile(f"\n{text}", wrapwidth=78)  # a text without a line end could be a file's name
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: not a PO file: {str(error)[:200]}") from None
    entries = [entry for entry in catalog if not entry.obsolete and (not entry.translated() or entry.fuzzy)]
    texts = [text for entry in entries for text in (entry.msgid, entry.msgid_plural) if text]
    answers, (forms, singular) = iter((yield [Marked(text) for text in texts])), _plural_forms(catalog, name)
    for entry in entries:
        one = _like(entry.msgid, next(answers).text) if entry.msgid else ""
        if entry.msgid_plural:
            many = _like(entry.msgid_plural, next(answers).text)
            numbers = range(forms) if forms else entry.msgstr_plural or (0, 1)
            entry.msgstr_plural = {number: one if number == singular else many for number in numbers}
        else:
            entry.msgstr = one
        entry.flags = [flag for flag in entry.flags if flag != "fuzzy"]
    written = f"{catalog}".rstrip("\n") + "\n"
    if not re.search(r'^msgid ""\s*^msgstr', text, re.MULTILINE):
        written = written.replace('msgid ""\nmsgstr ""\n\n', "", 1)
    return (written if text.startswith("#") else written.removeprefix("#\n")).encode()


def _plural_forms(catalog: Any, name: str) -> tuple[int, int]:
    """(how many forms the header says there are, 0 if it does not, the number of that of 1 alone, -1 if none is)."""
    header = catalog.metadata.get("Plural-Forms", "")
    stated = re.fullmatch(r"\s*nplurals\s*=\s*(\d{1,2})\s*;\s*plural\s*=(.*?);?\s*", header)
    if stated is None:
        return 0, 0
    try:
        forms, number_of = int(stated[1]), gettext.c2py(stated[2])
        return forms, -1 if forms == 1 else number_of(1)
    except ValueError as error:
        raise InputError(f"{name}: Plural-Forms: {error}") from None


def _like(source: str, translation: str) -> str:
    """The translation with the line ends at its ends that gettext demands of it."""
    lead, tail = source[: len(source) - len(source.lstrip())], source[len(source.rstrip()) :]
    return lead + translation.strip() + tail


def translate_xliff(data: bytes, name: str) -> Steps:
    """XLIFF 1.2 and 2: segments without a target get one."""
    root = parsed(data, name)
    if local(root) != "xliff":
        raise InputError(f"{name}: expected XLIFF, whose first element is xliff, found {local(root)}")
    targets = [_target_of(one) for one in root.iter() if local(one) == "source" and local(one.getparent()) in _UNITS]
    empty = [one for one in targets if one is not None]
    taken = [take_text(one, lambda child: local(child) in _ENCLOSE) for one in empty]
    for one, answer in zip(empty, (yield taken)):
        give_text(one, answer)
    return serialized(root)


_UNITS = frozenset(("trans-unit", "segment"))
_ENCLOSE = frozenset(("g", "mrk", "pc"))
_UNTRANSLATED = frozenset(("new", "needs-translation", "initial"))


def _target_of(source: Element) -> Element | None:
    """A copy of the source in the target's place, or None where there is a translation, or should be none."""
    unit = source.getparent()
    around = [unit, *unit.iterancestors()]
    translate = next((one.get("translate") for one in around if one.get("translate")), "yes")
    found = next((one for one in unit if local(one) == "target"), None)
    if translate == "no" or (found is not None and "".join(found.itertext()).strip() and not _is_new(found, unit)):
        return None
    target = copy.deepcopy(source)
    target.tag, target.tail = source.tag.replace("}source", "}target") if "}" in source.tag else "target", source.tail
    if found is None:
        source.addnext(target)
    else:
        target.tail = found.tail
        target.attrib.update(found.attrib)
        target.attrib.pop("state", None)
        unit.replace(found, target)
    return target


def _is_new(target: Element, unit: Element) -> bool:
    return target.get("state", unit.get("state", "")) in _UNTRANSLATED
