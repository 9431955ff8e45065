"""Puts bugs into the sources, one at a time, and tells which of them no test sees.

    python tests/clone/run_mutants.py                         a sample of SAMPLE of all that could be put in
    python tests/clone/run_mutants.py --sample 40 --seed 7 weights/containers/archive.py fastattn/text
    python tests/clone/run_mutants.py --only fastattn/text/splitting.py:101

A mutant is a copy of the tree in which one comparison, operator, number, truth value or condition is another. The tests
of its package are run until the first failure, those of its file first; a mutant that they all pass has survived: a gap
in the tests, or a change that makes no difference. Messages of errors are left as they are. Printed are the survivors,
by file and line, and how many of how many were caught; a mutant that takes far longer than the tests counts as caught.

Why not mutmut or cosmic-ray: neither maps weights/ to fastattn.weights, and the latter runs all tests on each mutant.
"""

import argparse
import ast
import contextlib
import copy
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastattn.system.cache_folder import cache_root
from fastattn.system.progress import Progress

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("fastattn/decoding", "fastattn/text", "weights")
SAMPLE = 100
MOST_MEMORY = 16 << 30  # bytes a process; a loop that does not end may well grow

OTHERS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NEGATED_ALREADY = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)


@dataclass(frozen=True)
class Mutant:
    """``content`` from byte ``start`` to ``end`` of the file becomes ``replacement``."""

    path: str
    line: int
    start: int
    end: int
    content: str
    replacement: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.content.split())}  ->  {self.replacement}"


def mutants_of(path: str) -> Iterator[Mutant]:
    data = (ROOT / path).read_bytes()
    lines = [0]
    for line in data.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    for node, other in _changes(ast.parse(data)):
        start = lines[node.lineno - 1] + node.col_offset
        end = lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        # An assignment that is no expression takes no parentheses.
        text = ast.unparse(other) if isinstance(other, ast.stmt) else f"({ast.unparse(other)})"
        yield Mutant(path, node.lineno, start, end, data[start:end].decode(), text)


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """Each node that can be another, and that other; not in annotations or decorators, nor in what is raised."""
    if isinstance(node, ast.Raise | ast.JoinedStr) or _is_for_types(node):
        return
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                other = copy.deepcopy(node)
                other.ops[place] = OTHERS[type(operator)]()
                yield node, other
        case ast.BinOp(op=ast.Div()) if isinstance(node.right, ast.Constant) and isinstance(node.right.value, str):
            pass  # a path
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in OTHERS:
            other = copy.deepcopy(node)
            other.op = OTHERS[type(node.op)]()
            yield node, other
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node, node.operand
        case ast.Constant(value=bool()):
            yield node, ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield node, ast.Constant(node.value + 1)
        case ast.If() | ast.IfExp():
            yield from _negated(node.test)
        case ast.comprehension():
            for test in node.ifs:
                yield from _negated(test)
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _changes(child)


def _negated(test: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    simple = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], NEGATED_ALREADY)
    if not simple and not isinstance(test, ast.UnaryOp):
        yield test, ast.UnaryOp(ast.Not(), test)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def tests_of(path: str) -> tuple[str, ...]:
    """pytest's arguments: first the tests that are named like the file, then all of its package; their folders are."""
    file = Path("tests", path.removeprefix("fastattn/"))
    folder = next(folder for folder in file.parents if (ROOT / folder).is_dir())
    named = sorted((ROOT / folder).rglob(f"test_*{file.stem}*.py"))
    return (*(test.relative_to(ROOT).as_posix() for test in named), folder.as_posix())


