"""Recurrent layers: products on the card, gates and states on the host, by the reference."""

from collections.abc import Callable, Sequence

import numpy as np

from fastattn.arguments.recurrent import Columns, States
from fastattn.ops.cuda import card
from fastattn.ops.cuda.matmul import CardLinear, linear
from fastattn.ops.reference import recurrent as reference


def _product(packed: CardLinear) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x_ND: card.download(linear(card.upload(x_ND), packed))


def _on_host(array: np.ndarray) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else card.download(array)


def recur(
    inputs_NE: np.ndarray, weights: Sequence[CardLinear], cell: str, units: int, starts_B1: np.ndarray, states: States
) -> np.ndarray:
    before_MW, after_MW = (_on_host(table) for table in (states.before_MW, states.after_MW))
    host = states._replace(before_MW=before_MW, after_MW=after_MW)
    hidden_NH = reference.recur_by(list(map(_product, weights)), _on_host(inputs_NE), cell, units, starts_B1, host)
    if after_MW is not states.after_MW:
        card.send(after_MW, states.after_MW)
    return card.upload(hidden_NH)


def join_columns(parts: Sequence[Columns]) -> np.ndarray:
    return card.upload(reference.join_columns([part._replace(rows_MW=_on_host(part.rows_MW)) for part in parts]))
