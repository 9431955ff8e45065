"""Operations as cases: fastattn's, NumPy's (fastattn.ops.reference), PyTorch's, ONNX Runtime's."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

from bench.case import OURS, Case, Side, largest_difference, peer
from bench.operations import OPERATIONS
from bench.operations.attention import equal_lengths
from bench.operations.table import Problem
from bench.request import Request
from fastattn.ops import cpu as operations
from fastattn.ops import reference


def case_of(problem: Problem) -> Case:
    """The case of a problem, with all its engines; a peer's module has a function with the operation's name."""
    work = problem.work
    assert work is not None, f"{problem.name} is of no benchmark"

    def ours(ops: ModuleType) -> Side:
        return Side({"": problem.bind(ops, problem.arrays)}, view=lambda results: results[0])

    def theirs(module: Any) -> Side:
        make = getattr(module, problem.operation, None)
        return make(problem.arrays, **problem.form) if make else Side(absent="no such operator")

    sides = {
        OURS: ours(operations),
        "NumPy": ours(reference),
        "PyTorch": peer(("torch",), "bench.torch_kernels", theirs),
        "ONNX Runtime": peer(("onnx", "onnxruntime"), "bench.onnx_kernels", theirs),
    }
    agree = partial(largest_difference, precision=problem.form.get("precision", "float32"))
    amount = (work.bytes if work.flops is None else work.flops) / 1e9
    return Case(work.title, amount, work.unit, sides, work.flops, work.bytes, agree)


def linear(rows: int, inputs: int, outputs: int, precision: str = "float32") -> Case:
    return case_of(OPERATIONS["linear"].make(rows, inputs, outputs, precision=precision))


def attention(batch: int, heads: int, length: int, head_width: int, causal: bool = False, naive: bool = True) -> Case:
    """naive: whether to include NumPy, which stores the scores."""
    size = equal_lengths(batch, heads, length, head_width, causal)
    case = case_of(OPERATIONS["attention"].problem(size))
    if naive:
        return case
    return replace(case, sides=case.sides | {"NumPy": Side(absent="scores too large")})


def table_cases(request: Request) -> Iterator[Callable[[], Case]]:
    for operation in OPERATIONS.values():
        if request.precision in operation.precisions:
            more = {"precision": request.precision} if len(operation.precisions) > 1 else {}
            for size in request.choose(operation.large, operation.large, operation.toy):
                if size.scaling or not request.scaling:
                    yield lambda size=size, make=operation.problem, more=more: case_of(make(size, **more))
