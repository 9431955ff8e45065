"""Compilation, the code cache on disk, and threads: nothing about attention."""

import fastattn.system.environment  # noqa: F401  before Numba: it checks the variables that Numba reads
