"""Input files, local or in an object store, which pyarrow finds by name, folder or glob, and opens."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastattn.distributed.extra import import_pyarrow
from fastattn.errors import FastattnError, InputError, check_known
from fastattn.printable import without_secrets
from fastattn.system.records import dataclass

if TYPE_CHECKING:  # an extra, imported where it is used
    from pyarrow.fs import FileInfo, FileSystem

_SUFFIXES_BY_FORM = {"text": "txt text", "jsonl": "jsonl ndjson json", "csv": "csv tsv", "parquet": "parquet pq"}
SUFFIXES = {f".{suffix}": form for form, suffixes in _SUFFIXES_BY_FORM.items() for suffix in suffixes.split()}
_COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_WILDCARD = re.compile(r"[*?[]")


@dataclass(frozen=True)
class InputFile:
    """A file to be read.

    url       an absolute path, or a URL with its options
    size      in bytes
    modified  nanoseconds since 1970; 0 if the storage does not know
    form      "text", "jsonl", "csv" or "parquet"
    """

    url: str
    size: int
    modified: int
    form: str


def public_url(url: str) -> str:
    """A path or URL without its user, password and options, for messages and files."""
    return without_secrets(url.partition("?")[0] if "://" in url else url)


def filesystem(url: str) -> "tuple[FileSystem, str]":
    """(pyarrow's file system of a local path or a URL, the path in that file system)."""
    fs = import_pyarrow().fs
    if not _URL.match(url):
        return fs.LocalFileSystem(), url
    with file_errors(url, InputError):
        return fs.FileSystem.from_uri(url)  # type: ignore[no-any-return]


@contextlib.contextmanager
def open_input(url: str) -> Iterator[Any]:
    """Open a local or remote file for reading: a pyarrow NativeFile.

    Raises InputError if the file cannot be opened, FastattnError if a later read fails: one line with the file's name.
    """
    system, path = filesystem(url)
    with file_errors(url, InputError):
        file = system.open_input_file(path)
    with file_errors(url), file:
        yield file


@contextlib.contextmanager
def file_errors(url: str, error_class: type[FastattnError] = FastattnError) -> Iterator[None]:
    """Turn an error of pyarrow or of the system into an error of one line that names the file."""
    failures = (OSError, import_pyarrow().ArrowException, UnicodeError)
    try:
        yield
    except failures as error:
        raise error_class(f"cannot read {public_url(url)}: {_reason(error).replace(url, public_url(url))}") from error


def _reason(error: Exception) -> str:
    """An error's reason, without the names, hints and source lines that pyarrow adds."""
    if isinstance(error, UnicodeError):
        return "pyarrow takes no file names that are not UTF-8"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return (str(error).strip().splitlines() or [type(error).__name__])[0].removesuffix(".")


def find_files(inputs: Sequence[str], form: str | None = None) -> list[InputFile]:
    """The files that the inputs name, in the order of the inputs; files of one folder or glob are sorted by name.

    inputs  files, folders or globs (``*``, ``?``, ``[...]``, ``**``), local or URLs; in a URL ``?`` begins the options.
            A folder stands for all files below it, without hidden files and, if ``form`` is None, without files of
            unknown suffixes
    form    of all files, whatever their names; None: each file's by its suffix
    Raises InputError for inputs without files, a file named twice, a compressed file, and files of two forms.
    """
    if form is not None:
        check_known("form", form, sorted(_SUFFIXES_BY_FORM))
    files: dict[str, InputFile] = {}
    for name in inputs:
        for file in _files_of(os.fspath(name), form):
            if file.url in files:
                raise InputError(f"{public_url(file.url)} is named twice by the inputs")
            files[file.url] = file
    all_files = list(files.values())
    for file in all_files:
        if file.form != all_files[0].form:
            first, second = (f"{public_url(input_.url)} is {input_.form}" for input_ in (all_files[0], file))
            raise InputError(f"{first}, {second}: the inputs of a job have one form")
    return all_files


class _Location:
    """An input's file system, and the input's path in that file system.

    folder, parts  of a glob: the folder before the first wildcard, and the glob's parts below the folder; of another
                   path: the path, and []
    """

    def __init__(self, name: str):
        self.name = name
        address, mark, options = name.partition("?") if _URL.match(name) else (os.path.abspath(name), "", "")
        # pyarrow's parser of URLs takes no brackets and spaces, so these are quoted; the user's own quotes stay.
        address = quote(address, safe="/:@%*!$&'()+,;=~") if mark or _URL.match(name) else address
        self.address, self._options = address.rstrip("/") or "/", mark + options
        self.system, path = filesystem(self.address + self._options)
        self._is_local = isinstance(self.system, import_pyarrow().fs.LocalFileSystem)
        self.path = path.rstrip("/") or "/"
        names = self.path.split("/")
        depth = next((number for number, name in enumerate(names) if _WILDCARD.search(name)), len(names))
        self.folder, self.parts = "/".join(names[:depth]) or "/", names[depth:]

    def url(self, path: str) -> str:
        """The absolute path, or the URL, of a path below the folder."""
        if not _URL.match(self.address):
            return path
        if path == self.path:
            return self.address + self._options
        folder = self.address.rsplit("/", len(self.parts))[0] if self.parts else self.address
        return f"{folder}/{quote(path[len(self.folder) :].lstrip('/'))}{self._options}"

    def info(self) -> "FileInfo":
        with file_errors(self.name, InputError):
            return self.system.get_file_info(self.path)

    def list_folder(self, folder: str, recursive: bool) -> "list[FileInfo]":
        """The contents of a folder, by name. InputError if a link below it leads to a folder that contains the link."""
        one_listing = recursive and not self._is_local  # locally, pyarrow would follow such links endlessly
        selector = import_pyarrow().fs.FileSelector(folder, recursive=one_listing, allow_not_found=True)
        with file_errors(self.name, InputError):
            infos = sorted(self.system.get_file_info(selector), key=lambda info: str(info.path))
        if not recursive or one_listing:
            return infos
        for path in [info.path for info in infos if info.type == import_pyarrow().fs.FileType.Directory]:
            if os.path.islink(path) and Path(folder).resolve().is_relative_to(Path(path).resolve()):
                raise InputError(f"{path} is a link to a folder that it lies in")
            infos += self.list_folder(path, True)
        return sorted(infos, key=lambda info: str(info.path))

    def input_file(self, info: "FileInfo", form: str | None) -> InputFile:
        """The InputFile; InputError if it is compressed, or if neither its name nor ``form`` says its form."""
        url = self.url(info.path)
        name = public_url(url)
        _, suffix = os.path.splitext(info.path.lower())
        if suffix in _COMPRESSED:
            raise InputError(f"{name} is compressed, so it cannot be read in parts; unpack it, or make Parquet of it")
        file_form = form or SUFFIXES.get(suffix)
        if file_form is None:
            raise InputError(f"{name}: its name says no form; known: {', '.join(SUFFIXES)}; or name the form")
        return InputFile(url, info.size, info.mtime_ns or 0, file_form)


def _files_of(name: str, form: str | None) -> list[InputFile]:
    """The files of one input; InputError if there are none."""
    if not name or "\0" in name:
        raise InputError(f"cannot read {name!r}: this names no file")
    if name == "-":
        raise InputError("standard input can be read only once, and not in parts; write it to a file first")
    location, types, public_name = _Location(name), import_pyarrow().fs.FileType, public_url(name)
    info = location.info()
    if info.type == types.File:
        return [location.input_file(info, form)]
    if info.type == types.Directory:
        files = [info for info in location.list_folder(location.path, True) if info.type == types.File]
        files = [info for info in files if not _is_hidden(info.path[len(location.path) :])]
        files_of_form = [info for info in files if form or _has_form(info.path)]
        if not files_of_form:
            expected = "files" if form else f"files that end in {', '.join(SUFFIXES)}"
            raise InputError(f"the folder {public_name} holds no {expected}")
        return [location.input_file(info, form) for info in files_of_form]
    if info.type != types.NotFound:
        raise InputError(f"cannot read {public_name}: neither a file nor a folder")
    if not location.parts:
        raise InputError(f"cannot read {public_name}: there is no such file or folder")
    files = [info for info in _glob(location, location.folder, location.parts) if info.type == types.File]
    if not files:
        raise InputError(f"no file matches {public_name}")
    return [location.input_file(info, form) for info in files]


def input_covering(out: str, file: str, inputs: Sequence[str]) -> str | None:
    """The first input that covers a file of this name in the folder ``out``, or None."""
    system, path = filesystem(out)
    names = [*_path_names(system, path), file]
    for name in inputs:
        location = _Location(os.fspath(name))
        if location.system.type_name != system.type_name:
            continue
        for folder, parts in ((location.path, []), (location.folder, location.parts)):
            folder_names = _path_names(system, folder)
            names_below = names[len(folder_names) :]
            if folder_names != names[: len(folder_names)]:
                continue
            if parts:
                is_input = _matches_glob(names_below, parts)
            else:
                types = import_pyarrow().fs.FileType
                is_input = not _is_hidden("/".join(names_below)) and location.info().type == types.Directory
            if is_input:
                return name
    return None


def _path_names(system: "FileSystem", path: str) -> list[str]:
    """The names of a path's folders and file, with local links resolved."""
    if system.type_name == "local":
        path = Path(path).resolve().as_posix()
    return [name for name in path.split("/") if name]


def _is_hidden(path: str) -> bool:
    """Whether the name of a file or of a folder above it begins with a dot or an underscore."""
    return any(part.startswith((".", "_")) for part in path.strip("/").split("/"))


def _has_form(path: str) -> bool:
    """Whether a name's suffix says a form; True also if the file is compressed: ``input_file`` refuses the file."""
    stem, suffix = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] in SUFFIXES if suffix in _COMPRESSED else suffix in SUFFIXES


def _glob(location: _Location, folder: str, parts: list[str]) -> "Iterator[FileInfo]":
    """Yield the files and folders that match the parts of a glob below a folder."""
    if parts[0] == "**":
        for info in location.list_folder(folder, True):
            if _matches_glob(info.path[len(folder) :].strip("/").split("/"), parts):
                yield info
        return
    for info in location.list_folder(folder, False):
        if not _matches_glob([info.base_name], parts[:1]):
            continue
        if not parts[1:]:
            yield info
        elif info.type == import_pyarrow().fs.FileType.Directory:
            yield from _glob(location, info.path, parts[1:])


def _matches_glob(names: list[str], parts: list[str]) -> bool:
    """Whether names of folders and a file match a glob; as in a shell, no wildcard matches a name's first dot."""
    if not names or not parts:
        return not names and not parts
    if parts[0] == "**":
        if _matches_glob(names, parts[1:]):
            return True
        return not names[0].startswith(".") and (_matches_glob(names[1:], parts) or len(names) == len(parts) == 1)
    is_hidden = names[0].startswith(".") and not parts[0].startswith(".")
    return not is_hidden and fnmatchcase(names[0], parts[0]) and _matches_glob(names[1:], parts[1:])
