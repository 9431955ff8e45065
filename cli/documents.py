"""``fastattn translate`` of documents: of one file, or of all files of a folder. No output is ever incomplete."""

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from fastattn.cli.lines import standard_input
from fastattn.cli.printing import Progress, duration, say
from fastattn.documents.forms import FIELD_FORMS, NAMED_FORMS, form_of
from fastattn.errors import FastattnError, InputError, LineError
from fastattn.printable import counted
from fastattn.system.files import OutputFile, open_bytes, open_file

ARCHIVES = ("docx", "odt", "pptx", "xlsx", "epub")


class DocumentFile(NamedTuple):
    """A document to translate. ``source`` "-" is standard input; ``target`` None is the output of -o; size in bytes."""

    source: str
    target: str | None
    form: str
    size: int


def plan_documents(
    source: str | None, target: str | None, folder: str | None, form: str | None, as_lines: bool, key: str, fields: bool
) -> list[DocumentFile] | None:
    """The documents to translate; None if the input is lines of text.

    folder    --out-dir, for all files of the folder ``source`` that have a known form and no translation yet
    as_lines  whether the command has options that only lines have
    key       identifies the models and options of this translation
    fields    whether the command has --fields; if not, a folder's tables are left out
    """
    if folder is None:
        form = form or (form_of(source) if source not in (None, "-") else None)
        if form in (None, "txt"):
            return None
        if as_lines:
            raise click.UsageError(f"--json, --scores and several hypotheses are for lines, not {form}: --format txt?")
        if form == "pdf" and target is not None and form_of(target) == "pdf":
            raise click.UsageError(f"the translation of a PDF is an HTML page: give -o NAME.html, not {target}")
        size = os.path.getsize(source) if source and os.path.isfile(source) else 0
        return [DocumentFile(source or "-", None, str(form), size)]
    if source is None or target is not None or as_lines:
        raise click.UsageError("--out-dir takes a folder by -i, and no -o, --json, --scores or several hypotheses")
    if not os.path.isdir(source):
        raise InputError(f"--out-dir is for a folder, and {source} is none")
    if _is_same(Path(source), Path(folder)):
        raise InputError("--out-dir is the folder of -i, whose files would be lost: name another")
    documents, done_files, skipped_files, begin_ns = list[DocumentFile](), 0, 0, _begin_folder(Path(folder), key)
    for path in _files_in(Path(source), Path(folder)):
        file_form, output = form or form_of(path), folder / path.relative_to(source)
        if file_form == "pdf":
            output = output.with_name(f"{output.name}.html")  # a.pdf.html, since there may be an a.html
        if file_form is None or (not form and (file_form in NAMED_FORMS or (file_form in FIELD_FORMS and not fields))):
            skipped_files += 1
        elif output.exists() and output.stat().st_mtime_ns >= max(begin_ns, path.stat().st_mtime_ns):
            done_files += 1
        else:
            documents.append(DocumentFile(str(path), str(output), file_form, path.stat().st_size))
    counts = f"{counted(done_files, 'file')} translated already, {skipped_files:,} of other forms left out"
    say(f"fastattn: {counts}", err=True)
    return documents


def _begin_folder(target: Path, key: str) -> int:
    """The time in ns when translation into the folder with this ``key`` began; older files have another key's text."""
    stamp = target / ".fastattn"
    digest = hashlib.sha256(key.encode()).hexdigest()
    try:
        if not stamp.exists() or stamp.read_text() != digest:
            _make_folder(str(target))
            stamp.write_text(digest)
        return stamp.stat().st_mtime_ns
    except (OSError, UnicodeDecodeError) as error:
        raise FastattnError(f"cannot write {stamp}: {error}") from error


def _files_in(folder: Path, excluded: Path) -> Iterator[Path]:
    """The files of a folder and its subfolders, in order, but no hidden files and none of the ``excluded`` folder."""
    for root, folders, files in os.walk(folder):
        parent = Path(root)
        folders[:] = sorted(name for name in folders if not (name[0] == "." or _is_same(parent / name, excluded)))
        yield from (parent / name for name in sorted(files) if not name.startswith(".") and (parent / name).is_file())


