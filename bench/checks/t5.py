"""T5's family beside transformers and CTranslate2: tokens, and the speed of T5-base's shape at random weights."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import pause, plural
from bench.checks.translators import compared, tokens_compared
from bench.t5_cases import T5_CASES, T5_PUBLISHED
from bench.timing import alternate, library_threads
from fastattn.ops.cpu import use_threads

KINDS = "T5, flan-T5, mT5, UMT5 and MADLAD-400"


@check("t5-transformers", f"{KINDS}: three small ones each, as transformers")
def small(data: Data) -> tuple[bool, str]:
    return compared(T5_CASES)


@check("t5-published", f"{KINDS} at published sizes with two layers a side: as transformers")
def published(data: Data) -> tuple[bool, str]:
    return compared(T5_PUBLISHED, 10)


@check("t5-ctranslate2", f"{KINDS}, folders of ct2-transformers-converter: CTranslate2's tokens, greedy and beam 4")
def ctranslate2(data: Data) -> tuple[bool, str]:
    return tokens_compared(T5_CASES)


# Sentences, beams, tokens of each translation.
SEARCHES = ((1, 1, 32), (1, 4, 32), (32, 1, 12), (32, 4, 6))
FASTER = {"float32": 1.0, "int8": 1.5}
SPEED = "T5-base's shape, one sentence and 32, greedy and beam 4, of fixed lengths: faster than transformers, and than"


@check("t5-speed-1", f"one thread, {SPEED} CTranslate2 in float32, 1.5 x that in int8")
def speed_on_one(data: Data) -> tuple[bool, str]:
    return _speed(1)


@check("t5-speed-2", f"two threads, {SPEED} CTranslate2 in float32, 1.5 x that in int8")
def speed_on_two(data: Data) -> tuple[bool, str]:
    return _speed(2)


def _speed(threads: int) -> tuple[bool, str]:
    try:
        from bench.t5_speed import engines, write_model
    except ImportError:
        raise Absent("pip install ctranslate2 torch transformers") from None
    findings = Findings()
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_model(Path(scratch))
        with use_threads(threads), library_threads(threads):
            made = engines(folder, threads, tuple(FASTER))
            for search in SEARCHES:
                _compare(made, search, threads, findings)
    return findings.verdict


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
