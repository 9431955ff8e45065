"""Documents of real life and of each form's own library: structure, speed, and how surely languages are found."""

import csv
import io
import json
import random
import re
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.checks import Data, Findings, check, need
from bench.timing import alternate
from fastattn import Translator, translate_document
from fastattn.documents.forms import form_of
from fastattn.documents.html import READ, SourceTokens
from fastattn.errors import InputError
from fastattn.text.invariants import INVARIANT
from fastattn.text.languages import likely_languages
from fastattn.translation.calls import Translation

PAGES, LARGEST = 10, 150_000  # bytes of a page
PLACES = (Path("/usr/share/doc"), Path(sysconfig.get_path("stdlib")), Path("/usr/lib/node_modules"))
SHARE = 0.9  # of the speed of lines


@check(
    "documents-html",
    f"{PAGES} pages of documentation on this machine, en-pt: html5lib finds the same elements with the same parents in "
    "the translation",
)
def pages(findings: Findings, data: Data) -> None:
    need("html5lib")
    found = dict[str, Path]()
    for place in PLACES:
        for path in sorted(place.rglob("*.html")):
            if 5000 < path.stat().st_size < LARGEST and not path.is_symlink():
                found.setdefault("/".join(path.parts[:6]), path)
    with Translator("en-pt") as translator:
        for path in list(found.values())[:PAGES]:
            before = path.read_bytes()
            start = time.perf_counter()
            after = translate_document(translator, before, "html", name=str(path))
            seconds = time.perf_counter() - start
            elements = _elements(before)
            same = sum((elements & _elements(after)).values())
            findings.at_least(
                path.name, same / elements.total(), f"of {elements.total()} elements", 1.0, f"{seconds:.1f} s"
            )
            findings.at_most("more", _elements(after).total() - elements.total(), "", 0)
    findings.at_least("pages", len(found), "", PAGES)


def _elements(page: bytes) -> Counter[tuple[str, ...]]:
    import html5lib

    counts: Counter[tuple[str, ...]] = Counter()

    def count(element: object, path: tuple[str, ...]) -> None:
        path = (*path, str(element.tag))  # type: ignore[attr-defined]
        counts[path] += 1
        for child in element:  # type: ignore[attr-defined]
            count(child, path)

    count(html5lib.parse(page, namespaceHTMLElements=False), ())
    return counts


@check(
    "documents-speed",
    f"500 sentences of FLORES, en-pt: as paragraphs of HTML, plain and with a tag in each, at least {SHARE} of the "
    "speed of lines",
)
def speed(findings: Findings, data: Data) -> None:
    texts = data.flores("en")[:500]
    plain = "".join(f"<p>{text}</p>\n" for text in texts).encode()
    tagged = "".join(f"<p>{' '.join(['<b>' + text.split()[0] + '</b>', *text.split()[1:]])}</p>\n" for text in texts)
    with Translator("en-pt") as translator:
        times = alternate(
            {
                "lines": lambda: list(translator.translate_iter(texts)),
                "paragraphs": lambda: translate_document(translator, plain, "html"),
                "tags": lambda: translate_document(translator, tagged.encode(), "html"),
            },
            rounds=7,
            seconds=90.0,
        )
    for name in ("paragraphs", "tags"):
        findings.at_least(name, times["lines"] / times[name], "of the speed of lines", SHARE, f"{times[name]:.2f} s")


@check("detection", "the language of each sentence of FLORES dev, en, pt and zh, among a hundred: at least 95% right")
def detection(findings: Findings, data: Data) -> None:
    for language in ("en", "pt", "zh"):
        texts = data.flores(language)
        found = [likely_languages(text, most=1)[0] for text in texts]
        right = sum(code.partition("-")[0] == language for code, _ in found)
        sure = [code.partition("-")[0] == language for code, share in found if share >= 0.8]
        remark = f"{len(sure)} sure, of which {len(sure) - sum(sure)} wrong"
        findings.at_least(f"{language}:", 100 * right / len(texts), "%", 95.0, remark)


FILES, PARAGRAPHS = 10, 8
Made = tuple[bytes, Callable[[bytes], object], tuple[str, ...]]  # a document, what its form should keep, its fields


def docx(texts: list[str], rng: random.Random) -> Made:
    import docx as library

    made = library.Document()
    made.add_heading(texts[0], rng.randint(1, 3))
    for text in texts[1:]:
        paragraph, words = made.add_paragraph(style=rng.choice(["Normal", "List Bullet", "Quote"])), text.split()
        paragraph.add_run(words[0])
        paragraph.add_run(" " + " ".join(words[1:4])).bold = True
        paragraph.add_run(" " + " ".join(words[4:]))
    csv_table = made.add_table(2, 2)
    for cell, text in zip((cell for row in csv_table.rows for cell in row.cells), texts):
        cell.text = text
    written = io.BytesIO()
    made.save(written)

    def form(data: bytes) -> object:
        read = library.Document(io.BytesIO(data))
        bold = [any(run.bold and run.text.strip() for run in one.runs) for one in read.paragraphs]
        return (
            [one.style.name for one in read.paragraphs],
            bold,
            [[len(row.cells) for row in t.rows] for t in read.tables],
        )

    return written.getvalue(), form, ()


