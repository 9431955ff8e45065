"""T5's family beside transformers and CTranslate2: tokens, and the speed of T5-base's shape at random weights."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.checks import Data, Findings, check
from bench.checks.compare import pause, plural
from bench.checks.translators import compared, tokens_compared
from bench.t5_cases import T5_CASES, T5_PUBLISHED
from bench.timing import alternate, library_threads
from fastattn.ops.cpu import use_threads

KINDS = "T5, flan-T5, mT5, UMT5 and MADLAD-400"


@check("t5-transformers", f"{KINDS}: three small ones each, as transformers")
def small(findings: Findings, data: Data) -> None:
    compared(findings, T5_CASES)


@check("t5-published", f"{KINDS} at published sizes with two layers a side: as transformers")
def published(findings: Findings, data: Data) -> None:
    compared(findings, T5_PUBLISHED, 10)


@check("t5-ctranslate2", f"{KINDS}, folders of ct2-transformers-converter: CTranslate2's tokens, greedy and beam 4")
def ctranslate2(findings: Findings, data: Data) -> None:
    tokens_compared(findings, T5_CASES)


# Sentences, beams, tokens of each translation.
SEARCHES = ((1, 1, 32), (1, 4, 32), (32, 1, 12), (32, 4, 6))
FASTER = {"float32": 1.0, "int8": 1.5}
SPEED = "T5-base's shape, one sentence and 32, greedy and beam 4, of fixed lengths: faster than transformers, and than"


def _speed(findings: Findings, data: Data, threads: int) -> None:
    from bench.t5_speed import engines, write_model

    with tempfile.TemporaryDirectory() as scratch:
        folder = write_model(Path(scratch))
        with use_threads(threads), library_threads(threads):
            made = engines(folder, threads, tuple(FASTER))
            for search in SEARCHES:
                _compare(made, search, threads, findings)


def _compare(made: dict[str, Callable], search: tuple[int, int, int], threads: int, findings: Findings) -> None:
    count, beams, tokens = search
    rng = np.random.default_rng(count)
    sources = [rng.integers(3, 32_000, length).tolist() for length in rng.integers(12, 36, count)]
    calls: dict[str, Any] = {name: (lambda run=run: run(sources, beams, tokens)) for name, run in made.items()}
    seconds = alternate(calls, rounds=3, seconds=6.0, pause=pause(threads))
    name = f"{plural(threads)}, {count} x beam {beams}"
    for precision, wanted in FASTER.items():
        ours, theirs = seconds[f"fastattn {precision}"], seconds[f"CTranslate2 {precision}"]
        findings.at_least(f"{name}, {precision}:", theirs / ours, "x CTranslate2", wanted, f"{ours:.2f} s")
    findings.at_least(name, seconds["transformers"] / seconds["fastattn float32"], "x transformers", 1.0)


for _threads, _on in ((1, "one thread"), (2, "two threads")):
    _claim = f"{_on}, {SPEED} CTranslate2 in float32, 1.5 x that in int8"
    check(f"t5-speed-{_threads}", _claim)(partial(_speed, threads=_threads))
