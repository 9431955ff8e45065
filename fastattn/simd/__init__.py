"""What @njit code needs and Numba lacks: vectors of the CPU's own width, their arithmetic, and register tiles.

Every operation says exactly what it computes (no fast-math flags), so a kernel gives the same bits in its serial
and in its parallel form, and whichever loop a row falls into.
"""
