"""Translation of documents of all forms."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fastattn.documents.catalogs import translate_po, translate_xliff
from fastattn.documents.forms import EXTRAS, FORMS, TEXT_FORMS, WITH_FIELDS
from fastattn.documents.html import translate_html
from fastattn.documents.markdown import translate_markdown
from fastattn.documents.marks import (
    Marked,
    is_crowded,
    joined,
    keeps,
    kept_characters,
    project_marks,
    repeats,
    stripped,
    with_kept,
)
from fastattn.documents.office import translate_docx, translate_epub, translate_odt
from fastattn.documents.subtitles import translate_subtitles
from fastattn.documents.tables import translate_json_lines, translate_table
from fastattn.documents.tagged import XmlRules, translate_xml
from fastattn.documents.texts import Steps, decoded, lines_of, replaced
from fastattn.errors import InputError, check_known, warn
from fastattn.printable import counted
from fastattn.system.files import BYTE_ORDER_MARK
from fastattn.text.invariants import MESSAGE, branches
from fastattn.text.languages import iso_code
from fastattn.translation.alignment import word_links


def translate_text(data: bytes, name: str) -> Steps:
    """Plain text, line by line; line ends and blanks around lines stay."""
    answers = yield [Marked(line) for line in lines_of(decoded(data, name))]
    return "".join(answer.text for answer in answers).encode()


# Byte order marks -> their encoding, if it is not UTF-8.
_MARKS = {BYTE_ORDER_MARK: "", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_FORBIDDEN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_LINE_ENDS = re.compile(r"[ \t]*[\n\r\x85\u2028\u2029]\s*")
_READERS: dict[str, Callable[..., Steps]] = {
    "txt": translate_text,
    "html": translate_html,
    "md": translate_markdown,
    "srt": translate_subtitles,
    "po": translate_po,
    "xliff": translate_xliff,
    "docx": translate_docx,
    "odt": translate_odt,
    "epub": translate_epub,
    "csv": partial(translate_table, delimiter=","),
    "tsv": partial(translate_table, delimiter="\t"),
    "jsonl": translate_json_lines,
    "xml": translate_xml,
}


class TranslatedDocument(bytes):
    """A document's translation."""

    kept_characters = 0  # untranslated characters of its text, such as code, without blanks


def translate_document(
    translator: Any,
    data: bytes,
    form: str,
    *,
    name: str = "the document",
    fields: Sequence[str] = (),
    extras: Sequence[str] = (),
    language: str | None = None,
    rules: XmlRules | None = None,
    **options: Any,
) -> TranslatedDocument:
    """Translate a document's texts; everything else stays as it was.

    translator  a Translator, or an object with its ``translate_iter``
    form        one of FORMS: "html", "md", "srt" (WebVTT too), "po", "xliff", "docx", "odt", "epub", "csv", "tsv",
                "jsonl", "txt", or "xml"
    name        of the document, for errors
    fields      the fields of a table or of records to translate
    extras      other parts to translate: "comments" of docx and odt, "front-matter": title and description of md
    language    of the translation, written at the root of pages and books; None: options' ``target_lang``, if any
    rules       of "xml", which is a text with tags: XmlRules
    options     of ``Translator.translate``, without details

    Tags and other marks move with their words, by the model's alignment; addresses, code, format directives and emoji
    stay. Raises InputError for data that is damaged or not of that form, FastattnError if the form's library is missing
    (``fastattn[documents]``).
    """
    check_known("form of document", form, (*FORMS, "xml"))
    if bool(fields) != (form in WITH_FIELDS):
        raise InputError(f"{name}: {'name the fields to translate' if not fields else f'{form} has no fields'}")
    for extra in extras:
        check_known("extra", extra, EXTRAS)
    mark, wide = next((pair for pair in _MARKS.items() if data.startswith(pair[0])), (b"", ""))
    content = data[len(mark) :]
    if wide and form in TEXT_FORMS:
        content = decoded(content, name, wide).encode()
    arguments: dict[str, Any] = {"fields": fields} if fields else {}
    arguments |= {"extras": extras} if form in ("md", "docx", "odt") else {}
    language = language or options.get("target_lang")
    arguments |= {"language": iso_code(language)} if isinstance(language, str) and form in ("html", "epub") else {}
    arguments |= {"charset": "utf-8"} if mark and form == "html" else {}
    arguments |= {"rules": rules} if rules is not None else {}
    steps = _READERS[form](content if form in TEXT_FORMS else data, name, **arguments)
    characters = unchanged = 0
    try:
        texts = next(steps)
        while True:
            characters += sum(map(kept_characters, texts))
            answers, number = _translated(translator, texts, options)
            unchanged += number
            texts = steps.send(answers)
    except StopIteration as end:
        if unchanged:
            warn(f"{name}: {counted(unchanged, 'text')} left untranslated: no translation keeps what stands for itself")
        written = bytes(end.value)
        if form in TEXT_FORMS:
            written = mark + (written.decode().encode(wide) if wide else written)
        document = TranslatedDocument(written)
        document.kept_characters = characters
        return document
    except RecursionError:
        raise InputError(f"{name}: nested too deeply") from None


