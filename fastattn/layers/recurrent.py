"""Recurrent layers, and a recurrent decoder's attention over its memory."""

from typing import NamedTuple

import numpy as np

from fastattn.arguments.attention import Heads, KeyIndex
from fastattn.arguments.recurrent import States
from fastattn.layers.blocks import Linear
from fastattn.layers.draws import drawn_keys
from fastattn.layers.parameters import Parameters
from fastattn.spec.quantized import Tensor, take
from fastattn.spec.recurrent import MemoryAttention, RecurrentSpec

StateRows = tuple[np.ndarray, np.ndarray]  # a table of states, and numbers of rows in it


class RecurrentLayer:
    """From rows to their hidden states, by ``layer.{input,state,backward}``.

    column    where the layer's states begin in a row of all layers' states: h of all directions, then perhaps c
    table_VE  the embedding of ids, whose rows are the layer's first inputs; None: all inputs are rows
    words_VF  the table times the layer's input weights, if the table has at most as many rows as columns; else None
    """

    def __init__(
        self, parameters: Parameters, layer: str, spec: RecurrentSpec, column: int, table_VE: Tensor | None = None
    ):
        self.ops, self.cell, self.units = parameters.ops, spec.cell, spec.units
        order_F = input_order_F = self.ops.gate_rows(spec.gates, spec.units)
        if order_F is not None and spec.bidirectional:
            input_order_F = np.concatenate([order_F, np.where(order_F < 0, -1, order_F + spec.gates * spec.units)])
        precision = "int8" if parameters.precision == "int4" else ""  # there are no recurrent steps in int4
        table_width, self.words_VF, self.input = 0, None, None
        has_few_ids = isinstance(table_VE, np.ndarray) and len(table_VE) <= table_VE.shape[1]
        weight_FD = parameters.tensor(f"{layer}.input.weight") if has_few_ids else None
        if isinstance(table_VE, np.ndarray) and isinstance(weight_FD, np.ndarray):
            table_width = table_VE.shape[1]
            with np.errstate(all="ignore"):  # the search reports weights that are no numbers
                words_VF = table_VE @ weight_FD[:, :table_width].T + parameters.tensor(f"{layer}.input.bias")
            ordered_FV = words_VF.T if input_order_F is None else take(words_VF.T, input_order_F)
            self.words_VF = np.ascontiguousarray(ordered_FV.T)
        if not table_width or table_width < spec.inputs(0):
            self.input = parameters.packed(f"{layer}.input", precision, input_order_F, table_width)
        names = ("state", "backward")[: spec.directions]
        self.weights = [parameters.packed(f"{layer}.{name}", precision, order_F) for name in names]
        self.column, self.hidden_width = column, spec.hidden

    def __call__(
        self,
        x_ND: np.ndarray | None,
        starts_B1: np.ndarray,
        before: StateRows,
        after: StateRows,
        ids_N: np.ndarray | None = None,
    ) -> np.ndarray:
        """hidden_NH; each sentence's states are read at ``before`` and written at ``after``.

        ids_N  rows of ``words_VF``; x_ND are then the remaining inputs, or None
        """
        states = States(*before, *after, self.column, self.column + self.hidden_width)
        inputs_NE = None if ids_N is None else self.ops.embed(ids_N, self.words_VF)
        if x_ND is not None:
            inputs_NE = self.ops.linear(x_ND, self.input, residual_NF=inputs_NE)
        assert inputs_NE is not None
        return self.ops.recur(inputs_NE, self.weights, self.cell, self.units, starts_B1, states)


class StepMemory(NamedTuple):
    """The memory that the rows of a step attend to.

    keys_values_ME  a table of the rows of ``StateAttention.keys_values``
    keys            which rows of that table each row of the step sees
    steps_N         the positions of the step's rows in their sequences
    shares_N        by which hard attention draws keys, of ``KeyValueCache.drawn_shares``; None: no key is drawn
    """

    keys_values_ME: np.ndarray
    keys: KeyIndex
    steps_N: np.ndarray
    shares_N: np.ndarray | None

    def take(self, rows_K: np.ndarray) -> "StepMemory":
        """The memory of the step's rows ``rows_K`` alone."""
        owners_K = rows_K if self.keys.rows_N is None else self.keys.rows_N[rows_K]
        keys = KeyIndex(self.keys.index_RS, self.keys.stops_N[rows_K], owners_K)
        shares_K = None if self.shares_N is None else self.shares_N[rows_K]
        return self._replace(keys=keys, steps_N=self.steps_N[rows_K], shares_N=shares_K)


