"""Compilation, the code cache on disk, calls of kernels, and threads: nothing about attention."""

import fastattn.system.environment  # noqa: F401  checks the variables that Numba reads before Numba is imported