def _is_same(first: Path, second: Path) -> bool:
    return second.exists() and first.samefile(second)


def translate_documents(
    translator: Any,
    documents: Sequence[DocumentFile],
    output: OutputFile,
    fields: Sequence[str],
    stops: bool,
    progress: Progress,
    **options: Any,
) -> str:
    """Translate documents one after the other, and return their number as text, such as "2 files".

    stops  whether the first error is raised; if not, the other documents follow, then LineError counts the failures
    """
    from fastattn.documents.translating import translate_document

    if fields and not any(document.form in FIELD_FORMS for document in documents):
        raise click.UsageError("--fields is for csv, tsv and jsonl")
    hidden_forms = (*ARCHIVES, "pdf")
    if output.is_terminal() and any(
        document.target is None and document.form in hidden_forms for document in documents
    ):
        raise click.UsageError("this would be no text: give -o FILE")
    if any(document.form == "pdf" for document in documents):
        say("fastattn: a PDF becomes HTML: layout, tables and figures are in pictures of its pages alone", err=True)
    failure_count, first_error = 0, ""
    translator = ProgressTranslator(translator, progress, sum(document.size for document in documents))
    for document in documents:
        try:
            name = "standard input" if document.source == "-" else document.source
            columns = fields if document.form in FIELD_FORMS else ()
            content, form = _read(document), document.form
            result = translate_document(translator, content, form, name=name, fields=columns, **options)
            if document.target is None:
                output.write(result)
            else:
                _make_folder(os.path.dirname(document.target) or os.curdir)
                with open_file(document.target) as file:
                    file.write(result)
        except FastattnError as error:
            if stops:
                raise
            failure_count, first_error = failure_count + 1, first_error or str(error)
        else:
            if result.kept_characters:
                progress.clear()
                unchanged = counted(result.kept_characters, "character")
                say(f"fastattn: {name}: {unchanged} of its text left as before", err=True)
        translator.finish(document.size)
    if failure_count:
        counts = f"{failure_count:,} of {counted(len(documents), 'file')}"
        raise LineError(f"{counts} could not be translated, the first: {first_error}")
    return counted(len(documents), "file")


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise FastattnError(f"cannot make the folder {path}: {error.strerror}") from error


def _read(document: DocumentFile) -> bytes:
    if document.source == "-":
        return standard_input().read()
    with open_bytes(document.source) as file:
        try:
            return file.read()
        except OSError as error:
            raise FastattnError(f"cannot read {document.source}: {error.strerror}") from error


class ProgressTranslator:
    """A translator that shows the progress through documents, whose sizes add up to ``total_bytes``."""

    def __init__(self, translator: Any, progress: Progress, total_bytes: int):
        self._translator, self._progress, self._total_bytes = translator, progress, total_bytes
        self._start, self._done_bytes, self._done_files = time.monotonic(), 0, 0
        self._text_share = 0.0  # the share of the present document's texts that are translated
        self.returns_attention = getattr(translator, "returns_attention", True)

    def translate_iter(self, texts: Iterable[str], **options: Any) -> Iterator[Any]:
        all_texts = list(texts)
        for number, result in enumerate(self._translator.translate_iter(all_texts, **options), 1):
            self._text_share = number / len(all_texts)
            self._show()
            yield result

    def finish(self, size: int) -> None:
        self._done_bytes, self._done_files, self._text_share = self._done_bytes + size, self._done_files + 1, 0.0
        self._show()

    def _show(self) -> None:
        share, seconds = self._done_bytes / max(1, self._total_bytes), time.monotonic() - self._start
        remaining = f", {duration(seconds / share - seconds)} left" if 0 < share < 1 else ""
        files = counted(self._done_files, "file")
        self._progress.show(f"{files}, {share:.0%}{remaining}; {self._text_share:.0%} of this one")
