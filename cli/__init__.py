"""The ``fastattn`` command. Installed as ``fastattn.cli``."""

if __name__ != "fastattn.cli":
    raise ImportError("import this package as fastattn.cli (install fastattn first: pip install -e .)")

from fastattn.cli.entry import main

__all__ = ["main"]
