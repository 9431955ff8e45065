"""The compiled side of the pool, which callers and helpers run; see ``threads.Pool``."""

import platform
import sys

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.runtime import threads as at
from fastattn.runtime.internals import compile_helper
from fastattn.runtime.loop import FLAGS

I64 = ir.IntType(64)


def word(builder, address):
    """The int64 at an address, as a pointer."""
    return builder.inttoptr(address, I64.as_pointer())


@intrinsic
def load(typing_context, address):
    """The int64 at an address. All loads, stores and exchanges of this file are sequentially consistent."""

    def generate(context, builder, kind, values):
        (address,) = values
        return builder.load_atomic(word(builder, address), "seq_cst", 8)

    return types.int64(types.int64), generate


@intrinsic
def store(typing_context, address, value):
    def generate(context, builder, kind, values):
        address, value = values
        builder.store_atomic(value, word(builder, address), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def add_one(typing_context, address):
    def generate(context, builder, kind, values):
        (address,) = values
        builder.atomic_rmw("add", word(builder, address), I64(1), "seq_cst")
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def exchange(typing_context, address, expected, value):
    """Whether the word had the expected value; if so, the new value replaces it."""

    def generate(context, builder, kind, values):
        address, expected, value = values
        pair = builder.cmpxchg(word(builder, address), expected, value, "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), generate


@intrinsic
def pause(typing_context):
    """Tell the CPU that this is a spin loop, if it has an instruction for that."""

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
def call(typing_context, function, arguments):
    """The result of the C function at an address for a tuple of arguments; all are int64."""

    def generate(context, builder, signature, values):
        function, packed = values
        integers = [builder.extract_value(packed, i) for i in range(len(arguments))]
        kind = ir.FunctionType(I64, [I64] * len(integers))
        return builder.call(builder.inttoptr(function, kind.as_pointer()), integers)

    return types.int64(types.int64, types.UniTuple(types.int64, len(arguments))), generate


LINUX, WINDOWS = at.LINUX, sys.platform == "win32"
_LENGTH = types.uint32 if WINDOWS else types.uint64
offer_cpu = pause if WINDOWS else types.ExternalFunction("sched_yield", types.int32())
read, write = (
    types.ExternalFunction(f"_{name}" if WINDOWS else name, _LENGTH(types.int32, types.int64, _LENGTH))
    for name in ("read", "write")
)
sched_getcpu = types.ExternalFunction("sched_getcpu", types.int32()) if LINUX else None
sched_setaffinity = types.ExternalFunction("sched_setaffinity", types.int32(types.int32, types.uint64, types.int64))


@compile_helper
def part_from(helper):
    """Have a helper that sleeps on this CPU run on another CPU.

    On virtual CPUs Linux wakes it where it fell asleep, or on the caller's CPU, even if another CPU is idle: caller and
    helper would take turns.
    """
    cpu = np.int64(sched_getcpu())
    if cpu == load(helper + at.CPU) and cpu < 8 * at.CPUS_BYTES:
        word = helper + at.CPUS + (cpu >> 6) * 8
        allowed = load(word)
        store(word, allowed & ~(np.int64(1) << (cpu & 63)))
        sched_setaffinity(load(helper + at.THREAD), at.CPUS_BYTES, helper + at.CPUS)
        store(word, allowed)


@compile_helper
def take_parts(pool):
    """Do free parts of the job, one by one, until there is none."""
    while True:
        ticket = load(pool + at.TICKET)
        part, parts = ticket & at.MOST_PARTS, (ticket >> at.PART_BITS) & at.MOST_PARTS
        if part >= parts:
            return
        if exchange(pool + at.TICKET, ticket, ticket + 1):
            tasks = load(pool + at.JOB_TASKS)
            entry, arguments = load(pool + at.JOB_ENTRY), load(pool + at.JOB_ARGUMENTS)
            call(entry, (arguments, tasks * part // parts, tasks * (part + 1) // parts))
            add_one(pool + at.DONE)


def launch(pool, entry, arguments, tasks, parts):
    """Do a job, one call of ``entry`` for each part, with helpers, or alone if another job has the helpers."""
    if not exchange(pool + at.TAKEN, 0, 1):
        call(entry, (arguments, 0, tasks))
        return
    store(pool + at.JOB_ENTRY, entry)
    store(pool + at.JOB_ARGUMENTS, arguments)
    store(pool + at.JOB_TASKS, tasks)
    store(pool + at.DONE, 0)
    number = (load(pool + at.TICKET) >> (2 * at.PART_BITS)) + 1
    store(pool + at.TICKET, ((number & 0x7FFFFFFF) << (2 * at.PART_BITS)) | (parts << at.PART_BITS))
    for helper in range(parts - 1):
        mine = pool + at.HELPERS + helper * at.HELPER_BYTES
        if load(mine + at.SLEEPS) == 1 and exchange(mine + at.SLEEPS, 1, 0):
            if LINUX:
                part_from(mine)
            write(load(mine + at.WAKER), mine + at.ONE, 8)
    take_parts(pool)
    looks = 0
    while load(pool + at.DONE) < parts:
        looks += 1
        if looks < at.PATIENCE:
            pause()
        else:
            offer_cpu()
    store(pool + at.TAKEN, 0)


def serve(pool, helper):
    """Help with jobs of more than ``helper`` + 1 parts, forever."""
    mine = pool + at.HELPERS + helper * at.HELPER_BYTES
    looks = 0
    while True:
        ticket = load(pool + at.TICKET)
        parts = (ticket >> at.PART_BITS) & at.MOST_PARTS
        if (ticket & at.MOST_PARTS) < parts and helper + 1 < parts:
            take_parts(pool)
            looks = 0
        elif looks < at.SPINS:
            pause()
            looks += 1
        else:
            looks = 0
            if LINUX:
                store(mine + at.CPU, sched_getcpu())
            store(mine + at.SLEEPS, 1)
            # An earlier job woke nobody, so look again; a job after that word was set has written, which is read.
            if load(pool + at.TICKET) == ticket or not exchange(mine + at.SLEEPS, 1, 0):
                read(load(mine + at.WAKING), mine + at.READ, 8)


@compile_helper
def share(pool, threads, ready, entry, arguments):
    """Have all tasks of ``entry`` done by at most ``threads`` threads, and return 0.

    Where that takes more helpers than ``ready``, do nothing and return their number.
    """
    if threads <= 1:
        call(entry, (arguments, 0, 1 << 62))
        return 0
    tasks = call(entry, (arguments, 0, 0))
    parts = min(tasks, threads, at.MOST_PARTS)
    if parts <= 1:
        call(entry, (arguments, 0, tasks))
        return 0
    if parts - 1 > ready:
        return parts - 1
    call(load(pool + at.LAUNCHER), (pool, entry, arguments, tasks, parts))
    return 0


def run_program(pool, threads, calls, count, most, stop):
    """Make ``count`` calls, in order, up to ``most`` times, until the word at ``stop`` is not 0 after the last call.

    threads  of each call: the caller and helpers of the pool
    calls    the address of int64 pairs: the address of ``entry``, the address of its arguments
    """
    for turn in range(most):
        for n in range(count):
            share(pool, threads, at.MOST_PARTS, load(calls + 16 * n), load(calls + 16 * n + 8))
        if load(stop) != 0:
            return turn + 1
    return most


@numba.njit(parallel=True, **FLAGS)
def run_tasks(entry, arguments):
    """Do all tasks of ``entry`` in Numba's own threads, a part for each thread that the caller has."""
    tasks = call(entry, (arguments, 0, 0))
    parts = min(tasks, np.int64(numba.get_num_threads()))
    for part in numba.prange(0, parts):
        call(entry, (arguments, tasks * part // parts, tasks * (part + 1) // parts))
