"""The operations of ``ops.protocol``, which check, allocate and call the compiled loops of ``fastattn.kernels``.

Nothing here imports Numba: a kernel is called through its handle (``fastattn.runtime.handle``), which finds its code at
the first call. ``fastattn.ops.reference`` has the same operations in plain NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastattn.ops.cpu.attention import attention, attention_step, pack_distances, seen_around
from fastattn.ops.cpu.cache_rows import round_rows, write_rows
from fastattn.ops.cpu.embed import embed
from fastattn.ops.cpu.greedy import pick_tokens, take_tokens
from fastattn.ops.cpu.matmul import gated, linear
from fastattn.ops.cpu.norm import layer_norm, normalize_heads, rms_norm
from fastattn.ops.cpu.output_subset import pack_rows, select_outputs
from fastattn.ops.cpu.packing import pack_linear, packed_layout, packed_of, packed_shapes
from fastattn.ops.cpu.peaks import project_peaks
from fastattn.ops.cpu.pooling import pool
from fastattn.ops.cpu.project import log_probs, project_all, project_top_k
from fastattn.ops.cpu.recurrence import running_average, ssru
from fastattn.ops.cpu.rotary import rotate
from fastattn.ops.cpu.rows import (
    add_rows,
    as_rows,
    average_heads,
    concatenate_rows,
    empty,
    neighbours,
    scale_rows,
    take_rows,
)
from fastattn.ops.cpu.softmax import softmax
from fastattn.ops.cpu.tables import empty_table, extend_table, gather_table
from fastattn.runtime.recording import recorder
from fastattn.runtime.threads import current_threads, thread_limit, use_threads

if TYPE_CHECKING:
    from fastattn.ops.cpu.on_arrays import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """Operations on callers' arrays, which no model calls, are imported when one is first used."""
        found = None if name.startswith("_") else vars(import_module("fastattn.ops.cpu.on_arrays")).get(name)
        if found is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found  # later uses find it there
        return found
