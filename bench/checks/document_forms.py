"""Ten documents of each form, written by the form's own library and read by it again after translation."""

import csv
import io
import json
import random
from collections.abc import Callable

from bench.checks import Data, Findings, check, need
from fastattn import Translator, translate_document

FILES, PARAGRAPHS = 10, 8
Made = tuple[bytes, Callable[[bytes], object], tuple[str, ...]]  # a document, what its form should keep, its fields


def _sentences(texts: list[str], rng: random.Random) -> list[str]:
    return rng.sample(texts, PARAGRAPHS)


def docx(texts: list[str], rng: random.Random) -> Made:
    import docx as library

    made = library.Document()
    made.add_heading(texts[0], rng.randint(1, 3))
    for text in texts[1:]:
        paragraph, words = made.add_paragraph(style=rng.choice(["Normal", "List Bullet", "Quote"])), text.split()
        paragraph.add_run(words[0])
        paragraph.add_run(" " + " ".join(words[1:4])).bold = True
        paragraph.add_run(" " + " ".join(words[4:]))
    table = made.add_table(2, 2)
    for cell, text in zip((cell for row in table.rows for cell in row.cells), texts):
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


def table(texts: list[str], rng: random.Random) -> Made:
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


FORMS = {"docx": docx, "odt": odt, "po": po, "srt": srt, "csv": table, "jsonl": records, "md": markdown, "epub": epub}


@check(
    "documents-forms",
    f"{FILES} documents of each form, made by python-docx, odfpy, polib, srt, csv, json, markdown-it and ebooklib: "
    "each reads its translation, whose form is what it was",
)
def forms(findings: Findings, data: Data) -> None:
    need("docx", "odf", "polib", "srt", "markdown_it", "ebooklib")
    texts = [one.strip() for one in data.flores("en") if not {"`", "*"} & {*one}]
    with Translator("en-pt") as translator:
        for name, make in FORMS.items():
            same = changed = 0
            for number in range(FILES):
                rng = random.Random(f"{name} {number}")
                before, form, fields = make(_sentences(texts, rng), rng)
                after = translate_document(translator, before, name, fields=fields)
                same += form(before) == form(after)
                changed += before != after
            findings.at_least(name, min(same, changed), f"of {FILES}", FILES)
