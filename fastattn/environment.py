"""Environment variables that the compiler reads when it is imported, looked at before: it would warn, fail or hang."""

import os

from fastattn.errors import InputError


def check_environment() -> None:
    """InputError where a variable has a value that kernels cannot be compiled or run with."""
    threads = os.environ.get("NUMBA_NUM_THREADS")
    if threads is not None and not _number(threads) >= 1:
        raise InputError(f"NUMBA_NUM_THREADS should be a whole number of at least 1, is {threads!r}")
    disabled = os.environ.get("NUMBA_DISABLE_JIT")
    if disabled is not None and _number(disabled) != 0:
        raise InputError(
            f"NUMBA_DISABLE_JIT should be 0 or unset, is {disabled!r}: without the compiler there are no kernels"
        )


def _number(text: str) -> int:
    """What Numba makes of it; -1 for nothing."""
    try:
        return int(text)
    except ValueError:
        return -1
