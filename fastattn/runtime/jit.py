"""The decorators of all compiled code. This module imports Numba, so operations call kernels by ``handle`` instead.

A kernel is an ordinary Numba function whose last statement is a loop over ``prange(0, tasks)``. The first call
``kernel(*arguments)`` compiles it. A call releases the GIL, and shares the tasks among the threads that the caller may
use: the pool's or Numba's (``threads``). With one thread of the pool it is a plain call, so that Python threads can
also compute whole sentences side by side. A task writes its own part of the output, no order depends on the number of
threads, and fast-math stays off.
"""

import functools
from collections.abc import Callable
from typing import Any

import numba
from numba.extending import overload

from fastattn.runtime.handle import Kernel, kernel_of
from fastattn.runtime.loop import FLAGS, check_loop
from fastattn.runtime.threads import setting

NUMBA_VERSION = (0, 68)  # for which ``internals`` is written; of other versions only the public interface is used

if numba.version_info.short == NUMBA_VERSION:
    from fastattn.runtime import internals
else:
    internals = None  # type: ignore[assignment]
    setting.forbid_pool(f"Numba {numba.__version__} is not as fastattn knows it (0.68)")


def kernel(function: Callable) -> Kernel:
    """Compile a function that ends in a loop of independent tasks over prange(0, tasks), and never raises.

    TypeError for any other function: from this decorator, or from the first call, which reads the source.
    """
    check_loop(function)
    return kernel_of(function)


def inner(function: Callable) -> Callable:
    """Compile a helper that kernels call: LLVM inlines the helper, and Python never calls it."""
    return numba.njit(**FLAGS)(function) if internals is None else internals.compile_helper(function)


def inner_overload(choose: Callable) -> Callable:
    """A helper like ``inner`` whose code depends on types: ``choose(*types)`` returns the function to compile."""

    @functools.wraps(choose)
    def stub(*arguments: Any) -> Any:
        raise NotImplementedError(f"{choose.__name__} is for kernels")

    overload(stub, jit_options=FLAGS if internals is None else internals.HELPER_OPTIONS)(choose)
    return stub


@inner
def take_part(scratch_PB, part, tasks):
    """(address of a part's scratch memory, the part's first task, the end of its tasks); parts have about equal sizes.

    For kernels that loop ``for part in prange(0, len(scratch_PB))``, a part for each thread. The number of parts
    changes no result: tasks are independent.
    """
    parts = len(scratch_PB)
    return scratch_PB.ctypes.data + part * scratch_PB.strides[0], tasks * part // parts, tasks * (part + 1) // parts
