"""Kernels as operations call them: by name, so that no compiler is imported before a kernel has to be compiled.

A kernel has a variant for each ``signature_of`` its arguments. The machine code of a variant comes from the code cache,
or from Numba, which is imported only then. Either way ``machine_code`` loads the code.
"""

import atexit
import contextlib
import functools
import importlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastattn.runtime.arena import state
from fastattn.runtime.code_cache import Code, CodeFolder, check_kernels, check_sources, code_digest, settings
from fastattn.runtime.compiling import (
    RETRY,
    cache_faults,
    compile_lock,
    end_compiling,
    link_lock,
    lock_of_variant,
    notify_of_compiling,
    retry_under_lock,
    start_processes,
    with_large_stack,
)
from fastattn.runtime.machine_code import MISMATCH, load, signature_of
from fastattn.runtime.threads import Pool, current_threads, setting, thread_limit
from fastattn.system.cache_folder import cache_root, mark_used
from fastattn.system.records import lazy

CLAIM_TIMEOUT = 60.0  # seconds for which this process waits for another one that has claimed a variant
_KERNELS = "fastattn.kernels."


class UnknownNumba(Exception):
    """fastattn does not know this version of Numba, whose public interface has to compile kernels."""


class CompiledKernel(NamedTuple):
    """A compiled variant of a kernel or a function in this process.

    addresses  role, see ``Code.exports`` -> address of a C function
    classes    the classes in the variant's key, which the code refers to
    """

    wrapper: Callable[..., int]
    addresses: dict[str, int]
    classes: list[type]


class _CompiledBase:
    """The base of Kernel and CompiledFunction: loads variants from the code cache, or compiles and stores them."""

    def __init__(self, module: str, name: str, function: Callable | None = None):
        self.__module__, self.__name__, self._function = module, name, function
        self.variants: dict[str, CompiledKernel] = {}
        self.wrappers: list[Callable[..., int]] = []

    @property
    def label(self) -> str:
        """FILE.FUNCTION."""
        return f"{self.__module__.rpartition('.')[2]}.{self.__name__}"

    @property
    def function(self) -> Callable:
        """The Python function; the module that defines it imports Numba."""
        if self._function is None:
            function = getattr(importlib.import_module(self.__module__), self.__name__)
            if self._function is None:  # else ``kernel_of`` has set it during the import
                self._function = function
        return self._function

    def _variant(self, key: str, classes: list[type]) -> CompiledKernel:
        """The variant with this key, loaded or compiled.

        UnknownNumba where neither is possible, FastattnError where a source was changed since the process started.
        """
        with lock_of_variant(self.__module__, self.__name__, key):
            compiled = self.variants.get(key) or retry_under_lock(link_lock, lambda: self._load(key, classes))
            compiled = compiled or self._compile_or_wait(key, classes)
        with link_lock:  # another thread may add another variant
            self.wrappers = [variant.wrapper for variant in self.variants.values()]
        return compiled

    def _load(self, key: str, classes: list[type]) -> CompiledKernel | None:
        if not self._is_cached:
            return None
        try:
            code = _folder.load(self.label, key)
            return None if code is None else self._link(key, code, classes)
        except Exception:  # noqa: BLE001  a damaged file may fail in any way; compiling replaces it
            return None

    def _link(self, key: str, code: Code, classes: list[type]) -> CompiledKernel:
        with link_lock:
            compiled = self.variants[key] = CompiledKernel(*load(code, classes), classes)
        return compiled

    def _compile_or_wait(self, key: str, classes: list[type]) -> CompiledKernel:
        """Compile the variant, or load it if another process compiles it within CLAIM_TIMEOUT."""
        if self._is_cached:
            check_sources()
        deadline = time.monotonic() + CLAIM_TIMEOUT

        def compile_or_retry() -> Any:
            if self._is_cached:
                start_processes()
            with _folder.claimed(self.label, key) if self._is_cached else contextlib.nullcontext(True) as is_ours:
                if not is_ours and time.monotonic() < deadline:
                    return RETRY
                return self._load(key, classes) or self._link(key, self._compile_and_save(key, classes), classes)

        return retry_under_lock(compile_lock, compile_or_retry)

    def _compile_and_save(self, key: str, classes: list[type]) -> Code:
        notify_of_compiling(self.label)
        code = with_large_stack(lambda: self._compile(key, classes))
        if self._is_cached:
            check_sources()  # again: compiling has imported modules
            from fastattn.runtime.internals import reads_settings

            try:
                if reads_settings(settings()):
                    _folder.save(self.label, key, code)
            except OSError as error:
                cache_faults.append(error)
        return code

    def _compile(self, key: str, classes: list[type]) -> Code:
        raise NotImplementedError

    @property
    def _is_cached(self) -> bool:
        """Whether the function is of this package: the code cache's digest covers no other sources."""
        return self.__module__.startswith("fastattn.")


