"""NLLB-600M's shape at random weights beside transformers and CTranslate2: speed, and memory of the whole process."""

import subprocess
import sys
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from bench.checks import Data, Findings, check
from bench.checks.compare import plural
from bench.measure import bandwidth
from bench.operations.table import WEIGHT_BYTES
from bench.timing import library_threads, once, sample
from fastattn.ops import cpu

PEERS = {"float32": ("CTranslate2", "transformers"), "int8": ("CTranslate2",)}
CLAIM = "NLLB-600M's shape, greedy and beam 4, 32 sentences and one: ahead in float32, 1.5 x CTranslate2 in int8"


def _speed(findings: Findings, data: Data, threads: int) -> None:
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


def _engines(names: tuple[str, ...], precision: str, threads: int) -> tuple[dict[str, Any], list[list[str]]]:
    from bench.nllb import ENGINES, sources

    return {name: ENGINES[name](precision, threads) for name in names}, sources(32)


for _threads, _on in ((1, "one thread"), (2, "two threads")):
    check(f"nllb-speed-{_threads}", f"{CLAIM}, {_on}")(partial(_speed, threads=_threads))


@check("nllb-memory", "the same shape in int8, 32 sentences, beam 4, one thread: a whole process at most CTranslate2's")
def memory(findings: Findings, data: Data) -> None:
    found = dict[str, float]()
    for name in ("fastattn", "fastattn", "CTranslate2"):  # the first packs and compiles
        command = [sys.executable, "-m", "bench.nllb", name, "int8", "1"]
        found[name] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1e6
    findings.at_most("peak", found["fastattn"], "MB", found["CTranslate2"], "the limit is CTranslate2's")


@check(
    "nllb-projection", "the best 8 of 256,206 for a row and for four, float32 and int8: 85% of the bandwidth of memory"
)
def projection(findings: Findings, data: Data) -> None:
    shape = (256_206, 1024)
    weight_VD = np.random.default_rng(0).standard_normal(shape, np.float32)
    for precision, threads in product(("float32", "int8"), (1, 2)):
        packed = cpu.pack_linear(weight_VD, None, precision)
        for rows in (1, 4):
            x_RD = np.random.default_rng(1).standard_normal((rows, shape[1]), np.float32)
            call = partial(cpu.project_top_k, x_RD, packed, 8)
            with cpu.use_threads(threads):
                call()
                read = weight_VD.size * WEIGHT_BYTES[precision] / min(once(call) for _ in range(15))
            share = read / bandwidth(threads)
            findings.at_least(f"{precision}, {plural(threads)}, {rows} x:", share, "of the bandwidth", 0.85)
