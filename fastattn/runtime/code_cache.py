"""The cache of compiled code: a folder named after a hash of the CPU and of every source that kernels are made of.

Numba's own cache keys a function on its file's mtime, and misses a change in a file that the function inlines. With it
and Numba's threads, a command that translates a line takes 84.6 s in place of 16.0 with an empty cache, later 1.12 s in
place of 0.36 (docs/architecture.md, "Compiled code").

A file of the cache has a line that names the format, the SHA-256 of all that follows, the length of a JSON object, the
object, and an object file. Nothing is unpickled. A file is loaded only if this user or root alone can have written it.

The sources are those of the kernels and of every module of fastattn that the kernels import: machine code may hold a
constant of any of these. A regular expression finds the imports: Python's parser would take 0.1 s of every start.
"""

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import llvmlite

from fastattn.errors import FastattnError, warn_once
from fastattn.simd.target import TARGET, TRIPLE, compiled_features, compiled_name
from fastattn.system.atomic_files import (
    PARTIAL_SUFFIX,
    WINDOWS,
    UntrustedFile,
    make_folder,
    open_trusted,
    sweep,
    try_lock,
    write_whole,
)
from fastattn.system.cache_folder import A_DAY, cache_root, mark_used, remove_unused

MAGIC = b"fastattn machine code 2\n"
DIGEST_BYTES = 32
PACKAGE = "fastattn_kernels"  # has a folder of code for each of several targets, and the features that the code needs
_FOLDERS = 2  # folders of the cache above a file: that of these sources and this CPU, and "kernels"

_SYMBOL = re.compile(r"[\w.$]+", re.ASCII)


class Code(NamedTuple):
    """A compiled variant of a kernel.

    exports  role ("wrapper", ...) -> symbol that the object file defines
    needs    symbols of the process that the object file calls
    """

    exports: dict[str, str]
    needs: list[str]
    object_file: bytes


class CodeFolder:
    """The folder of compiled code for one ``code_digest``; ``path`` is computed at first use."""

    def __init__(self, path: Callable[[], Path]):
        self._path = path
        self._has_removed_unused = False

    @property
    def path(self) -> Path:
        return self._path()

    def load(self, label: str, key: str) -> Code | None:
        """Load the variant of a kernel's label and key, from this folder or the installed ``PACKAGE``.

        None if it is missing or, with a warning, not trusted. ValueError or KeyError for a file with another content.
        """
        file = self.path / _file_name(label, key)
        try:
            with open_trusted(file, _FOLDERS) as stream:
                data = stream.readall()
        except OSError as error:
            if isinstance(error, UntrustedFile):
                warn_once(f"compiled kernels in {self.path} are not used: others may have written them")
            file = installed_folder() / file.name
            try:
                data = file.read_bytes()
            except OSError:
                return None
        start = len(MAGIC) + DIGEST_BYTES
        if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : start] != hashlib.sha256(data[start:]).digest():
            warn_once(f"a compiled kernel in {file.parent} is damaged; what is damaged there is compiled anew")
            return None
        end = start + 4 + int.from_bytes(data[start : start + 4], "little")
        header = json.loads(data[start + 4 : end])
        if header["key"] != key or not all(map(_SYMBOL.fullmatch, [*header["exports"].values(), *header["needs"]])):
            raise ValueError(f"{file}: another variant")
        return Code(header["exports"], header["needs"], data[end:])

    def save(self, label: str, key: str, code: Code) -> None:
        """Store a variant. Raises OSError where that fails."""
        make_folder(self.path)
        sweep(self.path)
        text = json.dumps({"key": key, "exports": code.exports, "needs": code.needs}).encode()
        data = len(text).to_bytes(4, "little") + text + code.object_file
        parts = [MAGIC, hashlib.sha256(data).digest(), data]
        write_whole(self.path / _file_name(label, key), lambda stream: stream.writelines(parts))
        if not self._has_removed_unused:
            self._has_removed_unused = True
            remove_unused("kernels", self.path)  # kernels of other versions or other CPUs

    @contextlib.contextmanager
    def claimed(self, label: str, key: str) -> Iterator[bool]:
        """Claim a variant while the ``with`` block compiles it. Yields whether the claim is this process's.

        A claim ends with its process. True where files cannot be locked.
        """
        path = self.path / f"{_file_name(label, key)}.claim{PARTIAL_SUFFIX}"  # ``sweep`` deletes a killed process's
        stream = None
        with contextlib.suppress(OSError):
            if not WINDOWS:  # Windows would not delete a claim that another process has open
                make_folder(self.path)
                stream = open(path, "ab")
        if stream is None:
            yield True
            return
        with stream:
            is_ours = try_lock(stream) is not None
            try:
                yield is_ours
            finally:
                if is_ours:
                    with contextlib.suppress(OSError):
                        path.unlink()


