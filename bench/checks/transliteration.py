"""Recurrent encoder-decoders beside their own programs: e2k and thai2rom."""

import importlib
import importlib.util
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.case import OURS
from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS, plural, timed
from fastattn import Translator
from fastattn.weights import download, read

ENGLISH, THAI = 1000, 500
BATCH, ALONE = 64, 8
WANTED = {"PyTorch": 3.0, "ONNX Runtime": 1.5}
Program = Callable[[str], str]


def package(name: str) -> Path:
    """The folder of an installed package, which is not imported; raises Absent if it is missing."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise Absent(f"the package {name} is not installed")
    return Path(found.submodule_search_locations[0])


def agreement(findings: Findings, model: str, words: list[str], program: Program) -> None:
    """Whether the catalog's model writes each word as its program does."""
    expected = [program(word) for word in words]
    different = [
        f"{word} {found!r}, not {theirs!r}"
        for word, found, theirs in zip(words, Translator(model).translate(words), expected)
        if found != theirs
    ]
    findings.at_least(
        model, len(words) - len(different), f"of {len(words)} words", len(words), "; ".join(different[:3])
    )


@check("transliteration-e2k", f"e2k, {ENGLISH} English words of tatoeba.org: the katakana of its own package")
def e2k(findings: Findings, data: Data) -> None:
    package("e2k")
    program: Any = importlib.import_module("e2k.inference")
    agreement(findings, "e2k", english(data, ENGLISH), program.C2K())


def english(data: Data, count: int) -> list[str]:
    """Different words of a corpus."""
    with zipfile.ZipFile(data.root / "tatoeba" / "fra-eng.zip") as archive:
        lines = archive.read("fra.txt").decode().splitlines()
    words = sorted({word for line in lines for word in re.findall(r"[A-Za-z']{2,}", line.split("\t")[0])})
    return random.Random(1).sample(words, count)


@check("transliteration-thai2rom", f"thai2rom, {THAI} Thai words of PyThaiNLP: what its files give by ONNX Runtime")
def thai2rom(findings: Findings, data: Data) -> None:
    from bench.onnx_thai2rom import Thai2Rom

    agreement(findings, "thai2rom", thai(THAI), Thai2Rom(package("pythainlp") / "corpus"))


def thai(count: int) -> list[str]:
    """Different words of PyThaiNLP."""
    lines = (package("pythainlp") / "corpus" / "words_th.txt").read_text(encoding="utf-8").splitlines()
    words = sorted(set(filter(None, map(str.strip, lines))))
    return random.Random(3).sample(words, count)


@check(
    "transliteration-speed",
    f"e2k and thai2rom, float32, batches of {BATCH} words and one at a time, one thread and two: "
    f"{WANTED['PyTorch']:.0f} x PyTorch's eager, {WANTED['ONNX Runtime']} x ONNX Runtime",
)
def speed(findings: Findings, data: Data) -> None:
    from bench.torch_transliteration import onnx_engine, torch_engine, transliterate

    for name, words, most in (("e2k", english(data, BATCH), 16), ("thai2rom", thai(BATCH), 100)):
        checkpoint = read(download.resolve(name))
        for threads in THREADS:
            peers = {"PyTorch": torch_engine(name, checkpoint), "ONNX Runtime": onnx_engine(name, checkpoint, threads)}
            ours = {key: Translator(name, key, threads=threads) for key in ("float32", "int8")}
            for some, size in ((words, BATCH), (words[::ALONE], 1)):
                batches = [some[at : at + size] for at in range(0, len(some), size)]
                sides: dict[str, Callable[[list[str]], list[str]]] = {
                    OURS: ours["float32"].translate,
                    "int8": ours["int8"].translate,
                }
                for peer, engine in peers.items():
                    sides[peer] = lambda batch, engine=engine: transliterate(engine, checkpoint, batch, most)  # noqa: B023
                found = {side: [word for batch in batches for word in call(batch)] for side, call in sides.items()}
                calls = {side: lambda call=call: [call(batch) for batch in batches] for side, call in sides.items()}  # noqa: B023
                rates = {side: len(some) / seconds for side, seconds in timed(calls, threads).items()}
                what = f"{name}, {plural(threads)}, {'batches' if size > 1 else 'one at a time'}:"
                findings.say(", ".join(f"{side} {rate:,.0f} words/s" for side, rate in rates.items()))
                for peer, wanted in WANTED.items():
                    same = sum(map(str.__eq__, found[peer], found[OURS]))
                    findings.at_least(f"{what} the words of {peer}:", same, f"of {len(some)}", 0.98 * len(some))
                    findings.at_least(what, rates[OURS] / rates[peer], f"x {peer}", wanted)
