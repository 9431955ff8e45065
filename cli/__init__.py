"""The ``fastattn`` command. Installed as ``fastattn.cli``."""

if __name__ != "fastattn.cli":
    raise ImportError("import this package as fastattn.cli (install fastattn first: pip install -e .)")

import gc
import os

from fastattn.cli.interrupt import exit_on_signals


def main() -> None:
    """What the ``fastattn`` script calls. Signals come first: an interrupt during the imports ends in silence too."""
    exit_on_signals()
    # NumPy's own, which no command uses, would start threads, and end the process where there are none to be had.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from fastattn.cli.entry import run

    try:
        run()
    finally:
        gc.freeze()  # what is left ends with the process; to look through it all would take a tenth of a second


__all__ = ["main"]
