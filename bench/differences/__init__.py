"""What `bench/differential.py` draws and compares, a file for each kind of model or input.

A kind has CHOICES, for each of its bases (a model type, a form) the values that its settings may have, and a function
compare(case, folder), which says in words what differs between fastattn and the source framework, "" if nothing does.
It raises Skipped where the framework takes no such case, and lets fastattn's own errors through. Files of ``folders``,
``gguf_files``, ``snippets`` and the templates serve the kinds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


class Skipped(Exception):
    """Raised where the source framework refuses the case."""


@dataclass(frozen=True)
class Case:
    kind: str
    base: str
    seed: int
    chosen: Mapping[str, Any]

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


def difference(name: str, ours: Any, theirs: Any, allowed: float = 1e-3) -> str:
    """In words, where two arrays differ by more than ``allowed`` of their largest number, or in infinities; else ""."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        return f"{name} has shape {ours.shape}, theirs {theirs.shape}"
    finite = np.isfinite(theirs)
    if not np.array_equal(finite, np.isfinite(ours)):
        return f"{name} is finite elsewhere than theirs"
    gap = np.abs(ours - theirs)[finite].max(initial=0.0)
    size = np.abs(theirs[finite]).max(initial=0.0)
    return "" if gap <= allowed * max(size, 1e-6) else f"{name} differs by {gap:.3g}, numbers are up to {size:.3g}"
