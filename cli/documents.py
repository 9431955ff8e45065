"""``fastattn translate`` of documents: a file, or a folder's files, each by its form, whole or not at all."""

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from fastattn.cli.lines import standard_input
from fastattn.cli.printing import Progress, duration, say
from fastattn.documents.forms import FIELD_FORMS, form_of
from fastattn.errors import FastattnError, InputError, LineError
from fastattn.printable import counted
from fastattn.system.files import OutputFile, open_bytes, open_file

ARCHIVES = ("docx", "odt", "epub")


class DocumentFile(NamedTuple):
    """A file to translate; source "-": standard input; target None: the output of -o."""

    source: str
    target: str | None
    form: str
    size: int


def planned(
    source: str | None, target: str | None, folder: str | None, form: str | None, as_lines: bool, key: str, fields: bool
) -> list[DocumentFile] | None:
    """The documents to translate; None where the input is lines.

    folder    --out-dir: all files of the folder ``source`` of a known form that are not translated yet
    as_lines  whether there are options that only lines have
    key       identifies the models and options of this translation
    fields    whether --fields is given; without it a folder's tables are left out
    """
    if folder is None:
        kind = form or (form_of(source) if source not in (None, "-") else None)
        if kind in (None, "txt"):
            return None
        if as_lines:
            raise click.UsageError(f"--json, --scores and several hypotheses are for lines, not {kind}: --format txt?")
        size = os.path.getsize(source) if source and os.path.isfile(source) else 0
        return [DocumentFile(source or "-", None, str(kind), size)]
    if source is None or target is not None or as_lines:
        raise click.UsageError("--out-dir takes a folder by -i, and no -o, --json, --scores or several hypotheses")
    if not os.path.isdir(source):
        raise InputError(f"--out-dir is for a folder, and {source} is none")
    if _same(Path(source), Path(folder)):
        raise InputError("--out-dir is the folder of -i, whose files would be lost: name another")
    documents, done, foreign, since = list[DocumentFile](), 0, 0, _begin_folder(Path(folder), key)
    for path in _files(Path(source), Path(folder)):
        kind, goal = form or form_of(path), folder / path.relative_to(source)
        if kind is None or (kind in FIELD_FORMS and not (fields or form)):
            foreign += 1
        elif goal.exists() and goal.stat().st_mtime_ns >= max(since, path.stat().st_mtime_ns):
            done += 1
        else:
            documents.append(DocumentFile(str(path), str(goal), kind, path.stat().st_size))
    say(f"fastattn: {counted(done, 'file')} translated already, {foreign:,} of other forms left out", err=True)
    return documents


def _begin_folder(target: Path, key: str) -> int:
    """The time in ns at which this translation of the folder began; older files are not from it."""
    stamp = target / ".fastattn"
    digest = hashlib.sha256(key.encode()).hexdigest()
    try:
        if not stamp.exists() or stamp.read_text() != digest:
            _make_folder(str(target))
            stamp.write_text(digest)
        return stamp.stat().st_mtime_ns
    except (OSError, UnicodeDecodeError) as error:
        raise FastattnError(f"cannot write {stamp}: {error}") from error


def _files(folder: Path, but: Path) -> Iterator[Path]:
    """The files of a folder and its subfolders, in order, without hidden ones and without the folder ``but``."""
    for root, folders, files in os.walk(folder):
        parent = Path(root)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not _same(parent / name, but))
        yield from (parent / name for name in sorted(files) if not name.startswith(".") and (parent / name).is_file())


def _same(first: Path, second: Path) -> bool:
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
    """Translate documents one after the other, and return their count in words.

    stops  whether a document's error is raised; else the next ones follow, and LineError at the end counts the failed
    """
    from fastattn.documents.translating import translate_document

    if fields and not any(document.form in FIELD_FORMS for document in documents):
        raise click.UsageError("--fields is for csv, tsv and jsonl")
    if output.is_terminal() and any(document.target is None and document.form in ARCHIVES for document in documents):
        raise click.UsageError("this would be no text: give -o FILE")
    failed, first, watched = 0, "", Watched(translator, progress, sum(document.size for document in documents))
    for document in documents:
        try:
            name = "standard input" if document.source == "-" else document.source
            columns = fields if document.form in FIELD_FORMS else ()
            result = translate_document(watched, _read(document), document.form, name=name, fields=columns, **options)
            if document.target is None:
                output.write(result)
            else:
                _make_folder(os.path.dirname(document.target) or os.curdir)
                with open_file(document.target) as file:
                    file.write(result)
        except FastattnError as error:
            if stops:
                raise
            failed, first = failed + 1, first or str(error)
        else:
            if result.kept_characters:
                progress.clear()
                unchanged = counted(result.kept_characters, "character")
                say(f"fastattn: {name}: {unchanged} of its text left as before", err=True)
        watched.finish(document.size)
    if failed:
        raise LineError(f"{failed:,} of {counted(len(documents), 'file')} could not be translated, the first: {first}")
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


class Watched:
    """A translator that shows its progress through documents of ``size`` bytes in all."""

    def __init__(self, translator: Any, progress: Progress, size: int):
        self._translator, self._progress, self._size = translator, progress, size
        self._begun, self._done, self._files = time.monotonic(), 0, 0
        self._share = 0.0  # translated part of the file's texts
        self.returns_attention = getattr(translator, "returns_attention", True)

    def translate_iter(self, texts: Iterable[str], **options: Any) -> Iterator[Any]:
        all_texts = list(texts)
        for number, result in enumerate(self._translator.translate_iter(all_texts, **options), 1):
            self._share = number / len(all_texts)
            self._show()
            yield result

    def finish(self, size: int) -> None:
        self._done, self._files, self._share = self._done + size, self._files + 1, 0.0
        self._show()

    def _show(self) -> None:
        share, seconds = self._done / max(1, self._size), time.monotonic() - self._begun
        remaining = f", {duration(seconds / share - seconds)} left" if 0 < share < 1 else ""
        self._progress.show(f"{counted(self._files, 'file')}, {share:.0%}{remaining}; {self._share:.0%} of this one")
