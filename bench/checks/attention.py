"""fastattn.attention against PyTorch's and NumPy's, its memory, and score and mask functions against arguments."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import fastattn
from bench import attention_floor
from bench.case import OURS, largest_difference
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, against, compare, in_child, milliseconds, plural, request, timed
from bench.kernel_cases import attention
from bench.operations.table import normal
from bench.orchestra import MEMORY_LENGTHS
from bench.resources import bytes_a_position
from fastattn.arguments.attention import Heads, PositionBias, RaggedBatch
from fastattn.ops import cpu
from fastattn.runtime.threads import use_threads

SHAPES = ((8, 12, 512, 64), (1, 12, 2048, 64), (32, 12, 128, 32))  # sentences, heads, positions, width of a head
LONG = (1, 8, 8192, 64)
TABLE = (*((shape, causal) for shape in SHAPES for causal in (False, True)), ((64, 8, 32, 64), False))
PEERS = "PyTorch", "ONNX Runtime"


@check(
    "attention-peers", "one thread and two, four shapes, three also causal: at least 1.15 x PyTorch and ONNX Runtime"
)
def peers(findings: Findings, data: Data) -> None:
    for threads, (shape, causal) in product(THREADS, TABLE):
        with use_threads(threads):  # a session of ONNX Runtime keeps the number
            case = attention(*shape, causal=causal)
        sides = compare(against(case, *PEERS), threads)
        peer = min(PEERS, key=lambda name: sides[name]["ratio"])
        remark = ", ".join(f"{name} {sides[name]['rate']}" for name in (OURS, *PEERS))
        findings.at_least(_described(threads, shape, causal), sides[peer]["ratio"], f"x {peer}", 1.15, remark)


@check(
    "attention-floor",
    "one thread and two, four shapes, three also causal: at least 85% of the speed of the products and exponentials "
    "alone, each by the kernel's own loop with operands in the first cache",
)
def from_floor(findings: Findings, data: Data) -> None:
    """The floor on two threads is half of that on one."""
    for threads, (shape, causal) in product(THREADS, TABLE):
        call = attention(*shape, causal=causal).sides[OURS].calls[""]
        seconds = timed({"ours": call, **attention_floor.calls()}, threads, rounds=21)
        least = attention_floor.floor(shape, causal, seconds) / threads
        remark = f"{1e3 * seconds['ours']:.4g} ms, floor {1e3 * least:.4g} ms"
        findings.at_least(_described(threads, shape, causal), least / seconds["ours"], "of the floor", 0.85, remark)


def _described(threads: int, shape: tuple[int, ...], causal: bool) -> str:
    return f"{plural(threads)}, {shape}{', causal' if causal else ''}:"


def _ratios(findings: Findings, data: Data, cases: list[tuple[tuple[int, ...], bool, float]]) -> None:
    """cases: (shape, whether attention is causal, the least ratio)."""
    for threads in THREADS:
        for shape, causal, least in cases:
            sides = compare(against(attention(*shape, causal=causal), "NumPy"), threads)
            remark = f"{sides[OURS]['rate']}, {sides['NumPy']['rate']}"
            findings.at_least(_described(threads, shape, causal), sides["NumPy"]["ratio"], "x NumPy", least, remark)


for _name, _claim, _cases in (
    (
        "attention-numpy",
        "(1, 12, 2048, 64): at least 3 x NumPy's, causal 5 x",
        [(SHAPES[1], False, 3.0), (SHAPES[1], True, 5.0)],
    ),
    (
        "attention-reference",
        "the other shapes: at least 2 x ops.reference in float32, causal at 8192 positions 5 x",
        [*((shape, False, 2.0) for shape in (SHAPES[0], SHAPES[2], LONG)), (LONG, True, 5.0)],
    ),
):
    check(_name, f"one thread and two, {_claim}")(partial(_ratios, cases=_cases))


@check(
    "attention-memory",
    "one thread and two: at 8192 positions less than 4 MB a thread beyond inputs and result, which from 1024 positions "
    "on grows by no more than these do",
)
def memory(findings: Findings, data: Data) -> None:
    for threads in THREADS:
        extra = {}
        for length in MEMORY_LENGTHS:
            result = in_child(request(data, "resources", threads, item=f"attention {OURS} {length}"))
            if result["extra"] is None:
                raise RuntimeError("the system does not report the memory of a process")
            extra[length] = result["extra"]
        first, last = MEMORY_LENGTHS[0], MEMORY_LENGTHS[-1]
        findings.at_most(plural(threads), extra[last] / 1e6, "MB", 4 * threads)
        growth = (extra[last] - extra[first]) / (last - first)
        remark = ", ".join(f"{length}: {size / 1e6:.3g} MB" for length, size in extra.items())
        findings.at_most("growth", growth, "bytes a position", bytes_a_position(), remark)


WINDOW, CAP, DOCUMENTS = 256, 30.0, 8
FORM_SHAPE = (1, 12, 2048, 64)
Options = dict[str, Any]


def _slopes(heads: int) -> np.ndarray:
    return (2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)).astype(np.float32)


def forms(heads: int, length: int) -> dict[str, tuple[Options, Options]]:
    """Name -> (the option that is a function, the argument that means the same)."""
    places, slopes_H = np.arange(length, dtype=np.float32), _slopes(heads)
    document_T = np.sort(np.random.default_rng(0).integers(0, DOCUMENTS, length)).astype(np.int32)

    def alibi(score: Any, b: Any, h: Any, t: Any, s: Any) -> Any:
        return score + slopes_H[h] * (s - t)

    def capped(score: Any, b: Any, h: Any, t: Any, s: Any) -> Any:
        return CAP * np.tanh(score / CAP)

    def causal(b: Any, h: Any, t: Any, s: Any) -> Any:
        return s <= t

    def within(b: Any, h: Any, t: Any, s: Any) -> Any:
        return (s <= t) & (t - s <= WINDOW)

    def same_document(b: Any, h: Any, t: Any, s: Any) -> Any:
        return document_T[t] == document_T[s]

    return {
        "ALiBi": ({"score_mod": alibi}, {"bias": slopes_H[:, None, None] * (places - places[:, None])}),
        "soft cap": ({"score_mod": capped}, {"softcap": CAP}),
        "causal": ({"mask_mod": causal}, {"causal": True}),
        "window": ({"mask_mod": within}, {"window": (WINDOW, 0)}),
        "documents": ({"mask_mod": same_document}, {"mask": document_T[:, None] == document_T}),
    }


@check(
    "attention-functions",
    "one thread and two, (1, 12, 2048, 64): a score_mod or mask_mod takes at most 1.15 x the time of what says the "
    "same, ALiBi also of attention without a function",
)
def functions(findings: Findings, data: Data) -> None:
    B, H, T, K = FORM_SHAPE
    rng = np.random.default_rng(0)
    arrays = [normal(rng, *FORM_SHAPE) for _ in range(3)]
    attend = partial(fastattn.attention, *arrays, layout="BHTK")
    for name, (function, argument) in forms(H, T).items():
        calls = {"function": partial(attend, **function), "argument": partial(attend, **argument)}
        if "mask_mod" in function:
            blocks = fastattn.BlockMask.from_function(function["mask_mod"], 1, 1, T, T)
            calls["block mask of the function"] = partial(attend, block_mask=blocks)
        if name == "ALiBi":
            calls["slopes"] = _with_slopes(arrays)
            calls["nothing"] = attend
        expected = np.asarray(calls["function"]())
        for kind, call in calls.items():
            if kind == "nothing":
                continue
            agrees, difference = largest_difference(expected, np.asarray(call()))
            if not agrees:
                raise RuntimeError(f"{name}: the result of the {kind} differs from that of the function, {difference}")
        for threads in THREADS:
            times = timed(calls, threads, rounds=31, seconds=9.0)
            for kind in (kind for kind in ("argument", "slopes", "nothing") if kind in times):
                ratio = times["function"] / times[kind]
                findings.at_most(f"{plural(threads)}, {name}:", ratio, f"x {kind}", 1.15, milliseconds(times))


def _with_slopes(arrays: list[np.ndarray]) -> Callable[[], np.ndarray]:
    """The models' kernel, which takes rows and has ALiBi built in; its result as (B, H, T, K)."""
    B, H, T, K = FORM_SHAPE
    rows = [np.ascontiguousarray(array.swapaxes(1, 2)).reshape(B * T, H * K) for array in arrays]
    batch, bias = RaggedBatch(*[np.arange(B + 1) * T] * 2), PositionBias(_slopes(H))
    call = partial(cpu.attention, *rows, batch, Heads(H, H, K), position_bias=bias)
    return lambda: call().reshape(B, T, H, K).swapaxes(1, 2)
