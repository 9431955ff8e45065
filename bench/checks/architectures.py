"""Encoders of each architecture at its published sizes against the fastest of the engines that run it."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from bench.architecture_engines import ENGINES, Subject
from bench.architectures import ARCHITECTURES, Architecture, make_texts
from bench.case import NOT_INSTALLED, OURS, Case, Side, installed, largest_difference
from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS, compare, plural
from bench.timing import library_threads

WANTED = {"float32": 1.0, "int8": 1.2}
# Tokens of a text, how many texts, batches to try: enough rows for every engine to run at its full speed.
SHAPES = {32: (64, (8, 16, 32, 64)), 512: (4, (1, 4)), 4096: (1, (1,))}


def _same_directions(ours_BD: np.ndarray, other_BD: np.ndarray) -> tuple[bool, str]:
    """Compare vectors of unit length of two int8 models."""
    least = float((ours_BD * other_BD).sum(1).min())
    return least >= 0.9, f"cosine at least {least:.3f}"


def make_case(subject: Subject, tokens: int, count: int, threads: int, precision: str) -> tuple[Case, dict[str, str]]:
    """(the case of the engines that run it, why others do not)."""
    texts, sides, absent = make_texts(count, tokens), {}, {}
    for name, engine in ENGINES.items():
        if precision not in engine.precisions:
            continue
        if not installed(engine.libraries):
            absent[name] = NOT_INSTALLED
            continue
        try:
            calls = engine.make(subject, threads, precision)
            for call in calls.values():
                call(texts[:1])
        except Exception as error:
            if name == OURS:
                raise  # of a peer: whatever an exporter raises for a model that it does not know
            absent[name] = f"{type(error).__name__} {str(error).strip().splitlines()[0][:80]}"
            continue
        sides[name] = Side({setting: partial(call, texts) for setting, call in calls.items()})
    agree = largest_difference if precision == "float32" else _same_directions
    name = f"{subject.architecture.name}, {tokens} tokens"
    return Case(name, count * tokens, "tokens/s", sides, agree=agree, warm=True), absent


def _compare_all(architecture: Architecture, lengths: tuple[int, ...], data: Data) -> tuple[bool, str]:
    if not any(installed(engine.libraries) for name, engine in ENGINES.items() if name != OURS):
        raise Absent("no engine to compare with")
    findings = Findings()
    for tokens in lengths:
        count, batches = SHAPES[tokens]
        with tempfile.TemporaryDirectory() as folder:
            subject = Subject(architecture, Path(folder), batches)
            for precision, least in WANTED.items():
                for threads in THREADS:
                    with library_threads(threads):
                        case, absent = make_case(subject, tokens, count, threads, precision)
                        sides = compare(case, threads, rounds=7, seconds=10.0)
                    fastest = min((name for name in sides if name != OURS), key=lambda name: sides[name]["seconds"])
                    rates = [f"{name} {side['rate']} {side['setting']}".strip() for name, side in sides.items()]
                    rates += [f"{name}: {reason}" for name, reason in absent.items()]
                    what = f"{precision}, {tokens} tokens, {plural(threads)}:"
                    findings.at_least(what, sides[fastest]["ratio"], f"x {fastest}", least, "; ".join(rates))
    return findings.verdict


CLAIM = (
    "two layers at random, texts of {} tokens, one thread and two, tokenizing included: ahead of the fastest of "
    "PyTorch, ONNX Runtime and OpenVINO in float32, 1.2 x in int8"
)
for _name, _architecture in ARCHITECTURES.items():
    _lengths = (32, 512, 4096) if _name == "modernbert-base" else (32, 512)
    _claim = CLAIM.format(" and ".join(map(str, _lengths)))
    check(f"architectures-{_name}", _claim)(partial(_compare_all, _architecture, _lengths))
