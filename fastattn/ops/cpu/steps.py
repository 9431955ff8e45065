"""What a decoder keeps between steps: tables of keys and values, recurrent states, the tokens of greedy search.

Rows of a table start at a cache line and lie an odd number of lines apart: if they lay 4 KiB apart, the same head
of all keys would share 8 lines of L1. A page takes memory only once it is written.
"""

from collections.abc import Sequence

import numpy as np

from fastattn.arguments.steps import Edits, StepRows, SubsetRows
from fastattn.ops.cpu.absent import NO_INTS
from fastattn.ops.cpu.matmul import PackedLinear, empty_on_lines
from fastattn.ops.cpu.project import OutputSubset, choose
from fastattn.runtime.arena import empty
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.threads import current_threads
from fastattn.simd.arguments import LINE


def empty_table(rows: int, width: int, dtype: np.dtype) -> np.ndarray:
    line = LINE // np.dtype(dtype).itemsize
    return empty_on_lines((rows, (-(-width // line) | 1) * line), np.dtype(dtype))


def extend_table(table_ME: np.ndarray, rows: int) -> np.ndarray:
    longer_ME = empty_table(rows, table_ME.shape[1], table_ME.dtype)
    longer_ME[: len(table_ME)] = table_ME
    return longer_ME


def gather_table(table_ME: np.ndarray, rows_N: np.ndarray, rows: int) -> np.ndarray:
    gathered_ME = empty_table(rows, table_ME.shape[1], table_ME.dtype)
    np.take(table_ME, rows_N, axis=0, out=gathered_ME[: len(rows_N)], mode="clip")  # "raise" would copy twice
    return gathered_ME


_write, _round_in_place = kernel_named("steps", "_write"), kernel_named("steps", "_round_in_place")


def round_rows(values_NE: np.ndarray, first_column: int) -> None:
    _round_in_place(values_NE, first_column)


def write_rows(
    table_ME: np.ndarray, rows_N: np.ndarray, values_NE: np.ndarray, first_column: int, head_width: int = 0
) -> None:
    _write(table_ME, rows_N, values_NE, first_column, head_width)


_ssru, _running_average = kernel_named("steps", "_ssru"), kernel_named("steps", "_running_average")

COLUMNS = 64  # four cache lines of a row: a task has a multiple of them
SMALL_VALUES = 1 << 14  # that one thread finishes before a second one has started: 5 to 10 us


def _task_columns(x_ND: np.ndarray) -> int:
    """The columns of a task, whole vectors; all columns where there is little to do."""
    threads = 1 if x_ND.size <= SMALL_VALUES else current_threads()
    return -(-x_ND.shape[1] // (COLUMNS * threads)) * COLUMNS


def ssru(
    inputs_NE: np.ndarray, residual_ND: np.ndarray, states_MW: np.ndarray, previous_N: np.ndarray, rows_N: np.ndarray
) -> np.ndarray:
    y_ND, columns = empty(residual_ND.shape), _task_columns(residual_ND)
    _ssru(inputs_NE, residual_ND, states_MW, previous_N, rows_N, columns, y_ND)
    return y_ND


def running_average(
    x_ND: np.ndarray, states_MW: np.ndarray, previous_N: np.ndarray, rows_N: np.ndarray, positions_N: np.ndarray
) -> np.ndarray:
    y_ND, columns = empty(x_ND.shape), _task_columns(x_ND)
    _running_average(x_ND, states_MW, previous_N, rows_N, positions_N, columns, y_ND)
    return y_ND


_take, _pick = kernel_named("steps", "_take"), kernel_named("steps", "_pick")


def take_tokens(rows: StepRows, history_RS: np.ndarray, written_RS: np.ndarray, tokens_M: np.ndarray) -> None:
    _take(rows.inputs, rows.progress, history_RS, written_RS, tokens_M, rows.fresh_F, rows.counts)


def pick_tokens(
    hidden_RD: np.ndarray,
    outputs: PackedLinear | Sequence[OutputSubset] | SubsetRows,
    edits: Edits,
    normalized: bool,
    ends_E: np.ndarray,
    rows: StepRows,
) -> None:
    values_R1, ids_R1, _, log_sums_R = choose(hidden_RD, outputs, 1, edits, NO_INTS, normalized)
    _pick(values_R1, ids_R1, log_sums_R, normalized, ends_E, rows.progress, rows.counts)
