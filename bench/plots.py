"""The plots of the results: speed over threads, attention's speed and memory over positions, the roofline."""

import re
from typing import Any

from bench.case import OURS
from bench.resources import bytes_a_position
from bench.svg import Panel, plot

Run = dict[str, Any]


SHOWN = ("linear", "attention (", "encode", "translate")


def threads_plot(runs: list[Run]) -> str | None:
    """A panel for each kind in SHOWN, with its first case that was run on every number of threads."""
    panels = []
    for kind in SHOWN:
        mine = [run for run in runs if run["part"] != "lengths" and _names(run, kind) and run["precision"] == "float32"]
        mine.sort(key=lambda run: run["threads"])
        common = [name for name in _names(mine[0], kind) if _everywhere(name, mine)] if len(mine) > 1 else []
        panels += [_threads_panel(name, mine) for name in common[:1]]
    return plot(panels) if panels else None


def _names(run: Run, kind: str) -> list[str]:
    return [row["name"] for row in run.get("rows", []) if row["name"].startswith(kind)]


def _everywhere(name: str, runs: list[Run]) -> bool:
    return all(any(row["name"] == name for row in run["rows"]) for run in runs)


def _threads_panel(name: str, runs: list[Run]) -> Panel:
    rows = [(run["threads"], next(row for row in run["rows"] if row["name"] == name)) for run in runs]
    series = _series(rows)
    first, ours = series[OURS][0]
    ideal = [(threads, ours * threads / first) for threads, _ in rows]
    return Panel(name, "threads", rows[0][1]["unit"], series, {f"{OURS}, perfect scaling": ideal})


def lengths_plot(runs: list[Run]) -> str | None:
    """A panel for each number of threads."""
    panels = []
    for run in runs:
        if run["part"] == "lengths" and run.get("rows"):
            rows = [(_length(row["name"]), row) for row in run["rows"]]
            peak = run["peak_flops"] / 1e9
            limit = [(float(x), peak) for x in (rows[0][0], rows[-1][0])]
            title = f"attention (1, 12, n, 64), threads: {run['threads']}"
            panels.append(Panel(title, "n", "GFLOP/s", _series(rows), {"peak": limit}))
    return plot(panels) if panels else None


def _length(name: str) -> int:
    match = re.search(r"\(\d+, \d+, (\d+), \d+\)", name)
    assert match is not None
    return int(match[1])


def roofline_plot(runs: list[Run]) -> str | None:
    """A panel for each number of threads on which the products of all precisions were measured.

    A kernel's operations per second over its operations per byte; the lines are the limits of arithmetic and memory.
    """
    kernels = [run for run in runs if run["part"] == "kernels" and run.get("rows") and not run["scaling"]]
    counts = sorted({run["threads"] for run in kernels if run["precision"] != "float32"})
    panels = [_roofline([run for run in kernels if run["threads"] == count]) for count in counts]
    return plot(panels) if panels else None


PAGE = 4096  # bytes; what takes no page more is shown as one


def memory_plot(runs: list[Run]) -> str | None:
    """What attention of one head takes beyond inputs and result, over the number of positions."""
    series: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        if run["part"] == "resources" and run.get("length") and run.get("extra") is not None:
            point = float(run["length"]), max(run["extra"], PAGE) / 1e6
            series.setdefault(run["item"].split()[1], []).append(point)
    lengths = sorted({x for line in series.values() for x, _ in line})
    if len(lengths) < 2:
        return None
    operands = [(x, x * bytes_a_position() / 1e6) for x in lengths]
    title = "attention (1, 1, n, 64), extra memory"
    return plot([Panel(title, "n", "MB", series, {"inputs and result": operands}, log_y=True)])


def _roofline(runs: list[Run]) -> Panel:
    dots: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        for row in run["rows"]:
            if row["flops"] and row["bytes"]:
                kind = row["name"].split()[0]
                name = f"{kind}, {run['precision']}" if kind == "linear" else kind
                rate = row["flops"] / row["sides"][OURS]["seconds"] / 1e9
                dots.setdefault(name, []).append((row["flops"] / row["bytes"], rate))
    densities = [x for places in dots.values() for x, _ in places]
    first, last = min(densities) / 2, max(densities) * 2
    read = max(run["bandwidth"] for run in runs) / 1e9
    limits = {}
    for run in runs:
        peak = run["peak_flops"] / 1e9
        ridge = min(max(peak / read, first), last)
        limits[f"{run['precision']} at most"] = [
            (first, min(peak, first * read)),
            (ridge, min(peak, ridge * read)),
            (last, peak),
        ]
    title = f"roofline, threads: {runs[0]['threads']}"
    return Panel(title, "operations a byte", "GOP/s", dashed=limits, dots=dots, log_y=True)


def _series(rows: list[tuple[int, Any]]) -> dict[str, list[tuple[float, float]]]:
    """{engine: its measured (x, rate)}."""
    series: dict[str, list[tuple[float, float]]] = {}
    for x, row in rows:
        for name, side in row["sides"].items():
            if "seconds" in side:
                series.setdefault(name, []).append((float(x), row["work"] / side["seconds"]))
    return series
