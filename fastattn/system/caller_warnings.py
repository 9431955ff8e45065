"""Warnings that point at the line of the caller's own code that led to them."""

import functools
import sys
import warnings


def warn(message: str) -> None:
    """Issue a UserWarning that points at the first caller outside the package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fastattn."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


warn_once = functools.cache(warn)  # a message a process
