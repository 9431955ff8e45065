"""Every operation once: how its arrays are made and how it is called, the tests' sizes and the benchmark's.

One file for each file of fastattn.kernels. The tests hold every operation to the oracle at the awkward sizes
(tests/kernels/cases.py), the benchmark times it at the large ones beside its peers (bench/kernel_cases.py). It lies
here and not in tests/ because tests may import whatever there is, and nobody imports tests.
"""

from bench.operations import (
    attention,
    cache_rows,
    embed,
    matmul,
    norm,
    pooling,
    recurrence,
    rotary,
    rows,
    select,
    tables,
)
from bench.operations.table import Operation

OPERATIONS: dict[str, Operation] = {
    **matmul.TABLE,
    **attention.TABLE,
    **norm.TABLE,
    **embed.TABLE,
    **select.TABLE,
    **rotary.TABLE,
    **cache_rows.TABLE,
    **recurrence.TABLE,
    **rows.TABLE,
    **pooling.TABLE,
    **tables.TABLE,
}
