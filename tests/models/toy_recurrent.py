"""A toy: a recurrent encoder-decoder with additive attention (Bahdanau 2015), its layers computed in NumPy."""

from typing import NamedTuple

import numpy as np

from fastattn.layers.attention_inputs import WholeRows
from fastattn.models.stack import Stack


class RecurrentSpec(NamedTuple):
    """A layer whose state is tanh(W x + U state); a decoder adds to W x what it attends to."""

    width: int
    vocabulary: int
    cross_attention: bool = False
    kind, layers, max_positions, projection_bias = "toy-recurrent", 1, 0, False

    def check_role(self, name):
        assert self.cross_attention == (name == "decoder")


def shapes(spec):
    names = ("embedding", "input", "state", *(("query", "key", "context", "score") if spec.cross_attention else ()))
    rows = {"embedding": spec.vocabulary, "score": 1}
    return {f"{name}.weight": (rows.get(name, spec.width), spec.width) for name in names}


class RecurrentStack(Stack):
    """Each row continues the state of the one before it, in a table of states: as in layers/blocks.py."""

    def __init__(self, parameters, name, spec):
        self.row_widths, self.memory_widths = (spec.width,), (2 * spec.width,) if spec.cross_attention else ()
        self.weights = {tensor.split(".")[0]: parameters.tensor(f"{name}.{tensor}") for tensor in shapes(spec)}

    def project_memory(self, rows_ND, last_BS=None):
        return [np.concatenate([rows_ND @ self.weights["key"].T, rows_ND], axis=1)]

    def __call__(self, ids_N, rows):
        D, x_ND = self.row_widths[0], self.weights["embedding"][ids_N] @ self.weights["input"].T
        states_MW, previous_N, rows_N = rows.states(0, x_ND)
        for n in range(len(x_ND)):
            state_D = states_MW[previous_N[n], :D] if previous_N[n] >= 0 else np.zeros(D, np.float32)
            if self.memory_widths:
                x_ND[n] += self.weights["context"] @ self.attend(state_D, *np.hsplit(self.memory_of(rows, n), 2))
            states_MW[rows_N[n], :D] = np.tanh(x_ND[n] + self.weights["state"] @ state_D)
        return states_MW[rows_N, :D].copy()

    def attend(self, state_D, key_SD, value_SD):
        weight_S = np.exp(np.tanh(key_SD + self.weights["query"] @ state_D) @ self.weights["score"][0])
        return weight_S / weight_S.sum() @ value_SD

    def memory_of(self, rows, n):
        if isinstance(rows, WholeRows):
            b = np.searchsorted(rows.starts_B1, n, side="right") - 1
            return rows.memory.keys_values[0][rows.memory.starts_B1[b] : rows.memory.starts_B1[b + 1]]
        index_RS, lengths_N, owners_N, *_ = rows.memory
        index_S = index_RS[n if owners_N is None else owners_N[n], : lengths_N[n]]
        return rows.cache.memory.layers[0][index_S, : self.memory_widths[0]]
