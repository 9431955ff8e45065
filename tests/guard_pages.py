"""Memory between pages that nobody may read, which shows what is read beside an array: a fault ends the process."""

import ctypes
import mmap

import numpy as np


def guarded(size: int) -> np.ndarray:
    """At least ``size`` bytes, whole pages; not for Windows."""
    page, libc = mmap.PAGESIZE, ctypes.CDLL(None)
    inner = -(-size // page) * page
    whole = np.frombuffer(mmap.mmap(-1, inner + 2 * page), np.uint8)
    for guard in (whole.ctypes.data, whole.ctypes.data + page + inner):
        assert libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) == 0
    return whole[page : page + inner]
