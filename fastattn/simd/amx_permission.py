"""Whether this process may use Intel's tile registers (AMX), which Linux lends on request.

It asks once, before any code is compiled for a CPU that has them. Only then does a thread's saved state grow by their
8 KiB, and only while they hold something.
"""

import errno
import functools
import os
import sys

AMX = frozenset({"amx-tile", "amx-int8", "amx-bf16"})  # as LLVM names what needs a permission here
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18  # Linux's numbers: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)


@functools.cache
def refusal() -> str:
    """Why tiles cannot be used in this process, for a user to read; "" if they can."""
    if os.environ.get("FASTATTN_AMX", "").strip().lower() in ("0", "no", "off", "false"):
        return "FASTATTN_AMX switches them off"
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "only Linux on x86-64 is known to lend them"
    fault = _request()
    if fault == errno.ENOSPC:
        return "a signal stack of this process is too small for Linux to lend them"
    return f"Linux does not lend them: {os.strerror(fault)}" if fault else ""


def _request() -> int:
    """Linux's error number, or 0."""
    import ctypes  # which takes a millisecond, on CPUs with tiles alone

    library = ctypes.CDLL(None, use_errno=True)
    numbers = (ctypes.c_long(number) for number in (_ARCH_PRCTL, _REQUEST, _TILE_DATA))
    return 0 if library.syscall(*numbers) == 0 else ctypes.get_errno()
