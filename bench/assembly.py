"""LLVM's assembly of a kernel, for this CPU.

    python -m bench.assembly                 the kernels' names
    python -m bench.assembly matmul._linear  the assembly of each form of one, to stdout

Everything is compiled again, half a minute: code from the cache cannot be shown. NUMBA_CPU_NAME and
NUMBA_CPU_FEATURES, if both are set, compile for another CPU.
"""

import importlib
import os
import pkgutil
import sys
import tempfile
from typing import Any


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="fastattn-assembly-") as folder:
        os.environ["FASTATTN_CACHE"] = folder
        return show(sys.argv[1:])


def show(names: list[str]) -> int:
    from fastattn.cli.warmup import warmup

    known = find_kernels()
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no kernel {unknown[0]!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    if not names:
        print("\n".join(known))
        return 0
    print("compiling every kernel", file=sys.stderr)
    assert warmup.callback is not None
    warmup.callback()
    for name in names:
        for types, text in known[name].run.inspect_asm().items():
            print(f"# {name} {types}\n{text}")
    return 0


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
