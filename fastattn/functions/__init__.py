"""Users' score and mask functions, compiled into the loops of kernels.

``plan.compile_function`` reads a function's source (source.py), rewrites it without branches (rewrite.py, straight.py),
and makes a handle whose Numba type (forms.py) names the content; kernels take handles and call what is in rows.py.
"""
