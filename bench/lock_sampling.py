"""How long the interpreter's lock is held, sampled: a thread without it reads the lock's own word all the time.

The word is found by what it does: of all words of the interpreter's state it alone is 1 whenever Python code looks, and
0 whenever compiled code without the lock does. CPython on Linux; the reads cost the sampled program nothing but a CPU.
"""

import contextlib
import ctypes
import functools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np

from fastattn.runtime.pool_code import load, pause, store

PAUSES = 20  # between two looks: below a microsecond, and the word's cache line is left to those who change it
LOOKS, HELD, STOP = 0, 8, 16


@numba.njit(nogil=True)
def _copy(address, words_N):
    for n in range(len(words_N)):
        words_N[n] = load(address + 8 * n)


@numba.njit(nogil=True)
def _sample(address, shift, room):
    while not load(room + STOP):
        held = (load(address) >> shift) & 0xFFFFFFFF
        store(room + LOOKS, load(room + LOOKS) + 1)
        store(room + HELD, load(room + HELD) + held)
        for _ in range(PAUSES):
            pause()


@functools.cache
def lock_word() -> tuple[int, int]:
    """(address of the aligned int64 that holds the lock's word, how many bits the word lies above its end).

    RuntimeError where it is not found, such as in a Python without the lock. For a process with one Python thread.
    """
    start = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    ranges = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
    end = next(int(last, 16) for first, last in ranges if int(first, 16) <= start < int(last, 16))
    is_word = np.ones((end - start) // 4, np.bool_)
    free_N = np.zeros(len(is_word) // 2, np.int64)
    for _ in range(5):
        _copy(start, free_N)
        held_N = np.frombuffer(ctypes.string_at(start, free_N.nbytes), np.int32)
        is_word[: len(held_N)] &= (free_N.view(np.int32) == 0) & (held_N == 1)
    found = np.flatnonzero(is_word[: 2 * len(free_N)])
    if len(found) != 1:
        raise RuntimeError(f"expected one word that shows the interpreter's lock, found {len(found)}")
    return start + int(found[0]) // 2 * 8, 32 * (int(found[0]) % 2)


@dataclass
class Sampled:
    """share    of the time that the lock was held
    seconds  of CPU that the process took, without the sampling thread's
    wall     seconds
    """

    share: float = 0.0
    seconds: float = 0.0
    wall: float = 0.0

    @property
    def held(self) -> float:
        """Seconds of CPU with the lock held, of a process that has one thread at work at a time."""
        return self.share * self.seconds


@contextlib.contextmanager
def sampled_lock() -> Iterator[Sampled]:
    """A Sampled that is filled when the block ends."""
    room_N, own = np.zeros(3, np.int64), [0.0]
    address, shift = lock_word()

    def work() -> None:
        begun = time.thread_time()
        _sample(address, shift, room_N.ctypes.data)
        own[0] = time.thread_time() - begun

    _sample.compile((numba.int64,) * 3)
    sampler, found = threading.Thread(target=work, daemon=True), Sampled()
    sampler.start()
    while not room_N[LOOKS // 8]:
        time.sleep(0.001)
    room_N[:2] = 0
    wall, seconds = time.perf_counter(), time.process_time()
    try:
        yield found
    finally:
        looks, held = room_N[0], room_N[1]
        found.wall = time.perf_counter() - wall
        room_N[STOP // 8] = 1
        sampler.join()
        found.seconds = time.process_time() - seconds - own[0]
        found.share = float(held) / max(1, int(looks))
