"""The operations of ``ops.protocol`` on an NVIDIA card, by kernels of ``numba.cuda``.

The files are those of ``fastattn.ops.cpu``. Rows and tables are arrays of the card; ``np.asarray`` copies them to the
host. Kernels run one after another in the order of the calls, and the host waits only where a result is NumPy's.
"""

from fastattn.ops.cuda.matmul import gated, linear, pack_linear, packed_layout, packed_of, packed_shapes
from fastattn.ops.cuda.norm import layer_norm, rms_norm
from fastattn.ops.cuda.project import log_probs, pack_rows, project_all, project_peaks, project_top_k, select_outputs
