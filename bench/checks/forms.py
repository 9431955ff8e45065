"""Real files of each form of documents: what the form's own library reads of a file and of its translation."""

import contextlib
import csv
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

from bench.checks import Absent, Data, Findings, check
from bench.checks.documents import DOCUMENT_PLACES, MOST_BYTES, Capitals, Unchanged, structure
from fastattn import translate_document
from fastattn.documents.forms import FIELD_FORMS, FORMS, form_of
from fastattn.errors import InputError

# What the folder documents/ of --data has copies of: public repositories with files of these forms.
REPOSITORIES = (
    "jgm/pandoc exceljs/exceljs svenfuchs/rails-i18n symfony/validator explosion/prodigy-recipes plastex/plastex "
    "wireservice/csvkit CoffeeStraw/PyonFX libass/libass readium/readium-test-files LoopKit/LoopKit flutter/gallery "
    "SimpleMobileTools/Simple-Calendar jenkinsci/git-plugin liamnichols/xcstrings-tool bids-standard/bids-examples "
    "explosion/projects asticode/go-astisub mantas-done/subtitles facebook/react-native django/django "
    "rxhanson/Rectangle w3c/epubcheck tkarabela/pysubs2 byroot/pysrt glut23/webvtt-py docutils/docutils "
    "jsvine/pdfplumber"
)
FEWEST, MOST = 10, 40  # files of a form
MOST_LOST = 0.002  # of a file's letters: such as stick to code, as in `close()`d
BILINGUAL = ("po", "xliff", "xcstrings")  # a translation stands beside its source
RESULTS = {"pdf": "html"}  # form -> that of its translation, if it is another
# Elements of runs, which a translation may join or add.
RUNS = ("r", "rPr", "t", "proofErr", "lastRenderedPageBreak")
W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
ODT_SPOKEN = "p h span a".split()
HTML_CODE = "script style pre code kbd samp var tt textarea title svg math noscript template".split()
# What stays of a file besides the texts that its library reads.
STAYING = {
    "rst": r"(?m)^\s*\.\. [\w:-]+::|``(?=\S)(?:[^`\n]|`(?!`))+(?<=\S)``+|(?<![`\w]):[\w:-]+:`[^`\n]+`"
    r"|^\s*:[\w-]+:(?=[ \t])",
    "tex": r"(?<!\\)\\[A-Za-z]+|(?<!\\)\$[^$\n]+\$",
    "rtf": r"(?<!\\)\\(?!u-?\d|uc1\b)[a-z]+-?\d*|\{\\\*",
    "ass": r"(?m)^Dialogue:(?:[^,\n]*,){9}|\{[^{}\n]*\}",
    "srt": r"[\d:.,]+ *--> *[\d:.,]+|<[^<>\n]*>",
    "properties": r"(?m)^\s*[#!].*$",
    "strings": r"(?s)/\*.*?\*/",
    "android": r"<[^<>?]+>",
}


