"""Vectors of the CPU's width for Numba's @njit code, their arithmetic, and register tiles.

No operation has fast-math flags, so a kernel gives the same bits serial and parallel, and a row in any of its loops.
"""
