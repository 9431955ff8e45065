"""Strikes processes at random moments and looks at what is left: a line for each fault, one that counts, exit status 1.

    python -m tests.runtime.run_abuse forks 1000       children forked while other threads load and translate
    python -m tests.runtime.run_abuse interrupts 1000  Ctrl-C through the API, every hundredth one at the command line
    python -m tests.runtime.run_abuse kills 500        SIGKILL, SIGTERM and SIGINT while a model is pulled, a kernel
                                                       compiled, weights are packed, an output is written

A child that was forked gives the results of its parent. After an interrupt the results have the same bits, the pool is
free and its helper is there. After a kill the next run works and leaves what a run leaves that nothing struck.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fastattn.system.cache_folder import cache_root
from tests.children import run_child
from tests.weights.ctranslate2.writer import write_tiny
from tests.weights.download.index_server import IndexServer, entry_of, zipped

READY = b"ready\n"
COMMAND = "import sys; from fastattn.cli import main; print('ready', flush=True); main()"
COMPILING = "fastattn: compiling kernels"

FORKS = """
import os, random, signal, sys, threading, time, warnings
from fastattn import runtime
from tests.runtime.workload import make_translator, translate

warnings.simplefilter("ignore")  # from 3.12 on Python warns of every fork beside threads
count, stopping = int(sys.argv[1]), False
translator = make_translator()
expected = translate(translator)

def load():
    while not stopping:
        translate(translator)
        make_translator()
        runtime.handle.cache_folder.cache_clear()

threads = [threading.Thread(target=load, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
for number in range(count):
    time.sleep(random.random() / 200)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that waits for ever is ended by it
        os._exit(0 if translate(make_translator()) == expected else 1)
    status = os.waitpid(child, 0)[1]
    if status:
        print(f"child {number}: status {status}")
stopping = True
for thread in threads:
    thread.join()
"""

INTERRUPTS = """
import random, signal, sys, time
from tests.runtime.workload import Workload, pool_fault

random.seed(int(sys.argv[2]))
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGINT))
# In a finalizer, of Python's own weak references say, an interrupt can only be told of, and the next one comes.
tell = sys.unraisablehook
sys.unraisablehook = lambda told: None if told.exc_type is KeyboardInterrupt else tell(told)
work = Workload()
expected = work.results()
begun = time.perf_counter()
work.results()
lasts = time.perf_counter() - begun
for number in range(int(sys.argv[1])):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1.5 * lasts), 5)
        while True:
            work.results()
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
    fault = pool_fault() or ("" if work.results() == expected else "other results")
    if fault:
        print(f"interrupt {number}: {fault}")
"""

PULL = """
from fastattn.weights.download import catalog
entry = {entry!r}
catalog.CATALOG[entry.name] = entry
"""

# Compiles the smallest kernel that there is, and has it in the cache.
COMPILE = """
import numpy as np
from fastattn.ops import cpu as operations

