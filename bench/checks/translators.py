"""Encoder-decoders of random weights beside transformers and CTranslate2: ids, logits, searches, texts, speed."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.checks import Data, Findings, check
from bench.checks.compare import milliseconds, plural, timed
from bench.measure import bandwidth
from bench.operations.table import WEIGHT_BYTES
from bench.timing import library_threads, once
from bench.translator_cases import CASES, PUBLISHED, T5_CASES, T5_PUBLISHED
from bench.translator_models import TranslatorCase, build, make_texts
from fastattn.ops import cpu

TEXTS = 30


def compared(findings: Findings, data: Data, cases: Sequence[TranslatorCase], count: int = TEXTS) -> None:
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


def tokens_compared(findings: Findings, data: Data, cases: Sequence[TranslatorCase]) -> None:
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
FOLDERS = "folders of ct2-transformers-converter: CTranslate2's tokens, greedy and beam 4"
for _name, _kinds, _small, _published in (
    ("translators", "NLLB, M2M100, mBART, BART, Pegasus, tc-big", CASES, PUBLISHED),
    ("t5", KINDS, T5_CASES, T5_PUBLISHED),
):
    check(f"{_name}-transformers", f"{_kinds}: three small ones each, as transformers")(partial(compared, cases=_small))
    check(f"{_name}-published", f"{_kinds} at published sizes with two layers a side: as transformers")(
        partial(compared, cases=_published, count=10)
    )
    check(f"{_name}-ctranslate2", f"{_kinds}, {FOLDERS}")(partial(tokens_compared, cases=_small))

PEERS = {"float32": ("CTranslate2", "transformers"), "int8": ("CTranslate2",)}
FASTER = {"float32": 1.0, "int8": 1.5}


def _speed(
    findings: Findings, data: Data, name: str, words: tuple[int, int], searches: Sequence[tuple], threads: int
) -> None:
    """words: of a source, at least and at most; searches: sentences, beams, tokens of each translation."""
    from bench import translator_engines

    case = getattr(translator_engines, name)
    sources = translator_engines.make_sources(case, 32, *words)
    for precision, peers in PEERS.items():
        makes = {engine: translator_engines.ENGINES[engine] for engine in ("fastattn", *peers)}
        with library_threads(threads):
            engines = {engine: make(case, precision, threads) for engine, make in makes.items()}
        for count, beam, tokens in searches:
            calls = {engine: partial(run, sources[:count], beam, tokens) for engine, run in engines.items()}
            times = timed(calls, threads, rounds=3, seconds=60.0)
            ratio = min(times[peer] for peer in peers) / times["fastattn"]
            what = f"{precision}, {plural(threads)}, {count} x beam {beam}:"
            findings.at_least(what, ratio, "x the fastest peer", FASTER[precision], milliseconds(times))
        del engines, calls  # the models, before the next ones


for _threads, _on in ((1, "one thread"), (2, "two threads")):
    check(
        f"t5-speed-{_threads}",
        f"{_on}, T5-base's shape, one sentence and 32, greedy and beam 4, of fixed lengths: faster than transformers, "
        "and than CTranslate2 in float32, 1.5 x that in int8",
    )(
        partial(
            _speed, name="T5_BASE", words=(12, 35), threads=_threads,
            searches=((1, 1, 32), (1, 4, 32), (32, 1, 12), (32, 4, 6)),
        )
    )  # fmt: skip
    check(
        f"nllb-speed-{_threads}",
        "NLLB-600M's shape, greedy and beam 4, 32 sentences and one: ahead in float32, 1.5 x CTranslate2 in int8, "
        + _on,
    )(
        partial(
            _speed, name="NLLB_600M", words=(10, 10), threads=_threads,
            searches=((32, 1, 6), (32, 4, 6), (1, 1, 6), (1, 4, 6)),
        )
    )  # fmt: skip


@check("nllb-memory", "the same shape in int8, 32 sentences, beam 4, one thread: a whole process at most CTranslate2's")
def memory(findings: Findings, data: Data) -> None:
    found = dict[str, float]()
    for name in ("fastattn", "fastattn", "CTranslate2"):  # the first packs and compiles
        command = [sys.executable, "-m", "bench.translator_engines", name, "int8"]
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