class Workplace:
    """A copy of the tree, with a cache, a home and a place for temporary files of its own: what a mutant spoils."""

    def __init__(self, folder: Path):
        self.folder, self.tree = folder, folder / "tree"
        unwanted = shutil.ignore_patterns("__pycache__", ".*")
        for name in ("fastattn", "weights", "cli", "tests", "bench"):
            shutil.copytree(ROOT / name, self.tree / name, ignore=unwanted)
        shutil.copy(ROOT / "setup.cfg", self.tree)
        # What a process that compiles at this moment has not finished may vanish.
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(cache_root() / "kernels", folder / "cache/kernels", ignore=shutil.ignore_patterns("*.part"))

    def run(self, tests: Iterable[str], seconds: float) -> bool:
        """Whether the tests pass. Of what earlier runs have left, kernels alone stay: none of them is a mutant's."""
        for name in ("cache/packed", "cache/checkpoints", "home", "temporary"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in ("home", "temporary"):
            (self.folder / name).mkdir()
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.tree),
            "PYTHONDONTWRITEBYTECODE": "1",  # two mutants of a second and a size would share it
            "FASTATTN_CACHE": str(self.folder / "cache"),
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "temporary"),
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        posix: dict[str, Any] = {"start_new_session": True, "preexec_fn": _limit_memory} if os.name == "posix" else {}
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=self.tree, env=environment, **silent, **posix)
        try:
            return process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            _end(process)

    def survives(self, mutant: Mutant, seconds: float) -> bool:
        file = self.tree / mutant.path
        data = file.read_bytes()
        file.write_bytes(data[: mutant.start] + mutant.replacement.encode() + data[mutant.end :])
        try:
            return self.run(tests_of(mutant.path), seconds)
        finally:
            file.write_bytes(data)


def _limit_memory() -> None:
    import resource

    with contextlib.suppress(OSError, ValueError):  # a lower limit that is there already, or a system without this one
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def _end(process: subprocess.Popen) -> None:
    """The process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
    process.wait()


def chosen(rooms: list[str], only: str | None) -> list[Mutant]:
    if only is not None:
        path, _, line = only.rpartition(":")
        return [mutant for mutant in mutants_of(path) if mutant.line == int(line)]
    paths = [
        path for room in rooms for path in ((ROOT / room).glob("*.py") if (ROOT / room).is_dir() else [ROOT / room])
    ]
    return [mutant for path in sorted(paths) for mutant in mutants_of(path.relative_to(ROOT).as_posix())]


def main() -> None:
    parser = argparse.ArgumentParser(description="Put bugs in, and list those that no test sees.")
    parser.add_argument("rooms", nargs="*", default=ROOMS, help=f"files or folders; {', '.join(ROOMS)}")
    parser.add_argument("--sample", type=int, default=SAMPLE, help=f"how many mutants; 0: all ({SAMPLE})")
    parser.add_argument("--seed", type=int, default=1, help="which sample (1)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (2)")
    parser.add_argument("--only", metavar="FILE:LINE", help="all mutants of one line")
    arguments = parser.parse_args()
    mutants = chosen(arguments.rooms, arguments.only)
    of_all = len(mutants)
    if arguments.only is None and 0 < arguments.sample < of_all:
        mutants = [mutants[n] for n in sorted(random.Random(arguments.seed).sample(range(of_all), arguments.sample))]
    report(mutants, of_all, arguments.jobs)


def report(mutants: list[Mutant], of_all: int, jobs: int) -> None:
    start, survived = time.monotonic(), 0
    places: queue.SimpleQueue[Workplace] = queue.SimpleQueue()
    seconds: dict[tuple[str, ...], float] = {}

    def measure(tests: tuple[str, ...]) -> None:
        place, before = places.get(), time.monotonic()
        if not place.run(tests, 600):
            raise SystemExit(f"without a mutant these fail already: {' '.join(tests)}")
        seconds[tests] = time.monotonic() - before
        places.put(place)

    def judge(mutant: Mutant) -> bool:
        place = places.get()
        try:
            return place.survives(mutant, 30 + 3 * seconds[tests_of(mutant.path)])
        finally:
            places.put(place)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        for number in range(jobs):
            (Path(folder) / str(number)).mkdir()
            places.put(Workplace(Path(folder) / str(number)))
        list(pool.map(measure, sorted({tests_of(mutant.path) for mutant in mutants})))
        with Progress() as progress:
            for number, (mutant, unseen) in enumerate(zip(mutants, pool.map(judge, mutants)), start=1):
                if unseen:
                    survived += 1
                    progress.clear()
                    print(mutant, flush=True)
                progress.show(f"{number} of {len(mutants)} mutants, {survived} survived")
    caught, minutes = len(mutants) - survived, (time.monotonic() - start) / 60
    share = caught / max(len(mutants), 1)
    print(f"caught {caught} of {len(mutants)} ({share:.0%}), out of {of_all}; {minutes:.1f} min")


if __name__ == "__main__":
    main()