class Kernel(_CompiledBase):
    """A compiled loop over tasks, which a call shares among the caller's threads. See ``jit.kernel``.

    Code before the loop runs once for each part of the tasks, so it must not write. Scratch memory lies in the loop.
    """

    def __call__(self, *arguments: Any) -> None:
        if state.program is not None:
            state.program.add(self, arguments)
            return
        if setting.by_numba:
            self._call_by_numba(arguments)
            return
        pool, threads = _pool, current_threads()
        for wrapper in self.wrappers:
            result = wrapper(pool.address, threads, *arguments)
            if result > 0:  # the number of helpers that the pool needs first
                result = wrapper(pool.address, 1 + pool.ensure(result, _launch.address()), *arguments)
            if result == 0:
                return
        self.compile(*arguments)  # no variant fits, perhaps since another thread changed an argument meanwhile
        self(*arguments)

    def compile(self, *arguments: Any) -> None:
        """Load or compile the variant for these arguments.

        TypeError for arguments that no kernel takes; Numba's own errors where the kernel cannot be compiled for them.
        """
        classes: list[type] = []
        key = signature_of(arguments, classes)
        if key in self.variants and self.variants[key].wrapper(0, 0, *arguments) == MISMATCH:
            raise TypeError(f"{self.label} does not take these values of {key}")
        with contextlib.suppress(UnknownNumba):  # then the next call goes through Numba's public interface
            self._variant(key, classes)

    def record(self, *arguments: Any) -> tuple[int, np.ndarray] | None:
        """A call that compiled code can make later: (the address of the variant's ``entry``, the packed arguments).

        The caller keeps the arrays among the arguments alive. None if only Numba's public interface can compile.
        """
        for _ in range(2):
            for variant in list(self.variants.values()):  # another thread may add one meanwhile
                size = variant.wrapper(0, 0, *arguments)
                if size != MISMATCH:
                    packed = np.empty(size // 8 + 1, np.int64)
                    if variant.wrapper(packed.ctypes.data, 0, *arguments) == size:
                        return variant.addresses["entry"], packed
            if setting.pool_obstacle:
                return None
            self.compile(*arguments)
        return None

    def compile_ahead(self, key: str) -> None:
        """Compile the variant with this key into the code cache; the key has the names of its tuples' classes."""
        classes_of_key = re.findall(r"([\w.]+):(\w+)\(", key)
        self._variant(key, [getattr(importlib.import_module(module), name) for module, name in classes_of_key])

    def _compile(self, key: str, classes: list[type]) -> Code:
        function = self.function
        if setting.pool_obstacle:
            raise UnknownNumba
        from fastattn.runtime.kernel_code import compile_kernel

        return compile_kernel(function, self.label, key, classes)

    def _call_by_numba(self, arguments: tuple) -> None:
        call = None if setting.pool_obstacle else self.record(*arguments)
        if call is None:
            setting.team.call(self.numba_kernel, arguments)
        else:
            from fastattn.runtime.pool_code import run_tasks

            entry, packed = call
            setting.team.call(run_tasks, (entry, packed.ctypes.data))

    @lazy
    def numba_kernel(self) -> Any:
        """The kernel compiled by Numba's public interface alone."""
        from fastattn.runtime.loop import compile_by_numba

        return compile_by_numba(self.function)


class CompiledFunction(_CompiledBase):
    """A compiled function that takes ``count`` int64, two or more, and returns an int64 other than MISMATCH."""

    def __init__(self, module: str, name: str, count: int):
        super().__init__(module, name)
        self.count = count

    def __call__(self, *arguments: int) -> int:
        """Call the function without the GIL; TypeError for an argument that is no int64."""
        result = self._compiled().wrapper(*arguments)
        if result == MISMATCH:
            raise TypeError(f"{self.label} does not take {arguments}")
        return result

    def address(self) -> int:
        return self._compiled().addresses["plain"]

    def _compiled(self) -> CompiledKernel:
        """The compiled function; once there is one, no call waits for a thread that compiles something else."""
        key = str(self.count)
        return self.variants.get(key) or self._variant(key, [])

    def _compile(self, key: str, classes: list[type]) -> Code:
        from fastattn.runtime.kernel_code import compile_function

        return compile_function(self.function, self.label, self.count)


_ROWS, _STEP_ROWS, _NARROW_ROWS = "(f2C,f2C,f2C,f2C)", "(f2C,f2C,f2C,f2C,f2C)", "(f2C,H2C,H2C,f2C,f2C)"
_TYPES = "fastattn.kernels.attention.arguments:"
_SCORES = f"{_TYPES}ScoreArguments(F,F,f1C,I,I,I,I,f1C,f2C,I,f1C,I,I,B2C)"
_MASK = f"{_TYPES}MaskArguments(B1C,I,I,I,I,B1C,I,I,I,I,I,I)"
_SHAPE, _OUTPUTS = f"{_TYPES}ShapeArguments(I,I,I,I,I)", f"{_TYPES}OutputArguments(f4C,f1C,I,I,I)"
_STEPS, _BATCH = f"({','.join('I' * 16)})", "(l1C,l1C,l2C,I)"
_STEP = f"(i2C,l1C,l1C,l1C,I),(I,I,I,I),(I,I,I),{_SCORES},f3C,f2C,I"
# (file, kernel, key) of variants that nearly every model needs, in the order of their first calls; the last one reads
# what a decoder in int8 or bfloat16 caches.
VARIANTS = (
    ("attention.sentences", "attend", f"{_ROWS},{_STEPS},{_BATCH},{_SHAPE},{_MASK},{_SCORES},{_OUTPUTS},f2C,l1C"),
    ("attention.step", "attend_rows", f"{_STEP_ROWS},{_STEP}"),
    ("attention.step", "attend_rows", f"{_NARROW_ROWS},{_STEP}"),
)


def compile_variants() -> None:
    """Compile all VARIANTS that are neither cached nor claimed."""
    for file, name, key in VARIANTS:
        kernel_named(file, name).compile_ahead(key)


_kernels: dict[tuple[str, str], Kernel] = {}


def kernel_named(file: str, name: str) -> Kernel:
    """The kernel ``name`` of fastattn.kernels.``file``, a module that is imported only if the cache lacks the code.

    FastattnError if the file was changed since the process started.
    """
    check_kernels(file)
    return _kernels.setdefault((file, name), Kernel(_KERNELS + file, name))


def kernel_of(function: Callable) -> Kernel:
    """The Kernel of a Python function, which ``kernel_named`` may have made before the function's file was imported."""
    module, name = function.__module__, function.__name__
    if not module.startswith(_KERNELS):
        return functools.update_wrapper(Kernel(module, name, function), function)  # type: ignore[return-value]
    kernel = kernel_named(module[len(_KERNELS) :], name)
    kernel._function = function
    return functools.update_wrapper(kernel, function)  # type: ignore[return-value]


def pool_and_threads() -> tuple[int, int]:
    """(the pool's address, the number of threads of a kernel that is called here), after starting the helpers."""
    pool, threads = _pool, current_threads()
    return pool.address, threads if threads == 1 else 1 + pool.ensure(threads - 1, _launch.address())


@functools.cache
def cache_folder() -> Path:
    """The folder of compiled code, for these sources, these versions and this CPU."""
    folder = cache_root() / "kernels" / code_digest()
    mark_used(folder)
    return folder


def _after_fork_in_child() -> None:
    global _pool
    setting.after_fork()
    _pool = Pool(_serve, thread_limit())  # the parent's helpers are not in the child


_folder = CodeFolder(cache_folder)
_serve = CompiledFunction("fastattn.runtime.pool_code", "serve", 2)
_launch = CompiledFunction("fastattn.runtime.pool_code", "launch", 5)
_pool = Pool(_serve, thread_limit())
run_program = CompiledFunction("fastattn.runtime.pool_code", "run_program", 6)
atexit.register(end_compiling)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
