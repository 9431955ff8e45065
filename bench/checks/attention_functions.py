"""Functions of scores and masks: against the arguments that say the same, and against PyTorch's FlexAttention."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench.attention_cases import Shape, inputs, ours, positions_first
from bench.attention_functions import Form, forms, slopes
from bench.case import OURS, largest_difference
from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS, milliseconds, plural, timed
from bench.timing import library_threads
from fastattn import BlockMask
from fastattn.ops import cpu as operations
from fastattn.ops.attention import Heads, PositionBias

SHAPE: Shape = (1, 12, 2048, 64)
MOST = 1.3


@check(
    "attention-functions",
    "one thread and two, (1, 12, 2048, 64): a score_mod or mask_mod takes at most 1.3 x the time of what says the same",
)
def functions(findings: Findings, data: Data) -> None:
    arrays = inputs(SHAPE)
    cases = {name: _calls(name, form, arrays) for name, form in forms(SHAPE[1], SHAPE[2]).items()}
    for calls in cases.values():
        _agree(calls)
    for threads in THREADS:
        for name, calls in cases.items():
            times = timed(calls, threads, seconds=3.0)
            function = times.pop("function")
            blocks = times.pop("block mask", None)
            also = {} if blocks is None else {"block mask of the function": blocks}
            for other, seconds in times.items():
                remark = milliseconds({"function": function, other: seconds} | also)
                what = f"{plural(threads)}, {name}:"
                findings.at_most(what, function / seconds, f"x {other}", MOST, remark)


def _calls(name: str, form: Form, arrays: Any) -> dict[str, Callable]:
    calls = {"function": ours(arrays, **form.options)}
    calls |= {other: ours(arrays, **options) for other, options in form.others.items()}
    if form.kind == "mask_mod":
        calls["block mask"] = ours(arrays, block_mask=_block_mask(form))
    if name == "ALiBi":
        calls["slopes"] = _with_slopes(arrays)
    return calls


def _block_mask(form: Form) -> BlockMask:
    return BlockMask.from_function(form.function, 1, 1, SHAPE[2], SHAPE[2])


def _with_slopes(arrays: Any) -> Callable[[], np.ndarray]:
    """The models' kernel, which takes rows and has ALiBi built in; its result as (B, H, T, K)."""
    B, H, T, K = SHAPE
    rows = [positions_first(array).reshape(B * T, H * K) for array in arrays]
    starts = np.arange(B + 1) * T
    bias = PositionBias(slopes(H))
    call = partial(operations.attention, *rows, starts, starts, Heads(H, H, K), position_bias=bias)
    return lambda: call().reshape(B, T, H, K).swapaxes(1, 2)


def _agree(calls: dict[str, Callable], first: str = "function") -> None:
    """RuntimeError unless all results are alike."""
    expected = np.asarray(calls[first]())
    for name, call in calls.items():
        agrees, difference = largest_difference(expected, np.asarray(call()))
        if not agrees:
            raise RuntimeError(f"the result of {name} differs from that of {first}, {difference}")


@check(
    "attention-flex",
    "one thread and two, (1, 12, 2048, 64): ahead of PyTorch's FlexAttention with causal, window, soft cap, ALiBi and "
    "document functions",
)
def flex(findings: Findings, data: Data) -> None:
    arrays = inputs(SHAPE)
    for threads in THREADS:
        for name, form in forms(SHAPE[1], SHAPE[2]).items():
            options = form.options if form.kind == "score_mod" else {"block_mask": _block_mask(form)}
            calls = {OURS: ours(arrays, **options)}
            calls |= {other: ours(arrays, **options) for other, options in form.others.items()}
            with library_threads(threads):
                calls["FlexAttention"] = _compiled(arrays, form)
            _agree(calls, OURS)
            times = timed(calls, threads, seconds=2.5)
            ratio = times["FlexAttention"] / times[OURS]
            findings.at_least(f"{plural(threads)}, {name}:", ratio, "x FlexAttention", 1.0, milliseconds(times))


def _compiled(arrays: Any, form: Form) -> Callable:
    """FlexAttention after its first call; Absent where it does not compile."""
    import torch

    from bench.torch_flex import flex

    captured = {np.tanh: torch.tanh}.get(form.captured) if callable(form.captured) else form.captured
    if isinstance(captured, np.ndarray):
        captured = torch.from_numpy(captured)
    function = form.make if captured is None else form.make(captured)
    call = flex(arrays, **{form.kind: function})
    try:
        call()
    except Exception as error:  # there is no C++ compiler, or it takes a form that it cannot compile
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Absent(f"FlexAttention does not compile here: {reason}") from error
    return call
