"""fastattn.attention against the floor of this CPU, against PyTorch and ONNX Runtime, and against its memory."""

import numpy as np

from bench import attention_cases
from bench.attention_cases import SHAPES, inputs, ours, positions_first
from bench.attention_floor import floor, rates
from bench.case import OURS, Side
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, compare, milliseconds, plural, timed
from bench.measure import reader
from bench.timing import alternate
from fastattn.ops.cpu import use_threads

FLOOR_SHARE = 0.85
BANDWIDTH_SHARE = 0.85
DECODED, CACHED = (32, 8, 1, 64), 4096  # queries, and keys of each


@check(
    "attention-floor",
    "one thread and two, five shapes, causal and not: at least 85% of the speed of the tile's products and "
    "exponentials alone",
)
def from_floor(findings: Findings, data: Data) -> None:
    """The floor on two threads is half of that on one; its rates are the best of those measured before each shape."""
    times: dict[tuple, dict[str, float]] = {}
    speeds = []
    for shape in SHAPES:
        arrays = inputs(shape)
        others = [positions_first(array) for array in arrays]
        for causal in (False, True):
            calls = {"": ours(arrays, causal=causal), "BTHK": ours(others, layout="BTHK", causal=causal)}
            for threads in THREADS:
                speeds.append(rates())
                with use_threads(threads):
                    times[threads, shape, causal] = alternate(calls, rounds=9, seconds=3.0)  # no other's threads
    products, exponentials = (max(found) for found in zip(*speeds, strict=True))
    findings.say(f"{products / 1e9:.0f} GFLOP/s and {exponentials / 1e9:.1f} G exponentials/s a core")
    for (threads, shape, causal), found in sorted(times.items(), key=lambda item: item[0][0]):
        least = floor(shape, causal, (products, exponentials)) / threads
        remark = f"{1e3 * found['']:.4g} ms, floor {1e3 * least:.4g} ms, BTHK {least / found['BTHK']:.2f}"
        what = f"{plural(threads)}, {attention_cases.name(shape, causal)}:"
        findings.at_least(what, least / found[""], "of the floor", FLOOR_SHARE, remark)


@check(
    "attention-ahead",
    "one thread and two, five shapes, causal and not: ahead of PyTorch's scaled_dot_product_attention and of the "
    "fastest of ONNX Runtime's operators",
)
def ahead(findings: Findings, data: Data) -> None:
    for threads in THREADS:
        for shape in SHAPES:
            for causal in (False, True):
                case = attention_cases.case(shape, causal, threads)
                case.sides = {name: side for name, side in case.sides.items() if not _too_large(side)}
                sides = compare(case, threads, rounds=7, seconds=2.5)
                what = f"{plural(threads)}, {case.name}:"
                onnx = min((name for name in sides if name.startswith("ONNX")), key=lambda name: sides[name]["ratio"])
                for peer in ("PyTorch", onnx):
                    remark = milliseconds({name: sides[name]["seconds"] for name in (OURS, peer)})
                    findings.at_least(what, sides[peer]["ratio"], f"x {peer}", 1.0, remark)


def _too_large(side: Side) -> bool:
    return side.absent == "scores too large"


@check(
    "attention-cached",
    f"one thread and two, one query over {CACHED} cached keys, {DECODED}: at least 85% of the bandwidth at which the "
    "same two arrays are read",
)
def cached(findings: Findings, data: Data) -> None:
    """The bandwidth is that of the faster of the benchmark's own reading (a streaming exclusive or) and torch.sum."""
    query, key, value = inputs(DECODED, CACHED)
    size = key.nbytes + value.nbytes
    for threads in THREADS:
        calls = {OURS: ours((query, key, value)), "reading": reader([key, value], threads), **_sums(key, value)}
        times = timed(calls, threads)
        fastest = min((name for name in times if name != OURS), key=lambda name: times[name])
        rates_said = ", ".join(f"{name} {size / seconds / 1e9:.1f} GB/s" for name, seconds in times.items())
        share = times[fastest] / times[OURS]
        findings.at_least(f"{plural(threads)}:", share, f"of the bandwidth ({fastest})", BANDWIDTH_SHARE, rates_said)


def _sums(key: np.ndarray, value: np.ndarray) -> dict:
    """torch.sum of both arrays, if PyTorch is installed."""
    try:
        import torch
    except ImportError:
        return {}
    tensors = torch.from_numpy(key), torch.from_numpy(value)
    return {"torch.sum": lambda: [tensor.sum() for tensor in tensors]}
