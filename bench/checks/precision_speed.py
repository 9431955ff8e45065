"""int8 and bfloat16 against the peers in int8, and against our own float32."""

from itertools import product

from bench.case import OURS
from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS, against, compare, in_child, pause, plural, request
from bench.checks.products import AVX2
from bench.encoders import alone
from bench.model_cases import encode_cases, translate_cases
from bench.timing import alternate, library_threads
from bench.translators import TRANSLATORS
from fastattn import Encoder
from fastattn.weights import download

PEER = "CTranslate2"
PEERS = ("sentence-transformers", PEER, "ONNX Runtime", "OpenVINO")
BATCH = "128 sentences, one thread and two: at least 2 x CTranslate2's int8 at its best batches and division of threads"
SENTENCES = 486  # for MiniLM


@check(
    "int8-minilm",
    "486 sentences, tokenizing included, one thread and two: at least 1.5 x the faster of ONNX Runtime's int8 "
    "(dynamic, a factor a column) and CTranslate2's, each at its best batch size",
)
def minilm_int8(data: Data) -> tuple[bool, str]:
    findings = Findings()
    for threads in THREADS:
        engines = (OURS, PEER, "ONNX Runtime")
        make = next(encode_cases(request(data, "encode", threads, precision="int8", engines=engines)))
        with library_threads(threads):
            sides = compare(make(), threads, rounds=9, seconds=30.0)
        fastest = min(engines[1:], key=lambda name: sides[name]["seconds"])
        remark = "; ".join(f"{name} {sides[name]['rate']} {sides[name]['setting']}".strip() for name in engines)
        findings.at_least(f"{plural(threads)}:", sides[fastest]["ratio"], f"x {fastest}", 1.5, remark)
    return findings.verdict


@check(
    "minilm-best",
    "486 sentences in int8 and in bfloat16, tokenizing included, one thread and two: at least 1.3 x the fastest of "
    "sentence-transformers, CTranslate2, ONNX Runtime and OpenVINO, of those that are installed and have the precision",
)
def minilm_best(data: Data) -> tuple[bool, str]:
    findings = Findings()
    for precision, threads in product(("int8", "bfloat16"), THREADS):
        wanted = request(data, "encode", threads, precision=precision, engines=(OURS, *PEERS))
        with library_threads(threads):
            case = next(encode_cases(wanted))()
            absent = [f"{name}: {side.absent}" for name, side in case.sides.items() if not side.calls]
            present = [name for name, side in case.sides.items() if side.calls]
            if present == [OURS]:
                raise Absent("; ".join(absent))
            sides = compare(against(case, *present[1:]), threads, rounds=7, seconds=30.0)
        fastest = min(present[1:], key=lambda name: sides[name]["seconds"])
        rates = [f"{name} {sides[name]['rate']} {sides[name]['setting']}".strip() for name in present]
        what = f"{precision}, {plural(threads)}:"
        findings.at_least(what, sides[fastest]["ratio"], f"x {fastest}", 1.3, "; ".join(rates + absent))
    return findings.verdict


@check("bfloat16-minilm", "486 sentences, tokenizing included, one thread and two: at least 1.5 x float32")
def minilm_bfloat16(data: Data) -> tuple[bool, str]:
    texts = data.flores("en")[:SENTENCES]
    findings = Findings()
    for threads in THREADS:
        encoders = {precision: Encoder("minilm", precision, threads) for precision in ("float32", "bfloat16")}
        calls = {name: lambda encoder=encoder: encoder.encode(texts) for name, encoder in encoders.items()}
        with library_threads(threads):
            times = alternate(calls, rounds=9, seconds=30.0, pause=pause(threads))
        remark = ", ".join(f"{name} {1e3 * seconds:.0f} ms" for name, seconds in times.items())
        findings.at_least(f"{plural(threads)}:", times["float32"] / times["bfloat16"], "x float32", 1.5, remark)
    return findings.verdict


@check("int8-zh-en-batch-greedy", f"greedy, {BATCH}")
def batch_greedy(data: Data) -> tuple[bool, str]:
    return _batch(data, "greedy")


@check("int8-zh-en-batch-beam", f"beam 4, {BATCH}")
def batch_beam(data: Data) -> tuple[bool, str]:
    return _batch(data, "beam 4")


def _batch(data: Data, search: str) -> tuple[bool, str]:
    findings = Findings()
    for threads in THREADS:
        wanted = request(
            data, "translate", threads, precision="int8", engines=(OURS, PEER), scaling=True, sentences=128
        )
        with library_threads(threads):
            make = list(translate_cases(wanted))[search != "greedy"]
            sides = compare(make(), threads, rounds=5, seconds=30.0)
        peer = sides[PEER]
        remark = f"{sides[OURS]['rate']}, {peer['rate']} by {peer['setting']}, {peer['agreement']}"
        findings.at_least(f"{plural(threads)}:", peer["ratio"], f"x {PEER}", 2.0, remark)
    return findings.verdict


@check(
    "int8-zh-en-single",
    "one sentence at a time, beam 4, each side at its better of one thread and two: 3 x CTranslate2's int8 a token",
)
def single(data: Data) -> tuple[bool, str]:
    """All four engines in turn, over every tenth of 128 sentences."""
    import sentencepiece

    folder, texts = download.resolve("zh-en"), data.flores("zh")[:128:10]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    calls, tokens = {}, {}
    for engine in (OURS, PEER):
        for threads in THREADS:
            # the first setting uses all threads for one sentence
            translate = next(iter(alone(TRANSLATORS[engine].make(folder, threads, "int8")).values()))
            calls[engine, threads] = lambda translate=translate: [translate([text], 4)[0] for text in texts]
        tokens[engine] = sum(len(pieces.encode(text)) + 1 for text in calls[engine, 1]())
    with library_threads(max(THREADS)):
        times = alternate(calls, rounds=7, seconds=60.0, pause=pause(max(THREADS)))
    each = {side: 1e3 * seconds / tokens[side[0]] for side, seconds in times.items()}
    findings = Findings()
    best = {engine: min(each[engine, threads] for threads in THREADS) for engine in (OURS, PEER)}
    findings.at_least("", best[PEER] / best[OURS], f"x {PEER}", 3.0)
    findings.say(", ".join(f"{engine} on {plural(n)} {each[engine, n]:.2f} ms a token" for engine, n in each))
    return findings.verdict


# CTranslate2's variable limits only its own loops: its products, oneDNN's, use all that the CPU has.
CT2_AVX2 = {"CT2_FORCE_CPU_ISA": "AVX2"}
AHEAD = "one thread and two: int8 zh-en (64 sentences, greedy, beam 4) and MiniLM ahead of CTranslate2"


@check("int8-avx2", f"both held to AVX2, CTranslate2's products too (ONEDNN_MAX_CPU_ISA), {AHEAD}")
def avx2(data: Data) -> tuple[bool, str]:
    return _ahead(data, AVX2 | CT2_AVX2 | {"ONEDNN_MAX_CPU_ISA": "AVX2"})


@check("int8-avx2-partly", f"we held to AVX2, CTranslate2 but for its products (CT2_FORCE_CPU_ISA alone), {AHEAD}")
def avx2_partly(data: Data) -> tuple[bool, str]:
    return _ahead(data, AVX2 | CT2_AVX2)


def _ahead(data: Data, environment: dict[str, str]) -> tuple[bool, str]:
    """Measured in new processes, which compile for that CPU."""
    findings = Findings()
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
    return findings.verdict
