"""Recurrent encoders and decoders (Sutskever 2014, Cho 2014, Bahdanau 2015, Luong 2015)."""

from collections.abc import Iterator

import numpy as np

from fastattn.arguments.attention import KeyIndex
from fastattn.arguments.recurrent import Columns
from fastattn.layers.attention_inputs import CachedRows, RecordedRows, Rows, WholeRows
from fastattn.layers.blocks import Linear, check_ids
from fastattn.layers.parameters import Parameters
from fastattn.layers.recurrent import RecurrentLayer, StateAttention, StateRows, StepMemory
from fastattn.models.stack import Stack
from fastattn.spec.recurrent import RecurrentSpec

LOG_OF_ZERO = -1e30  # a finite number, so that products with it are numbers


class RecurrentStack(Stack):
    """Embedding, recurrent layers, readout. A row of states has the input fed back, then the h and c of each layer."""

    def __init__(self, parameters: Parameters, name: str, spec: RecurrentSpec):
        self.ops, self.spec = parameters.ops, spec
        self.table = None
        if spec.vocabulary and not spec.points:
            self.table = parameters.table(f"{name}.embedding.weight")
        self.dtype = parameters.tensor(f"{name}.layers.0.state.weight").dtype
        self.input_dtype = np.int32 if spec.vocabulary else np.float32
        fed_width, layer_width = spec.feeds * spec.width, spec.states // spec.layers
        columns = [fed_width + i * layer_width for i in range(spec.layers)]
        self.layers = [
            RecurrentLayer(parameters, f"{name}.layers.{i}", spec, column, None if i else self.table)
            for i, column in enumerate(columns)
        ]
        self.state_width = fed_width + spec.states
        self.readout = None
        if spec.readout.width:
            self.readout = Linear(parameters, f"{name}.readout", spec.readout.activation)
        rows = spec.gates * spec.hidden
        self.layer_weights = sum(rows * (spec.inputs(i) + spec.units) for i in range(spec.layers))

    def _embed(self, inputs_N: np.ndarray) -> np.ndarray:
        if self.table is None:
            return self.ops.as_rows(inputs_N)
        check_ids(inputs_N, self.spec.vocabulary)
        return self.ops.embed(inputs_N, self.table)

    def _join(self, *parts: np.ndarray | Columns) -> np.ndarray:
        """The parts side by side."""
        if len(parts) == 1 and not isinstance(parts[0], Columns):
            return parts[0]
        return self.ops.join_columns([x if isinstance(x, Columns) else Columns(x, 0, x.shape[1]) for x in parts])

    def _readout_rows(self, **parts: np.ndarray) -> np.ndarray:
        """The stack's output rows, from parts by their names in the spec."""
        x_NE = self._join(*(parts[name] for name in self.spec.readout.parts))
        return x_NE if self.readout is None else self.readout(x_NE)


class RecurrentEncoder(RecurrentStack):
    """Runs whole sentences, in one direction or both."""

    def __call__(self, inputs_N: np.ndarray, rows: Rows) -> np.ndarray:
        *_, x_ND = self.states(inputs_N, rows)
        return x_ND

    def states(self, inputs_N: np.ndarray, rows: Rows) -> Iterator[np.ndarray]:
        assert isinstance(rows, WholeRows)
        starts_B1, B = rows.starts_B1, len(rows.starts_B1) - 1
        if self.spec.backward:
            ends_N = np.repeat(starts_B1[:-1] + starts_B1[1:] - 1, np.diff(starts_B1))
            reversed_N = ends_N - np.arange(len(inputs_N))
            inputs_N = inputs_N[reversed_N]
        x_ND = embedded_NE = self._embed(inputs_N)
        yield x_ND
        last_BS = rows.last_BS = self.ops.empty_table(B, self.state_width, self.dtype)
        before, after = (last_BS, np.full(B, -1, np.int32)), (last_BS, np.arange(B, dtype=np.int32))
        for number, layer in enumerate(self.layers):
            reads_ids = not number and layer.words_VF is not None
            ids_N = inputs_N if reads_ids else None
            x_ND = layer(None if reads_ids else x_ND, starts_B1, before, after, ids_N)
            yield x_ND
        x_ND = self._readout_rows(hidden=x_ND, embedding=embedded_NE)
        yield self.ops.take_rows(x_ND, reversed_N) if self.spec.backward else x_ND


