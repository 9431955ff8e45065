"""Translation of documents of all forms."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fastattn.documents.catalogs import translate_po, translate_xliff
from fastattn.documents.forms import EXTRAS, FIELD_FORMS, FORMS, TEXT_FORMS
from fastattn.documents.html import translate_html
from fastattn.documents.latex import translate_latex
from fastattn.documents.markdown import translate_markdown
from fastattn.documents.marks import (
    Marked,
    count_kept_characters,
    is_crowded,
    join_marked,
    keep_matches,
    keeps_invariants,
    project_marks,
    repeats_names_or_moves_marks,
    split_blanks,
)
from fastattn.documents.office import translate_docx, translate_epub, translate_odt
from fastattn.documents.pdf import translate_pdf
from fastattn.documents.resources import (
    translate_android,
    translate_json,
    translate_properties,
    translate_string_catalog,
    translate_strings,
    translate_yaml,
)
from fastattn.documents.rst import translate_rst
from fastattn.documents.rtf import translate_rtf
from fastattn.documents.runs import translate_pptx, translate_xlsx
from fastattn.documents.subtitles import translate_ass, translate_subtitles
from fastattn.documents.tables import translate_json_lines, translate_table
from fastattn.documents.tagged import XmlRules, translate_xml
from fastattn.documents.texts import DocumentPlan, apply_edits, decode_text, lines_of
from fastattn.errors import InputError, check_known, warn
from fastattn.printable import counted
from fastattn.system.files import BYTE_ORDER_MARK
from fastattn.text.invariants import ICU_MESSAGE, branch_spans
from fastattn.text.languages import iso_code
from fastattn.translation.alignment import word_links


def translate_text(data: bytes, name: str) -> DocumentPlan:
    """Translate plain text line by line; line ends and blanks around lines stay."""
    answers = yield [Marked(line) for line in lines_of(decode_text(data, name))]
    return "".join(answer.text for answer in answers).encode()


# Byte order mark -> its encoding, "" for UTF-8.
_BYTE_ORDER_MARKS = {BYTE_ORDER_MARK: "", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
REVIEWED_FORMS = frozenset(("po", "xliff", "xcstrings"))
LANGUAGE_FORMS = frozenset(("html", "epub", "pdf", "json", "yaml", "xcstrings"))
_FORBIDDEN_CHARACTERS = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_LINE_ENDS = re.compile(r"[ \t]*[\n\r\x85\u2028\u2029]\s*")
_TRANSLATE_FUNCTIONS: dict[str, Callable[..., DocumentPlan]] = {
    "txt": translate_text,
    "html": translate_html,
    "md": translate_markdown,
    "srt": translate_subtitles,
    "po": translate_po,
    "xliff": translate_xliff,
    "docx": translate_docx,
    "odt": translate_odt,
    "pptx": translate_pptx,
    "xlsx": translate_xlsx,
    "epub": translate_epub,
    "pdf": translate_pdf,
    "rst": translate_rst,
    "tex": translate_latex,
    "rtf": translate_rtf,
    "ass": translate_ass,
    "json": translate_json,
    "yaml": translate_yaml,
    "properties": translate_properties,
    "strings": translate_strings,
    "xcstrings": translate_string_catalog,
    "android": translate_android,
    "csv": partial(translate_table, delimiter=","),
    "tsv": partial(translate_table, delimiter="\t"),
    "jsonl": translate_json_lines,
    "xml": translate_xml,
}


class TranslatedDocument(bytes):
    """A document's translation."""

    kept_characters = 0  # untranslated characters of the document, such as code, without blanks


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
    mark_fuzzy: bool = False,
    **options: Any,
) -> TranslatedDocument:
    """Translate the texts of a document; everything else stays as it was.

    translator  a Translator, or an object with ``translate_iter`` as a Translator has it
    form        one of FORMS: "html", "md", "srt" (WebVTT too), "po", "xliff", "docx", "odt", "epub", "pdf" (its
                translation is HTML), "csv", "tsv", "jsonl", "txt", or "xml"
    name        of the document, for errors
    fields      the fields to translate of a table or of records
    extras      more to translate: "comments" of docx and odt, "front-matter" (title and description) of md
    language    of the translation, written at the root of pages and books; None: ``target_lang`` of options, if any
    rules       which tags end a sentence in "xml", a text with tags
    mark_fuzzy  whether translations in a catalog (po, xliff, xcstrings) are marked as to be reviewed
    options     of ``Translator.translate``, without details

    Tags and other marks move with their words, by the model's alignment; addresses, code, format directives and emoji
    stay. Raises InputError for data that is damaged or of another form, FastattnError if the form's library is missing
    (``fastattn[documents]``).
    """
    check_known("form of document", form, (*FORMS, "xml"))
    if bool(fields) != (form in FIELD_FORMS):
        raise InputError(f"{name}: {'name the fields to translate' if not fields else f'{form} has no fields'}")
    for extra in extras:
        check_known("extra", extra, EXTRAS)
    bom, encoding = next((pair for pair in _BYTE_ORDER_MARKS.items() if data.startswith(pair[0])), (b"", ""))
    content = data[len(bom) :]
    if encoding and form in TEXT_FORMS:
        content = decode_text(content, name, encoding).encode()
    arguments: dict[str, Any] = {"fields": fields} if fields else {}
    arguments |= {"extras": extras} if form in ("md", "docx", "odt") else {}
    language = language or options.get("target_lang")
    arguments |= {"language": iso_code(language)} if isinstance(language, str) and form in LANGUAGE_FORMS else {}
    arguments |= {"charset": "utf-8"} if bom and form in ("html", "tex") else {}
    arguments |= {"rules": rules} if rules is not None else {}
    arguments |= {"fuzzy": True} if mark_fuzzy and form in REVIEWED_FORMS else {}
    plan = _TRANSLATE_FUNCTIONS[form](content if form in TEXT_FORMS else data, name, **arguments)
    kept_count = failures = 0
    try:
        texts = next(plan)
        while True:
            kept_count += sum(map(count_kept_characters, texts))
            answers, count = _translate_texts(translator, texts, options)
            failures += count
            texts = plan.send(answers)
    except StopIteration as stop:
        if failures:
            warn(f"{name}: {counted(failures, 'text')} left untranslated: no translation keeps what stands for itself")
        output = bytes(stop.value)
        if form in TEXT_FORMS:
            output = bom + (output.decode().encode(encoding) if encoding else output)
        document = TranslatedDocument(output)
        document.kept_characters = kept_count
        return document
    except RecursionError:
        raise InputError(f"{name}: nested too deeply") from None


