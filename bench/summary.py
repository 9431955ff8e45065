"""The tables of README.md and docs/performance.md, from every results.json below bench/results: ``bench summary``."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from bench.case import OURS
from bench.document import Section, markdown

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
CPUS = {"znver4": "AMD Zen 4", "znver5": "AMD Zen 5", "emeraldrapids": "Intel Emerald Rapids"}


class Job(NamedTuple):
    """A row of the tables: the cases of a part whose names match."""

    title: str
    part: str
    case: str


JOBS = [
    Job("translate zh-en, 64 sentences", "translate", r"translate 64 sentences, beam 4"),
    Job("translate zh-en, one sentence at a time", "translate", r"translate \d+ one at a time, beam 4"),
    Job("translate en-pt, a file", "light", r"translate .*"),
    Job("embed with MiniLM, 486 sentences", "encode", r"encode 486 sentences"),
    Job("embed with MiniLM, one sentence at a time", "encode", r"encode \d+ sentences one at a time"),
]
README_JOBS = JOBS[:4]
PRECISIONS = ("int8", "bfloat16", "float32")


class Machine(NamedTuple):
    """A CPU, its folder and what was measured on it."""

    name: str
    folder: str
    results: dict[str, Any]

    def cases(self, part: str, precision: str) -> dict[int, list[dict[str, Any]]]:
        """{number of threads: the cases of a part}."""
        runs = [run for run in self.results["runs"] if (run["part"], run.get("precision")) == (part, precision)]
        return {run["threads"]: run["rows"] for run in runs if not run["scaling"]}


def machines() -> list[Machine]:
    found = []
    for path in sorted(RESULTS.glob("*/results.json")):
        results = json.loads(path.read_text(encoding="utf-8"))
        found.append(Machine(CPUS[results["machine"]["compiled_for"]], path.parent.name, results))
    return found


def speeds(machine: Machine, job: Job, precision: str) -> dict[str, list[tuple[float, float]]]:
    """{engine: for each number of threads its speed, and how many times as fast ours is}."""
    engines: dict[str, list[tuple[float, float]]] = {}
    for _, cases in sorted(machine.cases(job.part, precision).items()):
        for case in cases:
            if re.fullmatch(job.case, case["name"]):
                for engine, side in case["sides"].items():
                    if "seconds" in side and side["share"] == 1:
                        ratio = side["seconds"] / case["sides"][OURS]["seconds"]
                        engines.setdefault(engine, []).append((case["work"] / side["seconds"], ratio))
    return engines


def table(jobs: list[Job], precision: str, ratios: bool) -> str:
    """A row a job and CPU, a column an engine: speeds with 1 / 2 threads; ``ratios``: also how many times ours."""
    rows = [(machine, job, speeds(machine, job, precision)) for job in jobs for machine in machines()]
    rows = [row for row in rows if row[2]]
    engines = list(dict.fromkeys([OURS, *(engine for _, _, found in rows for engine in found)]))

    def cell(values: list[tuple[float, float]], engine: str) -> str:
        absolute = " / ".join(f"{speed:,.0f}" for speed, _ in values)
        return absolute + f" ({' / '.join(f'{ratio:.2f}' for _, ratio in values)})" * (ratios and engine != OURS)

    return markdown(
        ["", "CPU", *engines],
        [
            [job.title, machine.name, *(cell(found[engine], engine) if engine in found else "" for engine in engines)]
            for machine, job, found in rows
        ],
    )


def slower_cases() -> str:
    """Every case in which an engine is faster than fastattn, the worst first."""
    rows = []
    for machine in machines():
        for run in machine.results["runs"]:
            for case in run.get("rows", []):
                for engine, side in case["sides"].items():
                    ratio = side.get("seconds", 0) / case["sides"][OURS]["seconds"]
                    if 0 < ratio < 0.995:
                        name = f"{case['name']}, {run['precision']}, {run['threads']} threads"
                        rows.append((ratio, [name, machine.name, engine, f"{ratio:.2f}"]))
    if not rows:
        return "Nowhere in these runs."
    return markdown(["case", "CPU", "engine", "times as fast"], [row for _, row in sorted(rows)])


def starts() -> str:
    """What a first text takes in a new process, with an empty and with a full cache, and the memory."""
    rows = []
    for machine in machines():
        runs = [run for run in machine.results["runs"] if run["part"] in ("resources", "compiling") and "load" in run]
        for run in runs:
            state = {"cold": "empty cache", "warm": "full cache"}.get(run.get("state", ""), "full cache")
            if run["part"] == "resources" or run.get("state") == "cold":
                total = run["import"] + run["load"] + run["first"]
                cells = [f"{run['item']}, {run['precision']}, {state}", machine.name, f"{total:.2f} s"]
                rows.append([*cells, f"{run['resident'] / 1e6:,.0f} MB"])
        for run in machine.results["runs"]:
            if (run["part"], run["item"], run.get("state")) == ("compiling", "warmup", "cold"):
                rows.append(["all kernels, `fastattn warmup`", machine.name, f"{run['total']:.1f} s", ""])
    return markdown(["a new process, to its first text", "CPU", "time", "memory"], rows)


def sections() -> dict[Section, str]:
    """{a place in a document: its text}."""
    page = ROOT / "docs" / "performance.md"
    return {
        Section(ROOT / "README.md", "speeds", "summary"): table(README_JOBS, "int8", ratios=False),
        **{Section(page, precision, "summary"): table(JOBS, precision, ratios=True) for precision in PRECISIONS},
        Section(page, "slower", "summary"): slower_cases(),
        Section(page, "starts", "summary"): starts(),
    }


def run() -> int:
    """Write the sections; 1 if a document lacks one."""
    places = sections()
    if [section for section in places if section.is_missing()]:
        return 1
    for section, text in places.items():
        section.show(text)
    return 0
