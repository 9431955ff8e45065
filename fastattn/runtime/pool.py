"""The thread pool of kernels: a job is cut into parts, and free threads take them one by one.

The caller takes parts too, and waits only for those that others have begun: a thread that the system does not let run
costs nothing but its help, where a team that meets at a barrier would wait for it after every kernel, on a busy machine
for milliseconds. Helpers look for work for a while, then sleep; nobody waits for them to wake up.

All state is a few words of memory, which only compiled code changes while a job runs: no exception in a Python thread,
an interrupt say, can come between taking the pool and leaving it. The ticket holds the job's number, its parts and the
next part that is free in one word, so that a part is taken by one compare-and-exchange, which fails where any of them
has changed; the rest of a job stays as it is until all its parts are done.
"""

import ctypes
import os
import platform
import sys
import threading

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.worker_threads import start_thread, warn_of_fewer_threads

I64 = ir.IntType(64)
ENTRY = ir.FunctionType(I64, [I64] * 3)  # address of the arguments, first task, end; returns how many there are
LAUNCH = ir.FunctionType(ir.VoidType(), [I64] * 5)  # ``launch`` as a C function
# Where the words lie, in bytes: on cache lines of their own where they change at different times.
TICKET, DONE, JOB_ENTRY, JOB_ARGUMENTS, JOB_TASKS, TAKEN = 0, 128, 256, 264, 272, 280
# How many helpers a kernel may count on, and the address of ``launch`` as a C function.
READY, LAUNCHER = 288, 296
# Of each helper: whether it sleeps, what it reads from and is written to, a one, room; the CPU that it fell asleep on,
# its thread, and the CPUs that it may run on, a bit each.
HELPERS, HELPER_BYTES = 384, 256
SLEEPS, WAKING, WAKER, ONE, READ, CPU, THREAD, CPUS, CPUS_BYTES = 0, 8, 16, 24, 32, 40, 48, 128, 128
PART_BITS = 12
MOST_PARTS = (1 << PART_BITS) - 1
SPINS = 40_000  # looks for work before a helper sleeps: about a millisecond
PATIENCE = 1_000  # looks at parts that others have begun before the caller offers them its CPU
FLAGS = {"error_model": "numpy", "nogil": True, "boundscheck": False}


def word(builder, address):
    """The int64 at an address, as a pointer."""
    return builder.inttoptr(address, I64.as_pointer())


@intrinsic
def load(typing_context, address):
    """The int64 at an address; this and the others here are sequentially consistent."""

    def generate(context, builder, kind, values):
        return builder.load_atomic(word(builder, values[0]), "seq_cst", 8)

    return types.int64(types.int64), generate


@intrinsic
def store(typing_context, address, value):
    def generate(context, builder, kind, values):
        builder.store_atomic(values[1], word(builder, values[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def add_one(typing_context, address):
    def generate(context, builder, kind, values):
        builder.atomic_rmw("add", word(builder, values[0]), I64(1), "seq_cst")
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def exchange(typing_context, address, expected, value):
    """Whether the word was as expected; if so, it is the new value now."""

    def generate(context, builder, kind, values):
        address, expected, value = values
        both = builder.cmpxchg(word(builder, address), expected, value, "seq_cst", "seq_cst")
        return builder.extract_value(both, 1)

    return types.boolean(types.int64, types.int64, types.int64), generate


@intrinsic
def pause(typing_context):
    """Tell the CPU that this is a spin loop, where it has an instruction for that."""

    def generate(context, builder, kind, values):
        if platform.machine() in ("x86_64", "AMD64"):
            name = "llvm.x86.sse2.pause"
            function = builder.module.globals.get(name)
            if function is None:
                function = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), []), name)
            builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def call_entry(typing_context, entry, arguments, first, end):
    def generate(context, builder, kind, values):
        return builder.call(builder.inttoptr(values[0], ENTRY.as_pointer()), values[1:])

    return types.int64(*[types.int64] * 4), generate


WINDOWS = sys.platform == "win32"
_LENGTH = types.uint32 if WINDOWS else types.uint64
offer_cpu = pause if WINDOWS else types.ExternalFunction("sched_yield", types.int32())
read, write = (
    types.ExternalFunction(f"_{name}" if WINDOWS else name, _LENGTH(types.int32, types.int64, _LENGTH))
    for name in ("read", "write")
)
LINUX = sys.platform == "linux"
sched_getcpu = types.ExternalFunction("sched_getcpu", types.int32()) if LINUX else None
sched_setaffinity = types.ExternalFunction("sched_setaffinity", types.int32(types.int32, types.uint64, types.int64))


@numba.njit(**FLAGS)
def part_from(helper):
    """Have a helper that sleeps on this CPU run on another.

    Linux wakes it where it fell asleep, or on the caller's CPU, even where another is idle, if that is a virtual one;
    there the two would take turns.
    """
    cpu = np.int64(sched_getcpu())
    if cpu == load(helper + CPU) and cpu < 8 * CPUS_BYTES:
        word = helper + CPUS + (cpu >> 6) * 8
        allowed = load(word)
        store(word, allowed & ~(np.int64(1) << (cpu & 63)))
        sched_setaffinity(load(helper + THREAD), CPUS_BYTES, helper + CPUS)
        store(word, allowed)


