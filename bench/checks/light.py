"""Firefox's models, small enough that all but their kernels counts, beside translateLocally and fxtranslate."""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS, command_of, folder_of, milliseconds, plural, python
from bench.kernel_clock import kernel_seconds
from bench.machine import ROOT
from bench.timing import alternate
from bench.translate_locally import VARIABLE, TranslateLocally, program
from fastattn import Translator

MODELS = {"en-pt": ("en", "pt"), "pt-en": ("pt", "en")}
PEER = TranslateLocally.name
# Words that only Portuguese text has, not English, a path or a rate of words.
PORTUGUESE = {"que", "de", "da", "das", "dos", "um", "uma", "os", "não", "para", "com", "em", "é", "são", "ao", "se"}


@contextlib.contextmanager
def translate_locally() -> Iterator[tuple[TranslateLocally, Path]]:
    """(translateLocally with both models, a working folder); raises Absent if the program is missing."""
    found = program()
    if found is None:
        raise Absent(f"no {PEER}: neither {VARIABLE} nor PATH names it")
    with tempfile.TemporaryDirectory(prefix="fastattn-bergamot-") as folder:
        home, scratch = Path(folder, "home"), Path(folder, "scratch")
        home.mkdir()
        scratch.mkdir()
        yield TranslateLocally(found, home, {model: folder_of(model) for model in MODELS}), scratch


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read_lines(path: Path, count: int) -> list[str]:
    """The lines of a translation; RuntimeError unless they are ``count``."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    if len(lines) != count:
        raise RuntimeError(f"{count} lines came back as {len(lines)}")
    return lines


@check(
    "firefox-bleu",
    "en-pt and pt-en, all 997 lines, greedy: BLEU in int8 and in float32, with the shortlist and without, "
    "each at most 0.1 below translateLocally's",
)
def bleu(findings: Findings, data: Data) -> None:
    import sacrebleu

    with translate_locally() as (peer, scratch):
        for model, (source, target) in MODELS.items():
            lines, references = data.flores(source), data.flores(target)

            def score(translations: list[str], references: list[str] = references) -> float:
                return sacrebleu.corpus_bleu(translations, [references]).score

            output = scratch / f"{model}.txt"
            peer.translate(model, write_lines(scratch / "lines.txt", lines), output, max(THREADS))
            theirs = score(read_lines(output, len(lines)))
            for name, translations in _by_precision(model, lines):
                findings.at_least(f"{model} {name}", score(translations), "BLEU", theirs - 0.1)
            findings.say(f"{model} {PEER} {theirs:.2f}")


def _by_precision(model: str, lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for precision in ("int8", "float32"):
        translator = Translator(folder_of(model), precision)
        for shortlist in (True, False):
            yield (
                precision + ("" if shortlist else " of all words"),
                translator.translate(lines, split="sentences", beam_size=1, shortlist=shortlist),
            )


@check(
    "demo", "make demo in a fresh clone, all caches empty, pip's too: the first Portuguese sentence is there after 90 s"
)
def demo(findings: Findings, data: Data) -> None:
    with tempfile.TemporaryDirectory(prefix="fastattn-demo-") as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        environment = {**os.environ, "FASTATTN_CACHE": str(Path(folder, "cache")), "PIP_NO_CACHE_DIR": "1"}
        environment.pop("PYTHONPATH", None)  # the clone's own modules, not ours
        start = time.perf_counter()
        said = list(_stamped(["make", "demo", f"PYTHON={sys.executable}"], clone, environment))
        whole = time.perf_counter() - start
    first = next(((seconds, line) for seconds, line in said if portuguese(line)), None)
    if first is None:
        raise RuntimeError("make demo printed no Portuguese sentence")
    findings.at_most("first sentence after", first[0], "s", 90, first[1])
    findings.say(f"all {whole:.0f} s: " + ", ".join(f"{line!r} {at:.0f} s" for at, line in said if line[:2] == "=="))


def _stamped(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[tuple[float, str]]:
    """Yield (seconds since the start, line) of a command's output and errors; RuntimeError if it fails."""
    start, line = time.perf_counter(), ""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        for line in process.stdout:
            yield time.perf_counter() - start, line.rstrip("\n")
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}: {line.strip()}")


def portuguese(line: str) -> bool:
    """Whether the line looks Portuguese: it has at least two of the language's small words."""
    words = line.lower().replace(",", " ").split()
    return len(PORTUGUESE & set(words)) >= 2


WORDS = 22  # of a short sentence
SENTENCES = 7


