"""Firefox's models, English to Portuguese and back, against translateLocally; and the demonstration from scratch."""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS, plural
from bench.checks.start import python
from bench.machine import ROOT
from bench.timing import alternate, once
from bench.translate_locally import VARIABLE, TranslateLocally, program
from fastattn import Translator
from fastattn.runtime.clock import kernel_seconds
from fastattn.weights.download import catalog

MODELS = {"en-pt": ("en", "pt"), "pt-en": ("pt", "en")}
PEER = TranslateLocally.name
TIMES = 4  # a whole process translates FLORES dev this many times
# Words that only Portuguese text has, not English, a path or a rate of words.
PORTUGUESE = {"que", "de", "da", "das", "dos", "um", "uma", "os", "não", "para", "com", "em", "é", "são", "ao", "se"}


def _folder(model: str) -> Path:
    return catalog.resolve(model).absolute()


@contextlib.contextmanager
def _peer() -> Iterator[tuple[TranslateLocally, Path]]:
    """(translateLocally with both models, a working folder); raises Absent if the program is missing."""
    found = program()
    if found is None:
        raise Absent(f"no {PEER}: neither {VARIABLE} nor PATH names it")
    with tempfile.TemporaryDirectory(prefix="fastattn-bergamot-") as folder:
        home, scratch = Path(folder, "home"), Path(folder, "scratch")
        home.mkdir()
        scratch.mkdir()
        yield TranslateLocally(found, home, {model: _folder(model) for model in MODELS}), scratch


def _write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _read(path: Path, count: int) -> list[str]:
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
def bleu(data: Data) -> tuple[bool, str]:
    import sacrebleu

    findings = Findings()
    with _peer() as (peer, scratch):
        for model, (source, target) in MODELS.items():
            lines, references = data.flores(source), data.flores(target)

            def score(translations: list[str], references: list[str] = references) -> float:
                return sacrebleu.corpus_bleu(translations, [references]).score

            output = scratch / f"{model}.txt"
            peer.translate(model, _write(scratch / "lines.txt", lines), output, max(THREADS))
            theirs = score(_read(output, len(lines)))
            for name, translations in _translations(model, lines):
                findings.at_least(f"{model} {name}", score(translations), "BLEU", theirs - 0.1)
            findings.say(f"{model} {PEER} {theirs:.2f}")
    return findings.verdict


