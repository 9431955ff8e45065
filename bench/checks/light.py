"""Firefox's models, small enough that all but their kernels counts: speed beside translateLocally and fxtranslate."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.case import NOT_INSTALLED, installed
from bench.checks import Data, Findings, check
from bench.checks.bergamot import MODELS, PEER, folder_of, read_lines, translate_locally, write_lines
from bench.checks.compare import THREADS, milliseconds, plural
from bench.checks.start import command_of, python
from bench.fx_translate import LIBRARY, FxTranslate
from bench.kernel_clock import kernel_seconds
from bench.timing import alternate, once
from bench.translate_locally import TranslateLocally
from fastattn import Translator

WORDS = 22  # of a short sentence
SENTENCES = 7
SHARE = 20  # fxtranslate translates every 20th line: it is slower by far


@check(
    "light-speed",
    "en-pt and pt-en, the 997 lines of FLORES dev, int8, one thread and two, as a whole process with kernels in the "
    "cache, and in a process that is there, where translateLocally's time is less that of one line: 2 x "
    "translateLocally, BLEU at most 0.1 below its",
)
def speed(findings: Findings, data: Data) -> None:
    with translate_locally() as (peer, scratch):
        for model, (source, target) in MODELS.items():
            lines, references = data.flores(source), data.flores(target)
            write_lines(scratch / "all", lines)
            write_lines(scratch / "one", lines[:1])
            words = sum(len(line.split()) for line in lines)
            for threads in THREADS:
                seconds = alternate(_speed_calls(model, lines, threads, peer, scratch), rounds=5, seconds=60.0)
                _say_ratios(findings, f"{model}, {plural(threads)},", seconds, words)
            ours, theirs = (_bleu(read_lines(scratch / side, len(lines)), references) for side in ("ours", "theirs"))
            findings.at_least(f"{model}:", ours, "BLEU", theirs - 0.1, f"{PEER} {theirs:.2f}")
            findings.say(_fxtranslate_rate(model, lines))


def _speed_calls(
    model: str, lines: list[str], threads: int, peer: TranslateLocally, scratch: Path
) -> dict[str, Callable[[], Any]]:
    """Translate all lines as a process and in this one, and with the peer all and one."""
    options = "--threads", str(threads), "--input", str(scratch / "all"), "--output", str(scratch / "ours")
    command, translator = command_of(model, *options), Translator(folder_of(model), threads=threads)
    return {
        "ours": lambda: python(*command),
        "theirs": lambda: peer.translate(model, scratch / "all", scratch / "theirs", threads),
        "resident": lambda: translator.translate(lines),
        "one line": lambda: peer.translate(model, scratch / "one", scratch / "translated", threads),
    }


def _say_ratios(findings: Findings, what: str, seconds: dict[str, float], words: int) -> None:
    whole = f"{seconds['ours']:.2f} and {seconds['theirs']:.2f} s"
    findings.at_least(f"{what} process:", seconds["theirs"] / seconds["ours"], f"x {PEER}", 2.0, whole)
    resident, theirs = seconds["resident"], seconds["theirs"] - seconds["one line"]
    rates = f"{words / resident:,.0f} and {words / theirs:,.0f} words/s"
    findings.at_least(f"{what} resident:", theirs / resident, f"x {PEER}", 2.0, rates)


def _bleu(translations: list[str], references: list[str]) -> float:
    import sacrebleu

    score: float = sacrebleu.corpus_bleu(translations, [references]).score
    return score


def _fxtranslate_rate(model: str, lines: list[str]) -> str:
    if not installed((LIBRARY,)):
        return f"{LIBRARY} is {NOT_INSTALLED}"
    peer, few = FxTranslate(folder_of(model)), lines[::SHARE]
    peer.translate(few[0])
    seconds = once(lambda: [peer.translate(line) for line in few])
    return f"{LIBRARY} {sum(len(line.split()) for line in few) / seconds:,.0f} words/s, resident, 1 thread"


@check(
    "light-sentence",
    f"a sentence of {WORDS} words with en-pt, int8, in a process that is there, one thread and two: at most 5 ms, the "
    f"median of {SENTENCES} sentences",
)
def sentence(findings: Findings, data: Data) -> None:
    translators = {plural(threads): Translator(folder_of("en-pt"), threads=threads) for threads in THREADS}
    sides: dict[str, Callable[[str], str]] = {name: item.translate for name, item in translators.items()}
    peers = installed((LIBRARY,))
    if peers:
        sides[LIBRARY] = FxTranslate(folder_of("en-pt")).translate
    texts = short_sentences(data, next(iter(translators.values())))
    calls = {f"{name} {n}": lambda f=f, text=text: f(text) for n, text in enumerate(texts) for name, f in sides.items()}
    seconds = alternate(calls, rounds=15, seconds=30.0)
    for name in sides:
        times = [seconds[f"{name} {n}"] for n in range(len(texts))]
        median, spread = 1e3 * statistics.median(times), f"{1e3 * min(times):.1f} to {1e3 * max(times):.1f}"
        if name == LIBRARY:
            findings.say(f"{name} {median:.1f} ms ({spread})")
        else:
            findings.at_most(f"{name}:", median, "ms", 5.0, spread)
    if not peers:
        findings.say(f"{LIBRARY} is {NOT_INSTALLED}")


def short_sentences(data: Data, translator: Translator) -> list[str]:
    """Lines of so many words, each of which is one sentence."""
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
