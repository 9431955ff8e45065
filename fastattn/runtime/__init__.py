"""How compiled code is made, kept on disk and shared among threads: nothing about attention."""

import fastattn.environment  # noqa: F401  before Numba: it looks at what that would read
