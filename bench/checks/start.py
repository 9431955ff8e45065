"""Start-up: imports, loading, compiling, and the memory of a process that does it."""

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
from fastattn.cache_folder import cache_root

LOAD = """
import json, time
start = time.perf_counter()
import fastattn
imported = time.perf_counter()
fastattn.Translator("zh-en")
print(json.dumps([imported - start, time.perf_counter() - imported]))
"""


def python(*arguments: str, cache: Path | None = None) -> str:
    """The standard output of a Python process, with the cache folder ``cache`` if given."""
    environment = {**os.environ, **({"FASTATTN_CACHE": str(cache)} if cache else {})}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    return done.stdout


def _translate(data: Data) -> list[str]:
    """The command that translates a sentence, in int8, which "auto" selects for this checkpoint."""
    return ["-m", "fastattn.cli", "translate", "-m", "zh-en", data.flores("zh")[0]]


@check(
    "start-warm",
    "a fresh process, kernels in the cache, median of 5: import fastattn 0.3 s, Translator 0.7 s, "
    "the command that translates a sentence 1.3 s in all; in int8, which a user gets unasked",
)
def warm(data: Data) -> tuple[bool, str]:
    command = _translate(data)
    python(*command)
    commands, loads = [], []
    for _ in range(5):
        loads.append(json.loads(python("-c", LOAD)))
        commands.append(once(lambda: python(*command)))
    imports, translators = zip(*loads, strict=True)
    findings = Findings()
    findings.at_most("import", statistics.median(imports), "s", 0.3)
    findings.at_most("Translator", statistics.median(translators), "s", 0.7)
    findings.at_most("command", statistics.median(commands), "s", 1.3)
    return findings.verdict


@check("int8-start", "the command that translates a sentence in int8, fresh process, kernels in the cache, of 5: 1.0 s")
def warm_int8(data: Data) -> tuple[bool, str]:
    command = [*_translate(data), "--precision", "int8"]
    python(*command)
    findings = Findings()
    times = [once(lambda: python(*command)) for _ in range(5)]
    findings.at_most("median", statistics.median(times), "s", 1.0, f"{min(times):.2f} to {max(times):.2f} s")
    return findings.verdict


@check("start-cold", "an empty cache: 15 s of compiling for the command that translates a sentence in float32")
def cold(data: Data) -> tuple[bool, str]:
    findings = Findings()
    _compiling(findings, [*_translate(data), "--precision", "float32"], 15)
    return findings.verdict


@check(
    "cold-all",
    "an empty cache: 20 s of compiling for the command that translates a sentence as a user gets it, in int8, "
    "40 s for all there is in all precisions (warmup)",
)
def cold_all(data: Data) -> tuple[bool, str]:
    findings = Findings()
    _compiling(findings, _translate(data), 20)
    with tempfile.TemporaryDirectory() as folder:
        cache = _empty_cache(Path(folder))
        findings.at_most("warmup", once(lambda: python("-m", "fastattn.cli", "warmup", cache=cache)), "s", 40)
    return findings.verdict


def _compiling(findings: Findings, command: list[str], wanted: float) -> None:
    """The extra time of a command's first run."""
    with tempfile.TemporaryDirectory() as folder:
        cache = _empty_cache(Path(folder))
        first = once(lambda: python(*command, cache=cache))
        again = statistics.median(once(lambda: python(*command, cache=cache)) for _ in range(3))
    findings.at_most("one translation", first - again, "s", wanted, f"{first:.1f} s, then {again:.1f} s")


def _empty_cache(folder: Path) -> Path:
    """A cache with the checkpoints but no kernels."""
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
