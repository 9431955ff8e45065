"""The operations of the engine as compiled loops; fastattn.reference has the same names in plain NumPy."""

from fastattn.kernels.attention import attention, attention_step
from fastattn.kernels.cache_rows import round_rows, write_rows
from fastattn.kernels.embed import embed
from fastattn.kernels.matmul import linear
from fastattn.kernels.norm import layer_norm, rms_norm
from fastattn.kernels.packing import pack_linear
from fastattn.kernels.picked import pack_rows, pick
from fastattn.kernels.project import log_probs, project_all, project_top_k
from fastattn.kernels.recurrence import running_average, ssru
from fastattn.kernels.rotary import rotate
from fastattn.runtime.threads import current_threads, thread_limit, use_threads

__all__ = [
    "attention",
    "attention_step",
    "current_threads",
    "embed",
    "layer_norm",
    "linear",
    "log_probs",
    "pack_linear",
    "pack_rows",
    "pick",
    "project_all",
    "project_top_k",
    "rms_norm",
    "rotate",
    "round_rows",
    "running_average",
    "ssru",
    "thread_limit",
    "use_threads",
    "write_rows",
]