@check(
    "documents-forms",
    f"{FEWEST} to {MOST} real files of each form: a translator that changes nothing leaves every byte, or the content "
    "of an archive; after one in capitals the form's own library opens the file and reads every text in capitals",
)
def documents_forms(findings: Findings, data: Data) -> None:
    if not (data.root / "documents").is_dir():
        raise Absent(f"documents/, copies of the repositories {REPOSITORIES}")
    few = list[str]()
    for form, paths in _paths_of_forms((data.root / "documents", *DOCUMENT_PLACES)).items():
        verdicts = list[tuple[Path, str]]()
        for path in paths[:: max(1, len(paths) // (2 * MOST))]:
            if len(verdicts) < MOST:
                with contextlib.suppress(NotOfForm):
                    verdicts.append((path, fault(path.read_bytes(), form)))
        faults = [f"{path.name}: {reason}" for path, reason in verdicts if reason]
        few += [f"{form} {len(verdicts)}"] if len(verdicts) < FEWEST else []
        findings.at_most(f"{form}: faults", len(faults), f"of {len(verdicts)} files{_list(faults[:5])}", 0)
    findings.at_most(f"forms of fewer than {FEWEST} files", len(few), ", ".join(few), 0)


class NotOfForm(Exception):
    """Raised for a file of which fastattn says that it is not of the form, or that its own library does not open."""


def _list(faults: list[str]) -> str:
    return "; " + ", ".join(faults) if faults else ""


def _paths_of_forms(places: Iterable[Path]) -> dict[str, list[Path]]:
    paths: dict[str, list[Path]] = {form: [] for form in FORMS if form != "txt"}
    for place in places:
        for path in sorted(place.rglob("*.*")):
            form = form_of(path)
            if form in paths and path.is_file() and not path.is_symlink() and 50 < path.stat().st_size < MOST_BYTES:
                paths[form].append(path)
    return paths


def fault(content: bytes, form: str) -> str:
    """What a translation does wrong to a file; "" if nothing."""
    try:
        content = PREPARATIONS.get(form, bytes)(content)
        options: dict[str, Any] = {"fields": _fields(content, form)} if form in FIELD_FORMS else {}
        options |= {"language": "eo"} if form == "xcstrings" else {}
        originals = list(READERS[form](content))
    except Exception as error:
        raise NotOfForm(str(error)) from error
    if not any(map(_small_letters, originals)):
        raise NotOfForm("no texts")
    try:
        unchanged = translate_document(Unchanged(), content, form, **options)
    except InputError as error:
        raise NotOfForm(str(error)) from error
    capitals = translate_document(Capitals(), content, form, **options)
    if form not in (*BILINGUAL, *RESULTS) and _content(unchanged, form) != _content(content, form):
        return "other bytes of an unchanged file"
    if _structure(capitals, form) != _structure(content, form):
        return "other structure"
    try:
        found = list(READERS[RESULTS.get(form, form)](capitals))
    except Exception as error:  # noqa: BLE001  libraries raise what they will
        return f"not opened: {error}"
    before, after = _letters(originals), _letters(found)
    most = MOST_LOST * before.total()
    if most < max((before - after).total(), (after - before).total()):
        return (
            f"lost {''.join((before - after).elements())[:60]!r}, added {''.join((after - before).elements())[:60]!r}"
        )
    left = {text: count for text in found if (count := _small_letters(text))}
    return f"untranslated: {len(left)} of {len(found)}, {min(left)[:60]!r}" if sum(left.values()) > most else ""


def _letters(texts: Iterable[str]) -> Counter[str]:
    """How often each letter and digit comes: marks may move a word."""
    return Counter(filter(str.isalnum, unescape("".join(texts)).upper()))


def _small_letters(text: str) -> int:
    """How many letters of a text are not in capitals, besides tags and code."""
    text = re.sub(r"(?s)<code>.*?</code>|<[^<>]*>|&\w+;", "", text)
    return sum(map(str.__ne__, text, next(Capitals().translate_iter([text]))))


def _content(content: bytes, form: str) -> object:
    from lxml import etree

    if form == "android":
        return etree.tostring(etree.fromstring(content), method="c14n")
    return _parts(content) if zipfile.is_zipfile(io.BytesIO(content)) else content


def _structure(content: bytes, form: str) -> object:
    """What a translation keeps of a file besides its texts."""
    if form in ("html", "md"):
        return structure(content, form)
    if form == "pdf":
        return len(list(_read_pdf(content))) if b"%PDF" in content[:1024] else content.count(b"<section>")
    if zipfile.is_zipfile(io.BytesIO(content)):
        return _parts(content, in_capitals=True)
    if form in ("json", "yaml"):
        import yaml

        return [_without_texts(value) for value in yaml.safe_load_all(content.decode("utf-8-sig"))]
    return Counter(re.findall(STAYING[form], content.decode("utf-8-sig", "replace"))) if form in STAYING else None


def _without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_texts(inner) for key, inner in value.items()}
    return [_without_texts(inner) for inner in value] if isinstance(value, list) else isinstance(value, str) or value


def _parts(content: bytes, in_capitals: bool = False) -> dict[str, object]:
    """Each part of an archive; of XML its canonical form, or the numbers of its elements, but for runs of text."""
    from lxml import etree

    parts: dict[str, object] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            parts[name] = archive.read(name)
            if name.endswith((".xml", ".rels", ".opf", ".ncx")) and parts[name]:
                root = etree.fromstring(archive.read(name))
                for element in root.iter("{*}rPr") if in_capitals else ():
                    element.clear()
                names = Counter(element.tag for element in root.iter(etree.Element))
                names = Counter({key: count for key, count in names.items() if key.partition("}")[2] not in RUNS})
                parts[name] = names if in_capitals else etree.tostring(root, method="c14n")
            elif in_capitals and name.endswith((".xhtml", ".html", ".htm")):
                parts[name] = structure(archive.read(name), "html")
    return parts


def _fields(content: bytes, form: str) -> list[str]:
    """The names of the fields with words in them."""
    records = list(_records(content, form))
    names = dict.fromkeys(key for record in records for key, value in record.items() if isinstance(value, str))
    return [key for key in names if key and "." not in key]


def _records(content: bytes, form: str) -> Iterator[dict[str, Any]]:
    text = content.decode("utf-8-sig")
    if form == "jsonl":
        yield from (json.loads(line) for line in text.splitlines() if line.strip())
    else:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter={"csv": ",", "tsv": "\t"}[form], strict=True)
        for row in reader:
            assert None not in row and None not in row.values()
            yield row


