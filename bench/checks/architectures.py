"""Encoders of each architecture at its published sizes against the fastest of the engines that run it."""

import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.architecture_engines import ENGINES, Subject
from bench.architectures import ARCHITECTURES, RERANKER, RERANKERS, Architecture, make_texts
from bench.case import NOT_INSTALLED, OURS, Case, Side, installed, largest_difference, same_directions
from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS, compare, fastest_peer, plural
from bench.timing import library_threads

WANTED = {"float32": 1.0, "int8": 1.2}
# Tokens of a text, how many texts, batches to try: enough rows for every engine to run at its full speed.
SHAPES = {32: (64, (8, 16, 32, 64)), 512: (4, (1, 4)), 4096: (1, (1,))}
DOCUMENTS, PAIR = 100, 216  # tokens of a query of 13 words and a document of 200


def make_pairs() -> list[tuple[str, str]]:
    (query,) = make_texts(1, 15)
    return [(query, document) for document in make_texts(DOCUMENTS, 202)]


def _any_scores(ours_B: np.ndarray, other_B: np.ndarray) -> tuple[bool, str]:
    """The difference of int8 scores, for the report alone: random weights hardly tell texts apart, so that rounding is
    most of it. In float32 they are compared."""
    return True, largest_difference(ours_B, other_B)[1]


def make_case(
    subject: Subject, texts: Sequence[Any], tokens: int, threads: int, precision: str
) -> tuple[Case, dict[str, str]]:
    """(the case of the engines that run it, why others do not); texts, or pairs, of so many tokens each."""
    sides, absent = {}, {}
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
    agree = largest_difference
    if precision == "int8":
        scores = subject.architecture.kind == RERANKER
        agree = _any_scores if scores else same_directions
    name = f"{subject.architecture.name}, {tokens} tokens"
    return Case(name, len(texts) * tokens, "tokens/s", sides, agree=agree, warm=True), absent


def _compare_all(findings: Findings, data: Data, architecture: Architecture, texts: dict[int, Sequence[Any]]) -> None:
    if not any(installed(engine.libraries) for name, engine in ENGINES.items() if name != OURS):
        raise Absent("no engine to compare with")
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(architecture, Path(folder), ())
        for tokens, (precision, least), threads in product(texts, WANTED.items(), THREADS):
            subject.batches = BATCHES[tokens]
            with library_threads(threads):
                case, absent = make_case(subject, texts[tokens], tokens, threads, precision)
                sides = compare(case, threads, rounds=7, seconds=10.0)
            fastest, rates = fastest_peer(sides)
            rates += [f"{name}: {reason}" for name, reason in absent.items()]
            what = f"{precision}, {tokens} tokens, {plural(threads)}:"
            findings.at_least(what, sides[fastest]["ratio"], f"x {fastest}", least, "; ".join(rates))


CLAIM = (
    "{} at random, one thread and two, tokenizing included: ahead of the fastest of PyTorch, ONNX Runtime and OpenVINO "
    "in float32, 1.2 x in int8"
)
BATCHES = {tokens: batches for tokens, (_, batches) in SHAPES.items()} | {PAIR: (4, 20, 50)}
for _name, _architecture in ARCHITECTURES.items():
    _lengths = (32, 512, 4096) if _name == "modernbert-base" else (32, 512)
    _claim = CLAIM.format(f"two or three layers, texts of {' and '.join(map(str, _lengths))} tokens,")
    _texts = {tokens: make_texts(SHAPES[tokens][0], tokens) for tokens in _lengths}
    check(f"architectures-{_name}", _claim)(partial(_compare_all, architecture=_architecture, texts=_texts))
for _name, _architecture in RERANKERS.items():
    _claim = CLAIM.format(f"two layers and a score, a query with {DOCUMENTS} documents of 200 tokens,")
    _pairs = {PAIR: make_pairs()}
    check(f"architectures-rerank-{_name}", _claim)(partial(_compare_all, architecture=_architecture, texts=_pairs))
