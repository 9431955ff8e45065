"""NLLB-600M's shape at random weights beside transformers and CTranslate2: speed, and memory of the whole process."""

import subprocess
import sys
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import plural
from bench.timing import library_threads, once, sample

PEERS = {"float32": ("CTranslate2", "transformers"), "int8": ("CTranslate2",)}
CLAIM = "NLLB-600M's shape, greedy and beam 4, 32 sentences and one: ahead in float32, 1.5 x CTranslate2 in int8"


@check("nllb-speed-1", f"{CLAIM}, one thread")
def one_thread(data: Data) -> tuple[bool, str]:
    return _speed(1)


@check("nllb-speed-2", f"{CLAIM}, two threads")
def two_threads(data: Data) -> tuple[bool, str]:
    return _speed(2)


def _speed(threads: int) -> tuple[bool, str]:
    findings = Findings()
    with library_threads(threads):
        for precision, peers in PEERS.items():
            engines, sources = _engines(("fastattn", *peers), precision, threads)
            for count, beam in product((32, 1), (1, 4)):
                calls = {name: partial(run, sources[:count], beam) for name, run in engines.items()}
                lengths = {len(row) for call in calls.values() for row in call()}
                known = {name: once(call) for name, call in calls.items()}
                samples = sample(calls, known, rounds=2 if count > 1 else 5, seconds=100.0)
                times = {name: float(np.median(values)) for name, values in samples.items()}
                best = min(times[name] for name in peers)
                of = ", ".join(f"{name} {1e3 * seconds:.0f} ms" for name, seconds in times.items())
                what = f"{precision}, {count} x beam {beam}:"
                wanted = 1.0 if precision == "float32" else 1.5
                findings.at_least(
                    what, best / times["fastattn"], "x the faster peer", wanted, f"{of}; tokens {lengths}"
                )
            del engines, calls  # the models, before the next ones
    findings.say(plural(threads))
    return findings.verdict


def _engines(names: tuple[str, ...], precision: str, threads: int) -> tuple[dict[str, Any], list[list[str]]]:
    try:
        from bench.nllb import ENGINES, sources

        return {name: ENGINES[name](precision, threads) for name in names}, sources(32)
    except ImportError:
        raise Absent("pip install ctranslate2 torch transformers sentencepiece tokenizers") from None


@check("nllb-memory", "the same shape in int8, 32 sentences, beam 4, one thread: a whole process at most CTranslate2's")
def memory(data: Data) -> tuple[bool, str]:
    findings, found = Findings(), dict[str, float]()
    for name in ("fastattn", "fastattn", "CTranslate2"):  # the first packs and compiles
        command = [sys.executable, "-m", "bench.nllb", name, "int8", "1"]
        found[name] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1e6
    findings.at_most("peak", found["fastattn"], "MB", found["CTranslate2"], "the limit is CTranslate2's")
    return findings.verdict
