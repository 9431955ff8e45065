"""The ``fastattn`` command. Installed as ``fastattn.cli``."""

if __name__ != "fastattn.cli":
    raise ImportError("import this package as fastattn.cli (install fastattn first: pip install -e .)")

import gc
import os

from fastattn.cli.interrupt import exit_on_signals


def main() -> None:
    """Entry point of the ``fastattn`` script. Signals first: an interrupt during the imports ends silently too."""
    exit_on_signals()
    gc.set_threshold(50_000)  # imports alone would start a hundred collections: 10 ms of a short command
    # NumPy's BLAS, which no command uses, would start threads, and end the process where the system gives none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from fastattn.cli.entry import run

    try:
        run()
    finally:
        gc.freeze()  # collecting the remaining objects at the process's end would take 0.1 s


__all__ = ["main"]
