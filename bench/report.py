"""RESULTS.md and the plots, from results.json only."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.case import OURS
from bench.resources import bytes_a_position
from bench.svg import Panel, Series, plot

Run = dict[str, Any]
SHOWN = ("linear", "attention (", "encode", "translate")


def threads_plot(runs: list[Run]) -> list[Panel]:
    """A panel for each kind in SHOWN, of the kind's first case that ran on every number of threads."""
    panels = []
    for kind in SHOWN:
        named = [
            (run["threads"], {row["name"]: row for row in run.get("rows", []) if row["name"].startswith(kind)})
            for run in runs
            if run["part"] != "lengths" and run.get("precision") == "float32"
        ]
        named = sorted(((threads, rows) for threads, rows in named if rows), key=lambda item: item[0])
        common = [name for name in named[0][1] if all(name in rows for _, rows in named)] if len(named) > 1 else []
        for name in common[:1]:
            series = _series([(threads, rows[name]) for threads, rows in named])
            first, ours = series[OURS][0]
            ideal = {f"{OURS}, perfect scaling": [(threads, ours * threads / first) for threads, _ in named]}
            panels.append(Panel(name, "threads", named[0][1][name]["unit"], series, ideal))
    return panels


def lengths_plot(runs: list[Run]) -> list[Panel]:
    panels = []
    for run in runs:
        if run["part"] == "lengths" and run.get("rows"):
            rows = [(int(re.search(r"\(\d+, \d+, (\d+), \d+\)", row["name"])[1]), row) for row in run["rows"]]
            peak = [(float(length), run["peak_flops"] / 1e9) for length in (rows[0][0], rows[-1][0])]
            title = f"attention (1, 12, n, 64), threads: {run['threads']}"
            panels.append(Panel(title, "n", "GFLOP/s", _series(rows), {"peak": peak}))
    return panels


def roofline_plot(runs: list[Run]) -> list[Panel]:
    """A panel for each number of threads on which the products of all precisions were measured.

    A kernel's operations per second over its operations per byte; the lines are the limits of arithmetic and memory.
    """
    kernels = [run for run in runs if run["part"] == "kernels" and run.get("rows") and not run["scaling"]]
    counts = sorted({run["threads"] for run in kernels if run["precision"] != "float32"})
    return [_roofline([run for run in kernels if run["threads"] == count]) for count in counts]


def _roofline(runs: list[Run]) -> Panel:
    dots: Series = {}
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
    limits: Series = {}
    for run in runs:
        peak = run["peak_flops"] / 1e9
        ridge = min(max(peak / read, first), last)
        points = [(first, min(peak, first * read)), (ridge, min(peak, ridge * read)), (last, peak)]
        limits[f"{run['precision']} at most"] = points
    title = f"roofline, threads: {runs[0]['threads']}"
    return Panel(title, "operations a byte", "GOP/s", dashed=limits, dots=dots, log_y=True)


PAGE = 4096  # bytes; growth below a page is shown as a page


def memory_plot(runs: list[Run]) -> list[Panel]:
    """Memory of attention of one head beyond inputs and result, over the number of positions."""
    series: Series = {}
    for run in runs:
        if run["part"] == "resources" and run.get("length") and run.get("extra") is not None:
            point = float(run["length"]), max(run["extra"], PAGE) / 1e6
            series.setdefault(run["item"].split()[1], []).append(point)
    lengths = sorted({x for line in series.values() for x, _ in line})
    operands = {"inputs and result": [(x, x * bytes_a_position() / 1e6) for x in lengths]}
    title = "attention (1, 1, n, 64), extra memory"
    return [Panel(title, "n", "MB", series, operands, log_y=True)] if len(lengths) > 1 else []


def _series(rows: list[tuple[int, Any]]) -> Series:
    series: Series = {}
    for x, row in rows:
        for name, side in row["sides"].items():
            if "seconds" in side:
                series.setdefault(name, []).append((float(x), row["work"] / side["seconds"]))
    return series


