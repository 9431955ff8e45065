"""Resident memory of this process, from /proc: getrusage's maximum starts at the parent's size.

It imports almost nothing, so that it adds little to the measured memory.
"""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path


def resident(peak: bool = False) -> int | None:
    """Resident bytes of this process, now or at their peak; None if the system does not report them."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    match = re.search(rf"^Vm{'HWM' if peak else 'RSS'}:\s+(\d+) kB", status, re.MULTILINE)
    return int(match[1]) << 10 if match else None


def extra_resident(call: Callable[[], object]) -> int | None:
    """The bytes by which the process grows at most during ``call``; None if the system does not report them."""
    peak = Path("/proc/self/clear_refs")
    if not peak.exists():
        return None
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back:
        give_back(0)  # return freed memory first, or the call could reuse it without growing
    try:
        peak.write_text("5")  # resets the peak
    except OSError:
        return None
    before = resident()
    call()
    after = resident(peak=True)
    return None if before is None or after is None else after - before