print("ready", flush=True)
seen_N2 = operations.seen_around(np.array([0, 2]), np.array([9]), np.zeros(1, np.int64), -1, 0)
assert seen_N2.tolist() == [[0, 1], [0, 2]]
"""


def forks(count: int) -> list[str]:
    """What went wrong in so many children, a line each."""
    return _faults_of(FORKS, count)


def interrupts(count: int) -> list[str]:
    """What went wrong after so many interrupts, a line each."""
    commands, faults = max(1, count // 100), []
    for begun in range(0, count - commands, 250):
        some = min(250, count - commands - begun)
        faults += _faults_of(INTERRUPTS, some, begun)
    with tempfile.TemporaryDirectory() as folder:
        output = _Output(Path(folder))
        for number in range(commands):
            faults += output.interrupt(number)
    return faults


def _faults_of(code: str, count: int, *more: int) -> list[str]:
    """What a child tells of so many rounds; that it ended otherwise is one too."""
    try:
        return run_child(code, str(count), *map(str, more), timeout=60 + 2 * count).splitlines()
    except (AssertionError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)  # whole: what is rare may not come again
        return ["; ".join(str(error).splitlines()[-3:])]


def kills(count: int) -> list[str]:
    """What went wrong after so many kills, a line each; they go round the four kinds of work."""
    faults = []
    with tempfile.TemporaryDirectory() as folder, IndexServer() as server:
        makes = [partial(_Pull, server=server), _Output, _Compile, _Pack]
        works = [make(Path(folder)) for make in makes[:count]]
        for number in range(count):
            faults += works[number % len(works)].strike(number)
    return faults


class _Work:
    """A command that leaves files in a folder of its own, which is empty before the first run.

    code         Python that the process runs, with ``arguments``; it prints "ready" once it is fastattn's own.
    environment  what is set beside the system's.
    """

    code, arguments = COMMAND, ()

    def __init__(self, root: Path) -> None:
        self.folder = root / type(self).__name__
        self.environment = {**os.environ, "NUMBA_NUM_THREADS": "2", "FASTATTN_CACHE": str(self.folder / "cache")}
        self.prepare(root)
        self._clear()
        self._run()  # compiles what it needs that is shared
        self._clear()
        begun = time.perf_counter()
        self._run()
        self.lasts, self.expected = time.perf_counter() - begun, self.left()

    def prepare(self, root: Path) -> None:
        """Make what the command reads."""

    def begin(self) -> None:
        """Make what the command expects in its folder."""

    def left(self) -> dict[str, bytes]:
        """What the command leaves, by path."""
        found = {path.relative_to(self.folder).as_posix(): path for path in self.folder.rglob("*")}
        return {name: path.read_bytes() for name, path in found.items() if path.is_file()}

    def strike(self, number: int) -> list[str]:
        """A run that is killed, and one after it: what is wrong, a line each."""
        kind = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[number // 4 % 3]
        self._clear()
        with self._start() as process:
            process.stdout.readline()
            time.sleep(random.uniform(0, self.lasts))
            process.send_signal(kind)
            process.communicate(timeout=60)
        partial = [name for name, data in self.left().items() if self._is_wrong(name, data)]
        faults = [f"partial: {name}" for name in partial]
        try:
            self._run()
        except AssertionError as error:
            faults.append(f"the next run: {error}")
        left = self.left()
        faults += [f"left: {name}" for name in left.keys() - self.expected.keys()]
        faults += [f"lacks: {name}" for name in self.expected.keys() - left.keys()]
        faults += [
            f"other bytes: {name}" for name in left.keys() & self.expected.keys() if self._is_wrong(name, left[name])
        ]
        return [f"{type(self).__name__[1:].lower()} {number}, {kind.name}: {fault}" for fault in faults]

    def interrupt(self, number: int) -> list[str]:
        """A run that Ctrl-C ends: 130, and at most a line."""
        self._clear()
        with self._start() as process:
            process.stdout.readline()
            time.sleep(random.uniform(0, self.lasts))
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
        # Python's own end takes its handlers away: what a shell calls 130 too, once all is done.
        fine = (130, 0, -signal.SIGINT) if self.left() == self.expected else (130,)
        faults = [] if process.returncode in fine else [f"exit status {process.returncode}"]
        faults += stderr.decode().splitlines()[1:]
        return [f"command line {number}: {fault}" for fault in faults]

    def _is_wrong(self, name: str, data: bytes) -> bool:
        """Whether a file is of a final name and not what it is to be."""
        return name in self.expected and self.same(data) != self.same(self.expected[name])

    def same(self, data: bytes) -> bytes:
        """What of a file is the same after each run."""
        return data

    def _clear(self) -> None:
        subprocess.run(["rm", "-rf", str(self.folder)], check=True)
        self.folder.mkdir(parents=True)
        self.begin()

    def _start(self) -> subprocess.Popen:
        command = [sys.executable, "-W", "error", "-c", self.code, *self.arguments]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )

    def _run(self) -> None:
        with self._start() as process:
            _, stderr = process.communicate(timeout=300)
        lines = [line for line in stderr.decode().splitlines() if not line.startswith(COMPILING)]
        assert process.returncode == 0, f"{process.returncode}: {lines[-1:]}"


class _Pull(_Work):
    """The download of an archive, checked and unpacked."""

    arguments = ("pull", "tiny")

    def __init__(self, root: Path, server: IndexServer) -> None:
        self._server = server
        super().__init__(root)

    def prepare(self, root: Path) -> None:
        content = random.Random(0).randbytes(4_000_000)
        archive = zipped({"model": content, "words": content[:1000]})
        entry = entry_of(archive, "t.zip", {"model": "model", "words": "words"}, size=5_000_000)
        self._server.answers["/simple/tiny-model/"] = ("text/html", b'<a href="/files/t.zip">t.zip</a>')
        self._server.answers["/files/t.zip"] = ("application/zip", archive)
        self.code = f"from fastattn.weights.download.catalog import CatalogEntry{PULL.format(entry=entry)}{COMMAND}"
        for name in list(self.environment):
            if name.startswith("PIP_") or name.lower().endswith("_proxy") or name == "FASTATTN_OFFLINE":
                del self.environment[name]
        self.environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"{self._server.url}/simple"}

    def same(self, data: bytes) -> bytes:
        return re.sub(rb"pulled: .*", b"", data) if len(data) < 2000 else data


class _Compile(_Work):
    """A kernel compiled into an empty cache."""

    code = COMPILE

    def same(self, data: bytes) -> bytes:
        return data[:24]  # machine code holds addresses, and has its own digest


class _Pack(_Work):
    """A model whose packed weights go into the cache, and one line that it translates."""

    def prepare(self, root: Path) -> None:
        write_tiny(root / "model")
        (root / "line.txt").write_text("▁w1 ▁w2\n", encoding="utf-8")  # no argument, which an ASCII locale cannot say
        self.arguments = ("translate", "-m", str(root / "model"), "--max-length", "3", "-i", str(root / "line.txt"))

    def begin(self) -> None:
        (self.folder / "cache").mkdir()
        (self.folder / "cache" / "kernels").symlink_to(cache_root().absolute() / "kernels")

    def left(self) -> dict[str, bytes]:
        """But for a checkpoint as it was read: a later run than the first keeps it, whole, if the files are older."""
        found = super().left().items()
        return {
            name: data for name, data in found if not (name.startswith("cache/kernels") or name.endswith(".checkpoint"))
        }


class _Output(_Pack):
    """A file of translations."""

    def prepare(self, root: Path) -> None:
        super().prepare(root)
        (root / "in.txt").write_text("▁w1 ▁w2 ▁w3\n" * 300, encoding="utf-8")
        output = str(self.folder / "out.txt")
        self.arguments = (*self.arguments[:-1], str(root / "in.txt"), "-o", output)


KINDS: dict[str, Callable[[int], list[str]]] = {"forks": forks, "interrupts": interrupts, "kills": kills}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("count", type=int)
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and its children
    begun = time.monotonic()
    faults = KINDS[chosen.kind](chosen.count)
    for fault in faults:
        print(fault)
    print(f"{chosen.count:,} {chosen.kind}: {len(faults)} faults, {time.monotonic() - begun:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
