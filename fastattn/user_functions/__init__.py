"""Users' score and mask functions, compiled into the loops of kernels.

A function may use arithmetic, comparisons, ``and``, ``or``, ``not``, ``if``, loops over ``range``, indices of arrays,
what expressions.py lists of Python's, math's and NumPy's functions, and functions of this kind; numbers and arrays from
outside are read at every call. Floats are float32. Both sides of a choice are computed, so nothing raises: an index
beyond an array reads the nearest element, and a whole number divided by 0 is 0. Where keys are computed several at a
time, whole numbers that depend on the key are int32, int64 where an array of int64 or a captured number beyond 32 bits
takes part, and wrap around.

``compile_function`` (plan.py) reads a function's source (source.py), rewrites it without branches (rewrite.py,
expressions.py), and makes a handle whose Numba type (function_type.py) names the content; kernels take
handles and call what is in kernels/attention/masks.py.
"""
