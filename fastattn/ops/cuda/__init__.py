"""The operations of ``ops.protocol`` on an NVIDIA card, by kernels of ``numba.cuda``.

The files are those of ``fastattn.ops.cpu``. Rows and tables are arrays of the card; ``np.asarray`` copies them to the
host. Kernels run one after another in the order of the calls, and the host waits only where a result is NumPy's.
"""

from fastattn.ops.cuda.attention import attention, pack_distances
from fastattn.ops.cuda.attention_step import attention_step, average_heads
from fastattn.ops.cuda.card import check_card
from fastattn.ops.cuda.greedy import pick_tokens, take_tokens
from fastattn.ops.cuda.matmul import gated, linear, pack_linear
from fastattn.ops.cuda.mechanisms import best_keys, graph_attention, local_attention
from fastattn.ops.cuda.norm import layer_norm, normalize_heads, rms_norm, softmax, unit_vectors
from fastattn.ops.cuda.on_arrays import block_states, compile_function, strided_attention
from fastattn.ops.cuda.project import log_probs, project_all, project_peaks, project_top_k
from fastattn.ops.cuda.recording import recorder
from fastattn.ops.cuda.rows import (
    add_rows,
    as_rows,
    concatenate_rows,
    embed,
    empty,
    neighbours,
    pool,
    rotate,
    scale_rows,
    take_rows,
)
from fastattn.ops.cuda.search import nearest_rows
from fastattn.ops.cuda.steps import (
    empty_table,
    extend_table,
    gather_table,
    round_rows,
    running_average,
    ssru,
    write_rows,
)
from fastattn.ops.cuda.threads import current_threads, thread_limit, use_threads
from fastattn.ops.reference import (
    pack_rows,
    packed_layout,
    packed_of,
    packed_shapes,
    reads_float16,
    seen_around,
    select_outputs,
)
