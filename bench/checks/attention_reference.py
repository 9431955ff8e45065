"""fastattn.attention against fastattn.ops.reference in float32: time, and memory over the number of positions."""

from functools import partial

import numpy as np

from bench import attention_cases
from bench.attention_cases import Shape, inputs, ours, positions_first
from bench.case import OURS, Case, Side
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, compare, in_child, milliseconds, plural, request
from bench.parts import MEMORY_LENGTHS
from bench.resources import bytes_a_position
from fastattn.ops import reference
from fastattn.ops.attention import Heads, RaggedBatch

CASES: list[tuple[Shape, bool, float]] = [
    ((8, 12, 512, 64), False, 2.0),
    ((1, 12, 2048, 64), False, 2.0),
    ((32, 12, 128, 32), False, 2.0),
    ((1, 8, 8192, 64), False, 2.0),
    ((1, 8, 8192, 64), True, 5.0),
]


@check(
    "attention-reference",
    "one thread and two: at least 2 x ops.reference in float32, causal at 8192 positions 5 x; from 1024 to 8192 "
    "positions its memory grows by no more than that of inputs and result",
)
def against_reference(findings: Findings, data: Data) -> None:
    for threads in THREADS:
        for shape, causal, wanted in CASES:
            sides = compare(_case(shape, causal), threads, rounds=5, seconds=2.0)
            remark = milliseconds({name: side["seconds"] for name, side in sides.items()})
            what = f"{plural(threads)}, {attention_cases.name(shape, causal)}:"
            findings.at_least(what, sides["NumPy"]["ratio"], "x NumPy", wanted, remark)
    for threads in THREADS:
        extra = [_extra(data, threads, length) for length in MEMORY_LENGTHS]
        grown = (extra[-1] - extra[0]) / (MEMORY_LENGTHS[-1] - MEMORY_LENGTHS[0])
        said = ", ".join(f"{length}: {size / 1e6:.3g} MB" for length, size in zip(MEMORY_LENGTHS, extra, strict=True))
        findings.at_most(f"{plural(threads)}, memory:", grown, "bytes a position", bytes_a_position(), said)


def _extra(data: Data, threads: int, length: int) -> float:
    found = in_child(request(data, "resources", threads, item=f"attention {OURS} {length}"))
    if found["extra"] is None:
        raise RuntimeError("the system does not report the memory of a process")
    return found["extra"]


def _case(shape: Shape, causal: bool) -> Case:
    B, H, T, K = shape
    arrays = inputs(shape)
    rows = [positions_first(array).reshape(B * T, H * K) for array in arrays]
    starts = np.arange(B + 1) * T
    seen = reference.seen_around(starts, np.full(B, T), np.zeros(1, np.int64), -1, 0) if causal else None
    call = partial(reference.attention, *rows, RaggedBatch(starts, starts, seen), Heads(H, H, K))
    mine = ours(arrays, causal=causal)
    mine()  # compiles; the reference needs no first call, which may take seconds
    sides = {
        OURS: Side({"": mine}),
        "NumPy": Side({"": call}, view=lambda out: out.reshape(B, T, H, K).swapaxes(1, 2)),
    }
    flops = 4.0 * B * H * K * T * ((T + 1) / 2 if causal else T)
    return Case(attention_cases.name(shape, causal), flops / 1e9, "GFLOP/s", sides, flops, warm=True)