def _read_records(form: str) -> Callable[[bytes], Iterator[str]]:
    def read(content: bytes) -> Iterator[str]:
        for record in _records(content, form):
            yield from (value for key, value in record.items() if isinstance(value, str) and key and "." not in key)

    return read


def _read_pdf(content: bytes) -> Iterator[str]:
    import pypdfium2

    with pypdfium2.PdfDocument(content) as document:
        document.init_forms()
        yield from (page.get_textpage().get_text_range() for page in document)


def _read_docx(content: bytes) -> Iterator[str]:
    from docx import Document
    from docx.text.paragraph import Paragraph

    document = Document(io.BytesIO(content))
    for element in document.element.body.iter(W + "p"):
        yield Paragraph(element, document).text  # type: ignore[arg-type]


def _read_odt(content: bytes) -> Iterator[str]:
    from odf.opendocument import load

    def texts(element: Any) -> Iterator[str]:
        for child in element.childNodes:
            if child.nodeType == child.TEXT_NODE:
                yield str(child) if element.qname[1] in ODT_SPOKEN else ""
            elif child.qname[1] not in ("annotation", "index-body"):
                yield from texts(child)

    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield from texts(load(io.BytesIO(content)).body)


def _read_pptx(content: bytes) -> Iterator[str]:
    from pptx import Presentation

    def texts(shapes: Any) -> Iterator[str]:
        for shape in shapes:
            if shape.shape_type == 6:  # a group
                yield from texts(shape.shapes)
            elif shape.has_text_frame:
                yield from (paragraph.text for paragraph in shape.text_frame.paragraphs)
            elif shape.has_table:
                yield from (cell.text for row in shape.table.rows for cell in row.cells)

    for slide in Presentation(io.BytesIO(content)).slides:
        yield from texts(slide.shapes)
        if slide.has_notes_slide:
            yield from texts(slide.notes_slide.shapes)


def _read_xlsx(content: bytes) -> Iterator[str]:
    from openpyxl import load_workbook

    for sheet in load_workbook(io.BytesIO(content)).worksheets:
        heads = {cell.coordinate for table in sheet.tables.values() for cell in sheet[table.ref][0]}
        for table in sheet.tables.values():
            assert [str(cell.value) for cell in sheet[table.ref][0]] == list(table.column_names), "heads of a table"
        for row in sheet.iter_rows():
            cells = (cell for cell in row if cell.data_type == "s" and cell.coordinate not in heads)
            # openpyxl shows the address of a link in an empty cell.
            yield from (cell.value for cell in cells if not cell.hyperlink or cell.value != cell.hyperlink.target)


def _read_epub(content: bytes) -> Iterator[str]:
    import ebooklib
    from ebooklib import epub

    for item in epub.read_epub(io.BytesIO(content)).get_items_of_type(ebooklib.ITEM_DOCUMENT):
        yield from _read_html(item.content)


def _read_html(content: bytes) -> Iterator[str]:
    from lxml import html

    parser = html.HTMLParser(encoding=None if b"charset" in content[:2000] else "utf-8")
    for element in html.document_fromstring(content, parser=parser).body.iter():
        stays = any(
            part.tag in HTML_CODE or part.get("translate") == "no" or "notranslate" in part.get("class", "").split()
            for part in (element, *element.iterancestors())
        )
        if isinstance(element.tag, str) and not stays:
            yield from filter(None, [element.text, *(child.tail for child in element)])


