"""fastattn.attention: against its floor, its peers and its arguments; functions of scores and masks; memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bench import attention_cases
from bench.attention_cases import SHAPES, Shape, inputs, ours, positions_first
from bench.case import OURS, largest_difference
from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS, against, compare, in_child, milliseconds, plural, request, timed
from bench.kernel_cases import attention
from bench.orchestra import MEMORY_LENGTHS
from bench.resources import bytes_a_position
from bench.timing import library_threads
from fastattn import BlockMask
from fastattn.arguments.attention import Heads, PositionBias
from fastattn.ops import cpu as operations

TORCH_SHAPES = ((8, 12, 512, 64), (1, 12, 2048, 64), (32, 12, 128, 32))


@check(
    "attention-torch",
    "one thread and two, (8, 12, 512, 64), (1, 12, 2048, 64), (32, 12, 128, 32): "
    "at least 1.8 x PyTorch's scaled_dot_product_attention",
)
def torch(findings: Findings, data: Data) -> None:
    _ratios(findings, [(shape, False, 1.8) for shape in TORCH_SHAPES], "PyTorch")


@check("attention-numpy", "one thread and two, (1, 12, 2048, 64): at least 3 x NumPy's, causal 5 x")
def numpy(findings: Findings, data: Data) -> None:
    _ratios(findings, [(TORCH_SHAPES[1], False, 3.0), (TORCH_SHAPES[1], True, 5.0)], "NumPy")


@check(
    "attention-reference",
    "one thread and two: at least 2 x ops.reference in float32, causal at 8192 positions 5 x; from 1024 to 8192 "
    "positions its memory grows by no more than that of inputs and result",
)
def against_reference(findings: Findings, data: Data) -> None:
    """Of the shape of attention-numpy no less is asked there."""
    shapes = TORCH_SHAPES[0], TORCH_SHAPES[2], (1, 8, 8192, 64)
    _ratios(findings, [*((shape, False, 2.0) for shape in shapes), (shapes[2], True, 5.0)], "NumPy")
    for threads in THREADS:
        extra = [_extra(data, threads, length) for length in MEMORY_LENGTHS]
        grown = (extra[-1] - extra[0]) / (MEMORY_LENGTHS[-1] - MEMORY_LENGTHS[0])
        said = ", ".join(f"{length}: {size / 1e6:.3g} MB" for length, size in zip(MEMORY_LENGTHS, extra, strict=True))
        findings.at_most(f"{plural(threads)}, memory:", grown, "bytes a position", bytes_a_position(), said)


@check("attention-memory", "one thread and two, n = 8192: less than 4 MB a thread beyond inputs and result")
def memory(findings: Findings, data: Data) -> None:
    for threads in THREADS:
        findings.at_most(plural(threads), _extra(data, threads, 8192) / 1e6, "MB", 4 * threads)


def _extra(data: Data, threads: int, length: int) -> float:
    found = in_child(request(data, "resources", threads, item=f"attention {OURS} {length}"))
    if found["extra"] is None:
        raise RuntimeError("the system does not report the memory of a process")
    return found["extra"]


def _ratios(findings: Findings, cases: list[tuple[tuple[int, int, int, int], bool, float]], peer: str) -> None:
    for threads in THREADS:
        for shape, causal, wanted in cases:
            case = against(attention(*shape, causal=causal), peer)
            sides = compare(case, threads)
            what = f"{plural(threads)}, {shape}{', causal' if causal else ''}:"
            remark = f"{sides[OURS]['rate']}, {sides[peer]['rate']}"
            findings.at_least(what, sides[peer]["ratio"], f"x {peer}", wanted, remark)


# Functions are made from what they capture, so that PyTorch's FlexAttention takes them too, with its own tensors.
WINDOW, CAP, DOCUMENTS = 256, 30.0, 8


def alibi(slopes: Any) -> Callable:
    """A bias of each head by distance (Press 2022)."""
    return lambda score, b, h, t, s: score + slopes[h] * (s - t)


def capped(tanh: Callable) -> Callable:
    return lambda score, b, h, t, s: CAP * tanh(score / CAP)


def causal(b: Any, h: Any, t: Any, s: Any) -> Any:
    return s <= t


def within(b: Any, h: Any, t: Any, s: Any) -> Any:
    return (s <= t) & (t - s <= WINDOW)


def same_document(document: Any) -> Callable:
    return lambda b, h, t, s: document[t] == document[s]


@dataclass
class Form:
    """function   its options of fastattn.attention with a function
    make       makes that function of what it captures; None: it captures nothing
    captured   an array, or np.tanh
    others     {name: options that say the same}
    """

    kind: str  # score_mod or mask_mod
    make: Callable
    captured: Any = None
    others: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def function(self) -> Callable:
        return self.make if self.captured is None else self.make(self.captured)

    @property
    def options(self) -> dict[str, Any]:
        return {self.kind: self.function}


def slopes(heads: int) -> np.ndarray:
    return (2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)).astype(np.float32)


def forms(heads: int, length: int) -> dict[str, Form]:
    places = np.arange(length, dtype=np.float32)
    slopes_H = slopes(heads)
    document_T = np.sort(np.random.default_rng(0).integers(0, DOCUMENTS, length)).astype(np.int32)
    bias_HTS = slopes_H[:, None, None] * (places - places[:, None])
    return {
        "ALiBi": Form("score_mod", alibi, slopes_H, {"bias array": {"bias": bias_HTS}}),
        "soft cap": Form("score_mod", capped, np.tanh, {"softcap": {"softcap": CAP}}),
        "causal": Form("mask_mod", causal, None, {"causal": {"causal": True}}),
        "window": Form("mask_mod", within, None, {"window": {"window": (WINDOW, 0)}}),
        "documents": Form("mask_mod", same_document, document_T, {"mask": {"mask": document_T[:, None] == document_T}}),
    }


FORM_SHAPE: Shape = (1, 12, 2048, 64)
MOST = 1.3


@check(
    "attention-functions",
    "one thread and two, (1, 12, 2048, 64): a score_mod or mask_mod takes at most 1.3 x the time of what says the same",
)
def functions(findings: Findings, data: Data) -> None:
    arrays = inputs(FORM_SHAPE)
    cases = {name: _calls(name, form, arrays) for name, form in forms(FORM_SHAPE[1], FORM_SHAPE[2]).items()}
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
    return BlockMask.from_function(form.function, 1, 1, FORM_SHAPE[2], FORM_SHAPE[2])


def _with_slopes(arrays: Any) -> Callable[[], np.ndarray]:
    """The models' kernel, which takes rows and has ALiBi built in; its result as (B, H, T, K)."""
    B, H, T, K = FORM_SHAPE
    rows = [positions_first(array).reshape(B * T, H * K) for array in arrays]
    starts = np.arange(B + 1) * T
    bias = PositionBias(slopes(H))
    call = partial(operations.attention, *rows, starts, starts, Heads(H, H, K), position_bias=bias)
    return lambda: call().reshape(B, T, H, K).swapaxes(1, 2)


def _agree(calls: dict[str, Callable], first: str = "function") -> None:
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
    arrays = inputs(FORM_SHAPE)
    for threads in THREADS:
        for name, form in forms(FORM_SHAPE[1], FORM_SHAPE[2]).items():
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

    from bench.torch_kernels import flex

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
                case.sides = {name: side for name, side in case.sides.items() if side.absent != "scores too large"}
                sides = compare(case, threads, rounds=7, seconds=2.5)
                what = f"{plural(threads)}, {case.name}:"
                onnx = min((name for name in sides if name.startswith("ONNX")), key=lambda name: sides[name]["ratio"])
                for peer in ("PyTorch", onnx):
                    remark = milliseconds({name: sides[name]["seconds"] for name in (OURS, peer)})
                    findings.at_least(what, sides[peer]["ratio"], f"x {peer}", 1.0, remark)
