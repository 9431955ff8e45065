"""Recurrent layers against PyTorch's and ONNX Runtime's, and against the products that they are made of."""

import numpy as np

from bench.case import OURS
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, compare, milliseconds, plural
from bench.kernel_cases import case_of
from bench.measure import peak_flops, reader
from bench.operations.recurrent import recur
from bench.operations.table import WEIGHT_BYTES
from bench.timing import library_threads, once
from fastattn.ops.cpu import use_threads

WIDTH, LENGTH = 512, 50


@check(
    "recurrent",
    f"one thread and two, 64 sentences and one, of {LENGTH} rows, width {WIDTH}, float32 and int8: an LSTM layer ahead "
    "of PyTorch's and of ONNX Runtime's; its share of the peak, or of what reads as many weights for each row",
)
def recurrent(findings: Findings, data: Data) -> None:
    for threads in THREADS:
        for sentences in (64, 1):
            for precision in ("float32", "int8"):
                with use_threads(threads), library_threads(threads):
                    case = case_of(recur("lstm", (LENGTH,) * sentences, WIDTH, WIDTH, precision=precision))
                del case.sides["NumPy"]
                case.agree = _agree
                sides = compare(case, threads, rounds=7, seconds=4.0)
                for peer in ("PyTorch", "ONNX Runtime"):
                    remark = milliseconds({name: sides[name]["seconds"] for name in (OURS, peer)})
                    what = f"{plural(threads)}, {sentences} sentence{'s'[: sentences > 1]}, {precision}:"
                    findings.at_least(what, sides[peer]["ratio"], f"x {peer}", 1.0, remark)
                findings.say(f"{sides[OURS]['rate']}, {_share(threads, sentences, precision, sides[OURS]['seconds'])}")


def _share(threads: int, sentences: int, precision: str, seconds: float) -> str:
    """How near the limit it is: arithmetic of many sentences; reading U once a step of one, which caches have room for.

    That includes the product of all inputs, which reads its weights once.
    """
    weights, rows = 4 * WIDTH * WIDTH, sentences * LENGTH
    with use_threads(threads), library_threads(threads):
        if sentences > 1:
            return f"{4.0 * weights * rows / seconds / peak_flops(threads, precision):.0%} of the peak"
        read = reader([np.ones(WEIGHT_BYTES[precision] * weights, np.int8)], threads)
        read()
        moved = WEIGHT_BYTES[precision] * weights * LENGTH / seconds
        limit = WEIGHT_BYTES[precision] * weights / min(once(read) for _ in range(200))
    return f"{moved / 1e9:.0f} GB/s, {moved / limit:.0%} of {limit / 1e9:.0f} GB/s, the bandwidth for as many weights"


def _agree(ours: np.ndarray, other: np.ndarray) -> tuple[bool, str]:
    """By the mean: in int8 the greatest difference of 1.6 million states is a fifth, of peers' from float32 too."""
    difference = float(np.sqrt(np.square(ours - other).mean()))
    return difference <= 0.02, f"{difference:.0e}"