def _read_md(content: bytes) -> Iterator[str]:
    from markdown_it import MarkdownIt

    text = re.sub(r"\A---\n.*?\n---\n", "", content.decode("utf-8-sig"), flags=re.DOTALL)
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    for token in tokens:
        children = token.children or []
        links = [child for child in children if child.info == "auto" and child.attrs]
        assert all(re.match("https?:|mailto:", str(link.attrGet("href"))) for link in links), "tags of XML"
        bare = {id(child) for before, child in zip(children, children[1:]) if before.info == "auto"}  # <https://...>
        text = "".join(child.content if child.type == "text" and id(child) not in bare else " " for child in children)
        yield re.sub(r"^\[!\w+\]", "", text)


def _read_rst(content: bytes) -> Iterator[str]:
    from docutils import nodes
    from docutils.core import publish_doctree

    assert not re.search(rb"[`*]\\\s", content), "markup within words, which is not translated as such yet"
    settings = {"report_level": 5, "halt_level": 6, "file_insertion_enabled": False, "raw_enabled": False}
    tree = publish_doctree(content.decode("utf-8-sig"), settings_overrides=settings)
    kept = (nodes.literal, nodes.literal_block, nodes.comment, nodes.math, nodes.math_block, nodes.system_message)
    kept += (nodes.substitution_definition, nodes.doctest_block, nodes.table, nodes.problematic, nodes.title_reference)
    kept += (
        nodes.topic,
        nodes.target,
        nodes.field_name,
        nodes.option_list,
        nodes.reference,
        nodes.footnote_reference,
        nodes.citation_reference,
        nodes.label,
        nodes.docinfo,
    )
    roles = re.findall(r"(?::[\w-]+:`|(?<!`)`(?=[^`]+`:[\w-]+:))([^`]+)`", content.decode("utf-8-sig"))
    names = {" ".join(role.lower().split()) for role in roles} | {
        definition.astext().lower() for definition in tree.findall(nodes.substitution_definition)
    }
    for text in tree.findall(nodes.Text):
        parent = text.parent
        while parent is not None and not isinstance(parent, kept):
            parent = parent.parent
        if parent is None and " ".join(text.lower().split()) not in names:
            yield re.sub(r"(?m)^\.\. .*$", "", text)


def _read_tex(content: bytes) -> Iterator[str]:
    from pylatexenc.latexwalker import LatexCharsNode, LatexEnvironmentNode, LatexGroupNode, LatexMacroNode, LatexWalker

    def texts(nodes: Iterable[Any]) -> Iterator[str]:
        last = None
        for node in nodes:
            is_behind = isinstance(last, LatexMacroNode)
            is_argument = isinstance(last, (LatexMacroNode, LatexGroupNode)) and isinstance(node, LatexGroupNode)
            if isinstance(node, LatexCharsNode):
                yield re.sub(r"\A\s*\[[^\[\]]*\]|\A[\w\]]*\[\w*\]", "", node.chars) if is_behind else node.chars
            elif (
                isinstance(node, LatexGroupNode)
                and not is_argument
                or (isinstance(node, LatexEnvironmentNode) and node.environmentname in ("document", "quote", "itemize"))
            ):
                yield from texts(node.nodelist)
            last = last if isinstance(node, LatexCharsNode) and re.fullmatch(r"\[[^\[\]]*\]", node.chars) else node

    unread = r"\\@namedef\{[^{}]*\}|\\csname\s\w+|\\begin\{verbatim\}(?s:.*?)\\end\{verbatim\}"
    text = re.sub(unread, "", content.decode("utf-8-sig"))
    yield from texts(LatexWalker(text[max(0, text.find(r"\begin{document}")) :]).get_latex_nodes()[0])


def _read_rtf(content: bytes) -> Iterator[str]:
    from striprtf.striprtf import rtf_to_text

    for line in rtf_to_text(content.decode("latin-1")).splitlines():
        yield re.sub(r"^\t?\w{1,4}[.)]?\t|\(\"[^\"]*\"\)", "", line)  # the sign of an item, the address of a link


def _read_ass(content: bytes) -> Iterator[str]:
    import pysubs2

    for event in pysubs2.SSAFile.from_string(content.decode("utf-8-sig")):
        if not event.is_comment and not event.is_drawing:
            yield event.plaintext


