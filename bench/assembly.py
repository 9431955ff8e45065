"""LLVM's assembly of a kernel, for this CPU.

    python -m bench.assembly                 the kernels' names
    python -m bench.assembly matmul._linear  the assembly of each form of one, to stdout
    python -m bench.assembly cuda [TEXT]     registers and expected occupancy of a card's kernels, whose names contain
                                             TEXT, for sm_80 and sm_90: with numba-cuda, NVVM and ptxas, no card

Everything is compiled again, half a minute: code from the cache cannot be shown. NUMBA_CPU_NAME and
NUMBA_CPU_FEATURES, if both are set, compile for another CPU.
"""

import importlib
import os
import pkgutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="fastattn-assembly-") as folder:
        os.environ["FASTATTN_CACHE"] = folder
        return show(sys.argv[1:])


def show(names: list[str]) -> int:
    if names[:1] == ["cuda"]:
        from bench import card_kernels

        print(*card_kernels.lines(*names[1:]), sep="\n")
        return 0
    kernels = find_kernels()
    unknown = [name for name in names if name not in kernels]
    if unknown:
        print(f"no kernel {unknown[0]!r}; there are: {', '.join(kernels)}", file=sys.stderr)
        return 2
    if not names:
        print("\n".join(kernels))
        return 0
    print("compiling every kernel", file=sys.stderr)
    for label, form in assembly(compile_all):
        if label in names:
            print(form)
    return 0


def compile_all() -> None:
    from fastattn.cli.warmup import warmup

    warmup.callback()


def assembly(call: Callable[[], None]) -> list[tuple[str, str]]:
    """(FILE.FUNCTION, form, assembly) of each kernel that a call compiles."""
    from fastattn.runtime import internals, kernel_code

    machine: Any = internals.target_context().codegen()._tm
    forms: list[tuple[str, str]] = []
    compile_kernel = kernel_code.compile_kernel

    def compile_shown(function: Callable, label: str, key: str, classes: list[type]) -> Any:
        def emit(code: Any) -> bytes:
            forms.append((label, f"# {label} {key}\n{machine.emit_assembly(code)}"))
            return emit_object(code)

        with mock.patch.object(machine, "emit_object", emit):
            return compile_kernel(function, label, key, classes)

    emit_object = machine.emit_object
    with mock.patch.object(kernel_code, "compile_kernel", compile_shown):
        call()
    return forms


def find_kernels() -> dict[str, Any]:
    """{FILE.FUNCTION: kernel}."""
    from fastattn import kernels
    from fastattn.runtime.handle import Kernel

    names = (room.name for room in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."))
    rooms = map(importlib.import_module, names)
    return {
        f"{room.__name__.rpartition('.')[2]}.{name}": value
        for room in rooms
        for name, value in vars(room).items()
        if isinstance(value, Kernel) and value.__module__ == room.__name__  # and not an imported one
    }


if __name__ == "__main__":
    sys.exit(main())
