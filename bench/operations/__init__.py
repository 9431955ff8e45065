"""Every operation: how to make its arrays and call it, the sizes for tests and for the benchmark.

One file for each file of fastattn.ops.cpu. The tests compare every operation with the oracle at the awkward sizes
(tests/kernels/cases.py), the benchmark times it at the large ones next to its peers (bench/kernel_cases.py). The table
is here and not in tests/ because tests may import everything, and nothing imports tests.
"""

from bench.operations import attention, images, matmul, norm, project, recurrent, rows, steps
from bench.operations.table import Operation

OPERATIONS: dict[str, Operation] = {
    **matmul.TABLE,
    **attention.TABLE,
    **images.TABLE,
    **norm.TABLE,
    **project.TABLE,
    **recurrent.TABLE,
    **rows.TABLE,
    **steps.TABLE,
}
