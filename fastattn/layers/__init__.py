"""Layers, built once from a checkpoint's tensors on a namespace of operations (``fastattn.kernels`` or another).

Every layer works on packed rows: N rows of any sentences, each with its position; none knows of padding. What a
StackSpec names by a string is looked up in a dictionary when the layer is built, never while it runs.
"""
