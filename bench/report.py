"""RESULTS.md and the plots, from results.json only."""

import re
from collections.abc import Iterable
from pathlib import Path
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
        common = (
            [
                name
                for name in _names(mine[0], kind)
                if all(any(row["name"] == name for row in run["rows"]) for run in mine)
            ]
            if len(mine) > 1
            else []
        )
        panels += [_threads_panel(name, mine) for name in common[:1]]
    return plot(panels) if panels else None


def _names(run: Run, kind: str) -> list[str]:
    return [row["name"] for row in run.get("rows", []) if row["name"].startswith(kind)]


def _threads_panel(name: str, runs: list[Run]) -> Panel:
    rows = [(run["threads"], next(row for row in run["rows"] if row["name"] == name)) for run in runs]
    series = _series(rows)
    first, ours = series[OURS][0]
    ideal = [(threads, ours * threads / first) for threads, _ in rows]
    return Panel(name, "threads", rows[0][1]["unit"], series, {f"{OURS}, perfect scaling": ideal})


def lengths_plot(runs: list[Run]) -> str | None:
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
    series: dict[str, list[tuple[float, float]]] = {}
    for x, row in rows:
        for name, side in row["sides"].items():
            if "seconds" in side:
                series.setdefault(name, []).append((float(x), row["work"] / side["seconds"]))
    return series


TITLES = {
    "kernels": "Kernels",
    "lengths": "Attention over the number of positions",
    "encode": "Sentence vectors",
    "translate": "Translation",
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
    plots = {
        "threads.svg": threads_plot,
        "lengths.svg": lengths_plot,
        "roofline.svg": roofline_plot,
        "memory.svg": memory_plot,
    }
    drawn = {name: draw(results["runs"]) for name, draw in plots.items()}
    for name, svg in drawn.items():
        if svg is None:
            (folder / name).unlink(missing_ok=True)
        else:
            (folder / name).write_text(svg, encoding="utf-8")
    (folder / "RESULTS.md").write_text(
        markdown(results, {name for name, svg in drawn.items() if svg}), encoding="utf-8"
    )


def markdown(results: dict[str, Any], plots: Iterable[str] = ()) -> str:
    lines = ["# Results", "", *_head(results), "", METHOD, ""]
    if results["failures"]:
        lines += ["**Failed:**", "", *(f"- {failure}" for failure in results["failures"]), ""]
    for part, title in TITLES.items():
        runs = [run for run in results["runs"] if run["part"] == part]
        if runs:
            lines += [f"## {title}", ""]
            for run in runs:
                lines += _cases(run)
            if part == "lengths" and "lengths.svg" in plots:
                lines += ["![attention over the number of positions](lengths.svg)", ""]
            if part == "kernels" and "roofline.svg" in plots:
                lines += ["![operations a second over operations a byte](roofline.svg)", ""]
    lines += _resources([run for run in results["runs"] if run["part"] == "resources"])
    if "memory.svg" in plots:
        lines += ["![memory of attention over the number of positions](memory.svg)", ""]
    lines += _compiling([run for run in results["runs"] if run["part"] == "compiling"])
    if "threads.svg" in plots:
        lines += ["## Threads", "", "![speed over threads](threads.svg)", ""]
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
    """Notes: the fastest settings, and the sides that did only a part of the work."""
    notes = []
    for row in rows:
        said = [f"{name} {side['setting']}" for name, side in row["sides"].items() if side.get("setting")]
        said += [
            f"{name} did {side['share']:.0%} of the work*"
            for name, side in row["sides"].items()
            if side.get("share", 1) < 1
        ]
        said += [
            f"{name} {side['agreement']}" for name, side in row["sides"].items() if " " in side.get("agreement", "")
        ]
        if said:
            notes.append(f"- {row['name']}: {'; '.join(said)}")
    return [*notes, ""] if notes else []


def _seconds(seconds: float) -> str:
    unit, factor = next(scale for scale in SCALES if seconds * scale[1] >= 1 or scale is SCALES[-1])
    return f"{seconds * factor:.3g} {unit}"


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:,.1f} MB"


def _resources(runs: list[Run]) -> list[str]:
    if not runs:
        return []
    starts = [run for run in runs if not run.get("item", "attention").startswith("attention")]
    lines = ["## Start-up and memory", ""]
    lines += [f"**Failed:** {run.get('item', '')} {run['failed']}" for run in runs if "failed" in run]
    measured = [run for run in starts if "load" in run]
    if measured:
        lines += ["One thread, compiled kernels in the cache; a process of its own for each engine.", ""]
        rows = [
            [run["item"], run["precision"], *(_seconds(run[name]) for name in ("import", "load", "first")),
             *(_megabytes(run[name]) for name in ("resident", "weights"))]
            for run in measured
        ]  # fmt: skip
        lines += _table(["", "", "import", "load", "first text", "peak resident", "float32 weights"], rows)
    absent = [f"- {run['item']}: {run['absent']}" for run in runs if "absent" in run]
    lines += [*absent, ""] if absent else []
    length = max((run["length"] for run in runs if "length" in run), default=0)
    known = [run for run in runs if run.get("extra") is not None and run["length"] == length]
    extra = [[run["item"].split()[1], _megabytes(run["extra"])] for run in known]
    if extra:
        lines += [f"Memory that attention (1, 1, {length}, 64) takes beyond its result, one thread.", ""]
        lines += _table(["", "extra memory"], extra)
    return lines


def _compiling(runs: list[Run]) -> list[str]:
    """Cold and warm times next to each other: the difference is the time to compile."""
    if not runs:
        return []
    lines = ["## Compiling", ""]
    lines += [f"**Failed:** {run.get('item', '')} {run['failed']}" for run in runs if "failed" in run]
    rows = []
    for item in dict.fromkeys(run.get("item") for run in runs if "failed" not in run):
        times = {run["state"]: run.get("total") or sum(run[k] for k in ("import", "load", "first")) for run in runs
                 if run.get("item") == item and "failed" not in run}  # fmt: skip
        if len(times) == 2:
            name = {"warmup": "all kernels (fastattn warmup)"}.get(str(item), f"{item}, one text")
            rows.append([name, *(_seconds(times[state]) for state in ("cold", "warm")),
                         _seconds(times["cold"] - times["warm"])])  # fmt: skip
    return [*lines, *_table(["", "empty cache", "warm cache", "compiling"], rows)] if rows else lines