class StateAttention:
    """Attention of a decoder's hidden states over its memory, from ``name.{query,key,value,output,score,position}``.

    width    of a cached row of the memory: keys (none where the values are the keys), then values
    records  whether steps with this attention can be recorded: it then consists of operations alone
    """

    def __init__(self, parameters: Parameters, name: str, spec: RecurrentSpec, attention: MemoryAttention):
        self.ops, self.spec = parameters.ops, attention
        is_multi_head = attention.score == "multi-head"
        self.query = Linear(parameters, f"{name}.query") if attention.projects_query else None
        self.key = Linear(parameters, f"{name}.key") if attention.score != "dot" else None
        self.value = Linear(parameters, f"{name}.value") if is_multi_head else None
        self.output = Linear(parameters, f"{name}.output") if is_multi_head else None
        self.vector_HK = parameters.tensor(f"{name}.score.weight") if attention.score == "additive" else None
        if attention.predictive:
            self.position = Linear(parameters, f"{name}.position", "tanh")
            self.position_score = Linear(parameters, f"{name}.position_score", "sigmoid")
        width, heads = attention.width or spec.units, attention.heads
        key_width = width if self.key is not None else 0
        scale = None if is_multi_head else 1.0
        self.heads = Heads(heads, heads, width // heads, spec.context // heads, value_column=key_width, scale=scale)
        self.width, self.records = key_width + spec.context, not (attention.window or attention.hard)

    def keys_values(self, rows_ND: np.ndarray) -> list[np.ndarray]:
        """The columns of the cached rows of a memory: perhaps keys, then values; the caller joins them."""
        values_NE = rows_ND if self.value is None else self.value(rows_ND)
        return [values_NE] if self.key is None else [self.key(rows_ND), values_NE]

    def __call__(
        self, hidden_NH: np.ndarray, memory: StepMemory, wants_weights: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(context_NC, weights_NS or None)."""
        query_NK = hidden_NH if self.query is None else self.query(hidden_NH)
        weights_NHS, centres_N, index = None, None, memory.keys
        if self.spec.window:
            centres_N = self._centres(hidden_NH, memory)
            index = self._window(index, centres_N)
        if wants_weights or self.spec.hard or self.spec.predictive:
            shape = len(hidden_NH), self.heads.query_heads, index.index_RS.shape[1]
            weights_NHS = self.ops.empty(shape, hidden_NH.dtype)
        context_NC = self.ops.attention_step(
            query_NK, memory.keys_values_ME, memory.keys_values_ME, index, self.heads,
            weights_NHS=weights_NHS, vector_HK=self.vector_HK,
        )  # fmt: skip
        weights_NS = None
        if weights_NHS is not None:
            weights_NS = np.asarray(self.ops.average_heads(weights_NHS, self.heads.query_heads))
            if self.spec.hard:
                chosen_N, shares_N = weights_NS.argmax(axis=1), memory.shares_N
                if shares_N is not None:
                    chosen_N = np.where(np.isnan(shares_N), chosen_N, drawn_keys(weights_NS, shares_N))
                is_chosen_NS = np.arange(weights_NS.shape[1]) == chosen_N[:, None]
                weights_NS = is_chosen_NS * (weights_NS > 0).astype(weights_NS.dtype)
            if self.spec.predictive:
                assert centres_N is not None
                distances_NS = np.arange(weights_NS.shape[1]) - centres_N[:, None]
                gaussian_NS = np.exp(np.square(distances_NS) * (-2 / self.spec.window**2))
                weights_NS = weights_NS * gaussian_NS.astype(weights_NS.dtype)
            if self.spec.hard or self.spec.predictive:
                context_NC = self._weighted_values(weights_NS, memory.keys_values_ME, index)
        return context_NC if self.output is None else self.output(context_NC), weights_NS

    def _centres(self, hidden_NH: np.ndarray, memory: StepMemory) -> np.ndarray:
        """The centres of the rows' windows: the rows' steps, or S s(v . tanh(W h)) (Luong 2015, equation 9)."""
        if not self.spec.predictive:
            return memory.steps_N.astype(np.float64)
        fractions_N1 = np.asarray(self.position_score(self.position(hidden_NH)), np.float64)
        return fractions_N1[:, 0] * memory.keys.stops_N

    def _window(self, index: KeyIndex, centres_N: np.ndarray) -> KeyIndex:
        """The keys in the rows' windows; where a centre is no number, only the first key, whose weight is NaN."""
        centres_N = np.where(np.isfinite(centres_N), centres_N, -self.spec.window)
        firsts_N = np.ceil(centres_N - self.spec.window).astype(np.int64)
        stops_N = np.floor(centres_N + self.spec.window).astype(np.int64) + 1
        stops_N = np.minimum(stops_N, index.stops_N)
        return index._replace(firsts_N=np.clip(firsts_N, 0, stops_N), stops_N=stops_N)

    def _weighted_values(self, weights_NS: np.ndarray, keys_values_ME: np.ndarray, index: KeyIndex) -> np.ndarray:
        """The sums of the values by these weights, computed on the host."""
        owners_N = np.arange(len(weights_NS)) if index.rows_N is None else index.rows_N
        key_rows_NS, column = index.index_RS[owners_N].astype(np.int64), self.heads.value_column
        rows_KE = np.asarray(self.ops.take_rows(keys_values_ME, key_rows_NS.reshape(-1)))
        values_NSV = rows_KE[:, column : self.width].reshape(*weights_NS.shape, -1)
        values_NSV = np.where(weights_NS[:, :, None] == 0, 0, values_NSV)  # unused rows may hold anything
        return self.ops.as_rows(np.einsum("ns,nsv->nv", weights_NS, values_NSV).astype(weights_NS.dtype))
