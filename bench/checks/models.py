"""MiniLM and zh-en in each precision: speed, quality and memory beside their peers."""

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

import fastattn
from bench.case import OURS
from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS, against, compare, in_child, milliseconds, pause, plural, request, timed
from bench.encoders import TRANSLATORS, alone
from bench.measure import bandwidth
from bench.model_cases import encode_cases, layer_weights, translate_cases
from bench.operations.table import WEIGHT_BYTES
from bench.timing import alternate, library_threads, once
from fastattn import Encoder, Translator
from fastattn.weights import download, read


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Rank correlation; ties have their mean rank."""

    def ranks(values: np.ndarray) -> np.ndarray:
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


@check("minilm-vectors", "STS dev sentences: largest difference from sentence-transformers 1e-5; Spearman to 1e-4")
def minilm_vectors(findings: Findings, data: Data) -> None:
    from sentence_transformers import SentenceTransformer

    first, second, scores = data.stsb
    ours, theirs = (
        fastattn.Encoder("minilm", "float32"),
        SentenceTransformer(str(download.resolve("minilm")), device="cpu"),
    )
    mine = [ours.encode(texts) for texts in (first, second)]
    other = [theirs.encode(texts) for texts in (first, second)]
    difference = max(float(np.abs(a - b).max()) for a, b in zip(mine, other, strict=True))
    mine_rank, other_rank = (spearman((a * b).sum(1), np.array(scores)) for a, b in (mine, other))
    findings.at_most("largest difference", difference, "", 1e-5)
    findings.at_most("Spearman", abs(mine_rank - other_rank), "apart", 1e-4, f"{mine_rank:.5f}, {other_rank:.5f}")


@check(
    "minilm-peers",
    "486 sentences, tokenizing included: at least 1.2 x CTranslate2 and ONNX Runtime on one thread, 1.3 x on two, "
    "and 3.5 x sentence-transformers",
)
def peers(findings: Findings, data: Data) -> None:
    for threads in THREADS:
        near = 1.2 if threads == 1 else 1.3
        wanted = {"CTranslate2": near, "ONNX Runtime": near, "sentence-transformers": 3.5}
        make = next(encode_cases(request(data, "encode", threads, engines=(OURS, *wanted))))
        with library_threads(threads):
            sides = compare(make(), threads, rounds=7, seconds=40.0)
        for name, least in wanted.items():
            side = sides[name]
            remark = f"{side['rate']}, {side['setting']}"
            findings.at_least(f"{plural(threads)}:", side["ratio"], f"x {name}", least, remark)
        findings.say(f"{OURS} {sides[OURS]['rate']}")


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
    texts = data.flores("zh")[:64:5]
    _, times = one_by_one(texts, beam, "float32", rounds=5)
    said = {side: f"{1e3 * seconds / len(texts):.0f} ms a sentence" for side, seconds in times.items()}
    best = min(times[PEER, threads] for threads in THREADS)
    for threads in THREADS:
        ratio = best / times[OURS, threads]
        findings.at_least(f"{plural(threads)}:", ratio, f"x {PEER}", wanted, said[OURS, threads])
    findings.say(", ".join(f"{PEER} on {plural(threads)} {said[PEER, threads]}" for threads in THREADS))


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


PEERS = ("sentence-transformers", PEER, "ONNX Runtime", "OpenVINO")


def _ahead_of_fastest(findings: Findings, data: Data, precision: str, engines: tuple[str, ...], wanted: float) -> None:
    """Of those engines of PEERS that are installed and have the precision; of fewer, none may be missing."""
    for threads in THREADS:
        with library_threads(threads):
            asked = request(data, "encode", threads, precision=precision, engines=(OURS, *engines))
            case = next(encode_cases(asked))()
            absent = [f"{name}: {side.absent}" for name, side in case.sides.items() if not side.calls]
            if engines == PEERS:
                engines_here = [name for name in engines if case.sides[name].calls]
                if not engines_here:
                    raise Absent("; ".join(absent))
                case = against(case, *engines_here)
            sides = compare(case, threads, rounds=9, seconds=30.0)
        fastest = min((name for name in sides if name != OURS), key=lambda name: sides[name]["seconds"])
        rates = [f"{name} {side['rate']} {side['setting']}".strip() for name, side in sides.items()]
        what = f"{precision}, {plural(threads)}:"
        findings.at_least(what, sides[fastest]["ratio"], f"x {fastest}", wanted, "; ".join(rates + absent))


@check(
    "int8-minilm",
    "486 sentences, tokenizing included, one thread and two: at least 1.5 x the faster of ONNX Runtime's int8 "
    "(dynamic, a factor a column) and CTranslate2's, each at its best batch size",
)
def minilm_int8_speed(findings: Findings, data: Data) -> None:
    _ahead_of_fastest(findings, data, "int8", (PEER, "ONNX Runtime"), 1.5)


@check(
    "minilm-best",
    "486 sentences in int8 and in bfloat16, tokenizing included, one thread and two: at least 1.3 x the fastest of "
    "sentence-transformers, CTranslate2, ONNX Runtime and OpenVINO, of those that are installed and have the precision",
)
def minilm_best(findings: Findings, data: Data) -> None:
    for precision in ("int8", "bfloat16"):
        _ahead_of_fastest(findings, data, precision, PEERS, 1.3)


@check("bfloat16-minilm", "486 sentences, tokenizing included, one thread and two: at least 1.5 x float32")
def minilm_bfloat16(findings: Findings, data: Data) -> None:
    texts = data.flores("en")[:486]
    for threads in THREADS:
        encoders = {precision: Encoder("minilm", precision, threads) for precision in ("float32", "bfloat16")}
        calls = {name: lambda encoder=encoder: encoder.encode(texts) for name, encoder in encoders.items()}
        times = timed(calls, threads, rounds=9, seconds=30.0)
        ratio = times["float32"] / times["bfloat16"]
        findings.at_least(f"{plural(threads)}:", ratio, "x float32", 1.5, milliseconds(times))


# CTranslate2's variable limits only its own loops: its products, oneDNN's, use all that the CPU has.
AVX2 = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma,+avx,+f16c,+bmi,+bmi2,+popcnt,+sse4.2,+movbe"}
AVX2 |= {"CT2_FORCE_CPU_ISA": "AVX2"}
AHEAD = "one thread and two: int8 zh-en (64 sentences, greedy, beam 4) and MiniLM ahead of CTranslate2"


def _ahead(findings: Findings, data: Data, environment: dict[str, str]) -> None:
    """Measured in new processes, which compile for that CPU."""
    for threads in THREADS:
        for part in ("encode", "translate"):
            wanted = request(data, part, threads, precision="int8", engines=(OURS, PEER), scaling=True)
            for row in in_child(wanted, environment)["rows"]:
                peer, ours = row["sides"][PEER], row["sides"][OURS]
                if not peer["agrees"]:
                    raise RuntimeError(f"{row['name']}: the result of {PEER} differs from ours, {peer['agreement']}")
                rates = [f"{row['work'] / side['seconds']:,.0f}" for side in (ours, peer)]
                remark = f"{' and '.join(rates)} {row['unit']}, {peer['setting']}"
                ratio = peer["seconds"] / ours["seconds"]
                findings.at_least(f"{plural(threads)}, {row['name']}:", ratio, f"x {PEER}", 1.0, remark)


for _name, _held, _more in (
    ("int8-avx2", "both held to AVX2, CTranslate2's products too (ONEDNN_MAX_CPU_ISA)", {"ONEDNN_MAX_CPU_ISA": "AVX2"}),
    ("int8-avx2-partly", "we held to AVX2, CTranslate2 but for its products (CT2_FORCE_CPU_ISA alone)", {}),
):
    check(_name, f"{_held}, {AHEAD}")(partial(_ahead, environment=AVX2 | _more))


@check(
    "int8-bleu",
    "zh-en, all 997 lines, beam 4: BLEU in int8 at most 0.2 below CTranslate2's int8, at most 0.2 below our float32",
)
def bleu(findings: Findings, data: Data) -> None:
    import sacrebleu

    folder, lines, references = download.resolve("zh-en"), data.flores("zh"), data.flores("en")
    found = {}
    with library_threads(2):
        for name, engine, precision in (
            ("int8", "fastattn", "int8"),
            ("float32", "fastattn", "float32"),
            ("CTranslate2's int8", "CTranslate2", "int8"),
        ):
            # the last setting: each thread translates sentences of its own, in the largest batches
            translate = list(TRANSLATORS[engine].make(folder, 2, precision).values())[-1]
            found[name] = sacrebleu.corpus_bleu(translate(lines, 4), [references]).score
    ours = found.pop("int8")
    for name, score in found.items():
        findings.at_least(f"less {name}:", ours - score, "BLEU", -0.2, f"{ours:.2f}, {score:.2f}")


def _minilm(findings: Findings, data: Data, precision: str, apart: float, alike: float) -> None:
    first, second, scores = data.stsb
    narrow, wide = (
        [encoder.encode(texts) for texts in (first, second)]
        for encoder in (Encoder("minilm", precision), Encoder("minilm", "float32"))
    )
    ranks = [spearman((a * b).sum(1), np.array(scores)) for a, b in (narrow, wide)]
    cosines = np.concatenate([(a * b).sum(1) for a, b in zip(narrow, wide, strict=True)])
    findings.at_most("Spearman apart", abs(ranks[0] - ranks[1]), "", apart, f"{ranks[0]:.5f}, float32 {ranks[1]:.5f}")
    remark = f"mean {cosines.mean():.5f}, {(cosines < alike).sum()} of {len(cosines)} below"
    findings.at_least("least cosine", float(cosines.min()), "", alike, remark)


for _precision, _apart, _alike in (("int8", 0.002, 0.99), ("bfloat16", 0.0005, 0.9995)):
    _claim = f"STS dev: Spearman within {_apart} of float32; cosine to float32 at least {_alike} everywhere"
    check(f"{_precision}-minilm-quality", _claim)(partial(_minilm, precision=_precision, apart=_apart, alike=_alike))


@check(
    "int8-memory",
    "zh-en, one thread: resident after a sentence at most 250 MB; the peak of 128, beam 4, at most CTranslate2's",
)
def memory(findings: Findings, data: Data) -> None:
    found = {
        engine: in_child(request(data, "resources", 1, item=f"translate {engine}", precision="int8"))
        for engine in ("fastattn", "CTranslate2")
    }
    ours, peer = ({name: run[name] / 1e6 for name in ("after_first", "resident")} for run in found.values())
    findings.at_most("after a sentence", ours["after_first"], "MB", 250, f"CTranslate2 {peer['after_first']:.0f} MB")
    findings.at_most("peak", ours["resident"], "MB", peer["resident"], "the limit is CTranslate2's")
