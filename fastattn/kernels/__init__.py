"""Compiled loops, which ``fastattn.ops.cpu`` calls."""

import fastattn.runtime  # noqa: F401  before Numba: it checks the variables that Numba reads
