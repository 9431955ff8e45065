"""Every kernel that the table of cases launches, compiled to PTX and by ptxas, where there is no card.

Run as a program it prints a line a kernel: `python -m tests.cuda.compiling [TEXT]`, of cases whose name contains it.
Arrays are NumPy's and a launch compiles its kernel for their types, so that results are of any values.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numba import cuda, typeof

ARCHITECTURES = (8, 0), (9, 0)


class Compiled(NamedTuple):
    """What ptxas says of a kernel: registers of a thread, bytes of a block's shared memory, spills and the stack."""

    name: str
    architecture: str
    registers: int
    shared: int
    spills: int
    stack: int
    float64: bool  # whether any instruction computes in it

    @property
    def occupancy(self) -> float:
        """The share of a multiprocessor's 2,048 threads that may run at once, in blocks of 256."""
        blocks = min(8, 65536 // (max(self.registers, 16) * 256), 163840 // max(self.shared + 1024, 1))
        return blocks * 256 / 2048


def ptxas() -> str:
    """The assembler of the package nvidia-cuda-nvcc."""
    import nvidia

    found = [path for folder in nvidia.__path__ for path in Path(folder).glob("*/bin/ptxas")]
    return str(found[0])


def compile_kernel(kernel: Any, arguments: tuple[Any, ...], architecture: tuple[int, int]) -> Compiled:
    types = tuple(typeof(one) for one in arguments)
    device = SimpleNamespace(compute_capability=architecture)
    with mock.patch("numba.cuda.dispatcher.get_current_device", lambda: device):
        bounds = kernel.targetoptions.get("launch_bounds")
        ptx, _ = cuda.compile_ptx(kernel.py_func, types, cc=architecture, launch_bounds=bounds)
    arch = "sm_{}{}".format(*architecture)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [ptxas(), "-v", f"-arch={arch}", str(source), "-o", str(Path(folder, "kernel.cubin"))]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr

    def number(pattern: str) -> int:
        return max((int(found) for found in re.findall(pattern, said)), default=0)

    return Compiled(
        f"{kernel.py_func.__module__.rpartition('.')[2]}.{kernel.py_func.__qualname__}",
        arch,
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes smem"),
        number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
        number(r"(\d+) bytes stack frame"),
        re.search(r"\b(fma|add|mul|div|sqrt)(\.\w+)*\.f64\b", ptx) is not None,
    )


@contextmanager
def compiling(architectures: Sequence[tuple[int, int]] = ARCHITECTURES) -> Iterator[dict[tuple, Compiled]]:
    """Within, launches of kernels compile them; what they became, by kernel, types and architecture."""
    from fastattn.ops.cuda import card

    found: dict[tuple, Compiled] = {}

    def launch(kernel: Any, blocks: Any, *arguments: Any) -> None:
        for architecture in architectures:
            key = kernel, tuple(typeof(one) for one in arguments), architecture
            if key not in found:
                found[key] = compile_kernel(kernel, arguments, architecture)

    with mock.patch.multiple(
        card,
        launch=launch,
        empty=lambda shape, dtype: np.zeros(shape, dtype),
        upload=lambda array: np.ascontiguousarray(array),
        parameter=lambda array: np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array,
        download=np.asarray,
    ):
        yield found


def main(text: str = "") -> None:
    from fastattn.ops import cuda as operations
    from tests.kernels.cases import CASES

    with compiling() as found:
        for case in CASES:
            if hasattr(operations, case.operation) and text in case.name:
                case.call(operations, case.arrays)
    for one in found.values():
        sys.stdout.write(f"{one} occupancy={one.occupancy:.2f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
