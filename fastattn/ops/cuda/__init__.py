"""The operations of ``ops.protocol`` on an NVIDIA card, by kernels of ``numba.cuda``.

The files are those of ``fastattn.ops.cpu``. Rows and tables are arrays of the card; ``np.asarray`` copies them to the
host. Kernels run one after another in the order of the calls, and the host waits only where a result is NumPy's.
"""

from fastattn.ops.cuda.mechanisms import best_keys, graph_attention, local_attention
from fastattn.ops.cuda.norm import layer_norm, normalize_heads, rms_norm, softmax, unit_vectors
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
    pick_tokens,
    recorder,
    round_rows,
    running_average,
    ssru,
    take_tokens,
    write_rows,
)
from fastattn.ops.cuda.threads import current_threads, thread_limit, use_threads
