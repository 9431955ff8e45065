"""Encoder-decoders of random weights beside transformers and CTranslate2: ids, logits, searches, texts, speed."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.checks import Data, Findings, check
from bench.checks.compare import pause, plural
from bench.measure import bandwidth
from bench.operations.table import WEIGHT_BYTES
from bench.timing import alternate, library_threads, once, sample
from bench.translator_cases import CASES, PUBLISHED, T5_CASES, T5_PUBLISHED
from bench.translator_models import TranslatorCase, build, make_texts
from fastattn.ops import cpu
from fastattn.ops.cpu import use_threads

TEXTS = 30


def compared(findings: Findings, cases: Sequence[TranslatorCase], count: int = TEXTS) -> None:
    import transformers

    from bench.translator_comparison import agreement

    texts = make_texts(count, 3)
    findings.say(f"transformers {transformers.__version__}")
    for seed, case in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder), case, seed)
            found = agreement(Path(folder), case, texts)
        same = min(found.ids, found.greedy, found.beam, found.joined)
        remark = f"ids {found.ids}, greedy {found.greedy}, beam 4 {found.beam}, texts {found.joined}"
        findings.at_least(f"{case.name}:", same, f"of {count} the same", count, remark)
        findings.at_most("logits", found.logits, "of the largest", 1e-4)


@check("translators-transformers", "NLLB, M2M100, mBART, BART, Pegasus, tc-big: three small ones each, as transformers")
def small(findings: Findings, data: Data) -> None:
    compared(findings, CASES)


@check("translators-published", "the same kinds at published sizes with two layers a side: as transformers")
def published(findings: Findings, data: Data) -> None:
    compared(findings, PUBLISHED, 10)


@check(
    "translators-ctranslate2", "their folders of ct2-transformers-converter: CTranslate2's tokens, greedy and beam 4"
)
def ctranslate2(findings: Findings, data: Data) -> None:
    tokens_compared(findings, CASES)


def tokens_compared(findings: Findings, cases: Sequence[TranslatorCase]) -> None:
    from bench.translator_comparison import converted, tokens_of_both, with_equal_heads

    texts = make_texts(TEXTS, 3)
    for seed, case in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "model").mkdir()
            build(Path(folder) / "model", with_equal_heads(case), seed)
            out = converted(Path(folder) / "model", Path(folder) / "converted")
            same: dict[str, Any] = tokens_of_both(out, Path(folder) / "model", case, texts)
        findings.at_least(f"{case.name}:", min(same.values()), f"of {TEXTS} the same", TEXTS, str(same))


KINDS = "T5, flan-T5, mT5, UMT5 and MADLAD-400"


@check("t5-transformers", f"{KINDS}: three small ones each, as transformers")
def small_t5(findings: Findings, data: Data) -> None:
    compared(findings, T5_CASES)


@check("t5-published", f"{KINDS} at published sizes with two layers a side: as transformers")
def published_t5(findings: Findings, data: Data) -> None:
    compared(findings, T5_PUBLISHED, 10)


@check("t5-ctranslate2", f"{KINDS}, folders of ct2-transformers-converter: CTranslate2's tokens, greedy and beam 4")
def ctranslate2_t5(findings: Findings, data: Data) -> None:
    tokens_compared(findings, T5_CASES)


# Sentences, beams, tokens of each translation.
SEARCHES = ((1, 1, 32), (1, 4, 32), (32, 1, 12), (32, 4, 6))
FASTER = {"float32": 1.0, "int8": 1.5}
SPEED = "T5-base's shape, one sentence and 32, greedy and beam 4, of fixed lengths: faster than transformers, and than"


def _t5_speed(findings: Findings, data: Data, threads: int) -> None:
    from bench.t5_speed import engines, write_model

    with tempfile.TemporaryDirectory() as scratch:
        folder = write_model(Path(scratch))
        with use_threads(threads), library_threads(threads):
            made = engines(folder, threads, tuple(FASTER))
            for search in SEARCHES:
                _compare_t5(made, search, threads, findings)


def _compare_t5(made: dict[str, Callable], search: tuple[int, int, int], threads: int, findings: Findings) -> None:
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
    check(f"t5-speed-{_threads}", _claim)(partial(_t5_speed, threads=_threads))


PEERS = {"float32": ("CTranslate2", "transformers"), "int8": ("CTranslate2",)}
CLAIM = "NLLB-600M's shape, greedy and beam 4, 32 sentences and one: ahead in float32, 1.5 x CTranslate2 in int8"


def _nllb_speed(findings: Findings, data: Data, threads: int) -> None:
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
    check(f"nllb-speed-{_threads}", f"{CLAIM}, {_on}")(partial(_nllb_speed, threads=_threads))


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
