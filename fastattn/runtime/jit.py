"""The one decorator of all kernels: compilation, threads, and the cache of compiled code.

A kernel is an ordinary Numba function whose last statement is a loop over ``prange(0, tasks)``, compiled when first
called, ``kernel(*arguments)``. It releases the GIL and shares the tasks among the threads that the caller may use:
those of ``pool``, where one thread is a plain call, so whole sentences go to cores as well, each a Python thread's; or
Numba's (``threads``). A task writes its own part of the output and no order depends on the number of threads; fast-math
stays off.
"""

import atexit
import functools
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.extending import overload

from fastattn.cache_folder import cache_root, mark_used
from fastattn.caller_warnings import warn
from fastattn.lazy import lazy
from fastattn.runtime.loop import check_loop
from fastattn.runtime.pool import FLAGS, Pool, launch, serve
from fastattn.runtime.recording import is_recorded
from fastattn.runtime.sources import sources_digest
from fastattn.runtime.threads import current_threads, setting, thread_limit
from fastattn.simd.target import compiled_features, compiled_name

try:
    from fastattn.runtime import internals
    from fastattn.runtime.code_cache import CodeCache, CodeFolder
except (ImportError, AttributeError) as error:
    internals = None  # type: ignore[assignment]
    setting.forced = f"Numba {numba.__version__} is not as fastattn knows it ({error})"
    setting.by_numba = True

# No form but that of the loop itself: what else Numba would make parallel, a thread does as quickly by itself.
_ONLY_PRANGE = {
    "prange": True,
    **dict.fromkeys(
        ("comprehension", "fusion", "inplace_binop", "numpy", "reduction", "setitem", "stencil"),
        False,
    ),
}
_compile_listeners: list[Callable[[str], None]] = []
_cache_faults: list[OSError] = []
_ended_by = 0  # the thread in which the process ends, once it does


class Kernel:
    """A compiled loop over tasks; a call shares them among the caller's threads.

    What stands before the loop runs once a part with the pool, once in all with Numba's threads: it writes nothing, and
    scratch that a task writes to is made inside the loop.
    """

    def __init__(self, function: Callable):
        check_loop(function)
        functools.update_wrapper(self, function)
        self.function = function
        if internals is not None:
            self.run = internals.compile_kernel(internals.make_run(function))
            _keep_code(self.run, function, "kernel")

    def __call__(self, *arguments: Any) -> None:
        if is_recorded(self, arguments):
            return
        if setting.by_numba:
            setting.team.call(self.parallel, arguments)
            return
        pool = _pool
        lacking = self.run(pool.address, current_threads(), *arguments)
        if lacking:
            self.run(pool.address, 1 + pool.ensure(lacking, _launcher()), *arguments)

    @lazy
    def parallel(self) -> Any:
        """The function compiled by Numba's own parallel compiler."""
        if internals is None:
            return _compile_plainly(self.function)
        compiled = numba.njit(parallel=_ONLY_PRANGE, **FLAGS)(self.function)
        _keep_code(compiled, self.function, "parallel")
        return compiled


def _compile_plainly(function: Callable) -> Any:
    """A kernel compiled by Numba's public interface alone, in Numba's own code cache.

    That knows a function by its file and its name, so the name holds what else it is made of.
    """
    _tell_of_fallback()
    function.__qualname__ = f"{function.__name__}_{_digest()}"
    return numba.njit(parallel=_ONLY_PRANGE, cache=True, **FLAGS)(function)


@functools.cache
def _tell_of_fallback() -> None:
    warn(f"{setting.forced}: kernels are compiled, kept and shared among threads by Numba itself")


@functools.cache
def _launcher() -> int:
    """The address of the compiled ``launch``."""
    _launch.compile(_LAUNCH_TYPES)
    compiled = _launch.overloads[_LAUNCH_TYPES]
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name)


def kernel(function: Callable) -> Kernel:
    """Compile a function that ends in a loop of independent tasks over prange(0, tasks); it must not raise.

    TypeError where it is none: here or, where one has to look closely, when it is compiled.
    """
    return Kernel(function)


def inner(function: Callable) -> Callable:
    """Compile a helper that kernels call; it is inlined by LLVM into them and never called from Python."""
    return numba.njit(**FLAGS)(function) if internals is None else internals.compile_helper(function)


def inner_by_type(stub: Callable) -> Callable:
    """Decorate a function of the arguments' types that returns the function to compile, as ``inner``, for ``stub``."""
    return overload(stub, jit_options=FLAGS if internals is None else internals.HELPER)


def on_compile(listener: Callable[[str], None]) -> None:
    """Call ``listener(name)`` before every kernel that is compiled from scratch, not when it is loaded."""
    _compile_listeners.append(listener)


def cache_fault() -> str:
    """Why this process could not store compiled code, as a message for the user; "" if it could."""
    if not _cache_faults:
        return ""
    reason = _cache_faults[0].strerror or _cache_faults[0]
    return f"cannot keep kernels in the cache {cache_root()}: {reason}; FASTATTN_CACHE names another folder"


def _keep_code(compiled: Any, function: Callable, form: str) -> None:
    """In the cache, whose folder is named after the sources of this package: no other's function is kept."""
    if function.__module__.startswith("fastattn."):
        internals.keep_code(compiled, CodeCache(function, form, _folder, _tell_of_compiling, _cache_faults.append))


def _tell_of_compiling(name: str) -> None:
    if _ended_by not in (0, threading.get_ident()):
        internals.global_compiler_lock.release()  # which whoever is quicker would have, kernel after kernel
        threading.Event().wait()
    for listener in _compile_listeners:
        listener(name)


@functools.cache
def _digest() -> str:
    """A hash of everything that compiled code depends on: sources, versions, the CPU."""
    versions = (sys.version, numba.__version__, llvmlite.__version__)
    more = versions, compiled_name(), sorted(compiled_features())
    return sources_digest(Path(__file__).resolve().parent.parent, more)[:24]


@functools.cache
def _cache_folder() -> Path:
    folder = cache_root() / "kernels" / _digest()
    mark_used(folder)
    return folder


def _end() -> None:
    """Wait for the kernel that a daemon thread compiles, since LLVM's own state goes with the process; begin none.

    What is compiled stays: who runs it is not waited for.
    """
    global _ended_by
    _ended_by = threading.get_ident()
    internals.global_compiler_lock.acquire()


def _after_fork_in_child() -> None:
    global _pool
    internals.global_compiler_lock.release()
    setting.after_fork()
    _pool = Pool(_serve, thread_limit())  # the parent's helpers are not here


if internals is not None:
    _folder = CodeFolder(_cache_folder)
    _launch, _serve = (numba.njit(**FLAGS)(function) for function in (launch, serve))
    for _compiled, _function in ((_launch, launch), (_serve, serve)):
        _keep_code(_compiled, _function, "pool")
    _LAUNCH_TYPES = (numba.int64,) * 5
    _pool = Pool(_serve, thread_limit())
    atexit.register(_end)
    if hasattr(os, "register_at_fork"):
        # Forked while another thread compiles or loads a kernel, a child would inherit Numba's lock and wait for ever.
        os.register_at_fork(
            before=internals.global_compiler_lock.acquire,
            after_in_parent=internals.global_compiler_lock.release,
            after_in_child=_after_fork_in_child,
        )
