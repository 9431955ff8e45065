"""Matrix products against NumPy and the peak, in one run; two threads against one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import numpy as np

from bench.case import OURS
from bench.checks import Absent, Data, Findings, check
from bench.checks.attention import TORCH_SHAPES
from bench.checks.compare import THREADS, against, compare, milliseconds, pause, plural
from bench.kernel_cases import attention, linear
from bench.machine import ROOT
from bench.measure import bare_tile
from bench.timing import alternate, library_threads
from fastattn import Encoder, Translator
from fastattn.ops import cpu as operations
from fastattn.simd.target import TARGET, tiles_refusal


def product_times(size: int = 1024) -> dict[str, float]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((size, size), np.float32)
    weight = rng.standard_normal((size, size), np.float32)
    packed, transposed = operations.pack_linear(weight), np.ascontiguousarray(weight.T)
    with operations.use_threads(1), library_threads(1):
        return alternate({"ours": lambda: operations.linear(x, packed), "numpy": lambda: x @ transposed}, 15)


def _ratio(findings: Findings, times: dict[str, float], wanted: float) -> None:
    rates = ", ".join(f"{name} {2 * 1024**3 / seconds / 1e9:.0f} GFLOP/s" for name, seconds in times.items())
    findings.at_least("", times["numpy"] / times["ours"], "x NumPy", wanted, rates)


@check("product", "1024 cubed, one thread: at least 1.8 x NumPy where AVX-512 is there, else at least NumPy")
def product(findings: Findings, data: Data) -> None:
    wanted = 1.8 if TARGET.name == "avx512" else 1.0
    _ratio(findings, product_times(), wanted)


AVX2 = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma,+avx,+f16c,+bmi,+bmi2,+popcnt,+sse4.2,+movbe"}


@check("product-avx2", "the same, both held to AVX2: at least NumPy")
def product_avx2(findings: Findings, data: Data) -> None:
    code = "import json; from bench.checks.products import product_times; print(json.dumps(product_times()))"
    environment = {**os.environ, **AVX2, "OPENBLAS_CORETYPE": "Haswell"}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, check=True)
    _ratio(findings, json.loads(printed.stdout), 1.0)


NARROW = ((1024, 1024, 1024, 0.85), (96, 384, 1536, 0.7))  # rows, inputs, outputs, share of the peak
SHARES = "one thread and two, of what the bare tile does in the same run: 85% at 1024 cubed, 70% at 96 x 384 x 1536"


def _shares(findings: Findings, data: Data, precision: str) -> None:
    for threads in THREADS:
        tile, most = bare_tile(threads, precision)
        for *shape, wanted in NARROW:
            case = linear(*shape, precision=precision)
            calls = {"tile": tile, "product": case.sides[OURS].calls[""]}
            with operations.use_threads(threads), library_threads(threads):
                times = alternate(calls, rounds=25, seconds=8.0, pause=pause(threads))
            peak, rate = most / times["tile"] / 1e9, case.work / times["product"]
            remark = f"{rate:,.0f} of {peak:,.0f} {case.unit}"
            findings.at_least(f"{plural(threads)}, {case.name}:", rate / peak, "of the tile", wanted, remark)


for _precision, _rows in (("int8", "quantizing"), ("bfloat16", "rounding")):
    check(f"{_precision}-products", f"{_rows} the rows included, {SHARES}")(partial(_shares, precision=_precision))


TILED = ((1024, 1024, 1024), (96, 384, 1536), (512, 512, 2048))  # rows, inputs, outputs


@check(
    "amx-products",
    "with AMX, one thread and two, int8 and bfloat16, 1024 cubed, 96 x 384 x 1536 and 512 x 512 x 2048: ahead of "
    "PyTorch and, in int8, ONNX Runtime, which multiplies no bfloat16 on a CPU",
)
def amx_products(findings: Findings, data: Data) -> None:
    if not TARGET.tiles:
        raise Absent(tiles_refusal() or "this CPU has no AMX, or kernels are not compiled for it")
    for threads in THREADS:
        for precision in TARGET.tiles:
            engines = ("PyTorch", "ONNX Runtime") if precision == "int8" else ("PyTorch",)
            for shape in TILED:
                case = against(linear(*shape, precision=precision), *engines)
                sides = compare(case, threads, seconds=4.0)
                for engine in engines:
                    remark = f"{sides[OURS]['rate']}, theirs {sides[engine]['rate']}"
                    what = f"{plural(threads)}, {precision}, {case.name}:"
                    findings.at_least(what, sides[engine]["ratio"], f"x {engine}", 1.0, remark)


LEAST = 1.8
SCALED_PRODUCTS = ((1024, 1024, 1024), (96, 384, 1536))  # rows, inputs, outputs


def _scaling(findings: Findings, calls: dict[str, list[Callable[[], object]]], seconds: float) -> None:
    """calls: the work on one thread, and the same on two."""
    for what, (one, two) in calls.items():
        with library_threads(1):
            times = alternate({"1": one, "2": two}, rounds=9, seconds=seconds, pause=pause(2))
        findings.at_least(f"{what}:", times["1"] / times["2"], "x one thread", LEAST, milliseconds(times))


@check("two-threads-kernels", "products and attention: two threads at least 1.8 x one")
def kernels(findings: Findings, data: Data) -> None:
    cases = [linear(*shape) for shape in SCALED_PRODUCTS] + [attention(*shape) for shape in TORCH_SHAPES]

    def limited(call: Callable[[], object], threads: int) -> None:
        with operations.use_threads(threads):
            call()

    calls = {case.name: case.sides[OURS].calls[""] for case in cases}
    _scaling(findings, {name: [partial(limited, call, n) for n in THREADS] for name, call in calls.items()}, 3.0)


@check(
    "two-threads-models", "MiniLM's encoding, zh-en's 64 sentences greedy and beam 4: two threads at least 1.8 x one"
)
def models(findings: Findings, data: Data) -> None:
    english, chinese = data.flores("en")[:486], data.flores("zh")[:64]
    translators = [Translator("zh-en", "float32", threads) for threads in THREADS]
    calls = {"MiniLM": [partial(Encoder("minilm", "float32", threads).encode, english) for threads in THREADS]}
    for name, beam in (("greedy", 1), ("beam 4", 4)):
        calls[f"zh-en {name}"] = [partial(one.translate, chinese, beam_size=beam) for one in translators]
    _scaling(findings, calls, 45.0)
