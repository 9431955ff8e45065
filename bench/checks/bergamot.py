"""Firefox's models, English to Portuguese and back: their quality; and the demonstration from scratch."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS
from bench.machine import ROOT
from bench.translate_locally import VARIABLE, TranslateLocally, program
from fastattn import Translator
from fastattn.weights import download

MODELS = {"en-pt": ("en", "pt"), "pt-en": ("pt", "en")}
PEER = TranslateLocally.name
# Words that only Portuguese text has, not English, a path or a rate of words.
PORTUGUESE = {"que", "de", "da", "das", "dos", "um", "uma", "os", "não", "para", "com", "em", "é", "são", "ao", "se"}


def folder_of(model: str) -> Path:
    return download.resolve(model).absolute()


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
            for name, translations in _translations(model, lines):
                findings.at_least(f"{model} {name}", score(translations), "BLEU", theirs - 0.1)
            findings.say(f"{model} {PEER} {theirs:.2f}")


def _translations(model: str, lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, translations) for each precision, with the shortlist and without."""
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
        assert process.stdout is not None
        for line in process.stdout:
            yield time.perf_counter() - start, line.rstrip("\n")
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}: {line.strip()}")


def portuguese(line: str) -> bool:
    """Whether the line looks Portuguese: it has at least two of the language's small words."""
    words = line.lower().replace(",", " ").split()
    return len(PORTUGUESE & set(words)) >= 2
