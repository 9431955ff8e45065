"""The operations of ``fastattn.ops`` as compiled loops; ``fastattn.reference`` has them in plain NumPy."""

import fastattn.runtime  # noqa: F401  before Numba: it looks at what that would read
from fastattn.kernels.attention import attention, attention_step, pack_distances, seen_around, seen_keys
from fastattn.kernels.cache_rows import round_rows, write_rows
from fastattn.kernels.embed import embed
from fastattn.kernels.greedy import pick_tokens, take_tokens
from fastattn.kernels.matmul import gated, linear
from fastattn.kernels.norm import layer_norm, normalize_heads, rms_norm
from fastattn.kernels.output_subset import pack_rows, select_outputs
from fastattn.kernels.packing import pack_linear
from fastattn.kernels.peaks import project_peaks
from fastattn.kernels.pooling import pool
from fastattn.kernels.project import log_probs, project_all, project_top_k
from fastattn.kernels.recurrence import running_average, ssru
from fastattn.kernels.rotary import rotate
from fastattn.kernels.rows import add_rows, average_heads, concatenate_rows, empty, neighbours, scale_rows, take_rows
from fastattn.kernels.softmax import softmax
from fastattn.kernels.tables import empty_table, extend_table, gather_table
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
