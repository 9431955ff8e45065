"""The operations of ``ops.protocol`` on an NVIDIA card, by kernels of ``numba.cuda``.

The files are those of ``fastattn.ops.cpu``. Rows and tables are arrays of the card; ``np.asarray`` copies them to the
host. Kernels run one after another in the order of the calls, and the host waits only for NumPy results.
The CPU computes attention over graphs and over windows, best keys and unit vectors: no model needs them, and their
callers' arrays lie in the host's memory.
"""

# Imported first, since its error says that numba-cuda is missing.
from fastattn.ops.cuda.card import check_card, current_threads, free_memory, thread_limit
from fastattn.ops.cuda.card import empty_for_caller as empty
from fastattn.ops.cuda.card import upload as as_rows

# isort: split
from fastattn.ops.cpu.norm import unit_vectors
from fastattn.ops.cpu.on_arrays import best_keys, graph_attention, local_attention
from fastattn.ops.cuda.attention import attention, attention_step, average_heads, pack_distances
from fastattn.ops.cuda.matmul import gated, linear, pack_linear
from fastattn.ops.cuda.norm import layer_norm, normalize_heads, rms_norm, softmax
from fastattn.ops.cuda.on_arrays import as_array, block_states, compile_function, on_host, strided_attention
from fastattn.ops.cuda.project import CardSubset as select_outputs
from fastattn.ops.cuda.project import log_probs, project_all, project_peaks, project_top_k
from fastattn.ops.cuda.recording import LaunchRecorder as recorder
from fastattn.ops.cuda.rows import (
    add_rows,
    concatenate_rows,
    convolve,
    convolve_depthwise,
    embed,
    gate_pixels,
    neighbours,
    pool,
    pool_areas,
    pool_windows,
    rotate,
    sample_pixels,
    scale_rows,
    take_rows,
    write_rows,
)
from fastattn.ops.cuda.search import nearest_rows
from fastattn.ops.cuda.steps import (
    empty_table,
    extend_table,
    gather_table,
    join_columns,
    pick_tokens,
    recur,
    round_rows,
    running_average,
    ssru,
    take_tokens,
)
from fastattn.ops.reference import (
    gate_rows,
    pack_rows,
    packed_layout,
    packed_of,
    packed_shapes,
    reads_float16,
    seen_around,
    use_threads,
)
