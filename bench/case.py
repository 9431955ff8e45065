"""A case: a task done by several engines, with the work and bytes by which a time is judged."""

import importlib
import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.timing import sample

OURS = "fastattn"
NOT_INSTALLED = "not installed"
# Allowed differences, relative to the largest value: far above the engines' rounding, far below any mistake.
ALLOWED = {"float32": 1e-3, "bfloat16": 2e-2, "int8": 5e-2, "int4": 5e-2}


@dataclass
class Side:
    """One engine of a case. ``calls`` has one call for each setting worth trying; none for the reason in ``absent``.

    share  the share of the case's work that a call does, if all of it would take too long
    view   converts its result to the form of fastattn's
    """

    calls: Mapping[Any, Callable[[], Any]] = field(default_factory=dict)
    absent: str = ""
    share: float = 1.0
    view: Callable[[Any], Any] = np.asarray


def largest_difference(ours: Any, theirs: Any, precision: str = "float32") -> tuple[bool, str]:
    """(whether two arrays agree, their largest difference relative to the largest value)."""
    scale = float(np.abs(ours).max(initial=0.0))
    difference = float(np.abs(ours - theirs).max(initial=0.0)) / (scale or 1.0)
    return difference <= ALLOWED[precision], f"{difference:.0e}"


def same_directions(ours_BD: np.ndarray, other_BD: np.ndarray) -> tuple[bool, str]:
    """Compare the vectors of engines that round differently by the least cosine over the sentences.

    NNCF rounds with fixed scales: its least cosine to fastattn's vectors over 486 sentences is 0.951.
    """
    lengths_B = np.linalg.norm(ours_BD, axis=1) * np.linalg.norm(other_BD, axis=1)
    least = float(((ours_BD * other_BD).sum(1) / lengths_B).min())
    return least >= 0.93, f"cosine at least {least:.3f}"


@dataclass
class Case:
    """work    of one call, in ``unit`` (rates are work / seconds); also its flops and bytes if they can be counted.

    bytes  the least that must be moved: each operand once
    agree  (fastattn's result, another engine's in the same form) -> (whether they agree, the text for the report)
    warm   whether all sides have already run, on a small input; otherwise the first call is not timed
    """

    name: str
    work: float
    unit: str
    sides: dict[str, Side]
    flops: float | None = None
    bytes: float | None = None
    agree: Callable[[Any, Any], tuple[bool, str]] = largest_difference
    warm: bool = False


def installed(libraries: tuple[str, ...]) -> bool:
    return all(importlib.util.find_spec(library) for library in libraries)


def peer(libraries: tuple[str, ...], module: str, make: Callable[[Any], Side]) -> Side:
    """A side that needs libraries: ``make(module)``, with the module imported now, or absent if they are missing."""
    return make(importlib.import_module(module)) if installed(libraries) else Side(absent=NOT_INSTALLED)


@dataclass
class Trial:
    """The fastest setting of a side, from one call of each: its seconds and its result."""

    setting: Any
    seconds: float
    result: Any


def try_settings(side: Side, warm: bool) -> Trial:
    best: Trial | None = None
    for setting, call in side.calls.items():
        if not warm:
            call()
        start = time.perf_counter()
        result = call()
        took = time.perf_counter() - start
        if best is None or took < best.seconds:
            best = Trial(setting, took, result)
    return best


def run_case(case: Case, rounds: int, seconds: float, pause: float) -> dict[str, Any]:
    present = {name: side for name, side in case.sides.items() if side.calls}
    trials = {name: try_settings(side, case.warm) for name, side in present.items()}
    results = {name: present[name].view(trial.result) for name, trial in trials.items()}
    agreements = {name: case.agree(results[OURS], result) for name, result in results.items() if name != OURS}
    calls = {name: present[name].calls[trial.setting] for name, trial in trials.items()}
    times = sample(calls, {name: trial.seconds for name, trial in trials.items()}, rounds, seconds, pause)
    sides: dict[str, Any] = {name: {"absent": side.absent} for name, side in case.sides.items() if not side.calls}
    for name, values in times.items():
        sides[name] = {
            "seconds": float(np.median(values)) / present[name].share,
            "samples": values,
            "share": present[name].share,
            "setting": str(trials[name].setting),
        }
        if name in agreements:
            sides[name] |= {"agrees": agreements[name][0], "agreement": agreements[name][1]}
    row = {name: getattr(case, name) for name in ("name", "work", "unit", "flops", "bytes")}
    return row | {"sides": {name: sides[name] for name in case.sides}}
