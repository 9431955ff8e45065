"""The compiled side of the pool, which callers and helpers run; see ``threads.Pool``."""

import platform
import sys

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.runtime import threads as layout
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
    """Replace the word at an address if the word has the expected value; returns whether it had."""

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
    """The result of the C function at an address for a tuple of arguments; result and arguments are int64."""

    def generate(context, builder, signature, values):
        function, packed = values
        integers = [builder.extract_value(packed, i) for i in range(len(arguments))]
        kind = ir.FunctionType(I64, [I64] * len(integers))
        return builder.call(builder.inttoptr(function, kind.as_pointer()), integers)

    return types.int64(types.int64, types.UniTuple(types.int64, len(arguments))), generate


LINUX, WINDOWS = layout.LINUX, sys.platform == "win32"
_LENGTH = types.uint32 if WINDOWS else types.uint64
offer_cpu = pause if WINDOWS else types.ExternalFunction("sched_yield", types.int32())
read, write = (
    types.ExternalFunction(f"_{name}" if WINDOWS else name, _LENGTH(types.int32, types.int64, _LENGTH))
    for name in ("read", "write")
)
sched_getcpu = types.ExternalFunction("sched_getcpu", types.int32()) if LINUX else None
sched_setaffinity = types.ExternalFunction("sched_setaffinity", types.int32(types.int32, types.uint64, types.int64))


@compile_helper
def move_off_this_cpu(helper_words):
    """Have a helper that sleeps on the caller's CPU run on another CPU; ``helper_words`` is its words' address.

    On virtual CPUs Linux wakes a helper where it fell asleep, or on the caller's CPU, even if another CPU is idle:
    caller and helper would take turns.
    """
    cpu = np.int64(sched_getcpu())
    if cpu == load(helper_words + layout.CPU) and cpu < 8 * layout.CPUS_BYTES:
        cpu_word = helper_words + layout.CPUS + (cpu >> 6) * 8
        allowed_cpus = load(cpu_word)
        store(cpu_word, allowed_cpus & ~(np.int64(1) << (cpu & 63)))
        sched_setaffinity(load(helper_words + layout.THREAD), layout.CPUS_BYTES, helper_words + layout.CPUS)
        store(cpu_word, allowed_cpus)


@compile_helper
def take_parts(pool):
    """Do the job's free parts, one by one, until no part is free."""
    while True:
        ticket = load(pool + layout.TICKET)
        part, parts = ticket & layout.MOST_PARTS, (ticket >> layout.PART_BITS) & layout.MOST_PARTS
        if part >= parts:
            return
        if exchange(pool + layout.TICKET, ticket, ticket + 1):
            tasks = load(pool + layout.JOB_TASKS)
            entry, arguments = load(pool + layout.JOB_ENTRY), load(pool + layout.JOB_ARGUMENTS)
            call(entry, (arguments, tasks * part // parts, tasks * (part + 1) // parts))
            add_one(pool + layout.DONE)


def launch(pool, entry, arguments, tasks, parts):
    """Do a job, with a call of ``entry`` for each part: with helpers, or alone while another job has the helpers."""
    if not exchange(pool + layout.TAKEN, 0, 1):
        call(entry, (arguments, 0, tasks))
        return
    store(pool + layout.JOB_ENTRY, entry)
    store(pool + layout.JOB_ARGUMENTS, arguments)
    store(pool + layout.JOB_TASKS, tasks)
    store(pool + layout.DONE, 0)
    number = (load(pool + layout.TICKET) >> (2 * layout.PART_BITS)) + 1
    store(pool + layout.TICKET, ((number & 0x7FFFFFFF) << (2 * layout.PART_BITS)) | (parts << layout.PART_BITS))
    for helper in range(parts - 1):
        helper_words = pool + layout.HELPERS + helper * layout.HELPER_BYTES
        if load(helper_words + layout.SLEEPS) == 1 and exchange(helper_words + layout.SLEEPS, 1, 0):
            if LINUX:
                move_off_this_cpu(helper_words)
            write(load(helper_words + layout.WAKE_WRITE_FD), helper_words + layout.ONE, 8)
    take_parts(pool)
    spins = 0
    while load(pool + layout.DONE) < parts:
        spins += 1
        if spins < layout.PATIENCE:
            pause()
        else:
            offer_cpu()
    store(pool + layout.TAKEN, 0)


def serve(pool, helper):
    """The endless loop of helper number ``helper``: help with jobs of more than ``helper`` + 1 parts, else sleep."""
    helper_words = pool + layout.HELPERS + helper * layout.HELPER_BYTES
    spins = 0
    while True:
        ticket = load(pool + layout.TICKET)
        parts = (ticket >> layout.PART_BITS) & layout.MOST_PARTS
        if (ticket & layout.MOST_PARTS) < parts and helper + 1 < parts:
            take_parts(pool)
            spins = 0
        elif spins < layout.SPINS:
            pause()
            spins += 1
        else:
            spins = 0
            if LINUX:
                store(helper_words + layout.CPU, sched_getcpu())
            store(helper_words + layout.SLEEPS, 1)
            # A job that came before SLEEPS was set has woken nobody: look for it. A later job wakes this ``read``.
            if load(pool + layout.TICKET) == ticket or not exchange(helper_words + layout.SLEEPS, 1, 0):
                read(load(helper_words + layout.WAKE_READ_FD), helper_words + layout.READ, 8)


@compile_helper
def share(pool, threads, ready, entry, arguments):
    """Have all tasks of ``entry`` done by at most ``threads`` threads, and return 0.

    If that takes more helpers than ``ready``, do nothing and return the number of helpers.
    """
    if threads <= 1:
        call(entry, (arguments, 0, 1 << 62))
        return 0
    tasks = call(entry, (arguments, 0, 0))
    parts = min(tasks, threads, layout.MOST_PARTS)
    if parts <= 1:
        call(entry, (arguments, 0, tasks))
        return 0
    if parts - 1 > ready:
        return parts - 1
    call(load(pool + layout.LAUNCHER), (pool, entry, arguments, tasks, parts))
    return 0


def run_program(pool, threads, calls, count, max_runs, stop):
    """Make ``count`` calls, in order, up to ``max_runs`` times, until the word at ``stop`` is not 0 after a run.

    threads  how many threads do each call: the caller and helpers of the pool
    calls    the address of a pair of int64 for each call: the addresses of ``entry`` and of its arguments
    """
    for run in range(max_runs):
        for n in range(count):
            share(pool, threads, layout.MOST_PARTS, load(calls + 16 * n), load(calls + 16 * n + 8))
        if load(stop) != 0:
            return run + 1
    return max_runs


@numba.njit(parallel=True, **FLAGS)
def run_tasks(entry, arguments):
    """Do all tasks of ``entry`` in Numba's own threads, a part of them in each thread that the caller may use."""
    tasks = call(entry, (arguments, 0, 0))
    parts = min(tasks, np.int64(numba.get_num_threads()))
    for part in numba.prange(0, parts):
        call(entry, (arguments, tasks * part // parts, tasks * (part + 1) // parts))