def _file_name(label: str, key: str) -> str:
    """The name of a variant's file, which depends on the key alone: processes that write it at once write the same."""
    return f"{label}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


_IMPORT = re.compile(rb"^[ \t]*(?:from|import) +fastattn([\w.]*)(?: +import +(\([^)]*\)|[\w, ]+))?", re.MULTILINE)
# user_functions and runtime too: kernels depend on the types of users' functions, and parts of runtime are compiled.
ROOTS = "kernels", "user_functions", "runtime"
# Variables that change what Numba compiles; NUMBA_CPU_NAME and NUMBA_CPU_FEATURES count by the CPU that they name.
_NUMBA_NAMES = (
    "OPT LOOP_VECTORIZE SLP_VECTORIZE BOUNDSCHECK DEBUGINFO ENABLE_PROFILING ENABLE_AVX EXTEND_VARIABLE_LIFETIMES "
    "DEBUG_JIT DEBUG_NRT DISABLE_INTEL_SVML LLVM_REFPRUNE_PASS LLVM_REFPRUNE_FLAGS"
)
SETTINGS = [f"NUMBA_{name}" for name in _NUMBA_NAMES.split()]
_PACKAGE = Path(__file__).resolve().parent.parent
_CLOCK_LAG = 20_000_000  # ns by which a file system's clock may be behind


def kernel_sources(package: Path) -> dict[str, bytes]:
    """Path below the package -> contents, of all modules below ROOTS and all that they import, sorted by path."""
    sources: dict[str, bytes] = {}
    imported: set[str] = set()
    paths = [path for root in ROOTS for path in (package / root).rglob("[!.]*.py")]
    while paths:
        path = paths.pop()
        name = path.relative_to(package).as_posix()
        if name not in sources:
            sources[name] = path.read_bytes()
            for module in _imports(sources[name]) - imported:
                imported.add(module)
                paths += _files(package, module)
    return dict(sorted(sources.items()))


class _Snapshot(NamedTuple):
    """The status of every source file by its path, and the time, in nanoseconds since 1970."""

    files: dict[str, os.stat_result]
    time: int


@functools.cache
def code_digest() -> str:
    """A hash of everything that compiled code depends on: sources, versions, the CPU, settings of Numba.

    FastattnError if a source was changed while this process imported the sources.
    """
    files, now = _first_snapshot()
    start = sys.modules["fastattn"]._imported_at - _CLOCK_LAG
    _refuse_changed(path for path, status in files.items() if start <= status.st_ctime_ns <= now)
    versions = sys.version, _numba_version(), llvmlite.__version__
    settings_text = repr((versions, compiled_name(), sorted(compiled_features()), settings()))
    return hashlib.sha256(f"{sources_digest(_PACKAGE, files)}{settings_text}".encode()).hexdigest()[:24]


@functools.cache
def installed_folder() -> Path:
    """The folder of ``PACKAGE`` whose code this process can run; one that does not exist if there is none.

    Whoever may write there may also change Python modules, so nobody's permissions are checked.
    """
    spec = None if settings() else importlib.util.find_spec(PACKAGE)
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place, target_digest())
        with contextlib.suppress(OSError):
            if set((folder / "features").read_text("ascii").split()) <= compiled_features():
                return folder
    return Path(os.devnull, "none")


def target_digest() -> str:
    """A hash of what compiled code depends on, whatever CPU of this target runs it and whatever Python calls it."""
    layout = object.__basicsize__, bytes.__basicsize__
    return hashlib.sha256(repr((sources_digest(_PACKAGE), TRIPLE, TARGET, layout)).encode()).hexdigest()[:24]


def check_sources() -> None:
    """Raise FastattnError if a source was changed since the first kernel was called.

    Modules are imported when they are first needed, so that this process may have old modules and new ones. Code that
    is compiled from both may compute anything, and would be stored under the digest of the old sources.
    """
    old, new = _first_snapshot().files, dict(_statuses(_PACKAGE))
    _refuse_changed(
        path for path in old.keys() | new.keys() if _file_stamp(old.get(path)) != _file_stamp(new.get(path))
    )


