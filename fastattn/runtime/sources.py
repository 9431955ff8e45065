"""The sources of compiled code: those of the kernels and of everything of fastattn that they import.

A constant of any of them may be frozen into machine code. Imports are found in the text, since the files are read
anyway: what Python's own parser would take for that, 0.1 s, every start would wait for.
"""

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import llvmlite

from fastattn.atomic_files import make_folder, open_trusted, write_whole
from fastattn.cache_folder import A_DAY, cache_root, mark_used
from fastattn.simd.target import compiled_features, compiled_name

_IMPORT = re.compile(rb"^[ \t]*(?:from|import) +fastattn(?:\.([\w.]+)| +import +([\w, ]+))", re.MULTILINE)
ROOTS = "kernels", "functions"  # of users, whose types are named by what rewrites them


def kernel_sources(package: Path) -> dict[str, bytes]:
    """Path below the package -> contents, of every module below ROOTS and of what those import, in order."""
    found: dict[str, bytes] = {}
    imported: set[str] = set()
    waiting = [path for root in ROOTS for path in (package / root).rglob("[!.]*.py")]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(package).as_posix()
        if name not in found:
            found[name] = path.read_bytes()
            for module in _imports(found[name]) - imported:
                imported.add(module)
                waiting += _files(package, module)
    return dict(sorted(found.items()))


@functools.cache
def code_digest() -> str:
    """A hash of everything that compiled code depends on: sources, versions, the CPU."""
    versions = sys.version, _numba_version(), llvmlite.__version__
    more = repr((versions, compiled_name(), sorted(compiled_features())))
    package = Path(__file__).resolve().parent.parent
    return hashlib.sha256(f"{sources_digest(package)}{more}".encode()).hexdigest()[:24]


def sources_digest(package: Path) -> str:
    """The SHA-256 of the sources and their names, in hexadecimal.

    Remembered in the cache folder for the package as it stands, every file's size and times: reading and hashing all
    of them takes every start 15 ms, looking at them 1.
    """
    stamp = hashlib.sha256("\n".join(sorted(_stamps(os.fspath(package)))).encode()).hexdigest()
    memory = cache_root() / "kernels" / f"{hashlib.sha256(os.fsencode(package)).hexdigest()[:24]}.sources"
    with contextlib.suppress(OSError, ValueError):
        with open_trusted(memory, 1) as stream:
            known, digest = stream.readall().decode("ascii").split()
        if known == stamp:
            mark_used(memory, A_DAY)
            return digest
    total = hashlib.sha256()
    for name, contents in kernel_sources(package).items():
        total.update(name.encode() + b"\0" + contents)
    with contextlib.suppress(OSError):
        make_folder(memory.parent)
        write_whole(memory, lambda stream: stream.writelines([f"{stamp} {total.hexdigest()}".encode()]))
    return total.hexdigest()


def _stamps(folder: str) -> Iterator[str]:
    """A line for each source: a file that was changed, or replaced, has another."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue  # an editor's, perhaps a link to nowhere
            if entry.name.endswith(".py"):
                found = entry.stat()
                yield f"{entry.path} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _stamps(entry.path)


def _numba_version() -> bytes:
    """What tells versions of Numba apart, found without importing it."""
    found = importlib.util.find_spec("numba")
    for folder in (found and found.submodule_search_locations) or ():
        with contextlib.suppress(OSError):
            return Path(folder, "_version.py").read_bytes()
    return b""


def _imports(contents: bytes) -> set[str]:
    """``a.b`` for ``from fastattn.a.b import c`` and for ``from fastattn import a.b``."""
    modules: set[str] = set()
    for inside, several in _IMPORT.findall(contents):
        modules |= {inside.decode()} if inside else {name.split()[0] for name in several.decode().split(",")}
    return modules


def _files(package: Path, module: str) -> list[Path]:
    """Of a module, and of the packages that are imported on the way to it."""
    *rooms, last = module.split(".")
    places = [package.joinpath(*rooms[: n + 1]) / "__init__.py" for n in range(len(rooms))]
    places += [package.joinpath(*rooms, last, "__init__.py"), package.joinpath(*rooms, f"{last}.py")]
    return [place for place in places if place.is_file()]
