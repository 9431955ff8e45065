"""What Numba lacks for @njit code: vectors of the CPU's width, their arithmetic, and register tiles.

Every operation is defined exactly (no fast-math flags), so a kernel gives the same bits in its serial and in its
parallel form, and for a row in any of its loops.
"""
