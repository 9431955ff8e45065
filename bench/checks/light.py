"""Firefox's models against translateLocally: they are so small that the time outside kernels counts."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from bench.case import OURS
from bench.checks import Absent, Data, Findings, check, need
from bench.checks.compare import THREADS, folder_of, in_child, milliseconds, plural, request, timed
from bench.machine import ROOT
from bench.translate_locally import VARIABLE, TranslateLocally, program, write_lines
from fastattn import Translator

MODELS = {"en-pt": ("en", "pt"), "pt-en": ("pt", "en")}
PEER = TranslateLocally.name
# Words of Portuguese, which no English text, path or rate has.
PORTUGUESE = {"que", "de", "da", "das", "dos", "um", "uma", "os", "não", "para", "com", "em", "é", "são", "ao", "se"}


@contextlib.contextmanager
def translate_locally() -> Iterator[tuple[TranslateLocally, Path]]:
    """(translateLocally with both models, a working folder); raises Absent if the program is missing."""
    path = program()
    if path is None:
        raise Absent(f"no {PEER}: neither {VARIABLE} nor PATH names it")
    with tempfile.TemporaryDirectory(prefix="fastattn-bergamot-") as folder:
        home, scratch = Path(folder, "home"), Path(folder, "scratch")
        home.mkdir()
        scratch.mkdir()
        yield TranslateLocally(path, home, {model: folder_of(model) for model in MODELS}), scratch


@check(
    "firefox-bleu",
    "en-pt and pt-en, all 997 lines, greedy: BLEU in int8 and in float32, with the shortlist and without, "
    "each at most 0.1 below translateLocally's",
)
def bleu(findings: Findings, data: Data) -> None:
    import sacrebleu

    with translate_locally() as (peer, scratch):
        for model, (source, target) in MODELS.items():
            lines, references = data.flores(source), [data.flores(target)]
            output = scratch / f"{model}.txt"
            peer.translate(model, write_lines(scratch / "lines.txt", lines), output, max(THREADS))
            translations = output.read_text(encoding="utf-8").split("\n")[:-1]
            if len(translations) != len(lines):
                raise RuntimeError(f"{len(lines)} lines came back as {len(translations)}")
            theirs = sacrebleu.corpus_bleu(translations, references).score
            for precision, shortlist in product(("int8", "float32"), (True, False)):
                translator = Translator(folder_of(model), precision)
                translations = translator.translate(lines, split="sentences", beam_size=1, shortlist=shortlist)
                ours = sacrebleu.corpus_bleu(translations, references).score
                what = f"{model} {precision}{'' if shortlist else ' of all words'}"
                findings.at_least(what, ours, "BLEU", theirs - 0.1)
            findings.say(f"{model} {PEER} {theirs:.2f}")


@check(
    "demo", "make demo in a fresh clone, all caches empty, pip's too: the first Portuguese sentence is there after 90 s"
)
def demo(findings: Findings, data: Data) -> None:
    lines = []  # (seconds since the start, line) of output and errors
    with tempfile.TemporaryDirectory(prefix="fastattn-demo-") as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        environment = {**os.environ, "FASTATTN_CACHE": str(Path(folder, "cache")), "PIP_NO_CACHE_DIR": "1"}
        environment.pop("PYTHONPATH", None)  # the clone's own modules, not ours
        command, start = ["make", "demo", f"PYTHON={sys.executable}"], time.perf_counter()
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "encoding": "utf-8", "errors": "replace"}
        with subprocess.Popen(command, cwd=clone, env=environment, **pipes) as process:
            for line in process.stdout:
                lines.append((time.perf_counter() - start, line.rstrip("\n")))
        whole = time.perf_counter() - start
    if process.returncode:
        raise RuntimeError(f"make demo ended with status {process.returncode}: {lines[-1:]}")
    portuguese = [pair for pair in lines if len(PORTUGUESE & {*pair[1].lower().replace(",", " ").split()}) >= 2]
    if not portuguese:
        raise RuntimeError("make demo printed no Portuguese sentence")
    findings.at_most("first sentence after", portuguese[0][0], "s", 90, portuguese[0][1])
    steps = ", ".join(f"{line!r} {seconds:.0f} s" for seconds, line in lines if line.startswith("=="))
    findings.say(f"all {whole:.0f} s: {steps}")


@check(
    "light-speed",
    "en-pt, the 997 lines of FLORES dev, int8, one thread and two, as a whole process with kernels in the cache: "
    "2 x translateLocally",
)
def speed(findings: Findings, data: Data) -> None:
    """The check firefox-bleu has the quality."""
    for threads in THREADS:
        (row,) = in_child(request(data, "light", threads, precision="int8"))["rows"]
        if PEER not in row["sides"]:
            raise Absent(f"no {PEER}: neither {VARIABLE} nor PATH names it")
        ours, theirs = (row["sides"][name]["seconds"] for name in (OURS, PEER))
        findings.at_least(f"{plural(threads)}:", theirs / ours, f"x {PEER}", 2.0, f"{ours:.2f} and {theirs:.2f} s")


@check(
    "light-single",
    "en-pt, one of 33 sentences at a time, int8, one thread and two, models loaded: 5 x fxtranslate, which has one",
)
def single(findings: Findings, data: Data) -> None:
    need("fxtranslate")
    import fxtranslate

    folder = folder_of("en-pt")
    files = (next(folder.glob(pattern)).read_bytes() for pattern in ("model*.bin", "vocab*.spm", "lex*.bin"))
    model, vocabulary, shortlist = files
    peer, lines = fxtranslate.Translator(model, vocabulary, vocabulary, shortlist), data.flores("en")[:33]
    for threads in THREADS:
        translator = Translator(folder, "int8", threads=threads)
        calls = {OURS: lambda ours=translator: [ours.translate(line) for line in lines]}
        calls["fxtranslate"] = lambda: [peer.translate_long(line) for line in lines]
        times = timed(calls, threads, rounds=7, seconds=20.0)
        ratio = times["fxtranslate"] / times[OURS]
        findings.at_least(f"{plural(threads)}:", ratio, "x fxtranslate", 5.0, milliseconds(times))
