"""The operations of ``ops.protocol`` in plain NumPy: the oracle of the tests and the naive side of the benchmark.

The files are those of ``fastattn.ops.cpu``. The arithmetic runs in the dtype of the inputs, so that float64 inputs
give a float64 oracle. Nothing is checked here beyond what NumPy checks.
"""

from fastattn.ops.reference.attention import attention, attention_step, pack_distances, seen_around
from fastattn.ops.reference.cache_rows import round_rows, write_rows
from fastattn.ops.reference.embed import embed
from fastattn.ops.reference.greedy import pick_tokens, recorder, take_tokens
from fastattn.ops.reference.matmul import gated, linear
from fastattn.ops.reference.norm import layer_norm, normalize_heads, rms_norm
from fastattn.ops.reference.output_subset import pack_rows, select_outputs
from fastattn.ops.reference.packing import pack_linear
from fastattn.ops.reference.peaks import project_peaks
from fastattn.ops.reference.pooling import pool
from fastattn.ops.reference.project import log_probs, project_all, project_top_k
from fastattn.ops.reference.recurrence import running_average, ssru
from fastattn.ops.reference.rotary import rotate
from fastattn.ops.reference.rows import (
    add_rows,
    average_heads,
    concatenate_rows,
    empty,
    neighbours,
    scale_rows,
    take_rows,
)
from fastattn.ops.reference.softmax import softmax
from fastattn.ops.reference.tables import empty_table, extend_table, gather_table
from fastattn.ops.reference.threads import current_threads, thread_limit, use_threads

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
