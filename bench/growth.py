"""How attention's time and memory grow with the positions, as bench/__main__.py's command ``growth``.

Self-attention, and the same restricted to a window, against plain NumPy; medians of alternating runs.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bench.document import Section
from bench.machine import conditions
from bench.memory import extra_resident
from bench.operations.table import normal
from bench.svg import Panel, Series, plot
from bench.timing import alternate, limited_to
from fastattn import attention
from fastattn.ops.reference import mechanisms as formulas

LENGTHS = {"full": (256, 512, 1024, 2048, 4096, 8192), "quick": (256, 512, 1024, 2048), "toy": (32, 64)}
WIDTH, WINDOW = 64, 64
OURS, NEAR, PLAIN = "fastattn", f"fastattn, restricted to {WINDOW}", "NumPy"
ROUNDS, SECONDS = 9, 8.0

Row = tuple[int, dict[str, float], dict[str, float]]


def calls(n: int) -> dict[str, Callable[[], np.ndarray]]:
    rng = np.random.default_rng(n)
    query, key, value = (normal(rng, 1, n, 1, WIDTH) for _ in range(3))

    def plain() -> np.ndarray:
        return formulas.soft(formulas.weights(formulas.scaled_dot(query, key)), value)

    window = WINDOW // 2, WINDOW - WINDOW // 2 - 1
    ours = partial(attention, query, key, value)
    return {OURS: ours, NEAR: partial(ours, window=window), PLAIN: plain}


def measure(size: str, threads: int) -> list[Row]:
    """For each number of positions: (the number, {series: seconds}, {series: bytes by which the process grows})."""
    rows, is_toy = [], size == "toy"
    with limited_to(threads):
        for n in LENGTHS[size]:
            functions = calls(n)
            ours, plain = functions[OURS](), functions[PLAIN]()
            if not np.allclose(ours, plain, rtol=1e-3, atol=1e-4):
                raise ValueError(f"{n} positions: the results differ by {np.abs(ours - plain).max()}")
            del ours, plain
            times = alternate(functions, 3 if is_toy else ROUNDS, 0.1 if is_toy else SECONDS)
            extra = {name: extra_resident(call) for name, call in functions.items()}
            rows.append((n, times, {name: float(grown) for name, grown in extra.items() if grown is not None}))
            print(f"{n}: {times} s, {extra} bytes", file=sys.stderr, flush=True)
    return rows


def table(rows: list[Row], threads: int) -> str:
    head = (
        f"{conditions(threads)}one head of {WIDTH} in float32,\n"
        "medians of alternating runs; memory is by how much the process grows:\n\n"
        f"| n | {OURS}, ms | {NEAR}, ms | {PLAIN}, ms | {OURS}, MB | {PLAIN}, MB |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
    )
    lines = []
    for n, times, grown in rows:
        cells = [f"{times[name] * 1e3:.2f}" for name in (OURS, NEAR, PLAIN)]
        cells += [f"{grown[name] / 1e6:.1f}" if name in grown else "" for name in (OURS, PLAIN)]
        lines.append(f"| {n} | {' | '.join(cells)} |\n")
    return head + "".join(lines)


def picture(rows: list[Row]) -> str:
    """Time and memory over n on logarithmic axes: n^2 rises twice as steeply as n."""
    time: Series = {name: [(float(n), times[name] * 1e3) for n, times, _ in rows] for name in (OURS, NEAR, PLAIN)}
    # below a tenth of a megabyte, whole pages of the system hide the arrays' size
    memory: Series = {
        name: [(float(n), max(grown[name] / 1e6, 0.1)) for n, _, grown in rows if name in grown]
        for name in (OURS, PLAIN)
    }
    first, last = rows[0][0], rows[-1][0]
    slopes: Series = {
        "slope of n^2": [(first, time[OURS][-1][1] * (first / last) ** 2), (last, time[OURS][-1][1])],
        "slope of n": [(first, time[NEAR][-1][1] * (first / last)), (last, time[NEAR][-1][1])],
    }
    panels = [Panel("time", "n", "ms", time, slopes, log_y=True)]
    memory = {name: points for name, points in memory.items() if points}
    if memory:
        panels.append(Panel("memory beside the arrays given", "n", "MB", memory, log_y=True))
    return plot(panels)


def run(size: str, threads: int, document: Path | None) -> int:
    section = Section(document, "growth")
    if section.is_missing():
        return 2
    rows = measure(size, threads)
    section.show(table(rows, threads))
    if document is not None:
        folder = document.parent / "pictures"
        folder.mkdir(exist_ok=True)
        (folder / "growth.svg").write_text(picture(rows), encoding="utf-8", newline="\n")
    return 0