def check_kernels(file: str) -> None:
    """Raise FastattnError if a file of kernels was changed since the first kernel was called.

    An operation that is imported later expects the changed kernel, but this process has the code of the old kernel.
    """
    if code_digest.cache_info().currsize:
        path = os.path.join(_PACKAGE, "kernels", *file.split(".")) + ".py"
        status = os.stat(path) if os.path.exists(path) else None
        _refuse_changed([path] if _file_stamp(status) != _file_stamp(_first_snapshot().files.get(path)) else [])


def _refuse_changed(changed: Iterable[str]) -> None:
    """Raise FastattnError if one of the ``changed`` files is among ``kernel_sources``, or was deleted."""
    names = {Path(path).relative_to(_PACKAGE).as_posix() for path in changed}
    names -= {name for name in names if (_PACKAGE / name).exists()} - set(kernel_sources(_PACKAGE) if names else ())
    if names:
        raise FastattnError(f"{min(names)} of fastattn was changed while this process ran: start the process anew")


@functools.cache
def _first_snapshot() -> _Snapshot:
    return _Snapshot(dict(_statuses(_PACKAGE)), time.time_ns())


def _file_stamp(status: os.stat_result | None) -> tuple[int, ...]:
    """Size, time and inode, which change when a file is written or replaced, but not when a link to it is made."""
    return (status.st_size, status.st_mtime_ns, status.st_ino) if status else ()


@functools.cache
def settings() -> dict[str, str]:
    """The values of SETTINGS at the call of the first kernel."""
    return {name: os.environ[name] for name in SETTINGS if name in os.environ}


def sources_digest(package: Path, files: dict[str, os.stat_result] | None = None) -> str:
    """The SHA-256 of the sources and their names, in hexadecimal.

    The cache folder has the digest with a hash of the sizes and times of all files: reading and hashing the sources
    would take 15 ms of every start, reading the sizes and times takes 1 ms.

    files  path -> status, by default as the files are now
    """
    files = dict(_statuses(package)) if files is None else files
    lines = [f"{path} {f.st_size} {f.st_mtime_ns} {f.st_ctime_ns} {f.st_ino}" for path, f in files.items()]
    stamp = hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
    digest_file = cache_root() / "kernels" / f"{hashlib.sha256(os.fsencode(package)).hexdigest()[:24]}.sources"
    with contextlib.suppress(OSError, ValueError):
        with open_trusted(digest_file, 1) as stream:
            old_stamp, digest = stream.readall().decode("ascii").split()
        if old_stamp == stamp:
            mark_used(digest_file, A_DAY)
            return digest
    total = hashlib.sha256()
    for name, contents in kernel_sources(package).items():
        total.update(name.encode() + b"\0" + contents)
    # A file that was written just now may change again without a new time.
    if all(abs(time.time_ns() - status.st_ctime_ns) > _CLOCK_LAG for status in files.values()):
        with contextlib.suppress(OSError):
            make_folder(digest_file.parent)
            write_whole(digest_file, lambda stream: stream.writelines([f"{stamp} {total.hexdigest()}".encode()]))
    return total.hexdigest()


def _statuses(folder: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    """(path, status) of each source file below a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue  # a file of an editor, perhaps a broken link
            with contextlib.suppress(FileNotFoundError):  # a broken link, or a file that was deleted meanwhile
                if entry.name.endswith(".py"):
                    yield entry.path, entry.stat()
                elif entry.is_dir() and entry.name != "__pycache__":
                    yield from _statuses(entry.path)


def _numba_version() -> bytes:
    """The contents of the file with Numba's version, read without importing Numba; b"" if there is none."""
    spec = importlib.util.find_spec("numba")
    for folder in (spec and spec.submodule_search_locations) or ():
        with contextlib.suppress(OSError):
            return Path(folder, "_version.py").read_bytes()
    return b""


def _imports(contents: bytes) -> set[str]:
    """``a.b`` for ``import fastattn.a.b``; ``a`` and ``a.b`` for ``from fastattn.a import b``: b may be a module."""
    modules: set[str] = set()
    for module, imports in _IMPORT.findall(contents):
        names = {f"{module.decode()}.{name.decode()}" for name in re.findall(rb"(?:^|[(,])\s*(\w+)", imports)}
        modules |= {name[1:] for name in {module.decode(), *names} if name}
    return modules


def _files(package: Path, module: str) -> list[Path]:
    """The files of a module and of the packages above it."""
    *folders, last = module.split(".")
    paths = [package.joinpath(*folders[: n + 1]) / "__init__.py" for n in range(len(folders))]
    paths += [package.joinpath(*folders, last, "__init__.py"), package.joinpath(*folders, f"{last}.py")]
    return [path for path in paths if path.is_file()]
