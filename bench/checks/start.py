"""Start-up: imports, loading, compiling, and the memory of a process that does it."""

import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, command_of, python
from bench.checks.light import PEER, translate_locally
from bench.memory import peak_of_command
from bench.timing import alternate, once
from bench.translate_locally import write_lines
from fastattn.runtime.compiling import SWITCH
from fastattn.system.cache_folder import cache_root

LIGHT_MB = 100  # at the peak of a command that translates a line with en-pt; 116 where LLVM is loaded


def _translate(data: Data) -> list[str]:
    """The command that translates a sentence in int8, which "auto" selects for this checkpoint."""
    return ["-m", "fastattn.cli", "translate", "-m", "zh-en", data.flores("zh")[0]]


@check("int8-start", "the command that translates a sentence in int8, fresh process, kernels in the cache, of 5: 1.0 s")
def warm(findings: Findings, data: Data) -> None:
    command = [*_translate(data), "--precision", "int8"]
    python(*command)
    times = [once(lambda: python(*command)) for _ in range(5)]
    findings.at_most("median", statistics.median(times), "s", 1.0, f"{min(times):.2f} to {max(times):.2f} s")


@check(
    "start-light",
    "a line with en-pt, int8, fresh process, kernels in the cache: at most translateLocally's time, and no more memory "
    f"than {LIGHT_MB} MB",
)
def light(findings: Findings, data: Data) -> None:
    line = data.flores("en")[0]
    command = command_of("en-pt", line)
    with translate_locally() as (peer, scratch):
        theirs, environment = peer.command(
            "en-pt", write_lines(scratch / "line", [line]), scratch / "out", max(THREADS)
        )
        run = partial(subprocess.run, theirs, env=environment, check=True, capture_output=True)
        seconds = alternate({"ours": partial(python, *command), "theirs": run}, rounds=15, seconds=60.0)
        ours, peers = peak_of_command([sys.executable, *command]), peak_of_command(theirs, environment)
    remark = f"{seconds['ours']:.3f} and {seconds['theirs']:.3f} s"
    findings.at_most("whole process:", seconds["ours"] / seconds["theirs"], f"x {PEER}'s time", 1.0, remark)
    findings.at_most("peak", ours / 1e6, "MB", LIGHT_MB, f"{PEER} {peers / 1e6:.0f} MB")


@check("start-cold", "an empty cache: the command that translates a line with en-pt as a user gets it takes 8 s in all")
def cold(findings: Findings, data: Data) -> None:
    command = command_of("en-pt", data.flores("en")[0])
    first, again = _cold_and_warm(command)
    findings.at_most("first", first, "s", 8, f"then {again:.2f} s")


@check(
    "cold-all",
    "an empty cache: 5 s of compiling for the command that translates a sentence as a user gets it, in int8, "
    "25 s for all there is in all precisions (warmup)",
)
def cold_all(findings: Findings, data: Data) -> None:
    first, again = _cold_and_warm(_translate(data))
    findings.at_most("one translation", first - again, "s", 5, f"{first:.1f} s, then {again:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        cache = _empty_cache(Path(folder))
        findings.at_most("warmup", once(lambda: python("-m", "fastattn.cli", "warmup", cache=cache)), "s", 25)


@check(
    "start-numba",
    "the command that translates a line with en-pt, beside Numba's own cache and threads (as with a version of Numba "
    "that fastattn does not know): at most half its time with an empty cache and later; the process that compiles "
    "ahead takes 10% off the time with an empty cache",
)
def numba(findings: Findings, data: Data) -> None:
    command = command_of("en-pt", data.flores("en")[0])
    other = "import numba; numba.version_info = numba.version_info._replace(short=(0, 0))"
    by_numba = ["-c", f"{other}; from fastattn.cli import main; main()", *command[2:]]
    first, _ = _cold_and_warm(command)
    alone, later = _cold_and_warm(command, {SWITCH: "0"})  # no second process computes beside later runs
    first_by_numba, later_by_numba = _cold_and_warm(by_numba)
    findings.at_most(
        "empty cache", first / first_by_numba, "x Numba's time", 0.5, f"{first:.1f}, {first_by_numba:.1f} s"
    )
    findings.at_most("later", later / later_by_numba, "x Numba's time", 0.5, f"{later:.2f}, {later_by_numba:.2f} s")
    findings.at_most("second process", first / alone, "x the time without a second process", 0.9, f"{alone:.1f} s")


def _cold_and_warm(command: list[str], variables: dict[str, str] | None = None) -> tuple[float, float]:
    """Seconds of a command's first run, with an empty cache, and of later ones."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {"NUMBA_CACHE_DIR": folder, **(variables or {})}
        run = partial(python, *command, cache=_empty_cache(Path(folder)), variables=variables)
        first = once(run)
        return first, statistics.median(once(run) for _ in range(3))


def _empty_cache(folder: Path) -> Path:
    """A cache with the checkpoints but no kernels."""
    (folder / "checkpoints").symlink_to(cache_root().absolute() / "checkpoints", target_is_directory=True)
    return folder
