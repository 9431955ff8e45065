"""Compares the speed of two commits, in processes that alternate.

    python -m bench.commits BEFORE [AFTER] [--threads N,N] [--only TEXT] [--rounds N] [--data DIR] [--compiling]

Each commit (AFTER: by default the one that is checked out) is laid out as if installed, under build/commits/NAME. One
process of each keeps the models loaded; the two run each case alternately. Then processes that start, load, translate
one sentence and end, also alternately; with --compiling, the time to compile all kernels. The figure is the median of
the ratios of adjacent samples, AFTER over BEFORE: above 1 is slower. Every line is printed, none is judged.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from bench.machine import ROOT
from bench.sentences import sentences
from bench.timing import once
from fastattn.system.cache_folder import cache_root

CHILD = Path(__file__).with_name("commits_child.py")
BATCH, SINGLE = 64, 6


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.commits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", nargs="?", default="HEAD", metavar="AFTER")
    parser.add_argument("--threads", default="1,2", metavar="N,N")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains it")
    parser.add_argument("--rounds", type=int, default=9, metavar="N")
    parser.add_argument("--data", type=Path, metavar="DIR", help="holds flores-dev/flores-dev.{en,zh}")
    parser.add_argument("--compiling", action="store_true", help="the compiling of all kernels too")
    options = parser.parse_args()
    trees = [installed(name) for name in (options.before, options.after)]
    texts = {language: sentences(language, BATCH, options.data) for language in ("en", "zh")}
    for threads in map(int, options.threads.split(",")):
        compare_calls(trees, texts, threads, options)
    compare_processes(trees, texts, options)
    return 0


def installed(name: str) -> Path:
    """The folder with a commit's ``fastattn``, its weights and command line included."""
    done = subprocess.run(["git", "rev-parse", "--short", name], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"expected a commit of this repository: {done.stderr.strip()}")
    return _laid_out(done.stdout.strip())


@cache
def _laid_out(commit: str) -> Path:
    folder = ROOT / "build" / "commits" / commit
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit, "fastattn", "weights", "cli"], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    for part in ("weights", "cli"):
        (folder / part).rename(folder / "fastattn" / part)
    # as pip does: if the environment forbids .pyc files, every start would compile, and longer files take longer
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)
    return folder


class Child:
    def __init__(self, tree: Path, texts: dict[str, list[str]], threads: int) -> None:
        command = [sys.executable, str(CHILD), str(tree), str(threads)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tree,
            env={**os.environ, "NUMBA_NUM_THREADS": str(threads)},  # attention uses all threads
        )
        self.cases = self.ask({"texts": texts, "single": SINGLE})

    def ask(self, question: object) -> list:
        print(json.dumps(question), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"the process of {self.process.args[2]} ended with status {self.process.wait()}")
        return json.loads(answer)

    def time(self, case: str) -> float:
        """Seconds of a case; for "peak" the bytes of peak memory."""
        return self.ask(case)[0]

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def compare_calls(trees: list[Path], texts: dict[str, list[str]], threads: int, options: argparse.Namespace) -> None:
    children, on = [Child(tree, texts, threads) for tree in trees], f"{threads} thread{'s'[: threads > 1]}"
    for name in children[1].cases:
        if options.only in name and name in children[0].cases:
            pairs = alternate([partial(child.time, name) for child in children], options.rounds)
            say(f"{name}, {on}", pairs, 1e3, "ms")
    say(f"peak memory, {on}", [tuple(child.time("peak") for child in children)], 1e-6, "MB")
    for child in children:
        child.end()


def alternate(calls: list[Callable[[], float]], rounds: int) -> list[tuple[float, float]]:
    """(before, after) of each round; they take turns in running first. An extra first round is not counted."""
    pairs = []
    for turn in range(rounds + 1):
        times = {i: calls[i]() for i in ((0, 1), (1, 0))[turn % 2]}
        pairs.append((times[0], times[1]))
    return pairs[1:]


def say(name: str, pairs: list[tuple[float, float]], factor: float, unit: str) -> None:
    ratio = statistics.median(after / before for before, after in pairs)
    before, after = (statistics.median(values) * factor for values in zip(*pairs, strict=True))
    print(f"{ratio:6.3f}  {name}: {before:.2f} -> {after:.2f} {unit}", flush=True)


def compare_processes(trees: list[Path], texts: dict[str, list[str]], options: argparse.Namespace) -> None:
    """Compare whole processes; each commit has its own cache of weights and kernels, written by the first run."""
    commands = {
        "import": ["-c", "import fastattn; fastattn.Translator"],
        "load zh-en int8": ["-c", "import fastattn; fastattn.Translator('zh-en', precision='int8')"],
        "load minilm": ["-c", "import fastattn; fastattn.Encoder('minilm')"],
        "translate one": ["-m", "fastattn.cli", "translate", "-m", "zh-en", texts["zh"][0]],
        "encode one": ["-m", "fastattn.cli", "encode", "-m", "minilm", texts["en"][0]],
    }
    with tempfile.TemporaryDirectory() as scratch:
        runs = [(tree, own_cache(Path(scratch))) for tree in trees]
        for name, command in commands.items():
            if options.only in name:
                calls = [partial(seconds, tree, cache, command) for tree, cache in runs]
                say(f"process: {name}", alternate(calls, options.rounds), 1e3, "ms")
        if options.compiling:
            calls = [partial(compiling, tree, Path(scratch)) for tree in trees]
            say("compile all", alternate(calls, 2), 1, "s")


def own_cache(scratch: Path) -> Path:
    """A cache that has only the pulled checkpoints."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    (folder / "checkpoints").symlink_to(cache_root().absolute() / "checkpoints", target_is_directory=True)
    return folder


def compiling(tree: Path, scratch: Path) -> float:
    return seconds(tree, own_cache(scratch), ["-m", "fastattn.cli", "warmup"])


def seconds(tree: Path, cache: Path, command: list[str]) -> float:
    environment = {**os.environ, "FASTATTN_CACHE": str(cache), "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    run = [sys.executable, *command]
    return once(lambda: subprocess.run(run, env=environment, cwd=tree, stdout=subprocess.DEVNULL, check=True))


if __name__ == "__main__":
    sys.exit(main())
