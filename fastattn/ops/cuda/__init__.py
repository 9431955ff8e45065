"""The operations of ``ops.protocol`` on an NVIDIA card, by kernels of ``numba.cuda``.

The files are those of ``fastattn.ops.cpu``. Rows and tables are arrays of the card; ``np.asarray`` copies them to the
host. Kernels run one after another in the order of the calls, and the host waits only where a result is NumPy's.
"""

from fastattn.ops.cuda.attention import attention, pack_distances, seen_around
from fastattn.ops.cuda.attention_step import attention_step, average_heads
from fastattn.ops.cuda.norm import layer_norm, rms_norm
from fastattn.ops.cuda.on_arrays import block_states, compile_function, reads_float16, strided_attention
