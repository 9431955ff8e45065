"""Compiled loops, which ``fastattn.operations`` calls."""

import fastattn.runtime  # noqa: F401  before Numba: it looks at what that would read
