"""The checks of accept.py, one file for each subject. A check adds its figures to findings."""

import csv
import importlib.util
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Data:
    root: Path

    def flores(self, language: str) -> list[str]:
        return (self.root / "flores-dev" / f"flores-dev.{language}").read_text(encoding="utf-8").splitlines()

    @cached_property
    def stsb(self) -> tuple[list[str], list[str], list[float]]:
        """First sentences, second sentences, scores 0 to 5."""
        with (self.root / "stsb" / "stsb-en-dev.csv").open(encoding="utf-8", newline="") as file:
            first, second, scores = zip(*csv.reader(file), strict=True)
        return list(first), list(second), [float(score) for score in scores]

    def aren(self, version: str, precision: str = "") -> Path:
        """Arabic to English transliteration, CTranslate2 binary v1 or v2; precision "", "i16" or "i8"."""
        name = "aren-transliteration" + (f"-{precision}" if precision else "")
        return self.root / "aren-transliteration" / version / name


@dataclass(frozen=True)
class Check:
    name: str
    claim: str
    run: Callable[[Data], tuple[bool, str]]


CHECKS: list[Check] = []


class Absent(Exception):
    """Raised by a check whose engine to compare with is missing: it is skipped."""


def check(name: str, claim: str) -> Callable:
    """Register a function of (findings, data). It is skipped where a peer's library is not installed."""

    def register(function: Callable[["Findings", Data], None]) -> Callable[["Findings", Data], None]:
        def run(data: Data) -> tuple[bool, str]:
            findings = Findings()
            try:
                function(findings, data)
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] in ("", "bench", "fastattn"):
                    raise
                raise Absent(f"{error.name} is not installed") from error
            return findings.verdict

        CHECKS.append(Check(name, claim, run))
        return function

    return register


def need(*libraries: str) -> None:
    """Raise Absent unless the modules are installed; for a check that imports them late, or in another process."""
    for name in libraries:
        if importlib.util.find_spec(name) is None:
            raise Absent(f"{name} is not installed")


class Findings:
    """A check's figures, each with its target. The check passes if all do."""

    def __init__(self) -> None:
        self._passed = True
        self._said: list[str] = []

    def at_least(self, what: str, value: float, unit: str, bound: float, remark: str = "") -> None:
        sign = ">=" if value >= bound else "<"
        self.add(value >= bound, f"{what} {value:.4g} {unit} {sign} {bound:.4g}", remark)

    def at_most(self, what: str, value: float, unit: str, bound: float, remark: str = "") -> None:
        sign = "<=" if value <= bound else ">"
        self.add(value <= bound, f"{what} {value:.4g} {unit} {sign} {bound:.4g}", remark)

    def say(self, figure: str) -> None:
        self.add(True, figure)

    def add(self, passed: bool, figure: str, remark: str = "") -> None:
        self._passed &= passed
        self._said.append(figure + (f" ({remark})" if remark else ""))

    @property
    def verdict(self) -> tuple[bool, str]:
        return self._passed, "; ".join(self._said)


for _module in pkgutil.iter_modules(__path__):  # these modules register their checks
    importlib.import_module(f"{__name__}.{_module.name}")
