"""Strikes processes at random moments and looks at what is left: a line for each fault, one that counts, exit status 1.

    python -m tests.runtime.run_abuse forks 1000       children forked while other threads load and translate
    python -m tests.runtime.run_abuse interrupts 1000  Ctrl-C through the API
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
from typing import Any

from fastattn.system.cache_folder import cache_root
from tests.children import run_child
from tests.weights.ctranslate2.writer import write_tiny
from tests.weights.download.index_server import IndexServer, entry_of, zipped

COMMAND = "import sys; from fastattn.cli import main; print('ready', flush=True); main()"

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
    rounds = ((begun, min(250, count - begun)) for begun in range(0, count, 250))
    return [fault for begun, some in rounds for fault in _faults_of(INTERRUPTS, some, begun)]


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
        makes = [partial(pull, server=server), output, compiled, packed]
        works = [make(Path(folder)) for make in makes[:count]]
        for number in range(count):
            faults += works[number % len(works)].strike(number)
    return faults


class Work:
    """A command that leaves files in a folder of its own, which is empty before each run but for ``links``.

    code         Python that the process runs with ``arguments``; it prints "ready" once it is fastattn's own.
    links        what is there before, by its path in the folder
    same         what of a file's bytes is the same after each run
    environment  what is set beside the system's; None: removed.
    """

    def __init__(self, folder: Path, code: str, *arguments: str, **more: Any) -> None:
        self.folder = folder
        self.links, self.same = more.pop("links", {}), more.pop("same", bytes)
        self.command = [sys.executable, "-W", "error", "-c", code, *arguments]
        settings = {**os.environ, "NUMBA_NUM_THREADS": "2", "FASTATTN_CACHE": str(folder / "cache"), **more}
        self.environment = {name: value for name, value in settings.items() if value is not None}
        for _ in range(2):  # the first compiles what it needs that is shared
            self._clear()
            begun = time.perf_counter()
            self._run()
        self.lasts, self.expected = time.perf_counter() - begun, self.left()

    def left(self) -> dict[str, bytes]:
        """What the command leaves, by path.

        But for a checkpoint as it was read: a later run than the first keeps it, whole, if the files are older.
        """
        found = {path.relative_to(self.folder).as_posix(): path for path in self.folder.rglob("*") if path.is_file()}
        apart = tuple(self.links)
        names = [name for name in found if not name.endswith(".checkpoint") and not name.startswith(apart)]
        return {name: self.same(found[name].read_bytes()) for name in names}

    def strike(self, number: int) -> list[str]:
        """A run that is killed, and one after it: what is wrong, a line each."""
        kind = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[number // 4 % 3]
        self._struck(kind)
        faults = [f"partial: {name}" for name, data in self.left().items() if self.expected.get(name, data) != data]
        try:
            self._run()
        except AssertionError as error:
            faults.append(f"the next run: {error}")
        left = self.left()
        for name in sorted(left.keys() | self.expected.keys()):
            if left.get(name) != self.expected.get(name):
                how = "left" if name not in self.expected else "other bytes" if name in left else "lacks"
                faults.append(f"{how}: {name}")
        return [f"{self.folder.name} {number}, {kind.name}: {fault}" for fault in faults]

    def _clear(self) -> None:
        subprocess.run(["rm", "-rf", str(self.folder)], check=True)
        self.folder.mkdir(parents=True)
        for name, target in self.links.items():
            (self.folder / name).parent.mkdir(parents=True)
            (self.folder / name).symlink_to(target)

    def _start(self) -> subprocess.Popen:
        none, pipe = subprocess.DEVNULL, subprocess.PIPE
        return subprocess.Popen(self.command, env=self.environment, stdin=none, stdout=pipe, stderr=pipe)

    def _struck(self, kind: signal.Signals) -> None:
        """A run that a signal ends at a random moment."""
        self._clear()
        with self._start() as process:
            process.stdout.readline()
            time.sleep(random.uniform(0, self.lasts))
            process.send_signal(kind)
            process.communicate(timeout=60)

    def _run(self) -> None:
        with self._start() as process:
            _, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, f"{process.returncode}: {stderr.decode().splitlines()[-1:]}"


def pull(root: Path, server: IndexServer) -> Work:
    """The download of an archive, checked and unpacked."""
    content = random.Random(0).randbytes(4_000_000)
    archive = zipped({"model": content, "words": content[:1000]})
    entry = entry_of(archive, "t.zip", {"model": "model", "words": "words"}, size=5_000_000)
    server.answers["/simple/tiny-model/"] = ("text/html", b'<a href="/files/t.zip">t.zip</a>')
    server.answers["/files/t.zip"] = ("application/zip", archive)
    code = f"from fastattn.weights.download.catalog import CatalogEntry{PULL.format(entry=entry)}{COMMAND}"
    unset = [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]
    settings = dict.fromkeys([*unset, "FASTATTN_OFFLINE"])
    settings |= {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"{server.url}/simple"}

    def same(data: bytes) -> bytes:
        return re.sub(rb"pulled: .*", b"", data) if len(data) < 2000 else data

    return Work(root / "pull", code, "pull", "tiny", same=same, **settings)


def compiled(root: Path) -> Work:
    """A kernel compiled into an empty cache; machine code holds addresses, and has its own digest."""
    return Work(root / "compile", COMPILE, same=lambda data: data[:24])


def translated(root: Path, name: str, lines: int, *more: str) -> Work:
    """A model whose packed weights go into the cache, and lines that it translates."""
    model, text = root / f"{name}-model", root / f"{name}.txt"
    write_tiny(model)
    text.write_text("▁w1 ▁w2 ▁w3\n" * lines, encoding="utf-8")
    arguments = "translate", "-m", str(model), "--max-length", "3", "-i", str(text), *more
    return Work(root / name, COMMAND, *arguments, links={"cache/kernels": cache_root().absolute() / "kernels"})


def packed(root: Path) -> Work:
    return translated(root, "pack", 1)


def output(root: Path) -> Work:
    return translated(root, "output", 300, "-o", str(root / "output" / "out.txt"))


KINDS: dict[str, Callable[[int], list[str]]] = {"forks": forks, "interrupts": interrupts, "kills": kills}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("count", type=int)
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and its children
    begun = time.monotonic()
    faults = KINDS[chosen.kind](chosen.count)
    print(*faults, f"{chosen.count:,} {chosen.kind}: {len(faults)} faults, {time.monotonic() - begun:.0f} s", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
