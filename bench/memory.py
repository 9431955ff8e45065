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


# A small process starts the command: the maximum of a child begins at its parent's size.
_LAUNCH = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
sys.exit(done.returncode)
"""


def peak_of_command(command: list[str], environment: dict[str, str] | None = None) -> int:
    """Resident bytes of a command's process at their peak, on Linux; RuntimeError where it fails."""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LAUNCH, *command], env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2] or f"{command[0]} ended with {done.returncode}")
    return int(done.stdout)
