"""The cache of what positions leave behind: rows handed out one at a time, and tables that say which rows a slot sees.

A slot is a row of the decoding batch; a sentence owns ``beam`` slots that lie side by side. Each step gives every
active slot one row of the pool for its new key and value, and ``history`` lists a slot's rows from its first token on.
Reordering beams copies lists of row numbers, never keys or values; a sentence that ends gives its rows back, so memory
follows the tokens that are alive, whatever the mix of long and short sentences.
"""

import numpy as np

from fastattn.ops import Ops

FIRST_POSITIONS = 32  # of the tables; they double


class RowPool:
    """Rows of E numbers for each layer, handed out by number and taken back.

    rows    how many there are expected to be; beyond them the pool doubles. Memory follows what is written.
    layers  tables [M, E], or wider, of the operations
    """

    def __init__(self, ops: Ops, layers: int, row_width: int, dtype: np.dtype, rows: int):
        self.ops = ops
        self.layers = [ops.empty_table(rows, row_width, dtype) for _ in range(layers)]
        self._free = np.arange(rows, dtype=np.int32)
        self._free_count = rows

    @property
    def rows(self) -> int:
        return len(self._free)

    def take(self, count: int) -> np.ndarray:
        """The numbers of ``count`` unused rows, int32."""
        if count > self._free_count:
            self._grow(count - self._free_count)
        self._free_count -= count
        return self._free[self._free_count : self._free_count + count].copy()

    def give_back(self, rows: np.ndarray) -> None:
        self._free[self._free_count : self._free_count + len(rows)] = rows
        self._free_count += len(rows)

    def _grow(self, needed: int) -> None:
        old = self.rows
        new = max(2 * old, old + needed)
        for layer, values_ME in enumerate(self.layers):
            self.layers[layer] = self.ops.extend_table(values_ME, new)
        free = np.empty(new, np.int32)
        free[: self._free_count] = self._free[: self._free_count]
        free[self._free_count : self._free_count + new - old] = np.arange(old, new)
        self._free, self._free_count = free, self._free_count + new - old