# File -> (its panels, its alternative text).
PLOTS = {
    "lengths": (lengths_plot, "attention over the number of positions"),
    "roofline": (roofline_plot, "operations a second over operations a byte"),
    "memory": (memory_plot, "memory of attention over the number of positions"),
    "threads": (threads_plot, "speed over threads"),
}
# Part -> (its title, the plot behind its tables).
PARTS = {
    "kernels": ("Kernels", "roofline"),
    "lengths": ("Attention over the number of positions", "lengths"),
    "encode": ("Sentence vectors", ""),
    "translate": ("Translation", ""),
    "light": ("Translation of a file, whole processes", ""),
}
SCALES = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))
METHOD = """\
Competitors alternate in one process, which holds every library to the same number of threads; a time is the median.
`fastattn` is ours alone; another engine's cell is **how many times as fast ours is**, and its own speed. Products are
in the table's precision on every side, all else in float32; int8 is int8 weights and rows that are quantized as they
come. NumPy is `ops.reference`: the same operations, plainly written, on its BLAS. Peak (the register tile of that
precision on operands in the first cache) and bandwidth (reading an array far beyond the last cache) are measured in the
same process; a share of bandwidth counts each operand once and may pass 100% where it stays in a cache. Compile time is
in no figure but its own table. Texts are tokenized inside the measured time on every side; CTranslate2 and the others
are at the quickest of several settings. Results of all sides are compared before they are timed."""


def write(results: dict[str, Any], folder: Path) -> None:
    panels = {name: draw(results["runs"]) for name, (draw, _) in PLOTS.items()}
    for name in PLOTS:
        path = folder / f"{name}.svg"
        path.write_text(plot(panels[name]), encoding="utf-8") if panels[name] else path.unlink(missing_ok=True)
    text = markdown(results, [name for name in PLOTS if panels[name]])
    (folder / "RESULTS.md").write_text(text, encoding="utf-8")


def markdown(results: dict[str, Any], plots: Iterable[str] = ()) -> str:
    def picture(name: str) -> list[str]:
        return [f"![{PLOTS[name][1]}]({name}.svg)", ""] if name in plots else []

    parts: dict[str, list[Run]] = {}
    for run in results["runs"]:
        parts.setdefault(run["part"], []).append(run)
    lines = ["# Results", "", *_head(results), "", METHOD, ""]
    if results["failures"]:
        lines += ["**Failed:**", "", *(f"- {failure}" for failure in results["failures"]), ""]
    for part, (title, name) in PARTS.items():
        if part in parts:
            lines += [f"## {title}", "", *(line for run in parts[part] for line in _cases(run)), *picture(name)]
    lines += _resources(parts.get("resources", [])) + picture("memory") + _compiling(parts.get("compiling", []))
    if "threads" in plots:
        lines += ["## Threads", "", *picture("threads")]
    return "\n".join(lines)


def _head(results: dict[str, Any]) -> list[str]:
    machine, versions = results["machine"], results["versions"]
    commit = results["commit"][:12] + (" with changes that are not committed" if results["changed"] else "")
    short = " A short run: few rounds, small inputs; ratios are rough." if results["quick"] else ""
    installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    missing = ", ".join(name for name, version in versions.items() if not version)
    return [
        f"Generated by `python -m bench` from results.json; not to be edited.{short}",
        "",
        f"- commit {commit}, {results['date']}, {results['seconds']:.0f} s, texts: {results['data']}",
        f"- {machine['cpu']} ({machine['compiled_for']}, {machine['tile']} tiles), {machine['processors']} processors, "
        f"last cache {machine['last_cache'] / 2**20:.0f} MiB, memory {machine['memory'] / 2**30:.0f} GiB, "
        f"{machine['system']}",
        f"- {installed}" + (f"; not installed: {missing}" if missing else ""),
    ]


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: list[str]) -> str:
        padded = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths))]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return [line(header), rule, *map(line, rows), ""]


def _cases(run: Run) -> list[str]:
    if "failed" in run:
        return [f"**Failed:** {run['failed']}", ""]
    if not run["rows"]:
        return []
    threads = f"{run['threads']} thread{'s'[: run['threads'] > 1]}"
    limits = f"peak {run['peak_flops'] / 1e9:,.0f} GOP/s, bandwidth {run['bandwidth'] / 1e9:,.1f} GB/s"
    lines = [f"**{run['precision']}, {threads}**; {limits}", ""]
    engines = [name for name in run["rows"][0]["sides"] if name != OURS]
    header = ["", "time", OURS, "of peak", "of bandwidth", *engines]
    rows = []
    for row in run["rows"]:
        seconds = row["sides"][OURS]["seconds"]
        shares = [_share(row["flops"], seconds, run["peak_flops"]), _share(row["bytes"], seconds, run["bandwidth"])]
        cells = [_cell(row, name) for name in engines]
        rows.append([row["name"], _seconds(seconds), _rate(row, OURS, unit=True), *shares, *cells])
    return [*lines, *_table(header, rows), *_notes(run["rows"])]


