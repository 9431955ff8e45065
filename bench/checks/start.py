"""From nothing to a translation: imports, loading, compiling, and the memory of a process that does it."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, in_child, plural, request
from bench.machine import ROOT
from bench.timing import once
from fastattn.cache import cache_root

LOAD = """
import json, time
start = time.perf_counter()
import fastattn
imported = time.perf_counter()
fastattn.Translator("zh-en")
print(json.dumps([imported - start, time.perf_counter() - imported]))
"""


def _python(*arguments: str, cache: Path | None = None) -> str:
    """The standard output of a Python process, with a cache of its own where one is given."""
    environment = {**os.environ, **({"FASTATTN_CACHE": str(cache)} if cache else {})}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    return done.stdout


def _translate(data: Data) -> list[str]:
    return ["-m", "fastattn.cli", "translate", "-m", "zh-en", data.flores("zh")[0]]


@check(
    "start-warm",
    "a fresh process, kernels in the cache, median of 5: import fastattn 0.3 s, Translator 0.7 s, "
    "the command that translates a sentence 1.3 s in all",
)
def warm(data: Data) -> tuple[bool, str]:
    command = _translate(data)
    _python(*command)
    commands, loads = [], []
    for _ in range(5):
        loads.append(json.loads(_python("-c", LOAD)))
        commands.append(once(lambda: _python(*command)))
    imports, translators = zip(*loads, strict=True)
    findings = Findings()
    findings.at_most("import", statistics.median(imports), "s", 0.3)
    findings.at_most("Translator", statistics.median(translators), "s", 0.7)
    findings.at_most("command", statistics.median(commands), "s", 1.3)
    return findings.verdict


@check("start-cold", "an empty cache: 15 s of compiling for the command that translates a sentence, 30 s for warmup")
def cold(data: Data) -> tuple[bool, str]:
    command = _translate(data)
    with tempfile.TemporaryDirectory() as folder:
        cache = _empty_cache(Path(folder))
        first = once(lambda: _python(*command, cache=cache))
        again = statistics.median(once(lambda: _python(*command, cache=cache)) for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        cache = _empty_cache(Path(folder))
        all_of_them = once(lambda: _python("-m", "fastattn.cli", "warmup", cache=cache))
    findings = Findings()
    findings.at_most("one translation", first - again, "s", 15, f"{first:.1f} s, then {again:.1f} s")
    findings.at_most("warmup", all_of_them, "s", 30)
    return findings.verdict


def _empty_cache(folder: Path) -> Path:
    """No kernels, but the checkpoints."""
    (folder / "checkpoints").symlink_to(cache_root().absolute() / "checkpoints", target_is_directory=True)
    return folder


@check(
    "zh-en-memory",
    "peak resident after loading and one sentence, greedy, one thread and two: 1.5 x the weights in float32 and 200 MB",
)
def memory(data: Data) -> tuple[bool, str]:
    findings = Findings()
    for threads in THREADS:
        found = in_child(request(data, "resources", threads, item="translate fastattn", size="toy"))
        wanted = (1.5 * found["weights"] + 200e6) / 1e6
        remark = f"weights {found['weights'] / 1e6:.0f} MB"
        findings.at_most(plural(threads), found["resident"] / 1e6, "MB", wanted, remark)
    return findings.verdict
