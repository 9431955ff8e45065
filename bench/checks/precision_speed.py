"""int8 and bfloat16 against the peers in int8, and against our own float32."""

from functools import partial
from itertools import product

from bench.case import OURS
from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS, against, compare, in_child, pause, plural, request
from bench.checks.products import AVX2
from bench.model_cases import encode_cases
from bench.timing import alternate, library_threads
from fastattn import Encoder

PEER = "CTranslate2"
PEERS = ("sentence-transformers", PEER, "ONNX Runtime", "OpenVINO")
SENTENCES = 486  # for MiniLM


@check(
    "int8-minilm",
    "486 sentences, tokenizing included, one thread and two: at least 1.5 x the faster of ONNX Runtime's int8 "
    "(dynamic, a factor a column) and CTranslate2's, each at its best batch size",
)
def minilm_int8(findings: Findings, data: Data) -> None:
    for threads in THREADS:
        engines = (OURS, PEER, "ONNX Runtime")
        make = next(encode_cases(request(data, "encode", threads, precision="int8", engines=engines)))
        with library_threads(threads):
            sides = compare(make(), threads, rounds=9, seconds=30.0)
        fastest = min(engines[1:], key=lambda name: sides[name]["seconds"])
        remark = "; ".join(f"{name} {sides[name]['rate']} {sides[name]['setting']}".strip() for name in engines)
        findings.at_least(f"{plural(threads)}:", sides[fastest]["ratio"], f"x {fastest}", 1.5, remark)


@check(
    "minilm-best",
    "486 sentences in int8 and in bfloat16, tokenizing included, one thread and two: at least 1.3 x the fastest of "
    "sentence-transformers, CTranslate2, ONNX Runtime and OpenVINO, of those that are installed and have the precision",
)
def minilm_best(findings: Findings, data: Data) -> None:
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


@check("bfloat16-minilm", "486 sentences, tokenizing included, one thread and two: at least 1.5 x float32")
def minilm_bfloat16(findings: Findings, data: Data) -> None:
    texts = data.flores("en")[:SENTENCES]
    for threads in THREADS:
        encoders = {precision: Encoder("minilm", precision, threads) for precision in ("float32", "bfloat16")}
        calls = {name: lambda encoder=encoder: encoder.encode(texts) for name, encoder in encoders.items()}
        with library_threads(threads):
            times = alternate(calls, rounds=9, seconds=30.0, pause=pause(threads))
        remark = ", ".join(f"{name} {1e3 * seconds:.0f} ms" for name, seconds in times.items())
        findings.at_least(f"{plural(threads)}:", times["float32"] / times["bfloat16"], "x float32", 1.5, remark)


# CTranslate2's variable limits only its own loops: its products, oneDNN's, use all that the CPU has.
CT2_AVX2 = {"CT2_FORCE_CPU_ISA": "AVX2"}
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
    check(_name, f"{_held}, {AHEAD}")(partial(_ahead, environment=AVX2 | CT2_AVX2 | _more))
