"""The parts of the benchmark; each request runs in a child process whose environment sets every library's threads."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.machine import ROOT, processors
from bench.request import Request, say
from bench.sentences import BUILT_IN
from fastattn.errors import FastattnError
from fastattn.system.cache_folder import cache_root
from fastattn.weights import download

# Task, precision -> the engines whose start and memory are measured.
ENGINES = {
    ("encode", "float32"): ("fastattn", "sentence-transformers", "CTranslate2", "ONNX Runtime", "OpenVINO"),
    ("translate", "float32"): ("fastattn", "CTranslate2"),
    ("attention", "float32"): ("fastattn", "NumPy", "PyTorch"),
    ("encode", "int8"): ("fastattn", "CTranslate2", "ONNX Runtime", "OpenVINO"),
    ("translate", "int8"): ("fastattn", "CTranslate2"),
}
PRECISIONS = ("float32", "bfloat16", "int8")
MEMORY_LENGTHS = (1024, 2048, 4096, 8192)  # positions at which attention's memory is measured


@dataclass(frozen=True)
class Part:
    """requests: (base, counts) -> requests to run; base has the common fields, counts the numbers of threads."""

    name: str
    claim: str
    models: tuple[str, ...]  # fields of Request that must name a folder
    requests: Callable[[Request, list[int]], list[Request]]


def _each(base: Request, counts: list[int]) -> list[Request]:
    """Everything at one and two threads in each precision; with more threads, or in a quick run, only the cases of the
    plot over threads."""
    precisions: tuple[str, ...] = (*PRECISIONS, "int4") if base.part == "kernels" else PRECISIONS
    if base.size == "quick" and base.part != "kernels":
        counts, precisions = counts[-1:], ("float32", "int8")
    most = 1 if base.size == "quick" else 2
    return [
        replace(base, threads=count, precision=precision, scaling=count > most and base.part == "kernels")
        for precision in precisions
        for count in counts
        if precision == "float32" or count <= most
    ]


def _light(base: Request, counts: list[int]) -> list[Request]:
    counts = [] if base.size == "quick" else counts[:2]
    return [replace(base, threads=count, precision="int8") for count in counts]  # the Bergamot engine has no other


def _extremes(base: Request, counts: list[int]) -> list[Request]:
    ends = {counts[-1]} if base.size != "full" else {counts[0], counts[-1]}
    return [replace(base, threads=count) for count in sorted(ends)]


def _resources(base: Request, counts: list[int]) -> list[Request]:
    requests, lengths = [], base.choose(MEMORY_LENGTHS, MEMORY_LENGTHS[-1:], (64, 256))
    for (task, precision), engines in ENGINES.items():
        for engine in engines[:1] if base.size == "quick" else engines:
            if base.size != "toy" or task == "attention":
                items = [f" {length}" for length in lengths] if task == "attention" else [""]
                named = [replace(base, threads=1, item=f"{task} {engine}{item}", precision=precision) for item in items]
                requests += named
    return requests


def _compiling(base: Request, counts: list[int]) -> list[Request]:
    """Compile time: a run with an empty cache of kernels, then one with the filled cache. Only in a full run."""
    if base.size != "full":
        return []
    items = ("encode fastattn", "translate fastattn", "warmup")
    return [replace(base, threads=counts[-1], item=item) for item in items]


MODELS = ("encoder", "translator")
PARTS = {
    part.name: part
    for part in (
        Part("kernels", "every kernel against NumPy, PyTorch and ONNX Runtime", (), _each),
        Part("lengths", "attention over the number of positions", (), _extremes),
        Part("encode", "MiniLM from text to vectors against five engines", ("encoder",), _each),
        Part("translate", "zh-en from text to text, greedy and beam 4, against two engines", ("translator",), _each),
        Part("light", "en-pt from file to file, a process each, against the Bergamot engine", ("light",), _light),
        Part("resources", "imports, loading, first text, peak memory of each engine", MODELS, _resources),
        Part("compiling", "the time that compiling takes with an empty cache", MODELS, _compiling),
    )
}


THREADS = (
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)


def run_parts(options: argparse.Namespace, parts: list[Part]) -> dict[str, Any]:
    most = processors()
    counts = options.threads or sorted({most, *(1 << n for n in range(most.bit_length()) if 1 << n <= most)})
    if options.quick or options.toy:
        counts = counts[:2]
    size = "toy" if options.toy else "quick" if options.quick else "full"
    (peers := cache_root() / "bench").mkdir(parents=True, exist_ok=True)
    base = Request("", 1, size=size, only=options.only, data=str(options.data or ""), cache=str(peers))
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="fastattn-bench-") as scratch:
        for part in parts:
            try:
                models: dict[str, Any] = {
                    name: str(download.resolve(getattr(options, name)).absolute()) for name in part.models
                }
            except FastattnError as error:
                runs.append({"part": part.name, "failed": f"no model: {error}"})
                say(f"{part.name}: {runs[-1]['failed']}")
                continue
            for request in part.requests(replace(base, part=part.name, **models), counts):
                runs += _run_request(request, Path(scratch))
    return {"data": "FLORES dev" if options.data else BUILT_IN, "runs": runs, "failures": _failures(runs)}


def _run_request(request: Request, scratch: Path) -> list[dict[str, Any]]:
    if request.part != "compiling":
        return [run_child(request, scratch)]
    with tempfile.TemporaryDirectory(dir=scratch) as cache:
        environment = {"FASTATTN_CACHE": cache}
        if request.item == "warmup":
            return [_run_warmup(request, environment, state) for state in ("cold", "warm")]
        alike = replace(request, part="resources", size="toy")
        runs = [run_child(alike, scratch, environment) for _ in ("cold", "warm")]
        return [run | {"part": "compiling", "state": state} for run, state in zip(runs, ("cold", "warm"), strict=True)]


def _environment(request: Request, scratch: Path) -> dict[str, str]:
    count = str(request.threads)
    return {
        **os.environ,
        **dict.fromkeys(THREADS, count),
        "TOKENIZERS_PARALLELISM": "true" if request.threads > 1 else "false",
        "NUMBA_CACHE_DIR": str(scratch / "numba"),
        "HF_HUB_OFFLINE": "1",
        # for the peers' messages
        "PYTHONWARNINGS": "ignore",
        "TQDM_DISABLE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }


def run_child(request: Request, scratch: Path, more: dict[str, str] | None = None) -> dict[str, Any]:
    """bench.resources' answer, or why it ``failed``; ``more`` has additional environment variables."""
    say(request.title)
    source, target = scratch / "request.json", scratch / "result.json"
    source.write_text(json.dumps(request.as_dict()), encoding="utf-8")
    target.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "bench.resources", str(source), str(target)],
        env=_environment(request, scratch) | (more or {}),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    run = {name: getattr(request, name) for name in ("part", "item", "threads", "scaling", "precision")}
    if done.returncode != 0 or not target.exists():
        return run | {"failed": f"the process ended with status {done.returncode}"}
    return run | json.loads(target.read_text(encoding="utf-8"))


def _run_warmup(request: Request, more: dict[str, str], state: str) -> dict[str, Any]:
    """``fastattn warmup``: all kernels, in all forms that this machine uses."""
    say(f"warmup, {state} cache")
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "fastattn.cli", "warmup"],
        env=os.environ | more,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    run = {"part": "compiling", "item": "warmup", "threads": request.threads, "state": state}
    if done.returncode != 0:
        return run | {"failed": done.stderr.strip().rpartition("\n")[2]}
    return run | {"total": time.perf_counter() - begun, "said": done.stdout.strip()}


def _failures(runs: list[dict[str, Any]]) -> list[str]:
    failures = [f"{run['part']} {run.get('item', '')}: {run['failed']}" for run in runs if "failed" in run]
    return failures + [
        f"{row['name']}, {name}: {side['agreement']}"
        for run in runs
        for row in run.get("rows", [])
        for name, side in row["sides"].items()
        if not side.get("agrees", True)
    ]
