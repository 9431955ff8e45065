"""Layers of recurrent cells over whole sentences or a step of each, and columns that are joined to rows."""

from collections.abc import Sequence

import numpy as np

from fastattn.arguments.recurrent import Columns, States
from fastattn.kernels.arguments import MR, NR, RecurrentForm
from fastattn.ops.cpu.absent import NO_INTS, NO_LONGS
from fastattn.ops.cpu.matmul import SMALL_BYTES, PackedLinear, scratch_bytes
from fastattn.runtime.arena import empty
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.recording import recorder
from fastattn.runtime.threads import current_threads
from fastattn.simd.arguments import LINE
from fastattn.spec.recurrent import CELLS

_recur, _join = kernel_named("recurrent", "_recur"), kernel_named("recurrent", "_join")
_CODES = {cell: code for code, cell in enumerate(CELLS)}
_NEVER_STOP = np.zeros(1, np.int64)


def gate_rows(gates: int, units: int) -> np.ndarray:
    unit_BGN = np.arange(-(-units // NR) * NR).reshape(-1, 1, NR)
    rows_BGN = np.arange(gates)[:, None] * units + unit_BGN
    return np.where(unit_BGN < units, rows_BGN, -1).reshape(-1)


def recur(
    inputs_NE: np.ndarray, weights: Sequence[PackedLinear], cell: str, units: int, starts_B1: np.ndarray, states: States
) -> np.ndarray:
    N, B, threads, (gates, _) = len(inputs_NE), len(starts_B1) - 1, current_threads(), CELLS[cell]
    forward, backward = (*weights, *weights)[:2]
    hidden_NH = empty((N, len(weights) * units))
    if not B:
        return hidden_NH
    if forward.panels_PSN.nbytes * (N + MR) <= SMALL_BYTES * MR:
        threads = 1
    lengths_B = np.diff(starts_B1)
    order_B = np.argsort(-lengths_B, kind="stable")
    steps, parts = int(lengths_B[order_B[0]]), -(-threads // len(weights))
    call_recorder, cuts = None, (min(parts, B), 1)  # cuts: into parts of the sentences, and of the units of a row
    # A second product, of gru_reset_before, needs all units of the first, so that units are not cut into parts.
    if N == B and steps == 1:
        order_B = NO_LONGS[1]  # a single step needs no order
        cuts = (min(threads, B), 1) if cell == "gru_reset_before" else (1, min(threads, -(-units // NR)))
    elif B < parts and steps > 1 and cell != "gru_reset_before" and (call_recorder := recorder()):
        cuts = 1, min(parts, -(-units // NR))
    form = RecurrentForm(_CODES[cell], gates, units, *cuts, call_recorder is not None)
    part_sentences = -(-B // form.sentences)
    part_bytes = (8 + 12 * units) * part_sentences + 6 * LINE + scratch_bytes(forward.panels_PSN, units, part_sentences)
    scratch_PB = empty((len(weights) * form.sentences * form.units_parts, part_bytes), np.uint8)
    arguments = (
        inputs_NE, (forward.panels_PSN, backward.panels_PSN), forward.kernel_arrays, backward.kernel_arrays, form,
        (starts_B1, order_B), states, scratch_PB, hidden_NH,
    )  # fmt: skip
    if call_recorder is None:
        _recur(*arguments)
        return hidden_NH
    scratch_PB[:, : 2 * LINE] = 0
    if program := call_recorder.record(lambda: _recur(*arguments)):
        program.run(steps, _NEVER_STOP)
    else:
        for _ in range(steps):
            _recur(*arguments)
    return hidden_NH


def join_columns(parts: Sequence[Columns]) -> np.ndarray:
    """The rows of all parts side by side, float32; tables are float32 or uint16, the bits of bfloat16."""
    (rows_MW, _, _, rows_N), *_ = parts
    N, width = len(rows_MW if rows_N is None else rows_N), sum(part.width for part in parts)
    y_NF, column = empty((N, width)), 0
    for rows_MW, first, width, rows_N in parts:
        _join(rows_MW, first, width, NO_INTS if rows_N is None else rows_N, y_NF, column)
        column += width
    return y_NF
