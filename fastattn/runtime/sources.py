"""The sources of compiled code: those of the kernels and of everything of fastattn that they import.

A constant of any of them may be frozen into machine code. Imports are found in the text, since the files are read
anyway: what Python's own parser would take for that, 0.1 s, every start would wait for.
"""

import hashlib
import re
from pathlib import Path

_IMPORT = re.compile(rb"^[ \t]*(?:from|import) +fastattn(?:\.([\w.]+)| +import +([\w, ]+))", re.MULTILINE)
ROOTS = "kernels", "functions"  # of users, whose types are named by what rewrites them


def kernel_sources(package: Path) -> dict[str, bytes]:
    """Path below the package -> contents, of every module below ROOTS and of what those import, in order."""
    found: dict[str, bytes] = {}
    imported: set[str] = set()
    waiting = [path for root in ROOTS for path in (package / root).rglob("*.py")]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(package).as_posix()
        if name not in found:
            found[name] = path.read_bytes()
            for module in _imports(found[name]) - imported:
                imported.add(module)
                waiting += _files(package, module)
    return dict(sorted(found.items()))


def sources_digest(package: Path, more: object) -> str:
    """The SHA-256 of the sources, their names, and the text of ``more``, in hexadecimal."""
    digest = hashlib.sha256()
    for name, contents in kernel_sources(package).items():
        digest.update(name.encode() + b"\0" + contents)
    digest.update(repr(more).encode())
    return digest.hexdigest()


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