@numba.njit(**FLAGS)
def take_parts(pool):
    """Do parts of the job, one by one, until none is free."""
    while True:
        ticket = load(pool + TICKET)
        part, parts = ticket & MOST_PARTS, (ticket >> PART_BITS) & MOST_PARTS
        if part >= parts:
            return
        if exchange(pool + TICKET, ticket, ticket + 1):
            tasks = load(pool + JOB_TASKS)
            entry, arguments = load(pool + JOB_ENTRY), load(pool + JOB_ARGUMENTS)
            call_entry(entry, arguments, tasks * part // parts, tasks * (part + 1) // parts)
            add_one(pool + DONE)


def launch(pool, entry, arguments, tasks, parts):
    """Do a job, one entry call for each of ``parts``, with helpers, or alone if another job has them."""
    if not exchange(pool + TAKEN, 0, 1):
        call_entry(entry, arguments, 0, tasks)
        return
    store(pool + JOB_ENTRY, entry)
    store(pool + JOB_ARGUMENTS, arguments)
    store(pool + JOB_TASKS, tasks)
    store(pool + DONE, 0)
    number = (load(pool + TICKET) >> (2 * PART_BITS)) + 1
    store(pool + TICKET, ((number & 0x7FFFFFFF) << (2 * PART_BITS)) | (parts << PART_BITS))
    for helper in range(parts - 1):
        mine = pool + HELPERS + helper * HELPER_BYTES
        if load(mine + SLEEPS) == 1 and exchange(mine + SLEEPS, 1, 0):
            if LINUX:
                part_from(mine)
            write(load(mine + WAKER), mine + ONE, 8)
    take_parts(pool)
    looks = 0
    while load(pool + DONE) < parts:
        looks += 1
        if looks < PATIENCE:
            pause()
        else:
            offer_cpu()
    store(pool + TAKEN, 0)


def serve(pool, helper):
    """Help with jobs of more than ``helper`` + 1 parts, for ever."""
    mine = pool + HELPERS + helper * HELPER_BYTES
    looks = 0
    while True:
        ticket = load(pool + TICKET)
        parts = (ticket >> PART_BITS) & MOST_PARTS
        if (ticket & MOST_PARTS) < parts and helper + 1 < parts:
            take_parts(pool)
            looks = 0
        elif looks < SPINS:
            pause()
            looks += 1
        else:
            looks = 0
            if LINUX:
                store(mine + CPU, sched_getcpu())
            store(mine + SLEEPS, 1)
            # What came between the last look and that word woke nobody; what came after it did, and is read.
            if load(pool + TICKET) == ticket or not exchange(mine + SLEEPS, 1, 0):
                read(load(mine + WAKING), mine + READ, 8)


class Pool:
    """Helper threads, for one job at a time; a caller that finds them taken works alone.

    They never hold the GIL, nor wait for it: they sleep in compiled code, reading from an eventfd or a pipe, and end
    with the process: nothing waits for them, nor for a job that a daemon thread is at.

    serve  the compiled ``serve``
    most   helpers that there may be
    """

    def __init__(self, serve, most: int):
        room = np.zeros((HELPERS + most * HELPER_BYTES + 128) // 8, np.int64)
        # For good: a helper that an interrupt lost may look at it as long as it likes, and all do while Python ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(room))
        first = -room.ctypes.data % 128 // 8
        self._words, self.address = room[first:], room.ctypes.data + 8 * first
        self._serve = serve
        self._wanted = most
        # Of the thread that starts helpers; where an interrupt kept it from being released, that thread may go on.
        self._starting = threading.RLock()
        self._helpers: list[threading.Thread] = []

    def ensure(self, count: int, launcher: int) -> int:
        """Start up to ``count`` helpers; one warning if the system gives fewer.

        launcher  the address of the compiled ``launch``
        Returns how many a kernel may count on now: not ``count`` while another Python thread is at this.
        """
        self._words[LAUNCHER // 8] = launcher
        if not self._starting.acquire(blocking=False):
            return 0
        try:
            while len(self._helpers) < min(count, self._wanted):
                self._helpers.append(self._start(len(self._helpers)))
            self._words[READY // 8] = len(self._helpers) if count <= self._wanted else MOST_PARTS
        except (RuntimeError, OSError, MemoryError) as error:
            self._wanted = len(self._helpers)
            self._words[READY // 8] = MOST_PARTS
            warn_of_fewer_threads(error)
        finally:
            self._starting.release()
        return count

    def _start(self, helper: int) -> threading.Thread:
        """A thread that serves. Should an interrupt lose it, another one serves beside it, which does no harm."""
        place = self._place(helper)
        if not self._words[place + ONE // 8]:
            ends = (os.eventfd(0),) * 2 if hasattr(os, "eventfd") else os.pipe()
            self._words[place + WAKING // 8], self._words[place + WAKER // 8] = ends
            self._words[place + ONE // 8] = 1
        arguments = self.address, helper
        thread = threading.Thread(target=self._serve, args=arguments, name=f"fastattn {helper}", daemon=True)
        start_thread(thread)
        if LINUX:
            for cpu in os.sched_getaffinity(0):
                if cpu < 8 * CPUS_BYTES:
                    bits = self._words[place + CPUS // 8 :].view(np.uint64)
                    bits[cpu // 64] |= np.uint64(1 << cpu % 64)
            self._words[place + CPU // 8], self._words[place + THREAD // 8] = -1, thread.native_id or 0
        return thread

    @staticmethod
    def _place(helper: int) -> int:
        return (HELPERS + helper * HELPER_BYTES) // 8
