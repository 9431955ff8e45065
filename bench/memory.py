"""Resident memory of this process, from /proc: getrusage's maximum begins at the parent's size.

Imports next to nothing, so that what is measured with it is not its own.
"""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path


def resident(peak: bool = False) -> int | None:
    """Bytes of this process in memory, now or at most since it began; None where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    match = re.search(rf"^Vm{'HWM' if peak else 'RSS'}:\s+(\d+) kB", status, re.MULTILINE)
    return int(match[1]) << 10 if match else None


def extra_resident(call: Callable[[], object]) -> int | None:
    """Bytes by which the process grows at most while ``call`` runs; None where the system cannot say."""
    peak = Path("/proc/self/clear_refs")
    if not peak.exists():
        return None
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back:
        give_back(0)  # what was freed before, or the call could take that and not seem to grow
    try:
        peak.write_text("5")  # the peak begins anew
    except OSError:
        return None
    before = resident()
    call()
    after = resident(peak=True)
    return None if before is None or after is None else after - before