def _translate_texts(translator: Any, texts: Sequence[Marked], options: dict[str, Any]) -> tuple[list[Marked], int]:
    """(each text's translation, with its marks and the blanks around it; how many texts could not be translated).

    Texts without letters stay. If an ICU message is the whole text, its branches are translated; a message within a
    sentence stays. If a translation loses or adds invariants, such as addresses, the pieces between the text's marks
    are translated one by one; if that loses or adds invariants too, the text stays.
    """
    if messages := {n: branch_spans(text.text) for n, text in enumerate(texts) if ICU_MESSAGE.fullmatch(text.text)}:
        branch_texts = [Marked(texts[n].text[start:end]) for n, spans in messages.items() for start, end in spans]
        other_texts = [text for n, text in enumerate(texts) if n not in messages]
        answers, failures = _translate_texts(translator, [*branch_texts, *other_texts], options)
        answer_iterator = iter(answers)
        message_answers = {
            n: Marked(apply_edits(texts[n].text, [(*span, next(answer_iterator).text) for span in spans]))
            for n, spans in messages.items()
        }
        return [message_answers[n] if n in messages else next(answer_iterator) for n in range(len(texts))], failures
    split_texts = [split_blanks(text) for text in texts]
    cores = [keep_matches(core) for _, core, _ in split_texts]
    lettered_cores = [core for core in cores if _has_letters(core)]
    plain = _translate_plain(translator, (core.text for core in lettered_cores if not core.marks), options)
    marked, failures = _translate_marks(translator, [core for core in lettered_cores if core.marks], options)
    answers = [
        Marked(plain.get(core.text, core.text)) if not core.marks else next(marked) if _has_letters(core) else core
        for core in cores
    ]
    return [
        text if answer == core else join_marked((Marked(before), answer, Marked(behind)))
        for text, (before, _, behind), core, answer in zip(texts, split_texts, cores, answers)
    ], failures