def _share(amount: float | None, seconds: float, limit: float) -> str:
    return "" if amount is None else f"{amount / seconds / limit:.0%}"


def _rate(row: Run, name: str, unit: bool = False) -> str:
    rate = row["work"] / row["sides"][name]["seconds"]
    return f"{rate:,.{0 if rate >= 100 else 1}f}" + (f" {row['unit']}" if unit else "")


def _cell(row: Run, name: str) -> str:
    side = row["sides"][name]
    if "absent" in side:
        return side["absent"]
    ratio = side["seconds"] / row["sides"][OURS]["seconds"]
    warning = "" if side.get("agrees", True) else " DIFFERS"
    return f"**{ratio:.2f}** ({_rate(row, name)}){'*' if side['share'] < 1 else ''}{warning}"


def _notes(rows: list[Run]) -> list[str]:
    """The fastest settings, and the sides that did only a part of the work."""
    notes = []
    for row in rows:
        sides = row["sides"].items()
        remarks = [f"{name} {side['setting']}" for name, side in sides if side.get("setting")]
        remarks += [f"{name} did {side['share']:.0%} of the work*" for name, side in sides if side.get("share", 1) < 1]
        remarks += [f"{name} {side['agreement']}" for name, side in sides if " " in side.get("agreement", "")]
        notes += [f"- {row['name']}: {'; '.join(remarks)}"] if remarks else []
    return [*notes, ""] if notes else []


def _seconds(seconds: float) -> str:
    unit, factor = next(scale for scale in SCALES if seconds * scale[1] >= 1 or scale is SCALES[-1])
    return f"{seconds * factor:.3g} {unit}"


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:,.1f} MB"


def _failed(runs: list[Run]) -> list[str]:
    return [f"**Failed:** {run.get('item', '')} {run['failed']}" for run in runs if "failed" in run]


def _resources(runs: list[Run]) -> list[str]:
    if not runs:
        return []
    lines = ["## Start-up and memory", "", *_failed(runs)]
    rows = [
        [run["item"], run["precision"], *(_seconds(run[name]) for name in ("import", "load", "first")),
         *(_megabytes(run[name]) for name in ("resident", "weights"))]
        for run in runs if "load" in run
    ]  # fmt: skip
    if rows:
        lines += ["One thread, compiled kernels in the cache; a process of its own for each engine.", ""]
        lines += _table(["", "", "import", "load", "first text", "peak resident", "float32 weights"], rows)
    absent = [f"- {run['item']}: {run['absent']}" for run in runs if "absent" in run]
    lines += [*absent, ""] if absent else []
    length = max((run["length"] for run in runs if "length" in run), default=0)
    longest = [run for run in runs if run.get("extra") is not None and run["length"] == length]
    if longest:
        lines += [f"Memory that attention (1, 1, {length}, 64) takes beyond its result, one thread.", ""]
        lines += _table(["", "extra memory"], [[run["item"].split()[1], _megabytes(run["extra"])] for run in longest])
    return lines


def _compiling(runs: list[Run]) -> list[str]:
    """Cold and warm times side by side: the difference is the time to compile."""
    if not runs:
        return []
    items: dict[str, dict[str, float]] = {}
    for run in runs:
        if "failed" not in run:
            total = run.get("total") or sum(run[name] for name in ("import", "load", "first"))
            items.setdefault(str(run.get("item")), {})[run["state"]] = total
    rows = []
    for item, times in items.items():
        if len(times) == 2:
            name = "all kernels (fastattn warmup)" if item == "warmup" else f"{item}, one text"
            values = times["cold"], times["warm"], times["cold"] - times["warm"]
            rows.append([name, *map(_seconds, values)])
    table = _table(["", "empty cache", "warm cache", "compiling"], rows) if rows else []
    return ["## Compiling", "", *_failed(runs), *table]
