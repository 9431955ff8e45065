"""Layers of recurrent cells over whole sentences or a step of each, and columns that are joined to rows."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from fastattn.arguments.recurrent import Columns, States
from fastattn.ops.reference.matmul import ReferenceLinear, linear, sigmoid
from fastattn.spec.recurrent import CELLS

Product = Callable[[np.ndarray], np.ndarray]  # a direction's U h + b


def gate_rows(gates: int, units: int) -> None:
    """None: ``recur`` takes weights as they are."""


def _lstm(x_BE: np.ndarray, product: Product, h_BU: np.ndarray, c_BU: np.ndarray) -> tuple[np.ndarray, ...]:
    input_gate, forget_gate, candidate, output_gate = np.split(x_BE + product(h_BU), 4, axis=1)
    c_BU = sigmoid(forget_gate) * c_BU + sigmoid(input_gate) * np.tanh(candidate)
    return sigmoid(output_gate) * np.tanh(c_BU), c_BU


def _gru(x_BE: np.ndarray, product: Product, h_BU: np.ndarray) -> tuple[np.ndarray, ...]:
    (reset, update, candidate), (u_reset, u_update, u_candidate) = (np.split(y, 3, 1) for y in (x_BE, product(h_BU)))
    candidate = np.tanh(candidate + sigmoid(reset + u_reset) * u_candidate)
    return (candidate + sigmoid(update + u_update) * (h_BU - candidate),)


def _gru_reset_before(x_BE: np.ndarray, product: Product, h_BU: np.ndarray) -> tuple[np.ndarray, ...]:
    (reset, update, candidate), (u_reset, u_update, _) = (np.split(y, 3, axis=1) for y in (x_BE, product(h_BU)))
    *_, u_candidate = np.split(product(sigmoid(reset + u_reset) * h_BU), 3, axis=1)
    candidate = np.tanh(candidate + u_candidate)
    return (candidate + sigmoid(update + u_update) * (h_BU - candidate),)


_STEPS: dict[str, Callable] = {"lstm": _lstm, "gru": _gru, "gru_reset_before": _gru_reset_before}


def recur(
    inputs_NE: np.ndarray,
    weights: Sequence[ReferenceLinear],
    cell: str,
    units: int,
    starts_B1: np.ndarray,
    states: States,
) -> np.ndarray:
    products = [partial(linear, packed=packed) for packed in weights]
    return recur_by(products, inputs_NE, cell, units, starts_B1, states)


def recur_by(
    products: Sequence[Product], inputs_NE: np.ndarray, cell: str, units: int, starts_B1: np.ndarray, states: States
) -> np.ndarray:
    """``recur`` with the product of each direction; step t is computed for all sentences at once."""
    (gates, state_count), lengths_B = CELLS[cell], np.diff(starts_B1)
    hidden_NH = np.empty((len(inputs_NE), len(products) * units), inputs_NE.dtype)
    for d, product in enumerate(products):
        firsts = [column + d * units for column in (states.hidden, states.cell)[:state_count]]
        state = [_rows(states.before_MW[:, first : first + units], states.previous_B) for first in firsts]
        for t in range(lengths_B.max(initial=0)):
            running = np.flatnonzero(lengths_B > t)  # the sentences that have a step t
            rows = starts_B1[1:][running] - 1 - t if d else starts_B1[:-1][running] + t
            x_BE = inputs_NE[rows, d * gates * units : (d + 1) * gates * units]
            new_state = _STEPS[cell](x_BE, product, *(state_BU[running] for state_BU in state))
            for state_BU, values in zip(state, new_state, strict=True):
                state_BU[running] = values
            hidden_NH[rows, d * units : (d + 1) * units] = new_state[0]
        for state_BU, first in zip(state, firsts, strict=True):
            states.after_MW[states.rows_B, first : first + units] = state_BU
    return hidden_NH


def _rows(table_MW: np.ndarray, rows_N: np.ndarray) -> np.ndarray:
    """A copy of the rows with the numbers ``rows_N``; -1: zeros."""
    rows_NW = table_MW[rows_N]
    rows_NW[rows_N < 0] = 0
    return rows_NW


def join_columns(parts: Sequence[Columns]) -> np.ndarray:
    columns = []
    for rows_MW, first, width, rows_N in parts:
        columns_MW = rows_MW[:, first : first + width]
        columns.append(columns_MW if rows_N is None else _rows(columns_MW, rows_N))
    return np.concatenate(columns, axis=1)