def odt(texts: list[str], rng: random.Random) -> Made:
    from odf import opendocument, text

    made = opendocument.OpenDocumentText()
    for one in texts:
        words, paragraph = one.split(), text.P()
        paragraph.addText(words[0] + " ")
        paragraph.addElement(text.Span(text=words[1]))
        paragraph.addText(" " + " ".join(words[2:]))
        made.text.addElement(paragraph)
    written = io.BytesIO()
    made.write(written)

    def form(data: bytes) -> object:
        read = opendocument.load(io.BytesIO(data))
        return [len(one.getElementsByType(text.Span)) for one in read.getElementsByType(text.P)]

    return written.getvalue(), form, ()


def po(texts: list[str], rng: random.Random) -> Made:
    import polib

    made = polib.POFile()
    made.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    for number, one in enumerate(texts):
        made.append(
            polib.POEntry(msgid=f"{one} %s", occurrences=[("a.c", str(number))], flags=["c-format"], comment="c")
        )

    def form(data: bytes) -> object:
        read = polib.pofile(data.decode() + "\n")
        kept = all("%s" in one.msgstr for one in read if one.msgstr)
        return [(one.msgid, one.occurrences, one.flags, one.comment) for one in read], kept

    return str(made).encode(), form, ()


def srt(texts: list[str], rng: random.Random) -> Made:
    from datetime import timedelta

    import srt as library

    cues = [
        library.Subtitle(n, timedelta(seconds=3 * n), timedelta(seconds=3 * n + 2), part)
        for n, part in enumerate((part for one in texts for part in (one[:40], one[40:]) if part.strip()), 1)
    ]

    def form(data: bytes) -> object:
        return [(one.index, one.start, one.end) for one in library.parse(data.decode())]

    return library.compose(cues).encode(), form, ()


def csv_table(texts: list[str], rng: random.Random) -> Made:
    written = io.StringIO()
    csv.writer(written).writerows([["id", "text"], *([str(n), f'{one} "{n}",\n{n}'] for n, one in enumerate(texts))])

    def form(data: bytes) -> object:
        rows = list(csv.reader(io.StringIO(data.decode())))
        return [(row[0], len(row), row[1].count("\n")) for row in rows]

    return written.getvalue().encode(), form, ("text",)


def records(texts: list[str], rng: random.Random) -> Made:
    made = "".join(json.dumps({"id": n, "a": {"text": one}}) + "\n" for n, one in enumerate(texts))

    def form(data: bytes) -> object:
        return [(one["id"], list(one), list(one["a"])) for one in map(json.loads, data.decode().splitlines())]

    return made.encode(), form, ("a.text",)


def markdown(texts: list[str], rng: random.Random) -> Made:
    from markdown_it import MarkdownIt

    forms = ("# {}", "- {}", "> {}", "1. {}", "**{}**", "{} [link](x.html) `code`", "| a | b |\n|---|---|\n| {} | x |")
    made = "\n\n".join(rng.choice(forms).format(one) for one in texts) + "\n\n```\nkeep = 1\n```\n"

    def form(data: bytes) -> object:
        tokens = MarkdownIt("commonmark").enable("table").parse(data.decode())
        return [(one.type, one.map, sorted(c.type for c in one.children or () if c.type != "text")) for one in tokens]

    return made.encode(), form, ()


def epub(texts: list[str], rng: random.Random) -> Made:
    from ebooklib import epub as library

    made = library.EpubBook()
    made.set_title("A book")
    pages = [library.EpubHtml(title=f"Page {n}", file_name=f"{n}.xhtml", lang="en") for n in range(2)]
    for page, part in zip(pages, (texts[:4], texts[4:])):
        page.content = "".join(f"<p>{one.split()[0]} <b>{' '.join(one.split()[1:3])}</b> end.</p>" for one in part)
        made.add_item(page)
    made.toc, made.spine = tuple(pages), ["nav", *pages]
    made.add_item(library.EpubNcx())
    made.add_item(library.EpubNav())
    written = io.BytesIO()
    library.write_epub(written, made)

    def form(data: bytes) -> object:
        read = library.read_epub(io.BytesIO(data))
        return [
            (one.file_name, one.get_content().count(b"<b>")) for one in read.get_items() if "xhtml" in one.file_name
        ]

    return written.getvalue(), form, ()


WRITERS = {
    "docx": docx,
    "odt": odt,
    "po": po,
    "srt": srt,
    "csv": csv_table,
    "jsonl": records,
    "md": markdown,
    "epub": epub,
}