def _read_srt(content: bytes) -> Iterator[str]:
    import srt
    import webvtt

    text = content.decode("utf-8-sig")
    if text.startswith("WEBVTT"):
        yield from (caption.raw_text for caption in webvtt.from_string(text))
    else:
        contents = [subtitle.content for subtitle in srt.parse(text)]
        assert len(contents) == len(re.findall(r"\d\d:\d\d[.,]\d+ *--> *[\d:]+[.,]\d+", text)), "invalid times"
        assert not any("\n\n" in content for content in contents), "lines between the cues"
        yield from (re.sub(r"\{[^{}]*\}", "", content) for content in contents)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (text for key, inner in value.items() if not str(key).startswith("@") for text in _leaves(inner))
    elif isinstance(value, list):
        yield from (text for inner in value for text in _leaves(inner))
    elif isinstance(value, str):
        yield value


def _read_yaml(content: bytes) -> Iterator[str]:
    import yaml

    for document in yaml.safe_load_all(content.decode("utf-8-sig")):
        yield from _leaves(document)


def _read_properties(content: bytes) -> Iterator[str]:
    import javaproperties

    yield from javaproperties.loads(content.decode("latin-1")).values()


def _read_strings(content: bytes) -> Iterator[str]:
    from openstep_parser import OpenStepDecoder

    charset = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    yield from _leaves(OpenStepDecoder.ParseFromString("{" + content.decode(charset) + "}"))


def _read_xcstrings(content: bytes) -> Iterator[str]:
    catalog = json.loads(content)
    for key, entry in catalog["strings"].items():
        localizations = entry.get("localizations", {})
        if entry.get("shouldTranslate", True):
            original = localizations.get(catalog["sourceLanguage"], {"stringUnit": {"value": key}})
            units = json.dumps(localizations.get("eo", original))
            yield from (json.loads(value) for value in re.findall(r'"value": ("(?:[^"\\]|\\.)*")', units))


def _read_android(content: bytes) -> Iterator[str]:
    from lxml import etree

    for element in etree.fromstring(content).iter("string", "item"):
        if element.get("translatable") != "false" and not (element.text or "").startswith("@"):
            texts = filter(None, (element.text, *(child.tail for child in element)))
            yield from (re.sub(r"\\[nt]", " ", text) for text in texts)


def _read_po(content: bytes) -> Iterator[str]:
    import polib

    for entry in polib.pofile(content.decode()):
        yield entry.msgstr or max(entry.msgstr_plural.items(), default=(0, ""))[1] or entry.msgid_plural or entry.msgid


def _untranslated_po(content: bytes) -> bytes:
    import polib

    catalog = polib.pofile(content.decode())
    for entry in catalog:
        entry.msgstr, entry.flags = "", []
        entry.msgstr_plural = dict.fromkeys(entry.msgstr_plural, "")
    return str(catalog).encode()


def _read_xliff(content: bytes) -> Iterator[str]:
    from lxml import etree

    for unit in etree.fromstring(content).iter("{*}trans-unit", "{*}segment"):
        element = unit.find("{*}target")
        yield "".join((unit.find("{*}source") if element is None else element).itertext())


def _untranslated_xliff(content: bytes) -> bytes:
    return re.sub(rb"(?s)<target\b.*?(?:</target>|/>)", b"", content)


PREPARATIONS: dict[str, Callable[[bytes], bytes]] = {"po": _untranslated_po, "xliff": _untranslated_xliff}
READERS: dict[str, Callable[[bytes], Iterator[str]]] = {
    "html": _read_html, "md": _read_md, "rst": _read_rst, "tex": _read_tex, "rtf": _read_rtf, "srt": _read_srt,
    "ass": _read_ass, "docx": _read_docx, "odt": _read_odt, "pptx": _read_pptx, "xlsx": _read_xlsx,
    "epub": _read_epub, "csv": _read_records("csv"), "tsv": _read_records("tsv"), "jsonl": _read_records("jsonl"),
    "po": _read_po, "xliff": _read_xliff, "json": lambda content: _leaves(json.loads(content)), "yaml": _read_yaml,
    "properties": _read_properties, "strings": _read_strings, "xcstrings": _read_xcstrings, "android": _read_android,
    "pdf": _read_pdf,
}  # fmt: skip
