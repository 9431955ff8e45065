"""The operations of ``ops.protocol`` in plain NumPy: the oracle of the tests and the naive side of the benchmark.

The files are those of ``fastattn.ops.cpu``. The arithmetic runs in the dtype of the inputs, so that float64 inputs
give a float64 oracle. Only NumPy checks arguments.
"""

from fastattn.ops.device_array import as_array, on_host
from fastattn.ops.reference.attention import attention, attention_step, pack_distances, seen_around
from fastattn.ops.reference.images import (
    convolve,
    convolve_depthwise,
    gate_pixels,
    pool_areas,
    pool_windows,
    sample_pixels,
)
from fastattn.ops.reference.matmul import gated, linear, pack_linear, packed_layout, packed_of, packed_shapes
from fastattn.ops.reference.norm import layer_norm, normalize_heads, rms_norm, softmax, unit_vectors
from fastattn.ops.reference.on_arrays import (
    best_keys,
    block_states,
    compile_function,
    graph_attention,
    local_attention,
    nearest_rows,
    reads_float16,
    strided_attention,
)
from fastattn.ops.reference.project import (
    log_probs,
    pack_rows,
    project_all,
    project_peaks,
    project_top_k,
    select_outputs,
)
from fastattn.ops.reference.recurrent import gate_rows, join_columns, recur
from fastattn.ops.reference.rows import (
    add_rows,
    as_rows,
    average_heads,
    concatenate_rows,
    current_threads,
    embed,
    empty,
    free_memory,
    neighbours,
    pool,
    rotate,
    scale_rows,
    take_rows,
    thread_limit,
    use_threads,
)
from fastattn.ops.reference.steps import (
    empty_table,
    extend_table,
    gather_table,
    pick_tokens,
    recorder,
    round_rows,
    running_average,
    ssru,
    take_tokens,
    write_rows,
)
