"""Layers, built once from a checkpoint's tensors on a namespace of operations (``fastattn.ops.cpu`` or another).

Every layer works on packed rows: N rows of any sentences, each with its position, without padding. Names in a
StackSpec are looked up when the layer is built, never while it runs.
"""
