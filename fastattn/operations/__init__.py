"""The operations of ``fastattn.ops``, which check, allocate and call the compiled loops of ``fastattn.kernels``.

Nothing here imports Numba: a kernel is called through its handle (``fastattn.runtime.handle``), which finds its code at
the first call. ``fastattn.reference`` has the same operations in plain NumPy.
"""

from fastattn.operations.attention import attention, attention_step, pack_distances, seen_around, seen_keys
from fastattn.operations.cache_rows import round_rows, write_rows
from fastattn.operations.embed import embed
from fastattn.operations.greedy import pick_tokens, take_tokens
from fastattn.operations.matmul import gated, linear
from fastattn.operations.norm import layer_norm, normalize_heads, rms_norm
from fastattn.operations.output_subset import pack_rows, select_outputs
from fastattn.operations.packing import pack_linear
from fastattn.operations.peaks import project_peaks
from fastattn.operations.pooling import pool
from fastattn.operations.project import log_probs, project_all, project_top_k
from fastattn.operations.recurrence import running_average, ssru
from fastattn.operations.rotary import rotate
from fastattn.operations.rows import add_rows, average_heads, concatenate_rows, empty, neighbours, scale_rows, take_rows
from fastattn.operations.softmax import softmax
from fastattn.operations.tables import empty_table, extend_table, gather_table
from fastattn.runtime.recording import recorder
from fastattn.runtime.threads import current_threads, thread_limit, use_threads

__all__ = [
    "add_rows",
    "attention",
    "attention_step",
    "average_heads",
    "concatenate_rows",
    "current_threads",
    "embed",
    "empty",
    "empty_table",
    "extend_table",
    "gather_table",
    "layer_norm",
    "gated",
    "linear",
    "log_probs",
    "neighbours",
    "normalize_heads",
    "pack_distances",
    "pack_linear",
    "pack_rows",
    "pick_tokens",
    "pool",
    "project_all",
    "project_peaks",
    "project_top_k",
    "recorder",
    "rms_norm",
    "rotate",
    "round_rows",
    "running_average",
    "seen_around",
    "seen_keys",
    "scale_rows",
    "softmax",
    "select_outputs",
    "ssru",
    "take_rows",
    "take_tokens",
    "thread_limit",
    "use_threads",
    "write_rows",
]