class Cache:
    """What is kept of the positions of ``sentences * beam`` slots, and the sentences' memories.

    own        a pool of rows for positions: of keys and values, or of a state that took in all positions up to it
    memory     a pool of rows for the positions of memories: their keys, then their values
    attention  of this type is what each row attends to in its sentence's memory; None: it is not kept
    """

    def __init__(self, own: RowPool, memory: RowPool, sentences: int, beam: int, attention: np.dtype | None = None):
        self.beam, self.own, self.memory = beam, own, memory
        slots = sentences * beam
        self.history_RS = np.zeros((slots, FIRST_POSITIONS), np.int32)
        self._written_RS = np.full((slots, FIRST_POSITIONS), -1, np.int32)  # by the slot itself; -1: nothing
        self._memory_BS = np.zeros((sentences, FIRST_POSITIONS), np.int32)
        self._memory_lengths_B = np.zeros(sentences, np.int64)
        self._tokens_M = np.zeros(0, np.int32)
        self._attention_MS = None if attention is None else np.zeros((0, 0), attention)

    def add_memory(self, sentences_B: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        """Rows for the memories of new sentences, end to end: int32 N, written by the caller layer by layer."""
        lengths_B = np.diff(starts_B1)
        rows_N = self.memory.take(int(starts_B1[-1]))
        self._memory_BS = _widened(self._memory_BS, int(lengths_B.max(initial=0)), 0)
        columns_N = np.arange(starts_B1[-1]) - np.repeat(starts_B1[:-1], lengths_B)
        self._memory_BS[np.repeat(sentences_B, lengths_B), columns_N] = rows_N
        self._memory_lengths_B[sentences_B] = lengths_B
        return rows_N

    def append(self, slots_N: np.ndarray, positions_N: np.ndarray, tokens_N: np.ndarray) -> np.ndarray:
        """Rows for one new token a (slot, position): int32 N. The keys and values are written layer by layer."""
        positions = int(positions_N.max()) + 1
        self.history_RS = _widened(self.history_RS, positions, 0)
        self._written_RS = _widened(self._written_RS, positions, -1)
        rows_N = self.own.take(len(slots_N))
        self.history_RS[slots_N, positions_N] = rows_N
        self._written_RS[slots_N, positions_N] = rows_N
        if len(self._tokens_M) < self.own.rows:
            self._tokens_M = _lengthened(self._tokens_M, self.own.rows)
        self._tokens_M[rows_N] = tokens_N
        return rows_N

    def index(self, slots_R: np.ndarray, longest: int) -> np.ndarray:
        """index_RS: the rows that each slot sees, in order."""
        return np.ascontiguousarray(self.history_RS[slots_R, :longest])

    def previous(self, slots_R: np.ndarray, positions_R: np.ndarray) -> np.ndarray:
        """previous_R: the row of the position before, int32; -1 where that is the first."""
        return np.where(positions_R > 0, self.history_RS[slots_R, positions_R - 1], np.int32(-1))

    def memory_index(self, slots_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(index_RS, lengths_R): the memory rows of each slot's sentence."""
        sentences_R = slots_R // self.beam
        lengths_R = self._memory_lengths_B[sentences_R]
        return np.ascontiguousarray(self._memory_BS[sentences_R, : lengths_R.max(initial=0)]), lengths_R

    def keep_attention(self, slots_N: np.ndarray, positions_N: np.ndarray, attention_NS: np.ndarray) -> None:
        """Store what the given, just appended tokens attended to."""
        assert self._attention_MS is not None
        attention_MS = self._attention_MS
        width = max(attention_MS.shape[1], attention_NS.shape[1])
        if attention_MS.shape != (self.own.rows, width):
            self._attention_MS = np.zeros((self.own.rows, width), attention_MS.dtype)
            self._attention_MS[: len(attention_MS), : attention_MS.shape[1]] = attention_MS
        self._attention_MS[self.history_RS[slots_N, positions_N], : attention_NS.shape[1]] = attention_NS

    def reorder(self, slots_R: np.ndarray, parents_R: np.ndarray, longest: int) -> None:
        """Slot r continues what ``parents_R[r]`` has seen so far, up to ``longest`` positions."""
        self.history_RS[slots_R, :longest] = self.history_RS[parents_R, :longest]

    def tokens(self, slot: int, length: int) -> np.ndarray:
        """The first ``length`` tokens that the slot's history was fed."""
        return self._tokens_M[self.history_RS[slot, :length]]

    def past(self, slots_R: np.ndarray, firsts_R: np.ndarray, lengths_R: np.ndarray) -> np.ndarray:
        """past_RT: the ``lengths_R`` tokens of each slot from position ``firsts_R`` on, -1 behind them."""
        columns_T = np.arange(lengths_R.max(initial=0))
        inside_RT = columns_T < lengths_R[:, None]
        positions_RT = np.where(inside_RT, firsts_R[:, None] + columns_T, 0)
        return np.where(inside_RT, self._tokens_M[self.history_RS[slots_R[:, None], positions_RT]], np.int32(-1))

    def attention(self, slot: int, length: int) -> np.ndarray:
        """attention_TS of the slot's first ``length`` tokens over its sentence's memory."""
        assert self._attention_MS is not None
        source = self._memory_lengths_B[slot // self.beam]
        return self._attention_MS[self.history_RS[slot, :length], :source]

    def release(self, sentences_B: np.ndarray) -> None:
        """Take back everything that the sentences hold."""
        slots_R = (sentences_B[:, None] * self.beam + np.arange(self.beam)).ravel()
        written_RS = self._written_RS[slots_R]
        self.own.give_back(written_RS[written_RS >= 0])
        self._written_RS[slots_R] = -1
        for sentence in sentences_B:
            self.memory.give_back(self._memory_BS[sentence, : self._memory_lengths_B[sentence]])
        self._memory_lengths_B[sentences_B] = 0


def _lengthened(values: np.ndarray, rows: int) -> np.ndarray:
    longer = np.empty((rows, *values.shape[1:]), values.dtype)
    longer[: len(values)] = values
    return longer


def _widened(table_RS: np.ndarray, columns: int, fill: int) -> np.ndarray:
    if columns <= table_RS.shape[1]:
        return table_RS
    wider_RS = np.full((len(table_RS), max(columns, 2 * table_RS.shape[1])), fill, table_RS.dtype)
    wider_RS[:, : table_RS.shape[1]] = table_RS
    return wider_RS
