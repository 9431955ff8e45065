"""Users' score and mask functions, compiled into the loops of kernels.

A function may use arithmetic, comparisons, ``and``, ``or``, ``not``, ``if``, loops over ``range``, indices of arrays,
the functions of Python, math and NumPy that rewrite.py lists, and other functions that do the same. Every call reads
outer numbers and arrays anew. Floats are float32. Both sides of a choice are computed, and nothing raises: an index
beyond an array reads the nearest element, and a whole number divided by 0 is 0. Where several keys are computed at
once, whole numbers that depend on the key wrap around: they are int32, or int64 where an array of int64 or a captured
number beyond 32 bits takes part.

``compile_function`` (plan.py) reads a function's source (source.py), rewrites it without branches (rewrite.py), and
makes a handle, whose Numba type (function_type.py) is named by a hash of all this. Kernels take handles and call the
functions of kernels/attention/masks.py.
"""