def _translate_marks(translator: Any, texts: Sequence[Marked], options: dict[str, Any]) -> tuple[Iterator[Marked], int]:
    """(the translations of texts with marks; how many of these texts could not be translated)."""
    aligns = getattr(translator, "returns_attention", True)  # if not, words are assumed to stay in order
    details = {"details": True} | ({"return_attention": True} if aligns else {})
    crowded = [is_crowded(text) for text in texts]
    uncrowded = [n for n in range(len(texts)) if not crowded[n]]
    answers = list(texts)
    for n, answer in zip(uncrowded, translator.translate_iter([texts[n].text for n in uncrowded], **options | details)):
        links = word_links(texts[n].text, answer) if aligns else ()
        answers[n] = project_marks(texts[n], _clean_translation(texts[n].text, answer.text), links)
    faithful = [keeps_invariants(*pair) and not repeats_names_or_moves_marks(*pair) for pair in zip(texts, answers)]
    to_split = [n for n in range(len(texts)) if crowded[n] or not faithful[n]]
    pieces = (text.strip() for n in to_split for kind, text, _ in texts[n].pieces() if kind == "text")
    pieces = (piece for piece in pieces if any(map(str.isalpha, piece)))
    piece_answers = _translate_plain(translator, pieces, options) if to_split else {}
    failures = 0
    for n in to_split:
        answers[n] = _with_piece_answers(texts[n], piece_answers)
        if not keeps_invariants(texts[n], answers[n]):
            answers[n], failures = texts[n], failures + 1
    return iter(answers), failures


def _translate_plain(translator: Any, texts: Iterable[str], options: dict[str, Any]) -> dict[str, str]:
    """Text -> its translation, for texts without marks."""
    distinct_texts = list(dict.fromkeys(texts))
    answers = zip(distinct_texts, translator.translate_iter(distinct_texts, **options))
    return {text: _clean_translation(text, answer) for text, answer in answers}


def _clean_translation(text: str, translation: str) -> str:
    """A translation without control characters and lone surrogates, and without line ends if its text has none."""
    if translation != text and "\n" not in text:
        translation = _LINE_ENDS.sub(" ", translation)
    return translation if translation == text else _FORBIDDEN_CHARACTERS.sub("\ufffd", translation)


def _with_piece_answers(marked: Marked, answers: Mapping[str, str]) -> Marked:
    """A text with the pieces between its marks replaced by their ``answers``; the blanks around each piece stay."""
    pieces, position, length = list[str](), 0, 0
    positions = {0: 0}  # position in the text -> position in the translation
    for kind, text, _ in marked.pieces():
        if kind in ("text", "kept"):
            core = text.strip()
            answer = text.replace(core, answers.get(core, core), 1) if kind == "text" and core else text
            pieces.append(answer)
            position, length = position + len(text), length + len(answer)
            positions[position] = length
    marks = (mark._replace(start=positions[mark.start], end=positions[mark.end]) for mark in marked.marks)
    return Marked("".join(pieces), tuple(marks))


def _has_letters(marked: Marked) -> bool:
    """Whether a text has letters, and no mark keeps the whole text."""
    is_kept = any(mark.keeps and mark.end - mark.start == len(marked.text) for mark in marked.marks)
    return not is_kept and any(map(str.isalpha, marked.text))