@check(
    "documents-forms",
    f"{FILES} documents of each form, made by python-docx, odfpy, polib, srt, csv, json, markdown-it and ebooklib: "
    "each reads its translation, whose form is what it was",
)
def forms(findings: Findings, data: Data) -> None:
    need("docx", "odf", "polib", "srt", "markdown_it", "ebooklib")
    texts = [one.strip() for one in data.flores("en") if not {"`", "*"} & {*one}]
    with Translator("en-pt") as translator:
        for name, make in WRITERS.items():
            same = changed = 0
            for number in range(FILES):
                rng = random.Random(f"{name} {number}")
                before, form, fields = make(rng.sample(texts, PARAGRAPHS), rng)
                after = translate_document(translator, before, name, fields=fields)
                same += form(before) == form(after)
                changed += before != after
            findings.at_least(name, min(same, changed), f"of {FILES}", FILES)


DOCUMENTS, BY_MODEL, MOST_BYTES, SHORT = 200, 40, 150_000, 6_000  # bytes of a document, and of one for the model
DOCUMENT_PLACES = (Path("/usr/share/doc"), Path("/usr/lib/node_modules"), Path(sysconfig.get_path("purelib")))
FORMS = ("html", "md", "srt", "po", "xliff")
# What these tags have is read; a text of an attribute that is, too.
SPOKEN = frozenset(("meta", "option", "optgroup", "track", "input", "button"))


class Capitals:
    """Writes words in capitals, and what stands for itself as it is."""

    returns_attention = False

    def translate_iter(self, texts: Iterable[str], *, details: bool = False, **options: Any) -> Iterator[Any]:
        for text in texts:
            places = [0, *(place for match in INVARIANT.finditer(text) for place in match.span()), len(text)]
            parts = [text[start:end] for start, end in zip(places, places[1:])]
            said = "".join(part if number % 2 else part.upper() for number, part in enumerate(parts))
            yield Translation(said, [said], [0.0], []) if details else said


def structure(data: bytes, form: str) -> object:
    text = data.decode("utf-8", "replace")
    if form == "html":
        return Counter(
            (token.kind, token.name, *sorted(one for one in token.attributes.items() if one[0] not in READ))
            for token in SourceTokens(text).tokens
            if token.kind in ("open", "close", "alone") and token.name not in SPOKEN
        )
    if form == "md":
        from markdown_it import MarkdownIt

        tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
        inner = [child for token in tokens for child in token.children or ()]
        links = Counter(child.attrGet("href") or child.attrGet("src") for child in inner if child.attrs)
        return [token.type for token in tokens], links, sum(child.type == "code_inline" for child in inner)
    return re.findall(r"(?m)^.*-->.*$|^msgid.*$|^#.*$|id=\"[^\"]*\"", text)


def own_documents() -> list[Path]:
    """Documents of this machine, as many of each form as there are, at most the same number of each."""
    by_form: dict[str, list[Path]] = {form: [] for form in FORMS}
    for place in DOCUMENT_PLACES:
        for path in sorted(place.rglob("*.*")):
            form = form_of(path)
            if form in by_form and path.is_file() and not path.is_symlink() and 500 < path.stat().st_size < MOST_BYTES:
                by_form[form].append(path)
    chosen = [path for paths in by_form.values() for path in paths[:: max(1, len(paths) // DOCUMENTS)][:DOCUMENTS]]
    return chosen


@check(
    "documents-round",
    f"{DOCUMENTS} and more documents of this machine: a translator in capitals leaves tags, addresses, identifiers, "
    f"code and times as they were, one that changes nothing every byte, and so does en-pt in {BY_MODEL} short ones",
)
def documents_round(findings: Findings, data: Data) -> None:
    documents = [path for path in own_documents() if _readable(path)]
    faults = [path.name for path in documents if not _same(Capitals(), path)]
    changed = [
        path.name
        for path in documents
        if form_of(path) not in ("po", "xliff") and _translated(Unchanged(), path) != path.read_bytes()
    ]
    findings.at_least("documents", len(documents), "", DOCUMENTS)
    findings.at_most("other structure", len(faults), ", ".join(faults[:5]), 0)
    findings.at_most("other bytes", len(changed), ", ".join(changed[:5]), 0)
    short = [path for path in documents if path.stat().st_size < SHORT]
    with Translator("en-pt") as translator:
        wrong = [
            path.name for path in short[:: max(1, len(short) // BY_MODEL)][:BY_MODEL] if not _same(translator, path)
        ]
    findings.at_most("other structure by en-pt", len(wrong), ", ".join(wrong[:5]), 0)


def _readable(path: Path) -> bool:
    try:
        return bool(_translated(Unchanged(), path))
    except InputError:
        return False


class Unchanged(Capitals):
    def translate_iter(self, texts: Iterable[str], *, details: bool = False, **options: Any) -> Iterator[Any]:
        return (Translation(text, [text], [0.0], []) if details else text for text in texts)


def _translated(translator: Any, path: Path) -> bytes:
    return translate_document(translator, path.read_bytes(), str(form_of(path)), name=str(path))


def _same(translator: Any, path: Path) -> bool:
    form = str(form_of(path))
    return structure(path.read_bytes(), form) == structure(_translated(translator, path), form)
