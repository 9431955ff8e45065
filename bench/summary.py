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
    Job("translate en-pt, a file of 997 lines, whole process", "light", r"translate a file of \d+ lines"),
    Job("embed with MiniLM, 486 sentences", "encode", r"encode 486 sentences"),
    Job("embed with MiniLM, one sentence at a time", "encode", r"encode \d+ sentences one at a time"),
]
README_JOBS = JOBS[:4]
SLOWER = 0.95  # how many times as fast fastattn is where the page says that it is the slower one
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
    """The CPUs whose results the repository has."""
    measured = []
    for path in sorted(RESULTS.glob("*/results.json")):
        results = json.loads(path.read_text(encoding="utf-8"))
        name = results["machine"]["compiled_for"]
        measured.append(Machine(CPUS.get(name, name), path.parent.name, results))
    return measured


def times_as_fast(case: dict[str, Any], engine: str) -> float:
    """How many times as fast as an engine fastattn is."""
    seconds: float = case["sides"][engine]["seconds"]
    return seconds / case["sides"][OURS]["seconds"]


def speeds(machine: Machine, job: Job, precision: str) -> dict[str, list[tuple[float, float]]]:
    """{engine: for each number of threads its speed, and how many times as fast ours is}."""
    engines: dict[str, list[tuple[float, float]]] = {}
    for _, cases in sorted(machine.cases(job.part, precision).items()):
        for case in cases:
            if re.fullmatch(job.case, case["name"]):
                for engine, side in case["sides"].items():
                    if "seconds" in side and side["share"] == 1:
                        speed = case["work"] / side["seconds"]
                        engines.setdefault(engine, []).append((speed, times_as_fast(case, engine)))
    return engines


def table(measured: list[Machine], jobs: list[Job], precision: str, ratios: bool) -> str:
    """A row a job and CPU, a column an engine: speeds with 1 / 2 threads; ``ratios``: also how many times ours."""
    rows = [(machine, job, speeds(machine, job, precision)) for job in jobs for machine in measured]
    engines = list(dict.fromkeys([OURS, *(engine for *_, engines in rows for engine in engines)]))

    def cell(values: list[tuple[float, float]], engine: str) -> str:
        absolute = " / ".join(f"{speed:,.0f}" for speed, _ in values)
        return absolute + f" ({' / '.join(f'{ratio:.2f}' for _, ratio in values)})" * (ratios and engine != OURS)

    return markdown(
        ["", "CPU", *engines],
        [
            [job.title, machine.name, *(cell(values[name], name) if name in values else "" for name in engines)]
            for machine, job, values in rows
            if values
        ],
    )


def slower_cases(measured: list[Machine]) -> str:
    """Every case in which an engine is faster than fastattn by more than 5%: a row a case and CPU, the worst first."""
    # (part, case, CPU) -> (precision, engine) -> how many times as fast fastattn is, for each number of threads
    cases: dict[tuple[str, str, str], dict[tuple[str, str], list[float]]] = {}
    for machine in measured:
        for run in machine.results["runs"]:
            for case in run.get("rows", []):
                for engine, side in case["sides"].items():
                    if "seconds" in side and side["share"] == 1 and engine != OURS:
                        engines = cases.setdefault((run["part"], case["name"], machine.name), {})
                        engines.setdefault((run["precision"], engine), []).append(times_as_fast(case, engine))
    rows = []
    for (_, name, cpu), engines in cases.items():
        slower = {key: ratios for key, ratios in engines.items() if min(ratios) < SLOWER}
        texts = [" ".join((*key, " / ".join(f"{ratio:.2f}" for ratio in ratios))) for key, ratios in slower.items()]
        if slower:
            rows.append((min(map(min, slower.values())), [name, cpu, "; ".join(texts)]))
    if not rows:
        return "Nowhere in these runs."
    heads = ["case", "CPU", "how many times as fast fastattn is, with 1 / 2 threads"]
    return markdown(heads, [row for _, row in sorted(rows)])


def starts(measured: list[Machine]) -> str:
    """What a first text takes in a new process, with an empty and with a full cache, and the memory; a column a CPU."""
    cells: dict[str, dict[str, str]] = {}
    for machine in measured:
        for run in machine.results["runs"]:
            is_cold = run.get("state") == "cold"
            if "load" in run and (is_cold or (run["part"] == "resources" and run["threads"] == 1)):
                seconds = run["import"] + run["load"] + run["first"]
                name = f"{run['item']}, {run['precision']}, {'empty' if is_cold else 'full'} cache"
                cells.setdefault(name, {})[machine.name] = f"{seconds:.2f} s, {run['resident'] / 1e6:,.0f} MB"
            elif is_cold:
                cells.setdefault("all kernels, `fastattn warmup`", {})[machine.name] = f"{run['total']:.1f} s"
    names = [machine.name for machine in measured if any(machine.name in row for row in cells.values())]
    rows = [[name, *(row.get(machine, "") for machine in names)] for name, row in cells.items()]
    return markdown(["a new process, to its first text", *names], rows)


def sections() -> dict[Section, str]:
    """{a place in a document: its text}."""
    page, measured = ROOT / "docs" / "performance.md", machines()
    tables = {precision: table(measured, JOBS, precision, ratios=True) for precision in PRECISIONS}
    return {
        Section(ROOT / "README.md", "speeds", "summary"): table(measured, README_JOBS, "int8", ratios=False),
        **{Section(page, precision, "summary"): text for precision, text in tables.items()},
        Section(page, "slower", "summary"): slower_cases(measured),
        Section(page, "starts", "summary"): starts(measured),
    }


def run() -> int:
    """Write the sections; 1 if a document lacks one."""
    places = sections()
    if [section for section in places if section.is_missing()]:
        return 1
    for section, text in places.items():
        section.show(text)
    return 0
