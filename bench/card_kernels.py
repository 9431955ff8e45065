"""Compiles every kernel of device "cuda" to PTX and with ptxas, without a card, and reads what ptxas says of it.

Arrays are NumPy's. A launch compiles its kernel for their types but does not run it, so results are arbitrary.
"""

import re
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numba import cuda, typeof

from bench.operations import OPERATIONS
from fastattn.arguments.attention import Heads, KeyMask, ScoreTerms, SoftmaxOutputs, StridedArrays
from fastattn.arguments.steps import NO_EDITS, StepRows, SubsetRows
from fastattn.ops.cuda.launching import layout_of
from fastattn.ops.protocol import ImageOps

ARCHITECTURES = (8, 0), (9, 0)


class Compiled(NamedTuple):
    """ptxas's figures: registers of a thread, bytes of a block's shared memory, of spills and of the stack."""

    name: str
    architecture: str
    registers: int
    shared: int
    spills: int
    stack: int
    float64: bool  # whether any instruction computes in it
    laid_out: bool  # whether launches pack the arguments as the kernel has them

    @property
    def occupancy(self) -> float:
        """The share of a multiprocessor's 2,048 threads that may run at once, in blocks of 256."""
        blocks = min(8, 65536 // (max(self.registers, 16) * 256), 163840 // max(self.shared + 1024, 1))
        return blocks * 256 / 2048


def ptxas() -> str:
    import nvidia

    paths = [path for folder in nvidia.__path__ for path in Path(folder).glob("*/bin/ptxas")]
    return str(paths[0])


def compile_kernel(kernel: Any, arguments: tuple[Any, ...], architecture: tuple[int, int]) -> Compiled:
    types = tuple(typeof(argument) for argument in arguments)
    device = SimpleNamespace(compute_capability=architecture)
    with mock.patch("numba.cuda.dispatcher.get_current_device", lambda: device):
        bounds = kernel.targetoptions.get("launch_bounds")
        ptx, _ = cuda.compile_ptx(kernel.py_func, types, cc=architecture, launch_bounds=bounds)
    arch = "sm_{}{}".format(*architecture)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [ptxas(), "-v", f"-arch={arch}", str(source), "-o", str(Path(folder, "kernel.cubin"))]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stderr

    def number(pattern: str) -> int:
        return max((int(digits) for digits in re.findall(pattern, output)), default=0)

    return Compiled(
        f"{kernel.py_func.__module__.rpartition('.')[2]}.{kernel.py_func.__qualname__}",
        arch,
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes smem"),
        number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
        number(r"(\d+) bytes stack frame"),
        re.search(r"\b(fma|add|mul|div|sqrt)(\.\w+)*\.f64\b", ptx) is not None,
        [int(size) // 8 for size in re.findall(r"\.param \.[a-z](\d+) ", ptx.partition(")")[0])]
        == [struct.calcsize(letter) for letter in "".join(map(layout_of, types))],
    )


@contextmanager
def compiling(architectures: Sequence[tuple[int, int]] = ARCHITECTURES) -> Iterator[dict[tuple, Compiled]]:
    """Have launches of kernels compile them; yields {(kernel, types, architecture): Compiled}."""
    from fastattn.ops import cuda as operations
    from fastattn.ops.cuda import card

    compiled: dict[tuple, Compiled] = {}

    def launch(kernel: Any, blocks: Any, *arguments: Any) -> None:
        for architecture in architectures:
            key = kernel, tuple(typeof(argument) for argument in arguments), architecture
            if key not in compiled:
                compiled[key] = compile_kernel(kernel, arguments, architecture)

    def parameter(array: np.ndarray | None, dimensions: int = 1) -> np.ndarray:
        return card.optional(array, dimensions)

    here = {"launch": launch, "empty": np.zeros, "upload": np.ascontiguousarray, "download": np.asarray}
    own = mock.patch.multiple(operations, empty=np.zeros, as_rows=np.ascontiguousarray)  # which are card's too
    with own, mock.patch.multiple(card, parameter=parameter, **here):
        yield compiled


def _above(b: int, h: int, t: int, s: int) -> bool:
    return s <= t


def _halved(score: float, b: int, h: int, t: int, s: int) -> float:
    return score / 2


def _of_arrays(ops: Any) -> Iterator[Callable[[], Any]]:
    """Calls of operations on callers' arrays, one for each form of a kernel; the table of operations has none."""
    x_BTHK, vector_HK, starts = np.zeros((1, 3, 2, 4), np.float32), np.zeros((2, 4), np.float32), np.array([0, 3])
    for dtype in (np.float32, np.float16, np.int8, np.uint8):
        for form in ({"by_length": True}, {"bits": True} if np.dtype(dtype).kind in "iu" else {}):
            rows = np.ones((3, 4), dtype)
            yield partial(ops.nearest_rows, rows, rows, 2, **form)
    mask_mod, score_mod = ops.compile_function(_above, "mask_mod"), ops.compile_function(_halved, "score_mod")
    yield partial(ops.block_states, mask_mod, (1, 2, 3, 3), (2, 2))
    functions = KeyMask(function=mask_mod), ScoreTerms(function=score_mod)
    for dtype in (np.float32, np.float16, np.uint16):
        arrays = StridedArrays(*[x_BTHK.astype(dtype) for _ in range(4)], (1, 2, 3, 3), (starts, starts))
        for terms in ((KeyMask(), ScoreTerms()), functions, (KeyMask(), ScoreTerms(vector_HK=vector_HK))):
            yield partial(ops.strided_attention, arrays, Heads(2, 2, 4), *terms, SoftmaxOutputs())


def _recorded_step(ops: Any) -> None:
    rows, tables = StepRows(2, 4), (np.zeros((2, 4), np.int32), np.zeros((2, 4), np.int32), np.zeros(4, np.int32))
    x_RD, ends_E = np.ones((2, 4), np.float32), np.zeros(1, np.int32)
    for precision in ("float32", "bfloat16", "int8"):
        packed = ops.pack_linear(np.ones((3, 4), np.float32), None, precision)
        for outputs in (packed, SubsetRows(packed, rows.subsets_R4, 3)):

            def step(outputs: Any = outputs) -> None:
                ops.take_tokens(rows, *tables)
                ops.pick_tokens(x_RD, outputs, NO_EDITS, True, ends_E, rows)

            assert ops.recorder().record(step) is not None


def every_call(ops: Any) -> Iterator[Callable[[], Any]]:
    """Calls that launch every kernel: the table's operations, those on callers' arrays, and greedy search."""
    for operation in OPERATIONS.values():
        for problem in map(operation.problem, operation.awkward):
            # weights of 4 bits and images are the CPU's alone
            is_here = problem.form.get("precision") != "int4"
            if is_here and hasattr(ops, problem.operation) and not hasattr(ImageOps, problem.operation):
                yield partial(problem.call, ops, problem.arrays)
    yield from _of_arrays(ops)
    yield partial(_recorded_step, ops)


def lines(text: str = "") -> Iterator[str]:
    from fastattn.ops import cuda as operations

    with compiling() as compiled:
        for call in every_call(operations):
            call()
    for kernel in sorted(compiled.values()):
        if text in kernel.name:
            yield (
                f"{kernel.name} {kernel.architecture}: {kernel.registers} registers, {kernel.shared} bytes shared, "
                f"{kernel.spills} of spills, occupancy {kernel.occupancy:.2f}"
            )