def _translations(model: str, lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, translations) for each precision, with the shortlist and without."""
    for precision in ("int8", "float32"):
        translator = Translator(_folder(model), precision)
        for shortlist in (True, False):
            yield (
                precision + ("" if shortlist else " of all words"),
                translator.translate(lines, split="sentences", beam_size=1, shortlist=shortlist),
            )


@check(
    "firefox-speed",
    "a whole process, kernels in the cache, en-pt, FLORES dev four times, greedy, one thread and two: "
    "1.5 x translateLocally's words a second",
)
def speed(data: Data) -> tuple[bool, str]:
    lines = data.flores("en") * TIMES
    words = sum(len(line.split()) for line in lines)
    findings = Findings()
    with _peer() as (peer, scratch):
        source = _write(scratch / "lines.txt", lines)
        ours, theirs = scratch / "ours.txt", scratch / "theirs.txt"
        for threads in THREADS:
            command = _command(source, ours, threads)
            calls: dict[str, Callable[[], Any]] = {
                "ours": lambda command=command: python(*command),
                "theirs": lambda threads=threads: peer.translate("en-pt", source, theirs, threads),
            }
            seconds = alternate(calls, rounds=5, seconds=120.0)
            for path in (ours, theirs):
                _read(path, len(lines))
            rates = {side: f"{words / value:,.0f} words/s in {value:.2f} s" for side, value in seconds.items()}
            ratio = seconds["theirs"] / seconds["ours"]
            findings.at_least(f"{plural(threads)}:", ratio, f"x {PEER}", 1.5, f"{rates['ours']}, {rates['theirs']}")
    return findings.verdict


@check(
    "firefox-own-settings",
    "en-pt from the command line without an option of the search, FLORES dev: BLEU 46.8, and as a whole process on two "
    "threads, kernels in the cache, faster than translateLocally",
)
def checkpoint_settings(data: Data) -> tuple[bool, str]:
    import sacrebleu

    lines, references = data.flores("en"), data.flores("pt")
    findings = Findings()
    with _peer() as (peer, scratch):
        source = _write(scratch / "lines.txt", lines)
        ours, theirs = scratch / "ours.txt", scratch / "theirs.txt"
        command = _command(source, ours, max(THREADS), options="")
        calls: dict[str, Callable[[], Any]] = {
            "ours": lambda: python(*command),
            "theirs": lambda: peer.translate("en-pt", source, theirs, max(THREADS)),
        }
        seconds = alternate(calls, rounds=9, seconds=120.0)
        scores = {path: sacrebleu.corpus_bleu(_read(path, len(lines)), [references]).score for path in (ours, theirs)}
    findings.at_least("BLEU", scores[ours], "", 46.8, f"{PEER} {scores[theirs]:.2f}")
    times = f"{seconds['ours']:.2f} and {seconds['theirs']:.2f} s"
    findings.at_least(f"{plural(max(THREADS))}:", seconds["theirs"] / seconds["ours"], f"x {PEER}", 1.0, times)
    return findings.verdict


def _command(source: Path, target: Path, threads: int, options: str = "--split sentences --beam-size 1") -> list[str]:
    command = ["-m", "fastattn.cli", "translate", "--model", str(_folder("en-pt")), *options.split()]
    return [*command, "--threads", str(threads), "--input", str(source), "--output", str(target)]


@check("firefox-single", "a sentence with en-pt, greedy, fresh process, kernels in the cache, median of 7: 0.7 s")
def single(data: Data) -> tuple[bool, str]:
    sentence = data.flores("en")[0]
    command = ["-m", "fastattn.cli", "translate", "--model", str(_folder("en-pt")), "--beam-size", "1", sentence]
    python(*command)
    times = [once(lambda: python(*command)) for _ in range(7)]
    findings = Findings()
    findings.at_most("median", statistics.median(times), "s", 0.7, f"{min(times):.2f} to {max(times):.2f} s")
    with contextlib.suppress(Absent), _peer() as (peer, scratch):
        source = _write(scratch / "line.txt", [sentence])
        theirs = [once(lambda: peer.translate("en-pt", source, scratch / "out.txt", max(THREADS))) for _ in range(7)]
        findings.say(f"{PEER} {statistics.median(theirs):.2f} s")
    return findings.verdict


@check(
    "firefox-overhead",
    "batch decoding of FLORES dev with en-pt, greedy, one thread: at most 15% of the steps' time is outside kernels",
)
def overhead(data: Data) -> tuple[bool, str]:
    translator = Translator(_folder("en-pt"), threads=1)
    lines = translator.translate(data.flores("en"), split="sentences", beam_size=1, details=True)
    sources = [part.source for line in lines for part in line.parts]

    def clocks(**options: Any) -> np.ndarray:
        return np.array(clocks_of(lambda: translator.translate_tokens(sources, beam_size=1, **options)))

    clocks(max_decoding_length=1)
    # Everything before the steps, and the first token, is in both: the difference is the steps.
    seconds, kernels = np.array([clocks() - clocks(max_decoding_length=1) for _ in range(7)]).T
    findings = Findings()
    outside, remark = float(np.median(1 - kernels / seconds)), f"steps of {np.median(seconds):.2f} s"
    findings.at_most("outside kernels", 100 * outside, "% of the steps", 15, remark)
    return findings.verdict


def clocks_of(call: Callable[[], object]) -> tuple[float, float]:
    """(seconds of the call, seconds of the kernels in it), both in this thread's CPU time."""
    with kernel_seconds() as kernels:
        start = time.thread_time()
        call()
        seconds = time.thread_time() - start
    return seconds, sum(kernels.values())


@check(
    "demo", "make demo in a fresh clone, all caches empty, pip's too: the first Portuguese sentence is there after 90 s"
)
def demo(data: Data) -> tuple[bool, str]:
    findings = Findings()
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
    return findings.verdict


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
        assert process.stdout is not None
        for line in process.stdout:
            yield time.perf_counter() - start, line.rstrip("\n")
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}: {line.strip()}")


def portuguese(line: str) -> bool:
    """Whether the line looks Portuguese: it has at least two of the language's small words."""
    words = line.lower().replace(",", " ").split()
    return len(PORTUGUESE & set(words)) >= 2
