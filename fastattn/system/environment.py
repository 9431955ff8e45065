"""Checks the environment variables that Numba reads when it is imported; import this module first.

Numba itself would warn over several lines, or fail at the first call of a kernel. Importing this module raises
InputError for values with which kernels cannot run.
"""

import os

from fastattn.errors import InputError
from fastattn.system.cache_folder import cache_root

THREADING = ("pool", "numba")


def _check() -> None:
    cache_root()  # raises its InputError here, not in a thread of the pool
    threads = os.environ.get("NUMBA_NUM_THREADS")
    if threads is not None and not _number(threads) >= 1:
        raise InputError(f"NUMBA_NUM_THREADS should be a whole number of at least 1, is {threads!r}")
    threading = os.environ.get("FASTATTN_THREADING") or THREADING[0]
    if threading not in THREADING:
        raise InputError(f"FASTATTN_THREADING should be {' or '.join(THREADING)}, is {threading!r}")
    disabled = os.environ.get("NUMBA_DISABLE_JIT")
    if disabled is not None and _number(disabled) != 0:
        raise InputError(
            f"NUMBA_DISABLE_JIT should be 0 or unset, is {disabled!r}: without the compiler there are no kernels"
        )


def _number(text: str) -> int:
    """The number as Numba reads it; -1 for a text that is no number."""
    try:
        return int(text)
    except ValueError:
        return -1


_check()