@check(
    "light-speed",
    "en-pt and pt-en, the 997 lines of FLORES dev, int8, one thread and two, as a whole process with kernels in the "
    "cache, and in a process that is there, where translateLocally's time is less that of one line: 2 x "
    "translateLocally, BLEU at most 0.1 below its",
)
def speed(findings: Findings, data: Data) -> None:
    import sacrebleu

    with translate_locally() as (peer, scratch):
        for model, (source, target) in MODELS.items():
            lines, references = data.flores(source), data.flores(target)
            write_lines(scratch / "all", lines)
            write_lines(scratch / "one", lines[:1])
            words = sum(len(line.split()) for line in lines)
            for threads in THREADS:
                options = "--threads", str(threads), "--input", str(scratch / "all"), "--output", str(scratch / "ours")
                resident, command = Translator(folder_of(model), threads=threads), command_of(model, *options)
                calls = {
                    "ours": partial(python, *command),
                    "theirs": partial(peer.translate, model, scratch / "all", scratch / "theirs", threads),
                    "resident": partial(resident.translate, lines),
                    "one line": partial(peer.translate, model, scratch / "one", scratch / "translated", threads),
                }
                seconds = alternate(calls, rounds=5, seconds=60.0)
                what = f"{model}, {plural(threads)},"
                whole = f"{seconds['ours']:.2f} and {seconds['theirs']:.2f} s"
                findings.at_least(f"{what} process:", seconds["theirs"] / seconds["ours"], f"x {PEER}", 2.0, whole)
                own, theirs = seconds["resident"], seconds["theirs"] - seconds["one line"]
                rates = f"{words / own:,.0f} and {words / theirs:,.0f} words/s"
                findings.at_least(f"{what} resident:", theirs / own, f"x {PEER}", 2.0, rates)
            found = [read_lines(scratch / side, len(lines)) for side in ("ours", "theirs")]
            ours, theirs = (sacrebleu.corpus_bleu(texts, [references]).score for texts in found)
            findings.at_least(f"{model}:", ours, "BLEU", theirs - 0.1, f"{PEER} {theirs:.2f}")


@check(
    "light-sentence",
    f"a sentence of {WORDS} words with en-pt, int8, in a process that is there, one thread and two: at most 5 ms, the "
    f"median of {SENTENCES} sentences",
)
def sentence(findings: Findings, data: Data) -> None:
    translators = {plural(threads): Translator(folder_of("en-pt"), threads=threads) for threads in THREADS}
    sides: dict[str, Callable[[str], str]] = {name: item.translate for name, item in translators.items()}
    texts = short_sentences(data, next(iter(translators.values())))
    calls = {f"{name} {n}": lambda f=f, text=text: f(text) for n, text in enumerate(texts) for name, f in sides.items()}
    seconds = alternate(calls, rounds=15, seconds=30.0)
    for name in sides:
        times = [seconds[f"{name} {n}"] for n in range(len(texts))]
        median, spread = 1e3 * statistics.median(times), f"{1e3 * min(times):.1f} to {1e3 * max(times):.1f}"
        findings.at_most(f"{name}:", median, "ms", 5.0, spread)


def short_sentences(data: Data, translator: Translator) -> list[str]:
    lines = [line for line in data.flores("en") if len(line.split()) == WORDS]
    found = translator.translate(lines, details=True)
    return [line for line, translation in zip(lines, found, strict=True) if len(translation.parts) == 1][:SENTENCES]


@check(
    "light-overhead",
    "translating FLORES dev with en-pt, int8, from text to text, and short sentences one by one, one thread: at most "
    "10% of the thread's time is outside of compiled kernels",
)
def overhead(findings: Findings, data: Data) -> None:
    translator = Translator(folder_of("en-pt"), threads=1)
    lines, texts = data.flores("en"), short_sentences(data, translator)
    for name, call, rounds in (
        ("batch", lambda: translator.translate(lines), 5),
        ("sentence", lambda: [translator.translate(text) for text in texts], 15),
    ):
        call()
        clocks = [clocks_of(call) for _ in range(rounds)]
        outside = statistics.median(1 - kernels / seconds for seconds, kernels in clocks)
        taken = {"all": statistics.median(seconds for seconds, _ in clocks) / (len(texts) if name == "sentence" else 1)}
        findings.at_most(f"{name}:", 100 * outside, "% outside", 10, milliseconds(taken))


def clocks_of(call: Callable[[], object]) -> tuple[float, float]:
    """(seconds of the call, seconds of the kernels in it), both in this thread's CPU time."""
    with kernel_seconds() as kernels:
        start = time.thread_time()
        call()
        seconds = time.thread_time() - start
    return seconds, sum(kernels.values())
