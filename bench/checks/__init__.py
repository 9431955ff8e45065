"""The checks of accept.py, one file for each subject. A check returns (whether it passed, its figures)."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Data:
    """The corpora."""

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
    """Register a function of Data that returns (passed, figures)."""

    def register(function: Callable[[Data], tuple[bool, str]]) -> Callable[[Data], tuple[bool, str]]:
        CHECKS.append(Check(name, claim, function))
        return function

    return register


class Findings:
    """A check's figures, each with its target. The check passes if all do."""

    def __init__(self) -> None:
        self._passed = True
        self._said: list[str] = []

    def at_least(self, what: str, found: float, unit: str, wanted: float, remark: str = "") -> None:
        self._add(found >= wanted, f"{what} {found:.4g} {unit} {'>=' if found >= wanted else '<'} {wanted:.4g}", remark)

    def at_most(self, what: str, found: float, unit: str, wanted: float, remark: str = "") -> None:
        self._add(found <= wanted, f"{what} {found:.4g} {unit} {'<=' if found <= wanted else '>'} {wanted:.4g}", remark)

    def say(self, figure: str) -> None:
        """Add a figure without a target."""
        self._add(True, figure, "")

    def _add(self, passed: bool, figure: str, remark: str) -> None:
        self._passed &= passed
        self._said.append(figure + (f" ({remark})" if remark else ""))

    @property
    def verdict(self) -> tuple[bool, str]:
        return self._passed, "; ".join(self._said)


# The modules register their checks.
from bench.checks import (  # noqa: E402, F401
    alignment,
    architectures,
    attention,
    attention_accuracy,
    attention_functions,
    attention_reference,
    attention_skipping,
    attention_speed,
    batch,
    batch_memory,
    bergamot,
    callers,
    conversion,
    document_forms,
    documents,
    documents_round,
    encoding,
    generation,
    generation_process,
    generation_speed,
    image_modules,
    images,
    large_models,
    light,
    load,
    loops,
    nllb,
    pictures,
    precision_memory,
    precision_quality,
    precision_speed,
    products,
    recurrent,
    scaling,
    schema,
    search,
    sentences,
    serving,
    start,
    t5,
    terms,
    trained,
    translation,
    translation_speed,
    translators,
    transliteration,
)
