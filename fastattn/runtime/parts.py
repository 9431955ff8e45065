"""Tasks cut into parts, one for each thread, with scratch memory for each part.

Such a kernel loops ``for part in prange(0, len(scratch_PB))`` and asks ``take_part`` for what is that part's. How many
parts there are changes no result: a task depends on no other.
"""

from fastattn.runtime.jit import inner


@inner
def take_part(scratch_PB, part, tasks):
    """(address of a part's scratch, its first task, the end of its tasks); parts are of even size."""
    parts = len(scratch_PB)
    return scratch_PB.ctypes.data + part * scratch_PB.strides[0], tasks * part // parts, tasks * (part + 1) // parts