class RecurrentDecoder(RecurrentStack):
    """Runs steps of many sequences: a table has the states after each step, from which a later step continues."""

    def __init__(self, parameters: Parameters, name: str, spec: RecurrentSpec):
        super().__init__(parameters, name, spec)
        self.attention = None
        if spec.attention is not None:
            self.attention = StateAttention(parameters, f"{name}.attention", spec, spec.attention)
        self.bridge = None
        if spec.initial == "bridge":
            self.bridge = Linear(parameters, f"{name}.bridge", spec.initial_activation)
        self.row_widths = (self.state_width,)
        # First states have a table of their own, in the rows of the sentences' first keys; further rows stay unwritten.
        widths = () if self.attention is None else (self.attention.width,)
        self.memory_widths = widths if spec.initial == "zero" else (*widths, self.state_width)
        self.memory_widths = self.memory_widths or (1,)  # () would say that there is no source
        self.aligns = self.attention is not None
        if spec.points:
            self.projection_precision = "float32"  # the stack's rows are the outputs' logarithms already
        self.draws = spec.attention is not None and spec.attention.hard
        self.records = not spec.points and (self.attention is None or self.attention.records)

    def project_memory(self, rows_ND: np.ndarray, last_BS: np.ndarray | None = None) -> list[np.ndarray]:
        parts = [] if self.attention is None else [self._join(*self.attention.keys_values(rows_ND))]
        if self.spec.initial != "zero":
            assert last_BS is not None
            parts.append(self._first_states(last_BS))
        return parts

    def _first_states(self, last_BS: np.ndarray) -> np.ndarray:
        """states_BW before the first step, from the encoder's last states; the first input fed back is zeros."""
        states = self._join(Columns(last_BS, 0, self.spec.memory_states))
        if self.bridge is not None:
            states = self.bridge(states)
        if not self.spec.feeds:
            return states
        zeros_BD = self.ops.as_rows(np.zeros((len(states), self.spec.width), self.dtype))
        return self._join(zeros_BD, states)

    def __call__(self, ids_N: np.ndarray, rows: Rows) -> np.ndarray:
        return self._run(ids_N, rows, slice(-1, None))[0]

    def states(self, ids_N: np.ndarray, rows: Rows) -> Iterator[np.ndarray]:
        yield from self._run(ids_N, rows, slice(None))

    def _run(self, ids_N: np.ndarray, rows: Rows, levels: slice) -> list[np.ndarray]:
        """The rows after the embedding, after each layer, and of the stack; ``levels`` is a slice of these."""
        memory = self._step_memory(rows)
        x_NE = self._inputs_at(ids_N, memory) if self.spec.points and memory is not None else self._embed(ids_N)
        states_MW, previous_N, rows_N = rows.states(0, x_NE, self.state_width)
        if isinstance(rows, RecordedRows):
            return self._step(x_NE, ids_N, (states_MW, previous_N), (states_MW, rows_N), memory, False)[0][levels]
        parts, weights, row_numbers = [], [], []
        for depth, n_K in enumerate(_rows_by_depth(rows)):
            before = states_MW, previous_N[n_K]
            if not depth and self.spec.initial != "zero":
                before = self._previous_states(rows, *before, n_K)
            x_KE = x_NE if len(n_K) == len(x_NE) else self.ops.take_rows(x_NE, n_K)
            memory_K = None if memory is None else memory.take(n_K)
            after = states_MW, rows_N[n_K]
            rows_KD, weights_KS = self._step(x_KE, ids_N[n_K], before, after, memory_K, rows.wants_attention)
            parts.append(rows_KD[levels])
            row_numbers.append(n_K)
            weights.append(np.zeros((len(n_K), 0)) if weights_KS is None else weights_KS)
        if len(parts) == 1:
            rows.attention_NS = weights_KS
            return parts[0]
        inverse_N = np.argsort(np.concatenate(row_numbers)) if row_numbers else np.zeros(0, np.int64)
        if rows.wants_attention and self.attention is not None:
            rows.attention_NS = np.concatenate(weights)[inverse_N]
        parts = parts or [[self.ops.empty((0, self.spec.width), self.dtype)]]
        return [self.ops.take_rows(self.ops.concatenate_rows(level), inverse_N) for level in zip(*parts)]

    def _step(
        self,
        x_NE: np.ndarray,
        ids_N: np.ndarray,
        before: StateRows,
        after: StateRows,
        memory: StepMemory | None,
        wants_weights: bool,
    ) -> tuple[list[np.ndarray], np.ndarray | None]:
        """([x_NE, each layer's rows, the stack's rows], weights_NS or None) of a step of one token for each row.

        before, after  where the step reads the states before it, and writes those after it
        """
        spec, starts_N1 = self.spec, np.arange(len(x_NE) + 1)
        reads_ids = self.layers[0].words_VF is not None
        inputs: list[np.ndarray | Columns] = [] if reads_ids else [x_NE]
        if spec.feeds:
            inputs.append(Columns(before[0], 0, spec.width, before[1]))
        layers_before = before if spec.carries else (before[0], np.full(len(x_NE), -1, np.int32))
        parts, weights_NS, levels = {"embedding": x_NE}, None, [x_NE]
        for number, layer in enumerate([*self.layers, None]):
            if self.attention is not None and spec.attention is not None and spec.attention.after == number:
                assert memory is not None
                query = parts["hidden"] if number else Columns(before[0], self.layers[-1].column, spec.units, before[1])
                needs_weights = wants_weights or spec.points
                parts["context"], weights_NS = self.attention(self._join(query), memory, needs_weights)
                inputs.append(parts["context"])
            if layer is not None:
                x_ND, layer_ids_N = self._join(*inputs) if inputs else None, None if number or not reads_ids else ids_N
                parts["hidden"] = layer(x_ND, starts_N1, layers_before, after, layer_ids_N)
                inputs = [parts["hidden"]]
                levels.append(parts["hidden"])
        y_ND = self._log_weights(weights_NS) if spec.points and weights_NS is not None else self._readout_rows(**parts)
        if spec.feeds:
            self.ops.write_rows(*after, y_ND, 0)
        return [*levels, y_ND], weights_NS

    def _inputs_at(self, ids_N: np.ndarray, memory: StepMemory) -> np.ndarray:
        """The encoder's inputs at positions ids_N; a position beyond the source, which is rare, means the last."""
        assert self.attention is not None
        ids_N = np.minimum(ids_N, memory.keys.stops_N - 1)
        owners_N = np.arange(len(ids_N)) if memory.keys.rows_N is None else memory.keys.rows_N
        first_column = self.attention.width - self.spec.embedding_width
        input_rows_N = memory.keys.index_RS[owners_N, ids_N]
        return self._join(Columns(memory.keys_values_ME, first_column, self.spec.embedding_width, input_rows_N))

    def _log_weights(self, weights_NS: np.ndarray) -> np.ndarray:
        """The logarithms of weights over the source, as wide as the vocabulary, none below LOG_OF_ZERO."""
        logs_NV = np.full((len(weights_NS), self.spec.vocabulary), LOG_OF_ZERO, weights_NS.dtype)
        np.log(weights_NS, out=logs_NV[:, : weights_NS.shape[1]], where=weights_NS > 0)
        return self.ops.as_rows(logs_NV)

    def _previous_states(
        self, rows: WholeRows | CachedRows, states_MW: np.ndarray, previous_K: np.ndarray, n_K: np.ndarray
    ) -> StateRows:
        """Where the rows' previous states are: the sequence's first states for a row that begins its sequence."""
        begins_K, owners_K = previous_K < 0, _owners(rows)[n_K]
        if not begins_K.any():
            return states_MW, previous_K
        if isinstance(rows, CachedRows):
            first_MW, numbers_K = rows.cache.memory.layers[-1], rows.memory.index_RS[owners_K, 0]
        else:
            assert rows.memory is not None
            first_MW, numbers_K = rows.memory.keys_values[-1], owners_K.astype(np.int32)
        if begins_K.all():
            return first_MW, numbers_K
        numbers_K = np.where(begins_K, numbers_K, np.int32(-1))
        # Row -1 is zeros, so one of the two summands is zeros in each row.
        tables = (states_MW, previous_K), (first_MW, numbers_K)
        summands = (self._join(Columns(table_MW, 0, self.state_width, rows_K)) for table_MW, rows_K in tables)
        return self.ops.add_rows(*summands), np.arange(len(previous_K), dtype=np.int32)

    def _step_memory(self, rows: Rows) -> StepMemory | None:
        """What the rows of a pass attend to; None without attention."""
        if self.attention is None:
            return None
        if not isinstance(rows, WholeRows):
            shares_N = rows.shares_N if self.draws and isinstance(rows, CachedRows) else None
            return StepMemory(rows.cache.memory.layers[0], rows.memory, rows.positions_N, shares_N)
        memory, owners_N = rows.memory, _owners(rows)
        assert memory is not None
        lengths_B = np.diff(memory.starts_B1)
        columns_S = np.arange(lengths_B.max(initial=0))
        index_BS = np.where(columns_S < lengths_B[:, None], memory.starts_B1[:-1, None] + columns_S, 0)
        index = KeyIndex(index_BS.astype(np.int32), lengths_B[owners_N], owners_N)
        return StepMemory(memory.keys_values[0], index, rows.positions_N, rows.shares_N)


def _owners(rows: WholeRows | CachedRows) -> np.ndarray:
    """The number of each row's sequence; the rows are in the order of the sequences."""
    if isinstance(rows, WholeRows):
        return np.repeat(np.arange(len(rows.starts_B1) - 1), np.diff(rows.starts_B1))
    return np.arange(len(rows.rows_N)) if rows.owners_N is None else rows.owners_N


def _rows_by_depth(rows: WholeRows | CachedRows) -> list[np.ndarray]:
    """The numbers of the first rows of all sequences in the pass, of their second rows, and so on."""
    owners_N = _owners(rows)
    depths_N = np.arange(len(owners_N)) - np.searchsorted(owners_N, owners_N)
    return [np.flatnonzero(depths_N == depth) for depth in range(depths_N.max(initial=-1) + 1)]


def build_recurrent(parameters: Parameters, name: str, spec: RecurrentSpec) -> RecurrentStack:
    """The stack of an encoder or, with cross-attention in the spec, of a decoder."""
    return (RecurrentDecoder if spec.cross_attention else RecurrentEncoder)(parameters, name, spec)
