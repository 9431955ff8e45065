"""The ``fastattn`` command. This folder is installed as the package ``fastattn.cli``."""

if __name__ != "fastattn.cli":
    raise ImportError("import this package as fastattn.cli (install fastattn first: pip install -e .)")

import gc
import os

from fastattn.cli.interrupt import exit_on_signals


def main() -> None:
    """Entry point of the ``fastattn`` script. Signals come first, so that an interrupt during imports is silent too."""
    exit_on_signals()
    gc.set_threshold(50_000)  # by default imports start a hundred collections: 10 ms of a short command
    # No command uses NumPy's BLAS, which would start threads, and end the process where the system gives none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from fastattn.cli.entry import run

    try:
        run()
    finally:
        gc.freeze()  # collecting the remaining objects at the process's end would take 0.1 s


__all__ = ["main"]
