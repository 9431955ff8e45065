"""A case: one piece of work, done by several engines, with the work and bytes that a time is judged by."""

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
# Of the largest value: far above rounding, each engine's in its own way, and far below any mistake.
ALLOWED = {"float32": 1e-3, "bfloat16": 2e-2, "int8": 5e-2}


@dataclass
class Side:
    """A competitor. ``calls`` has one call for each setting worth trying; none where it is ``absent`` for a reason.

    share  of the case's work that a call does, where all of it would take too long
    view   brings its result into the form of ours
    """

    calls: Mapping[Any, Callable[[], Any]] = field(default_factory=dict)
    absent: str = ""
    share: float = 1.0
    view: Callable[[Any], Any] = np.asarray


def largest_difference(ours: Any, other: Any, precision: str = "float32") -> tuple[bool, str]:
    """Whether two arrays agree, and their largest difference as a part of the largest value."""
    scale = float(np.abs(ours).max(initial=0.0))
    difference = float(np.abs(ours - other).max(initial=0.0)) / (scale or 1.0)
    return difference <= ALLOWED[precision], f"{difference:.0e}"


@dataclass
class Case:
    """work    of one call, in ``unit`` (rates are work / seconds); flops and bytes of it where they are countable.

    bytes  the least that must be moved: each operand once
    agree  (result of ours, another's in our form) -> whether they agree, and how it is said
    warm   whether all sides have run before, on something small: else a first call is not timed
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
    """A side that needs libraries which may not be there: ``make(module)``, the module imported only now."""
    return make(importlib.import_module(module)) if installed(libraries) else Side(absent=NOT_INSTALLED)


@dataclass
class Trial:
    """The quickest setting of a side, by one call of each: its seconds and its result."""

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
    assert best is not None
    return best


def run_case(case: Case, rounds: int, seconds: float, pause: float) -> dict[str, Any]:
    """The case's row of the results: medians, samples, settings, and whether the results agree."""
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
