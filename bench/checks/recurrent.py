"""Recurrent layers and models against PyTorch, ONNX Runtime and their own programs."""

import importlib
import importlib.util
import random
import re
import zipfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import OURS
from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS, compare, milliseconds, plural, timed
from bench.kernel_cases import case_of
from bench.measure import peak_flops, reader
from bench.operations.recurrent import recur
from bench.operations.table import WEIGHT_BYTES
from bench.timing import library_threads, once
from fastattn import Translator
from fastattn.ops.cpu import use_threads
from fastattn.weights import download, read

WIDTH, LENGTH = 512, 50


@check(
    "recurrent",
    f"one thread and two, 64 sentences and one, of {LENGTH} rows, width {WIDTH}, float32 and int8: an LSTM layer ahead "
    "of PyTorch's and of ONNX Runtime's; its share of the peak, or of what reads as many weights for each row",
)
def recurrent(findings: Findings, data: Data) -> None:
    for threads in THREADS:
        for sentences in (64, 1):
            for precision in ("float32", "int8"):
                with use_threads(threads), library_threads(threads):
                    case = case_of(recur("lstm", (LENGTH,) * sentences, WIDTH, WIDTH, precision=precision))
                del case.sides["NumPy"]
                case.agree = _agree
                sides = compare(case, threads, rounds=7, seconds=4.0)
                for peer in ("PyTorch", "ONNX Runtime"):
                    remark = milliseconds({name: sides[name]["seconds"] for name in (OURS, peer)})
                    what = f"{plural(threads)}, {sentences} sentence{'s'[: sentences > 1]}, {precision}:"
                    findings.at_least(what, sides[peer]["ratio"], f"x {peer}", 1.0, remark)
                findings.say(f"{sides[OURS]['rate']}, {_share(threads, sentences, precision, sides[OURS]['seconds'])}")


def _share(threads: int, sentences: int, precision: str, seconds: float) -> str:
    """The time as a share of the limit: arithmetic for many sentences; for one, reading U from a cache at each step.

    The product of all inputs is included; it reads its weights once.
    """
    weights, rows = 4 * WIDTH * WIDTH, sentences * LENGTH
    with use_threads(threads), library_threads(threads):
        if sentences > 1:
            return f"{4.0 * weights * rows / seconds / peak_flops(threads, precision):.0%} of the peak"
        read = reader([np.ones(WEIGHT_BYTES[precision] * weights, np.int8)], threads)
        read()
        moved = WEIGHT_BYTES[precision] * weights * LENGTH / seconds
        limit = WEIGHT_BYTES[precision] * weights / min(once(read) for _ in range(200))
    return f"{moved / 1e9:.0f} GB/s, {moved / limit:.0%} of {limit / 1e9:.0f} GB/s, the bandwidth for as many weights"


def _agree(ours: np.ndarray, theirs: np.ndarray) -> tuple[bool, str]:
    """Compare means: in int8 the greatest difference of 1.6 million states is a fifth, as of peers from float32."""
    difference = float(np.sqrt(np.square(ours - theirs).mean()))
    return difference <= 0.02, f"{difference:.0e}"


ENGLISH, THAI = 1000, 500
BATCH, ALONE = 64, 8
WANTED = {"PyTorch": 3.0, "ONNX Runtime": 1.5}


def package(name: str) -> Path:
    """The folder of an installed package, which is not imported; raises Absent if it is missing."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise Absent(f"the package {name} is not installed")
    return Path(spec.submodule_search_locations[0])


def agreement(findings: Findings, model: str, words: list[str], program: Callable[[str], str]) -> None:
    results = zip(words, Translator(model).translate(words), map(program, words))
    different = [f"{word} {ours!r}, not {theirs!r}" for word, ours, theirs in results if ours != theirs]
    same = len(words) - len(different)
    findings.at_least(model, same, f"of {len(words)} words", len(words), "; ".join(different[:3]))


@check("transliteration-e2k", f"e2k, {ENGLISH} English words of tatoeba.org: the katakana of its own package")
def e2k(findings: Findings, data: Data) -> None:
    package("e2k")
    program: Any = importlib.import_module("e2k.inference")
    agreement(findings, "e2k", english(data, ENGLISH), program.C2K())


def english(data: Data, count: int) -> list[str]:
    with zipfile.ZipFile(data.root / "tatoeba" / "fra-eng.zip") as archive:
        lines = archive.read("fra.txt").decode().splitlines()
    words = sorted({word for line in lines for word in re.findall(r"[A-Za-z']{2,}", line.split("\t")[0])})
    return random.Random(1).sample(words, count)


@check("transliteration-thai2rom", f"thai2rom, {THAI} Thai words of PyThaiNLP: what its files give by ONNX Runtime")
def thai2rom(findings: Findings, data: Data) -> None:
    from bench.onnx_thai2rom import Thai2Rom

    agreement(findings, "thai2rom", thai(THAI), Thai2Rom(package("pythainlp") / "corpus"))


def thai(count: int) -> list[str]:
    lines = (package("pythainlp") / "corpus" / "words_th.txt").read_text(encoding="utf-8").splitlines()
    words = sorted(set(filter(None, map(str.strip, lines))))
    return random.Random(3).sample(words, count)


def _in_batches(call: Callable[[list[str]], list[str]], batches: list[list[str]]) -> list[str]:
    return [word for batch in batches for word in call(batch)]


@check(
    "transliteration-speed",
    f"e2k and thai2rom, float32, batches of {BATCH} words and one at a time, one thread and two: "
    f"{WANTED['PyTorch']:.0f} x PyTorch's eager, {WANTED['ONNX Runtime']} x ONNX Runtime",
)
def transliteration_speed(findings: Findings, data: Data) -> None:
    from bench.torch_transliteration import onnx_engine, torch_engine, transliterate

    for name, words, most in (("e2k", english(data, BATCH), 16), ("thai2rom", thai(BATCH), 100)):
        checkpoint = read(download.resolve(name))
        for threads, alone in product(THREADS, (False, True)):
            ours: Any = Translator(name, "float32", threads=threads)
            peers = torch_engine(name, checkpoint), onnx_engine(name, checkpoint, threads)
            sides = {OURS: ours.translate}
            sides |= {side: partial(transliterate, peer, checkpoint, most) for side, peer in zip(WANTED, peers)}
            batches = [[word] for word in words[::ALONE]] if alone else [words]
            calls = {side: partial(_in_batches, call, batches) for side, call in sides.items()}
            results, times = {side: call() for side, call in calls.items()}, timed(calls, threads)
            count = len(results[OURS])
            findings.say(", ".join(f"{side} {count / seconds:,.0f} words/s" for side, seconds in times.items()))
            what = f"{name}, {plural(threads)}, {'one at a time' if alone else 'batches'}:"
            for peer, least in WANTED.items():
                same = sum(map(str.__eq__, results[peer], results[OURS]))
                findings.at_least(f"{what} the words of {peer}:", same, f"of {count}", 0.98 * count)
                findings.at_least(what, times[peer] / times[OURS], f"x {peer}", least)
