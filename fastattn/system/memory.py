"""The system's memory: what it has left, and what this process needs no more without its knowing."""

import ctypes
import math
import mmap
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np


def return_freed_memory() -> None:
    """Have glibc return to the system what it keeps for later, in some ms; other libraries return it by themselves.

    Reading a vocabulary of 150,000 tokens leaves 80 MB of that below what stays.
    """
    trim = getattr(ctypes.pythonapi, "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def release_pages(data: "memoryview | np.ndarray") -> None:
    """Have the whole pages of a mapped file's bytes leave this process's memory; what reads them again finds them.

    Of a file mapped copy on write what was written there is lost.
    """
    owner = mapping_of(data)
    if owner is None or not hasattr(mmap, "MADV_DONTNEED"):  # Windows has none
        return
    bytes_N = np.asarray(data)
    first = bytes_N.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    begin, end = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE, (first + bytes_N.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if begin < end:
        owner.madvise(mmap.MADV_DONTNEED, begin, end - begin)


def mapping_of(data: "memoryview | np.ndarray") -> mmap.mmap | None:
    """The mapping that the bytes lie in, where it is the view's or the array's own base."""
    owner: Any = data
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, mmap.mmap) else None


def available_memory() -> float:
    """Bytes that processes may still take, of the machine and of a container's limit; infinite where no Linux tells."""
    limits = [math.inf]
    with suppress(OSError, ValueError, AttributeError):
        stated = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
        limits.append(1024 * int(stated[1]))  # type: ignore[index]
    with suppress(OSError, ValueError):  # "max" where there is no limit
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        limits.append(limit - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    return min(limits)
