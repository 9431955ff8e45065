"""zh-en against CTranslate2 in float32, and decoding against the bandwidth of memory."""

from functools import partial
from itertools import product
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


def batch(
    findings: Findings, data: Data, precision: str, search: str, sentences: int, wanted: float, seconds: float
) -> None:
    for threads in THREADS:
        # with scaling, only the cases of batches are made: greedy, then beam 4
        asked = request(
            data, "translate", threads, precision=precision, engines=(OURS, PEER), scaling=True, sentences=sentences
        )
        with library_threads(threads):
            make = list(translate_cases(asked))[search != "greedy"]
            sides = compare(make(), threads, rounds=5, seconds=seconds)
        peer = sides[PEER]
        remark = f"{sides[OURS]['rate']}, {peer['rate']} by {peer['setting']}, {peer['agreement']}"
        findings.at_least(f"{plural(threads)}:", peer["ratio"], f"x {PEER}", wanted, remark)


def one_by_one(texts: list[str], beam: int, precision: str, rounds: int) -> tuple[dict, dict]:
    """({(engine, threads): a call for all texts}, {the same: median seconds}), all four in turn."""
    folder, calls = download.resolve("zh-en"), {}
    for engine, threads in product((OURS, PEER), THREADS):
        # the first setting uses all threads for one sentence
        translate = next(iter(alone(TRANSLATORS[engine].make(folder, threads, precision)).values()))
        calls[engine, threads] = lambda translate=translate: [translate([text], beam)[0] for text in texts]
    with library_threads(max(THREADS)):
        return calls, alternate(calls, rounds, seconds=60.0, pause=pause(max(THREADS)))


def _single(findings: Findings, data: Data, beam: int, wanted: float) -> None:
    """Over every fifth of the 64 sentences."""
    texts = data.flores("zh")[:64:5]
    _, times = one_by_one(texts, beam, "float32", rounds=5)
    milliseconds = {side: f"{1e3 * seconds / len(texts):.0f} ms a sentence" for side, seconds in times.items()}
    best = min(times[PEER, threads] for threads in THREADS)
    for threads in THREADS:
        ratio = best / times[OURS, threads]
        findings.at_least(f"{plural(threads)}:", ratio, f"x {PEER}", wanted, milliseconds[OURS, threads])
    findings.say(", ".join(f"{PEER} on {plural(threads)} {milliseconds[PEER, threads]}" for threads in THREADS))


BATCH = "sentences, one thread and two: at least"
BEST = "at its best batches and division of threads"
SINGLE = "one sentence at a time, on one thread and on two: against the better of CTranslate2's one and two, at least"
for _name, _search, _beam, _least in (("greedy", "greedy", 1, 1.4), ("beam", "beam 4", 4, 1.5)):
    check(f"zh-en-batch-{_name}", f"{_search}, 64 {BATCH} 1.5 x CTranslate2 {BEST}")(
        partial(batch, precision="float32", search=_search, sentences=64, wanted=1.5, seconds=60.0)
    )
    check(f"int8-zh-en-batch-{_name}", f"{_search}, 128 {BATCH} 2 x CTranslate2's int8 {BEST}")(
        partial(batch, precision="int8", search=_search, sentences=128, wanted=2.0, seconds=30.0)
    )
    check(f"zh-en-single-{_name}", f"{_search}, {SINGLE} {_least} x")(partial(_single, beam=_beam, wanted=_least))


@check(
    "int8-zh-en-single",
    "one sentence at a time, beam 4, each side at its better of one thread and two: 3 x CTranslate2's int8 a token",
)
def single_int8(findings: Findings, data: Data) -> None:
    """Over every tenth of 128 sentences."""
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(download.resolve("zh-en") / "sentencepiece.model"))
    calls, times = one_by_one(data.flores("zh")[:128:10], 4, "int8", rounds=7)
    tokens = {engine: sum(len(pieces.encode(text)) + 1 for text in calls[engine, 1]()) for engine in (OURS, PEER)}
    each = {side: 1e3 * seconds / tokens[side[0]] for side, seconds in times.items()}
    best = {engine: min(each[engine, threads] for threads in THREADS) for engine in (OURS, PEER)}
    findings.at_least("", best[PEER] / best[OURS], f"x {PEER}", 3.0)
    findings.say(", ".join(f"{engine} on {plural(n)} {each[engine, n]:.2f} ms a token" for engine, n in each))


@check("decode-bandwidth", "one sentence, greedy, one thread and two: a step reads its weights at 85% of the bandwidth")
def decode_bandwidth(findings: Findings, data: Data) -> None:
    folder = download.resolve("zh-en")
    for threads in THREADS:
        limits = [bandwidth(threads)]
        seconds = _step_seconds(folder, threads, data.flores("zh")[0])
        limits.append(bandwidth(threads))
        moved = WEIGHT_BYTES["float32"] * layer_weights(read(folder), "decoder")
        part = moved / seconds / max(limits)
        remark = f"{moved / 1e6:.0f} MB a step in {1e3 * seconds:.2f} ms, bandwidth {max(limits) / 1e9:.1f} GB/s"
        findings.at_least(f"{plural(threads)}:", part, "of the bandwidth", 0.85, remark)


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
