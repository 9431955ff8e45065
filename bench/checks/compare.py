"""The benchmark's cases and child processes, for checks."""

import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.case import OURS, Case, run_case
from bench.checks import Data
from bench.machine import ROOT
from bench.orchestra import run_child
from bench.request import Request
from bench.timing import alternate, library_threads
from fastattn.ops.cpu import use_threads
from fastattn.system.cache_folder import cache_root
from fastattn.weights import download

THREADS = (1, 2)
PAUSE = 0.3  # seconds until the previous engine's threads stop waiting for work on their cores


def pause(threads: int) -> float:
    return PAUSE if threads > 1 else 0.0


def plural(threads: int) -> str:
    return f"{threads} thread{'s'[: threads > 1]}"


def folder_of(model: str) -> Path:
    return download.resolve(model).absolute()


def request(data: Data, part: str, threads: int, **fields: Any) -> Request:
    (peers := cache_root() / "bench").mkdir(parents=True, exist_ok=True)
    names = {"encoder": "minilm", "translator": "zh-en", "light": "en-pt"}
    models = {field: str(folder_of(name)) for field, name in names.items()}
    return Request(part, threads, data=str(data.root.absolute()), cache=str(peers), **models, **fields)


def in_child(request: Request) -> dict[str, Any]:
    """The results of a new process."""
    with tempfile.TemporaryDirectory() as scratch:
        results = run_child(request, Path(scratch))
    if "failed" in results:
        raise RuntimeError(results["failed"])
    return results


def against(case: Case, *engines: str) -> Case:
    return dataclasses.replace(case, sides={name: case.sides[name] for name in (OURS, *engines)})


def compare(case: Case, threads: int, rounds: int = 9, seconds: float = 10.0) -> dict[str, dict[str, Any]]:
    """{engine: its results from run_case}; a peer's have ``ratio``: how many times as fast fastattn is.

    Every engine is limited to ``threads``, must be installed and give the same result, and runs at its fastest setting.
    """
    with use_threads(threads), library_threads(threads):
        sides: dict[str, dict[str, Any]] = run_case(case, rounds, seconds, pause(threads))["sides"]
    for name, side in sides.items():
        if "absent" in side:
            raise RuntimeError(f"{name} is {side['absent']}")
        if not side.get("agrees", True):
            raise RuntimeError(f"{case.name}: the result of {name} differs from ours, {side['agreement']}")
        side["ratio"] = side["seconds"] / sides[OURS]["seconds"]
        side["rate"] = f"{case.work / side['seconds']:,.0f} {case.unit}"
    return sides


def timed(
    calls: dict[str, Callable[[], object]], threads: int, rounds: int = 9, seconds: float = 4.0
) -> dict[str, float]:
    """Median seconds of each call, in alternation, all limited to ``threads``."""
    with use_threads(threads), library_threads(threads):
        return alternate(calls, rounds, seconds, pause(threads))


def milliseconds(times: dict[str, float]) -> str:
    return ", ".join(f"{name} {1e3 * seconds:.4g} ms" for name, seconds in times.items())


def python(*arguments: str, cache: Path | None = None, variables: dict[str, str] | None = None) -> str:
    environment = {**os.environ, **({"FASTATTN_CACHE": str(cache)} if cache else {}), **(variables or {})}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    return done.stdout


def command_of(model: str, *options: str) -> list[str]:
    """Python's arguments that translate with the checkpoint's own settings."""
    return ["-m", "fastattn.cli", "translate", "--model", str(folder_of(model)), *options]
