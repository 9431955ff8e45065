"""zh-en against CTranslate2 in float32, and decoding against the bandwidth of memory."""

from pathlib import Path

from bench.case import OURS
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, compare, pause, plural, request
from bench.encoders import alone
from bench.measure import bandwidth
from bench.model_cases import layer_weights, translate_cases
from bench.operations.table import WEIGHT_BYTES
from bench.timing import alternate, library_threads, once
from bench.translators import TRANSLATORS
from fastattn import Translator
from fastattn.weights import download, read

PEER = "CTranslate2"
BATCH = "64 sentences, one thread and two: at least 1.5 x CTranslate2 at its best batch size and division of threads"
SINGLE = "one sentence at a time, on one thread and on two: against the better of CTranslate2's one and two, at least"


@check("zh-en-batch-greedy", f"greedy, {BATCH}")
def batch_greedy(data: Data) -> tuple[bool, str]:
    return _batch(data, "greedy")


@check("zh-en-batch-beam", f"beam 4, {BATCH}")
def batch_beam(data: Data) -> tuple[bool, str]:
    return _batch(data, "beam 4")


def _batch(data: Data, search: str) -> tuple[bool, str]:
    findings = Findings()
    for threads in THREADS:
        # with scaling, only the cases of batches are made: greedy, then beam 4
        wanted = request(data, "translate", threads, engines=(OURS, PEER), scaling=True)
        with library_threads(threads):
            make = list(translate_cases(wanted))[search != "greedy"]
            sides = compare(make(), threads, rounds=5, seconds=60.0)
        peer = sides[PEER]
        remark = f"{sides[OURS]['rate']}, {peer['rate']} by {peer['setting']}"
        findings.at_least(f"{plural(threads)}:", peer["ratio"], f"x {PEER}", 1.5, remark)
    return findings.verdict


@check("zh-en-single-greedy", f"greedy, {SINGLE} 1.4 x")
def single_greedy(data: Data) -> tuple[bool, str]:
    return _single(data, 1, 1.4)


@check("zh-en-single-beam", f"beam 4, {SINGLE} 1.5 x")
def single_beam(data: Data) -> tuple[bool, str]:
    return _single(data, 4, 1.5)


def _single(data: Data, beam: int, wanted: float) -> tuple[bool, str]:
    """All four engines in turn, over every fifth of the 64 sentences."""
    folder, texts = download.resolve("zh-en"), data.flores("zh")[:64:5]
    calls = {}
    for engine in (OURS, PEER):
        for threads in THREADS:
            # the first setting uses all threads for one sentence
            translate = next(iter(alone(TRANSLATORS[engine].make(folder, threads, "float32")).values()))
            calls[engine, threads] = lambda translate=translate: [translate([text], beam) for text in texts]
    with library_threads(max(THREADS)):
        times = alternate(calls, rounds=5, seconds=60.0, pause=pause(max(THREADS)))
    milliseconds = {side: f"{1e3 * seconds / len(texts):.0f} ms a sentence" for side, seconds in times.items()}
    best = min(THREADS, key=lambda threads: times[PEER, threads])
    findings = Findings()
    for threads in THREADS:
        ratio = times[PEER, best] / times[OURS, threads]
        findings.at_least(f"{plural(threads)}:", ratio, f"x {PEER}", wanted, milliseconds[OURS, threads])
    findings.say(", ".join(f"{PEER} on {plural(threads)} {milliseconds[PEER, threads]}" for threads in THREADS))
    return findings.verdict


@check("decode-bandwidth", "one sentence, greedy, one thread and two: a step reads its weights at 85% of the bandwidth")
def decode_bandwidth(data: Data) -> tuple[bool, str]:
    folder = download.resolve("zh-en")
    findings = Findings()
    for threads in THREADS:
        limits = [bandwidth(threads)]
        seconds = _step_seconds(folder, threads, data.flores("zh")[0])
        limits.append(bandwidth(threads))
        moved = WEIGHT_BYTES["float32"] * layer_weights(read(folder), "decoder")
        part = moved / seconds / max(limits)
        remark = f"{moved / 1e6:.0f} MB a step in {1e3 * seconds:.2f} ms, bandwidth {max(limits) / 1e9:.1f} GB/s"
        findings.at_least(f"{plural(threads)}:", part, "of the bandwidth", 0.85, remark)
    return findings.verdict


def _step_seconds(folder: Path, threads: int, text: str, few: int = 8, many: int = 72) -> float:
    """Seconds of one decoding step: from the difference between many and few steps, which excludes everything else."""
    translator = Translator(folder, "float32", threads)

    def steps(count: int) -> float:
        return once(
            lambda: translator.translate(
                text, beam_size=1, min_decoding_length=count, max_decoding_length=count, split="never"
            )
        )

    steps(few)
    times = [(steps(many), steps(few)) for _ in range(7)]
    return (sorted(long for long, _ in times)[3] - sorted(short for _, short in times)[3]) / (many - few)
