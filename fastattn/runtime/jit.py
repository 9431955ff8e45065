"""The decorators of all compiled code. Numba is imported by this module: operations call kernels by ``handle``.

A kernel is an ordinary Numba function whose last statement is a loop over ``prange(0, tasks)``, compiled when first
called, ``kernel(*arguments)``. It releases the GIL and shares the tasks among the threads that the caller may use:
those of the pool, where one thread is a plain call, so whole sentences go to cores as well, each a Python thread's; or
Numba's (``threads``). A task writes its own part of the output and no order depends on the number of threads; fast-math
stays off.
"""

import functools
from collections.abc import Callable
from typing import Any

import numba
from numba.extending import overload

from fastattn.runtime.handle import Kernel, kernel_of
from fastattn.runtime.loop import FLAGS, check_loop
from fastattn.runtime.threads import setting

KNOWN = (0, 68)  # the version of Numba whose insides ``internals`` relies on; others have their public interface alone

if numba.version_info.short == KNOWN:
    from fastattn.runtime import internals
else:
    internals = None  # type: ignore[assignment]
    setting.force(f"Numba {numba.__version__} is not as fastattn knows it (0.68)")


def kernel(function: Callable) -> Kernel:
    """Compile a function that ends in a loop of independent tasks over prange(0, tasks); it must not raise.

    TypeError where it is none: here or, where one has to look closely, when it is compiled.
    """
    check_loop(function)
    return kernel_of(function)


def inner(function: Callable) -> Callable:
    """Compile a helper that kernels call; it is inlined by LLVM into them and never called from Python."""
    return numba.njit(**FLAGS)(function) if internals is None else internals.compile_helper(function)


def inner_overload(choose: Callable) -> Callable:
    """A helper like ``inner`` whose code depends on types: ``choose(*types)`` returns the function to compile."""

    @functools.wraps(choose)
    def stub(*arguments: Any) -> Any:
        raise NotImplementedError(f"{choose.__name__} is for kernels")

    overload(stub, jit_options=FLAGS if internals is None else internals.HELPER)(choose)
    return stub


@inner
def take_part(scratch_PB, part, tasks):
    """(address of a part's scratch, its first task, the end of its tasks); parts are of even size.

    For kernels that loop ``for part in prange(0, len(scratch_PB))``, one for each thread. How many parts there are
    changes no result: a task depends on no other.
    """
    parts = len(scratch_PB)
    return scratch_PB.ctypes.data + part * scratch_PB.strides[0], tasks * part // parts, tasks * (part + 1) // parts
