"""Message catalogs: gettext's PO, and XLIFF 1.2 and 2. Existing translations stay."""

import codecs
import copy
import gettext
import re
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from fastattn.documents.html import CODE_WORDS, INLINE, VOID, Page
from fastattn.documents.marks import Marked
from fastattn.documents.texts import DocumentPlan, SourceText, apply_edits, decode_text, reports_missing_library
from fastattn.documents.xml import Element, give_text, local_name, parse_xml, serialize_xml, take_text
from fastattn.errors import InputError

_CHARSET_HEADER = re.compile(r"(Content-Type:[^\n\\]*charset=)([\w.:-]+)", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|.)")
_BLOCKS = "p div h1 h2 h3 h4 h5 h6 ul ol li dl dt dd table tr td th pre blockquote section".split()
# A tag that makes a message HTML; other names between angle brackets, such as <file>, are words.
_TAG = re.compile(rf"</?(?:{'|'.join(sorted((*INLINE, *VOID, *CODE_WORDS, *_BLOCKS)))})\b[^<>]*>")


def translate_po(data: bytes, name: str, fuzzy: bool = False) -> DocumentPlan:
    """Translate untranslated and fuzzy entries. The plural's translation fills all plural forms but the form of 1.

    fuzzy  whether the translations are marked as fuzzy
    """
    with reports_missing_library("PO"):
        import polib

    charset = _charset(data)
    text = _ESCAPE.sub(_unescape, decode_text(data, name, charset))
    if "msgid" not in text:
        raise InputError(f"{name}: not a PO file: it has no msgid")
    try:
        with tempfile.TemporaryDirectory() as folder:  # a file: polib splits a str at all Unicode line separators
            path = Path(folder, "catalog.po")
            path.write_text(text, encoding="utf-8", newline="\n")
            catalog = polib.pofile(str(path), wrapwidth=78, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: not a PO file: {str(error)[:200]}") from None
    entries = [entry for entry in catalog if not entry.obsolete and (not entry.translated() or entry.fuzzy)]
    sources = [text for entry in entries for text in (entry.msgid, entry.msgid_plural) if text]
    translations = iter((yield from translate_messages(sources)))
    count, of_one = _plural_forms(catalog, name)
    for entry in entries:
        singular = _with_blanks_of(entry.msgid, next(translations)) if entry.msgid else ""
        if entry.msgid_plural:
            plural = _with_blanks_of(entry.msgid_plural, next(translations))
            forms = range(count) if count else entry.msgstr_plural or (0, 1)
            existing_forms = {} if entry.fuzzy else {int(form): text for form, text in entry.msgstr_plural.items()}
            entry.msgstr_plural = {
                form: existing_forms.get(form) or (singular if form == of_one else plural) for form in map(int, forms)
            }
        else:
            entry.msgstr = singular
        entry.flags = [flag for flag in entry.flags if flag != "fuzzy"] + ["fuzzy"] * fuzzy
    output = f"{catalog}".rstrip("\n") + "\n"
    if not re.search(r'^msgid ""\s*^msgstr', text, re.MULTILINE):
        output = output.replace('msgid ""\nmsgstr ""\n\n', "", 1)
    output = output if text.startswith("#") else output.removeprefix("#\n")
    output = output.replace("\n", "\r\n") if "\r\n" in text else output
    header = _CHARSET_HEADER.search(output)
    with suppress(UnicodeEncodeError, LookupError):
        encoded = output.encode(charset)
        if encoded.isascii() or header is None or codecs.lookup(header[2]).name == charset:
            return encoded
    return _CHARSET_HEADER.sub(r"\1UTF-8", output, count=1).encode()


def translate_messages(sources: Iterable[str]) -> Generator[list[Marked], list[Marked], list[str]]:
    """The translation of each message."""
    messages = [_Message(source) for source in sources]
    answers = iter((yield [text for message in messages for text in message.texts]))
    return [message.render(answers) for message in messages]


def translate_values(
    page: str,
    values: Sequence[SourceText],
    source_of: Callable[[SourceText, str], str],
    edits: Sequence[tuple[int, int, str]] = (),
) -> Generator[list[Marked], list[Marked], str]:
    """The page with translated values and other ``edits``; ``source_of``: value, translation -> as it is written."""
    translations = yield from translate_messages(value.text for value in values)
    changed = ((value, text) for value, text in zip(values, translations) if text != value.text)
    return apply_edits(page, [*edits, *((value.start, value.end, source_of(value, text)) for value, text in changed)])


class _Message:
    """A message: plain text, or HTML line by line if it has tags."""

    def __init__(self, text: str):
        lines = [text] if any("\n" in tag for tag in _TAG.findall(text)) else text.split("\n")
        self._pages = [Page(line) for line in lines] if _TAG.search(text) else []
        self.texts = [text for page in self._pages for text in page.texts] if self._pages else [Marked(text)]

    def render(self, answers: Iterator[Marked]) -> str:
        """The message's translation, which takes one of the answers for each of its texts."""
        if not self._pages:
            return next(answers).text
        return "\n".join(page.render(list(islice(answers, len(page.texts)))) for page in self._pages)


def _charset(data: bytes) -> str:
    """The charset that the catalog's header names, unless the bytes are UTF-8."""
    header = _CHARSET_HEADER.search(data.decode("latin-1"))
    with suppress(UnicodeDecodeError):
        data.decode()
        if header is None or not data.isascii():
            return "utf-8"
    try:
        return codecs.lookup(header[2]).name if header else "utf-8"
    except LookupError:  # such as the placeholder CHARSET
        return "utf-8"


def _unescape(match: "re.Match[str]") -> str:
    """The character of a numeric escape, unless PO must escape that character; other escapes stay."""
    digits = match[1] or match[2]
    character = chr(int(digits, 16 if match[1] else 8)) if digits else ""
    return character if character.isprintable() and character not in '"\\' and character else match[0]


def _plural_forms(catalog: Any, name: str) -> tuple[int, int]:
    """(number of plural forms, 0 if the header has none; index of the form of 1, -1 if all numbers share one form)."""
    header = catalog.metadata.get("Plural-Forms", "")
    rule = re.fullmatch(r"\s*nplurals\s*=\s*(\d{1,2})\s*;\s*plural\s*=(.*?);?\s*", header)
    if rule is None:
        return 0, 0
    try:
        count, form_of = int(rule[1]), gettext.c2py(rule[2])
        return count, -1 if count == 1 else form_of(1)
    except ValueError as error:
        raise InputError(f"{name}: Plural-Forms: {error}") from None


def _with_blanks_of(source: str, translation: str) -> str:
    """The translation with the blanks around its source, as gettext requires."""
    if not source.strip():
        return source
    before, behind = source[: len(source) - len(source.lstrip())], source[len(source.rstrip()) :]
    return before + translation.strip() + behind


def translate_xliff(data: bytes, name: str, fuzzy: bool = False) -> DocumentPlan:
    """Give a target to each segment of XLIFF 1.2 or 2 that has no translation; ``fuzzy``: marked for review."""
    root = parse_xml(data, name)
    if local_name(root) != "xliff":
        raise InputError(f"{name}: expected XLIFF, whose first element is xliff, found {local_name(root)}")
    sources = (element for element in root.iter() if local_name(element) == "source")
    targets = [_new_target(source) for source in sources if local_name(source.getparent()) in _TRANSLATION_UNITS]
    segments = [part for element in targets if element is not None for part in _segments(element)]
    texts = [take_text(element, _encloses) for element in segments]
    for element, answer in zip(segments, (yield texts)):
        give_text(element, answer)
    for target in targets if fuzzy else ():
        if target is None:
            continue
        if local_name(target.getparent()) == "segment":
            target.getparent().set("state", "translated")  # version 2: not reviewed yet
        else:
            target.set("state", "needs-review-translation")
    return serialize_xml(root)


_TRANSLATION_UNITS = frozenset(("trans-unit", "segment"))
_ENCLOSING = frozenset(("g", "mrk", "pc"))
_UNTRANSLATED_STATES = frozenset(("new", "needs-translation", "initial"))


def _segments(target: Element) -> list[Element]:
    """The elements of a target's segments, or the target itself if it has none."""
    segments = [mark for mark in target.iter() if local_name(mark) == "mrk" and mark.get("mtype") == "seg"]
    return segments or [target]


def _encloses(child: Element) -> bool:
    """Whether an inner element's text is translated as a part of the sentence."""
    is_protected = child.get("translate") == "no" or child.get("mtype") == "protected"
    return local_name(child) in _ENCLOSING and not is_protected


def _new_target(source: Element) -> Element | None:
    """Put a copy of a source or of its segments in the target's place; None if the unit is translated or must stay."""
    unit = source.getparent()
    settings = (element.get("translate") for element in (unit, *unit.iterancestors()))
    translate = next(filter(None, settings), "yes")  # the innermost one
    existing = next((child for child in unit if local_name(child) == "target"), None)
    state = unit.get("state", "") if existing is None else existing.get("state", unit.get("state", ""))
    is_translated = existing is not None and "".join(existing.itertext()).strip() and state not in _UNTRANSLATED_STATES
    if translate == "no" or is_translated:
        return None
    original = next((child for child in unit if local_name(child) == "seg-source"), source)
    target = copy.deepcopy(original)
    target.tag, target.tail = source.tag.removesuffix("source") + "target", original.tail
    if unit.get("state") in _UNTRANSLATED_STATES:
        unit.set("state", "translated")
    if existing is None:
        original.addnext(target)
    else:
        target.tail = existing.tail
        target.attrib.update(existing.attrib)
        target.attrib.pop("state", None)
        unit.replace(existing, target)
    return target