def _translated(translator: Any, texts: Sequence[Marked], options: dict[str, Any]) -> tuple[list[Marked], int]:
    """(each text's translation, with its marks and the blanks around it; how many texts could not be translated).

    Texts without letters stay. An ICU message has its branches translated if it is the whole text, and stays within a
    sentence. If a translation loses or adds addresses, directives or the like, the pieces between its marks are
    translated one by one; if these do so too, the text stays.
    """
    if messages := {n: branches(text.text) for n, text in enumerate(texts) if MESSAGE.fullmatch(text.text)}:
        parts = [Marked(texts[n].text[start:end]) for n, spans in messages.items() for start, end in spans]
        sentences = [text for n, text in enumerate(texts) if n not in messages]
        answers, unchanged = _translated(translator, [*parts, *sentences], options)
        rest = iter(answers)
        written = {
            n: Marked(replaced(texts[n].text, [(*span, next(rest).text) for span in spans]))
            for n, spans in messages.items()
        }
        return [written[n] if n in written else next(rest) for n in range(len(texts))], unchanged
    stripped_texts = [stripped(text) for text in texts]
    cores = [with_kept(core) for _, core, _ in stripped_texts]
    lettered = [core for core in cores if _has_letters(core)]
    plain = _plainly(translator, (core.text for core in lettered if not core.marks), options)
    marked, unchanged = _with_marks(translator, [core for core in lettered if core.marks], options)
    answers = [
        Marked(plain.get(core.text, core.text)) if not core.marks else next(marked) if _has_letters(core) else core
        for core in cores
    ]
    return [
        text if answer == core else joined((Marked(before), answer, Marked(behind)))
        for text, (before, _, behind), core, answer in zip(texts, stripped_texts, cores, answers)
    ], unchanged


def _with_marks(translator: Any, texts: Sequence[Marked], options: dict[str, Any]) -> tuple[Iterator[Marked], int]:
    """(the translations of texts with marks; how many texts could not be translated)."""
    aligns = getattr(translator, "returns_attention", True)  # otherwise words are assumed to stay in order
    details = {"details": True} | ({"return_attention": True} if aligns else {})
    crowded = [is_crowded(text) for text in texts]
    uncrowded = [n for n in range(len(texts)) if not crowded[n]]
    answers = list(texts)
    for n, answer in zip(uncrowded, translator.translate_iter([texts[n].text for n in uncrowded], **options | details)):
        links = word_links(texts[n].text, answer) if aligns else ()
        answers[n] = project_marks(texts[n], _writable(texts[n].text, answer.text), links)
    good = (keeps(text, answer) and not repeats(text, answer) for text, answer in zip(texts, answers))
    wrong = [n for n, fits in enumerate(good) if crowded[n] or not fits]
    pieces = (text.strip() for n in wrong for kind, text, _ in texts[n].pieces() if kind == "text")
    of_pieces = _plainly(translator, filter(_has_letter, pieces), options) if wrong else {}
    unchanged = 0
    for n in wrong:
        answers[n] = _in_pieces(texts[n], of_pieces)
        if not keeps(texts[n], answers[n]):
            answers[n], unchanged = texts[n], unchanged + 1
    return iter(answers), unchanged


def _plainly(translator: Any, texts: Iterable[str], options: dict[str, Any]) -> dict[str, str]:
    different = list(dict.fromkeys(texts))
    answers = zip(different, translator.translate_iter(different, **options))
    return {text: _writable(text, answer) for text, answer in answers}


def _writable(text: str, translation: str) -> str:
    """A translation without control characters, lone surrogates, and line ends where its text has none."""
    if translation != text and "\n" not in text:
        translation = _LINE_ENDS.sub(" ", translation)
    return translation if translation == text else _FORBIDDEN.sub("\ufffd", translation)


def _in_pieces(marked: Marked, translated: Mapping[str, str]) -> Marked:
    """A text with the pieces between its marks translated one by one; blanks around them stay."""
    written, length = list[str](), 0
    places = {0: 0}  # position in the text -> position in the translation
    at = 0
    for kind, text, _ in marked.pieces():
        if kind in ("text", "kept"):
            core = text.strip()
            new = text.replace(core, translated.get(core, core), 1) if kind == "text" and core else text
            written.append(new)
            at, length = at + len(text), length + len(new)
            places[at] = length
    marks = (mark._replace(start=places[mark.start], end=places[mark.end]) for mark in marked.marks)
    return Marked("".join(written), tuple(marks))


def _has_letters(marked: Marked) -> bool:
    """Whether a text has letters and is not all kept."""
    stays = any(mark.keeps and mark.end - mark.start == len(marked.text) for mark in marked.marks)
    return not stays and _has_letter(marked.text)


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))
