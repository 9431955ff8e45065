"""The operations of ``ops.protocol`` on the CPU: each allocates its result and calls a loop of ``fastattn.kernels``.

Nothing here imports Numba: a kernel is called through its handle (``fastattn.runtime.handle``), which loads its code at
the first call.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastattn.ops.cpu.attention import attention, attention_step, pack_distances, seen_around
from fastattn.ops.cpu.images import convolve, convolve_depthwise, gate_pixels, pool_areas, pool_windows, sample_pixels
from fastattn.ops.cpu.matmul import gated, linear, pack_linear, packed_layout, packed_of, packed_shapes
from fastattn.ops.cpu.norm import layer_norm, normalize_heads, rms_norm, softmax, unit_vectors
from fastattn.ops.cpu.project import log_probs, pack_rows, project_all, project_peaks, project_top_k, select_outputs
from fastattn.ops.cpu.recurrent import gate_rows, join_columns, recur
from fastattn.ops.cpu.rows import (
    add_rows,
    as_rows,
    average_heads,
    concatenate_rows,
    embed,
    empty,
    free_memory,
    neighbours,
    pool,
    rotate,
    scale_rows,
    take_rows,
)
from fastattn.ops.cpu.steps import (
    empty_table,
    extend_table,
    gather_table,
    pick_tokens,
    round_rows,
    running_average,
    ssru,
    take_tokens,
    write_rows,
)
from fastattn.ops.device_array import as_array, on_host
from fastattn.runtime.recording import recorder
from fastattn.runtime.threads import current_threads, thread_limit, use_threads

if TYPE_CHECKING:
    from fastattn.ops.cpu.on_arrays import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """Import the operations on callers' arrays, which no model calls, when one is first used."""
        operation = None if name.startswith("_") else vars(import_module("fastattn.ops.cpu.on_arrays")).get(name)
        if operation is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = operation  # for later uses
        return operation
