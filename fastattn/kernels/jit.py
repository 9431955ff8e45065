"""The one decorator of all kernels: compilation, threads, and the cache of compiled code.

A kernel is one Python function over a run of its tasks, ``function(first, end, *arguments)``, compiled when first
needed. Called as ``kernel(tasks, *arguments)`` it releases the GIL and shares the tasks among the threads that the
caller may use (``pool``); for one thread it is a plain call, so whole sentences go to cores as well, each a Python
thread's. A task writes its own part of the output and no order depends on the number of threads; fast-math stays off.
"""

import atexit
import contextlib
import functools
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import llvmlite
import numba
from numba.core.compiler_lock import global_compiler_lock

from fastattn.cache import cache_root, mark_used
from fastattn.kernels.build import HelperCompiler, KernelCompiler, make_run
from fastattn.kernels.code_cache import CodeCache, CodeFolder
from fastattn.kernels.pool import FLAGS, MOST_PARTS, Pool, launch, serve
from fastattn.simd.target import compiled_features, compiled_name

_state = threading.local()
_compile_listeners: list[Callable[[str], None]] = []
_cache_faults: list[OSError] = []
_ended_by = 0  # the thread in which the process ends, once it does


def thread_limit() -> int:
    """How many threads this process may use: NUMBA_NUM_THREADS, by default the CPUs that it may run on."""
    return numba.config.NUMBA_NUM_THREADS


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Kernels that this Python thread calls inside share their work among ``count`` threads.

    More than the limit count as that many. Any number of Python threads may run kernels at once: one of them has the
    help of others, the rest work alone.
    """
    before = getattr(_state, "threads", None)
    _state.threads = min(count, thread_limit())
    try:
        yield
    finally:
        _state.threads = before


def current_threads() -> int:
    """How many threads kernels called here use: use_threads' count, by default the limit."""
    return getattr(_state, "threads", None) or thread_limit()


class Kernel:
    """A compiled loop over tasks; a call shares them among the caller's threads."""

    def __init__(self, function: Callable):
        functools.update_wrapper(self, function)
        run = make_run(inner(function))
        self.run = numba.njit(pipeline_class=KernelCompiler, no_cfunc_wrapper=True, **FLAGS)(run)
        self.run._cache = _cached(function, "kernel")

    def __call__(self, tasks: int, *arguments):
        parts = min(tasks, current_threads(), MOST_PARTS) if tasks > 1 else 1
        if parts > 1:
            _pool.ensure(parts - 1)
            self.run(_launcher(), _pool.address, parts, tasks, *arguments)
        else:
            self.run(0, 0, 1, tasks, *arguments)


@functools.cache
def _launcher() -> int:
    """The address of the compiled ``launch``."""
    _launch.compile(_LAUNCH_TYPES)
    compiled = _launch.overloads[_LAUNCH_TYPES]
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name)


def kernel(function: Callable) -> Kernel:
    """Compile a function of a run of independent tasks; it must not raise."""
    return Kernel(function)


def inner(function: Callable) -> Callable:
    """Compile a helper that kernels call; it is inlined by LLVM into them and never called from Python."""
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **FLAGS}
    return numba.njit(pipeline_class=HelperCompiler, **options)(function)


def on_compile(listener: Callable[[str], None]) -> None:
    """Call ``listener(name)`` before every kernel that is compiled from scratch, not when it is loaded."""
    _compile_listeners.append(listener)


def cache_fault() -> str:
    """Why what this process compiled could not be kept, for a line to a person; "" if it could."""
    if not _cache_faults:
        return ""
    reason = _cache_faults[0].strerror or _cache_faults[0]
    return f"cannot keep kernels in the cache {cache_root()}: {reason}; FASTATTN_CACHE names another folder"


def _cached(function: Callable, form: str) -> CodeCache:
    return CodeCache(function, form, _folder, _tell_of_compiling, _cache_faults.append)


def _tell_of_compiling(name: str) -> None:
    if _ended_by not in (0, threading.get_ident()):
        global_compiler_lock.release()  # which whoever is quicker would have, kernel after kernel
        threading.Event().wait()
    for listener in _compile_listeners:
        listener(name)


@functools.cache
def _cache_folder() -> Path:
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parent.parent
    for path in sorted([*package.glob("simd/*.py"), *package.glob("kernels/*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    versions = (sys.version, numba.__version__, llvmlite.__version__)
    digest.update(repr((versions, compiled_name(), sorted(compiled_features()))).encode())
    folder = cache_root() / "kernels" / digest.hexdigest()[:24]
    mark_used(folder)
    return folder


_folder = CodeFolder(_cache_folder)
_launch, _serve = (numba.njit(**FLAGS)(function) for function in (launch, serve))
_launch._cache, _serve._cache = _cached(launch, "pool"), _cached(serve, "pool")
_LAUNCH_TYPES = (numba.int64,) * 5
_pool = Pool(_serve, thread_limit())


@atexit.register
def _end() -> None:
    """Wait for the kernel that a daemon thread compiles, since LLVM's own state goes with the process; begin none.

    What is compiled stays: who runs it is not waited for.
    """
    global _ended_by
    _ended_by = threading.get_ident()
    global_compiler_lock.acquire()


def _after_fork_in_child() -> None:
    global _pool
    global_compiler_lock.release()
    _pool = Pool(_serve, thread_limit())  # the parent's helpers are not here


if hasattr(os, "register_at_fork"):
    # Forked while another thread compiles or loads a kernel, a child would inherit Numba's lock and wait for ever.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=_after_fork_in_child,
    )
