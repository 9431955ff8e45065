"""Documents of real life: their structure, and how reliably languages are detected."""

import contextlib
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.checks import Data, Findings, check
from fastattn import Translator, translate_document
from fastattn.documents.forms import form_of
from fastattn.documents.html import VISIBLE_ATTRS, HtmlTokenizer
from fastattn.errors import InputError
from fastattn.text.invariants import INVARIANT
from fastattn.text.languages import likely_languages
from fastattn.translation.calls import Translation


@check("detection", "the language of each sentence of FLORES dev, en, pt and zh, among a hundred: at least 95% right")
def detection(findings: Findings, data: Data) -> None:
    for language in ("en", "pt", "zh"):
        texts = data.flores(language)
        guesses = [likely_languages(text, most=1)[0] for text in texts]
        right = sum(code.partition("-")[0] == language for code, _ in guesses)
        sure = [code.partition("-")[0] == language for code, share in guesses if share >= 0.8]
        remark = f"{len(sure)} sure, of which {len(sure) - sum(sure)} wrong"
        findings.at_least(f"{language}:", 100 * right / len(texts), "%", 95.0, remark)


DOCUMENTS, BY_MODEL, MOST_BYTES, SHORT = 200, 40, 150_000, 6_000  # bytes of a document, and of one for the model
DOCUMENT_PLACES = (Path("/usr/share/doc"), Path("/usr/lib/node_modules"), Path(sysconfig.get_path("purelib")))
FORMS = ("html", "md", "srt", "po", "xliff")
# Text inside these tags is read, and text of readable attributes.
SPOKEN = frozenset(("meta", "option", "optgroup", "track", "input", "button"))


class Capitals:
    """Writes words in capitals, and keeps placeholders as they are."""

    returns_attention = False

    def translate_iter(self, texts: Iterable[str], *, details: bool = False, **options: Any) -> Iterator[Any]:
        for text in texts:
            places = [0, *(place for match in INVARIANT.finditer(text) for place in match.span()), len(text)]
            parts = [text[start:end] for start, end in zip(places, places[1:])]
            capitals = "".join(part if number % 2 else part.upper() for number, part in enumerate(parts))
            yield Translation(capitals, [capitals], [0.0], []) if details else capitals


def structure(data: bytes, form: str) -> object:
    text = data.decode("utf-8", "replace")
    if form == "html":
        return Counter(
            (token.kind, token.name, *sorted(pair for pair in token.attributes.items() if pair[0] not in VISIBLE_ATTRS))
            for token in HtmlTokenizer(text).tokens
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
    """Documents of this machine, at most the same number of each form."""
    by_form: dict[str, list[Path]] = {form: [] for form in FORMS}
    for place in DOCUMENT_PLACES:
        for path in sorted(place.rglob("*.*")):
            form = form_of(path)
            if form in by_form and path.is_file() and not path.is_symlink() and 500 < path.stat().st_size < MOST_BYTES:
                by_form[form].append(path)
    return [path for paths in by_form.values() for path in paths[:: max(1, len(paths) // DOCUMENTS)][:DOCUMENTS]]


@check(
    "documents-round",
    f"{DOCUMENTS} and more documents of this machine: a translator in capitals leaves tags, addresses, identifiers, "
    f"code and times as they were, one that changes nothing every byte, and so does en-pt in {BY_MODEL} short ones",
)
def documents_round(findings: Findings, data: Data) -> None:
    unchanged: dict[Path, bytes] = {}
    for path in own_documents():
        with contextlib.suppress(InputError):
            unchanged[path] = _translated(Unchanged(), path)
    documents = [path for path, content in unchanged.items() if content]
    faults = [path.name for path in documents if not _same(Capitals(), path)]
    pages = [path for path in documents if form_of(path) not in ("po", "xliff")]
    changed = [path.name for path in pages if unchanged[path] != path.read_bytes()]
    findings.at_least("documents", len(documents), "", DOCUMENTS)
    findings.at_most("other structure", len(faults), ", ".join(faults[:5]), 0)
    findings.at_most("other bytes", len(changed), ", ".join(changed[:5]), 0)
    short = [path for path in documents if path.stat().st_size < SHORT]
    short = short[:: max(1, len(short) // BY_MODEL)][:BY_MODEL]
    with Translator("en-pt") as translator:
        faults = [path.name for path in short if not _same(translator, path)]
    findings.at_most("other structure by en-pt", len(faults), ", ".join(faults[:5]), 0)


class Unchanged(Capitals):
    def translate_iter(self, texts: Iterable[str], *, details: bool = False, **options: Any) -> Iterator[Any]:
        return (Translation(text, [text], [0.0], []) if details else text for text in texts)


def _translated(translator: Any, path: Path) -> bytes:
    return translate_document(translator, path.read_bytes(), str(form_of(path)), name=str(path))


def _same(translator: Any, path: Path) -> bool:
    form = str(form_of(path))
    return structure(path.read_bytes(), form) == structure(_translated(translator, path), form)
