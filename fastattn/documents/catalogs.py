"""Message catalogs: gettext's .po, and XLIFF 1.2 and 2; existing translations stay."""

import codecs
import copy
import gettext
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from fastattn.documents.html import INLINE, VOID, WORDS, Page
from fastattn.documents.marks import Marked
from fastattn.documents.texts import Steps, decoded, needed
from fastattn.documents.xml import Element, give_text, local, parsed, serialized, take_text
from fastattn.errors import InputError

_CHARSET_NAME = re.compile(r"(Content-Type:[^\n\\]*charset=)([\w.:-]+)", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|.)")
_BLOCKS = "p div h1 h2 h3 h4 h5 h6 ul ol li dl dt dd table tr td th pre blockquote section".split()
# Other tags, such as <file>, are words.
_TAG = re.compile(rf"</?(?:{'|'.join(sorted((*INLINE, *VOID, *WORDS, *_BLOCKS)))})\b[^<>]*>")


def translate_po(data: bytes, name: str) -> Steps:
    """The entries without a translation, and fuzzy ones. The plural's translation fills all forms but that of 1."""
    with needed("PO"):
        import polib

    charset = _charset(data)
    text = _ESCAPE.sub(_unescaped, decoded(data, name, charset))
    if "msgid" not in text:
        raise InputError(f"{name}: not a PO file: it has no msgid")
    try:
        with tempfile.TemporaryDirectory() as folder:  # polib splits a str, but no file, at all Unicode line separators
            path = Path(folder, "catalog.po")
            path.write_text(text, encoding="utf-8", newline="\n")
            catalog = polib.pofile(str(path), wrapwidth=78, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: not a PO file: {str(error)[:200]}") from None
    entries = [entry for entry in catalog if not entry.obsolete and (not entry.translated() or entry.fuzzy)]
    texts = [_Message(text) for entry in entries for text in (entry.msgid, entry.msgid_plural) if text]
    answers = iter((yield [text for message in texts for text in message.texts]))
    translations, (forms, singular) = (message.written(answers) for message in texts), _plural_forms(catalog, name)
    for entry in entries:
        single = _like(entry.msgid, next(translations)) if entry.msgid else ""
        if entry.msgid_plural:
            many = _like(entry.msgid_plural, next(translations))
            numbers = range(forms) if forms else entry.msgstr_plural or (0, 1)
            before = {} if entry.fuzzy else {int(number): text for number, text in entry.msgstr_plural.items()}
            entry.msgstr_plural = {
                number: before.get(number) or (single if number == singular else many) for number in map(int, numbers)
            }
        else:
            entry.msgstr = single
        entry.flags = [flag for flag in entry.flags if flag != "fuzzy"]
    written = f"{catalog}".rstrip("\n") + "\n"
    if not re.search(r'^msgid ""\s*^msgstr', text, re.MULTILINE):
        written = written.replace('msgid ""\nmsgstr ""\n\n', "", 1)
    written = written if text.startswith("#") else written.removeprefix("#\n")
    written = written.replace("\n", "\r\n") if "\r\n" in text else written
    named = _CHARSET_NAME.search(written)
    with suppress(UnicodeEncodeError, LookupError):
        encoded = written.encode(charset)
        if encoded.isascii() or named is None or codecs.lookup(named[2]).name == charset:
            return encoded
    return _CHARSET_NAME.sub(r"\1UTF-8", written, count=1).encode()


class _Message:
    """A message: plain text, or HTML line by line if it has tags."""

    def __init__(self, text: str):
        lines = [text] if any("\n" in tag for tag in _TAG.findall(text)) else text.split("\n")
        self._pages = [Page(line) for line in lines] if _TAG.search(text) else []
        self.texts = [text for page in self._pages for text in page.texts] if self._pages else [Marked(text)]

    def written(self, answers: Iterator[Marked]) -> str:
        """Its translation, made of the next answers, one for each of its texts."""
        if not self._pages:
            return next(answers).text
        return "\n".join(page.written(list(islice(answers, len(page.texts)))) for page in self._pages)


def _charset(data: bytes) -> str:
    """The charset that the header names, unless the catalog is in fact UTF-8."""
    named = _CHARSET_NAME.search(data.decode("latin-1"))
    with suppress(UnicodeDecodeError):
        data.decode()
        if named is None or not data.isascii():
            return "utf-8"
    try:
        return codecs.lookup(named[2]).name if named else "utf-8"
    except LookupError:  # such as CHARSET
        return "utf-8"


def _unescaped(match: "re.Match[str]") -> str:
    """The character of a numeric escape, unless it must be escaped; other escapes stay."""
    digits = match[1] or match[2]
    character = chr(int(digits, 16 if match[1] else 8)) if digits else ""
    return character if character.isprintable() and character not in '"\\' and character else match[0]


def _plural_forms(catalog: Any, name: str) -> tuple[int, int]:
    """(number of plural forms in the header, 0 if it has none; index of the form of 1 alone, -1 if there is none)."""
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
    """The translation with the blanks around its source, as gettext requires."""
    if not source.strip():
        return source
    lead, tail = source[: len(source) - len(source.lstrip())], source[len(source.rstrip()) :]
    return lead + translation.strip() + tail


def translate_xliff(data: bytes, name: str) -> Steps:
    """XLIFF 1.2 and 2: segments without a target get one."""
    root = parsed(data, name)
    if local(root) != "xliff":
        raise InputError(f"{name}: expected XLIFF, whose first element is xliff, found {local(root)}")
    sources = (element for element in root.iter() if local(element) == "source")
    targets = [_target_of(source) for source in sources if local(source.getparent()) in _UNITS]
    empty = [part for element in targets if element is not None for part in _segments(element)]
    texts = [take_text(element, _encloses) for element in empty]
    for element, answer in zip(empty, (yield texts)):
        give_text(element, answer)
    return serialized(root)


_UNITS = frozenset(("trans-unit", "segment"))
_ENCLOSE = frozenset(("g", "mrk", "pc"))
_UNTRANSLATED = frozenset(("new", "needs-translation", "initial"))


def _segments(target: Element) -> list[Element]:
    segments = [mark for mark in target.iter() if local(mark) == "mrk" and mark.get("mtype") == "seg"]
    return segments or [target]


def _encloses(child: Element) -> bool:
    protected = child.get("translate") == "no" or child.get("mtype") == "protected"
    return local(child) in _ENCLOSE and not protected


def _target_of(source: Element) -> Element | None:
    """A copy of the source, or of its segments, in the target's place; None if it has a translation or must stay."""
    unit = source.getparent()
    around = [unit, *unit.iterancestors()]
    translate = next((ancestor.get("translate") for ancestor in around if ancestor.get("translate")), "yes")
    existing = next((child for child in unit if local(child) == "target"), None)
    state = unit.get("state", "") if existing is None else existing.get("state", unit.get("state", ""))
    translated = existing is not None and "".join(existing.itertext()).strip() and state not in _UNTRANSLATED
    if translate == "no" or translated:
        return None
    segmented = next((child for child in unit if local(child) == "seg-source"), source)
    target = copy.deepcopy(segmented)
    target.tag, target.tail = source.tag.removesuffix("source") + "target", segmented.tail
    if unit.get("state") in _UNTRANSLATED:
        unit.set("state", "translated")
    if existing is None:
        segmented.addnext(target)
    else:
        target.tail = existing.tail
        target.attrib.update(existing.attrib)
        target.attrib.pop("state", None)
        unit.replace(existing, target)
    return target
