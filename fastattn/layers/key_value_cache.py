"""The key-value cache: a pool of rows of keys and values, and tables of the rows that each slot sees.

A slot is a beam of a sentence: a row of the decoding batch. A memory slot holds the rows that the slots of one
sentence, or of several with equal beginnings, share: rows of the memory, and of a first pass over the target. Each step
gives every active slot one row of the pool for its new key and value; the slot's history lists its rows from the first
token on. Reordering beams copies lists of row numbers, never keys or values. A sentence that ends returns its rows, and
rows of beams that ended earlier are returned when rows are short; so memory use follows the tokens, at any lengths.

Without a memory, a row depends only on the tokens up to its own, so histories may share their first rows. The cache
counts the holders of a shared row: histories, and beginnings that are kept for later sequences.
"""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from fastattn.layers.draws import uniform
from fastattn.ops.protocol import Ops
from fastattn.ops.row_pool import RowPool
from fastattn.system.records import dataclass

FIRST_POSITIONS, FIRST_MEMORY = 64, 32  # columns of new tables, which double when needed
LEAST_ROWS = 256  # smaller pools do not shrink
BEGINNING_BYTES = 1 << 27  # at most for the rows of beginnings


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes of the key-value cache, and limits of sequences.

    max_positions  how many tokens the decoder has positions for; 0: no limit
    layer_weights  about how many weights the decoder's layers have, without the projection
    row_widths     for each layer the width of a cached row of a target position
    memory_widths  for each layer the width of a cached row of a memory position: keys, then values; (): no memory
    row_dtype      of cached rows: uint16, the bits of bfloat16, for keys and values if products are narrower than
                   float32, since reading them bounds a step; or as ``Decoder.set_cache_precision`` sets it
    dtype          of hidden states and attention weights
    records        whether steps can be recorded
    aligns         whether the decoder attends to its memory, so that calls can return the attention
    """

    max_positions: int
    vocabulary: int
    layer_weights: int
    row_widths: tuple[int, ...]
    memory_widths: tuple[int, ...]
    row_dtype: np.dtype
    dtype: np.dtype
    records: bool
    aligns: bool


class Beginning(NamedTuple):
    """Tokens that later sequences may begin with, and the rows of the pool that hold their keys and values."""

    tokens_T: np.ndarray
    rows_T: np.ndarray


class KeyValueCache:
    """Keys and values of the target positions of slots, and of the memories (encoded sources) of memory slots.

    target  a pool of rows of target positions: keys and values, or states
    memory  a pool of rows of memory positions: keys, then values
    rows, memory_rows  how many rows of each pool are expected
    Axes of arrays: R slots, P memory slots, M rows of a pool.
    """

    def __init__(self, ops: Ops, sizes: DecoderSizes, rows: int, memory_rows: int):
        self.target = RowPool(ops, sizes.row_widths, sizes.row_dtype, rows)
        self.memory = RowPool(ops, sizes.memory_widths, sizes.row_dtype, memory_rows)
        self.histories_RS = np.full((0, FIRST_POSITIONS), -1, np.int32)  # -1 behind each history
        self._written_rows_RS = np.full((0, FIRST_POSITIONS), -1, np.int32)  # rows that the slot wrote itself; -1: none
        self._memory_slots_R = np.zeros(0, np.int64)
        self._sample_keys_R = np.zeros(0, np.uint64)  # see ``draws``; 0: the slot has no sample
        self._free_slots: list[int] = []
        self.memories_PS = np.zeros((0, FIRST_MEMORY), np.int32)
        self._memory_lengths_P = np.zeros(0, np.int64)
        self._users_P = np.zeros(0, np.int64)  # how many sentences use each memory slot
        self._first_pass_rows: dict[int, np.ndarray] = {}  # by memory slot
        self._slot_by_key: dict[Hashable, int] = {}  # memory slots by the key of ``keep_first_pass``
        self._free_memory_slots: list[int] = []
        self._tokens_M = np.zeros(0, np.int32)
        self._attention_MS = np.zeros((0, 0), sizes.dtype)
        self._holders_M = np.zeros(0, np.int32)  # how many histories and beginnings hold each shared row
        self._shared_lengths: dict[int, int] = {}  # how many rows at the beginning of a slot's history are shared
        self._beginnings: list[Beginning] = []  # the oldest first
        self.shares_rows = not sizes.memory_widths  # whether histories may share rows
        self._max_kept_rows = BEGINNING_BYTES // max(1, sum(sizes.row_widths) * sizes.row_dtype.itemsize)

    # memory slots and slots

    def add_memory_slots(self, starts_B1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(memory_slots_B, rows_N): new memory slots, and their rows of the memory pool, which the caller writes."""
        lengths_B, B = np.diff(starts_B1), len(starts_B1) - 1
        if len(self._free_memory_slots) < B:
            old_count, added = len(self._users_P), max(B, len(self._users_P))
            self.memories_PS = _extended(self.memories_PS, added, 0)
            self._memory_lengths_P = _extended(self._memory_lengths_P, added, 0)
            self._users_P = _extended(self._users_P, added, 0)
            self._free_memory_slots.extend(range(old_count + added - 1, old_count - 1, -1))
        memory_slots_B = np.array([self._free_memory_slots.pop() for _ in range(B)], np.int64)
        rows_N = self.memory.take(int(starts_B1[-1]))
        self.memories_PS = _widened(self.memories_PS, int(lengths_B.max(initial=0)), 0)
        columns_N = np.arange(starts_B1[-1]) - np.repeat(starts_B1[:-1], lengths_B)
        self.memories_PS[np.repeat(memory_slots_B, lengths_B), columns_N] = rows_N
        self._memory_lengths_P[memory_slots_B] = lengths_B
        return memory_slots_B, rows_N

    def add_slots(self, memory_slot: int, count: int, key: int = 0) -> np.ndarray:
        """slots_R: ``count`` slots for another sentence of the memory slot; ``key``: the sample's (``draws``), or 0."""
        if len(self._free_slots) < count:
            old_count, added = len(self.histories_RS), max(count, len(self.histories_RS))
            self.histories_RS = _extended(self.histories_RS, added, -1)
            self._written_rows_RS = _extended(self._written_rows_RS, added, -1)
            self._memory_slots_R = _extended(self._memory_slots_R, added, 0)
            self._sample_keys_R = _extended(self._sample_keys_R, added, 0)
            self._free_slots.extend(range(old_count + added - 1, old_count - 1, -1))
        slots_R = np.array([self._free_slots.pop() for _ in range(count)], np.int64)
        self._memory_slots_R[slots_R], self._sample_keys_R[slots_R] = memory_slot, key
        self._users_P[memory_slot] += 1
        return slots_R

    def keep_first_pass(self, memory_slot: int, slot: int, key: Hashable) -> None:
        """Give the slot's history so far to the memory slot; later sentences with that key begin with this history."""
        length = self.length(slot)
        self._first_pass_rows[memory_slot] = self.histories_RS[slot, :length].copy()
        self._written_rows_RS[slot, :length] = -1
        self._slot_by_key[key] = memory_slot

    def memory_slot_of(self, key: Hashable) -> int | None:
        """The memory slot whose first pass has that key, or None."""
        return self._slot_by_key.get(key)

    def begin_with_first_pass(self, slot: int, memory_slot: int) -> None:
        """Start the slot's history with the rows of the memory slot's first pass."""
        rows_T = self._first_pass_rows[memory_slot]
        self.histories_RS[slot, : len(rows_T)] = rows_T

    def release(self, memory_slot: int, slots_R: np.ndarray) -> None:
        """Free a sentence's slots and their rows; where no other sentence uses the memory slot, free that too."""
        for slot in slots_R.tolist() if self.shares_rows else ():
            self._release_rows(self.histories_RS[slot, : self._shared_lengths.pop(slot, 0)])
        rows_RS = self._written_rows_RS[slots_R]
        self.target.give_back(rows_RS[rows_RS >= 0])
        self._written_rows_RS[slots_R] = -1
        self.histories_RS[slots_R] = -1
        self._free_slots.extend(slots_R.tolist())
        self._users_P[memory_slot] -= 1
        if not self._users_P[memory_slot]:
            self.memory.give_back(self.memories_PS[memory_slot, : self._memory_lengths_P[memory_slot]])
            self.target.give_back(self._first_pass_rows.pop(memory_slot, np.zeros(0, np.int32)))
            self._memory_lengths_P[memory_slot] = 0
            self._free_memory_slots.append(memory_slot)
            self._slot_by_key = {key: number for key, number in self._slot_by_key.items() if number != memory_slot}

    # rows that several sequences share

    def shared_rows(self, slot: int, length: int) -> np.ndarray:
        """The rows of the slot's first ``length`` positions, which other histories may share from now on."""
        shared_length, rows_T = self._shared_lengths.get(slot, 0), self.histories_RS[slot, :length].copy()
        if length > shared_length:
            self._written_rows_RS[slot, shared_length:length] = -1
            self._hold(rows_T[shared_length:])
            self._shared_lengths[slot] = length
        return rows_T

    def begin_with_rows(self, slot: int, rows_T: np.ndarray, positions: int) -> None:
        """Start the slot's history with rows of ``shared_rows`` or ``longest_beginning``.

        positions  about how many the history will have, at least those of rows_T: tables that grow end recordings
        """
        self._make_room(positions)
        self.histories_RS[slot, : len(rows_T)] = rows_T
        self._hold(rows_T)
        self._shared_lengths[slot] = len(rows_T)

    def longest_beginning(self, tokens_T: np.ndarray) -> np.ndarray:
        """rows_T of as many first tokens as any Beginning shares; that Beginning then counts as the newest."""
        rows_T, longest_index = np.zeros(0, np.int32), 0
        for index, beginning in enumerate(self._beginnings):
            common = common_length(beginning.tokens_T, tokens_T)
            if common > len(rows_T):
                rows_T, longest_index = beginning.rows_T[:common], index
        if len(rows_T):
            self._beginnings.append(self._beginnings.pop(longest_index))
        return rows_T

    def keep_beginning(self, slot: int, length: int) -> None:
        """Keep the slot's first ``length`` positions, or as many as BEGINNING_BYTES allow, for later sequences.

        Where there is no room for all beginnings, the oldest are dropped.
        """
        length = min(length, self._max_kept_rows)
        tokens_T = self.tokens(slot, 0, length)
        lengths = [common_length(beginning.tokens_T, tokens_T) for beginning in self._beginnings]
        if length in lengths:  # a kept beginning has all these tokens
            self._beginnings.append(self._beginnings.pop(lengths.index(length)))
            return
        rows_T = self.shared_rows(slot, length)
        self._hold(rows_T)
        pairs = list(zip(self._beginnings, lengths))
        self._beginnings = [old for old, common in pairs if common < len(old.tokens_T)] + [Beginning(tokens_T, rows_T)]
        for old, common in pairs:
            if common == len(old.tokens_T):  # the new beginning has all tokens of the old one
                self._release_rows(old.rows_T)
        while self.kept_rows > self._max_kept_rows:
            self._release_rows(self._beginnings.pop(0).rows_T)

    @property
    def kept_rows(self) -> int:
        """How many different rows the kept beginnings have."""
        is_kept_M = np.zeros(self.target.rows, bool)
        for beginning in self._beginnings:
            is_kept_M[beginning.rows_T] = True
        return int(is_kept_M.sum())

    def _hold(self, rows_T: np.ndarray) -> None:
        if len(self._holders_M) < self.target.rows:
            self._holders_M = _extended(self._holders_M, self.target.rows - len(self._holders_M), 0)
        self._holders_M[rows_T] += 1

    def _release_rows(self, rows_T: np.ndarray) -> None:
        self._holders_M[rows_T] -= 1
        self.target.give_back(rows_T[self._holders_M[rows_T] == 0])

    def length(self, slot: int) -> int:
        return int(np.count_nonzero(self.histories_RS[slot] >= 0))

    def cut(self, slot: int, length: int) -> None:
        """Remove the slot's positions from ``length`` on, whose rows the slot wrote itself."""
        rows_T = self._written_rows_RS[slot, length:]
        self.target.give_back(rows_T[rows_T >= 0])
        self._written_rows_RS[slot, length:] = self.histories_RS[slot, length:] = -1

    @property
    def slots(self) -> int:
        """The number of slots in use."""
        return len(self.histories_RS) - len(self._free_slots)

    # new rows for the layers

    def append(self, slots_N: np.ndarray, positions_N: np.ndarray, tokens_N: np.ndarray) -> np.ndarray:
        """rows_N int32: the row for each new token, at its slot and position; layers write keys and values there."""
        rows_N = self.take_rows(len(slots_N), int(positions_N.max()))
        self.enter(rows_N, slots_N, positions_N, tokens_N)
        return rows_N

    def enter(self, rows_N: np.ndarray, slots_N: np.ndarray, positions_N: np.ndarray, tokens_N: np.ndarray) -> None:
        """Enter taken rows in the tables, at their slots and positions."""
        self.histories_RS[slots_N, positions_N] = self._written_rows_RS[slots_N, positions_N] = rows_N
        self._tokens_M[rows_N] = tokens_N

    def take_rows(self, count: int, last_position: int) -> np.ndarray:
        """rows_N int32: unused rows; the tables get room for positions up to ``last_position``."""
        self._make_room(last_position + 1)
        if count > self.target.free_count:
            self._return_dropped_rows()
        rows_N = self.target.take(count)
        if len(self._tokens_M) < self.target.rows:
            self._tokens_M = _extended(self._tokens_M, self.target.rows - len(self._tokens_M), 0)
        return rows_N

    def _make_room(self, positions: int) -> None:
        """Give the tables of histories room for so many positions."""
        if positions > self.histories_RS.shape[1]:
            self.histories_RS = _widened(self.histories_RS, positions, -1)
            self._written_rows_RS = _widened(self._written_rows_RS, positions, -1)

    # for recorded steps, which write the tables themselves

    @property
    def written_tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The tables that a step writes: histories_RS, the rows that each slot wrote itself, the rows' tokens."""
        return self.histories_RS, self._written_rows_RS, self._tokens_M

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """All arrays that a step reads or writes; where one is replaced, the step has to be recorded anew."""
        return (*self.written_tables, self.memories_PS, *self.target.layers, *self.memory.layers)

    @property
    def size(self) -> int:
        """About how many bytes the cache takes."""
        return sum(table.nbytes for table in self.tables) + self._attention_MS.nbytes

    def memory_slots(self, slots_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(memory_slots_R, memory_lengths_R) of the slots."""
        memory_slots_R = self._memory_slots_R[slots_R]
        return memory_slots_R, self._memory_lengths_P[memory_slots_R]

    # what the layers read

    def history_index(self, slots_R: np.ndarray, longest: int) -> np.ndarray:
        """index_RS: the rows of each slot's history, in order, then 0."""
        return np.maximum(self.histories_RS[slots_R, :longest], 0)

    def previous_rows(self, slots_R: np.ndarray, positions_R: np.ndarray) -> np.ndarray:
        """rows_R int32: the row of each slot's position before ``positions_R``; -1 before the first position."""
        return np.where(positions_R > 0, self.histories_RS[slots_R, positions_R - 1], np.int32(-1))

    def drawn_shares(self, slots_N: np.ndarray, positions_N: np.ndarray) -> np.ndarray:
        """shares_N in [0, 1), by which hard attention draws a key of the memory for each token; NaN: no sample."""
        keys_N = self._sample_keys_R[slots_N]
        # Complements of the positions, since the search draws tokens with the positions themselves.
        return np.where(keys_N == 0, np.nan, uniform(keys_N, ~positions_N.astype(np.int64)))

    def memory_index(self, slots_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(index_RS, lengths_R): the memory rows of each slot's sentence."""
        memory_slots_R, lengths_R = self.memory_slots(slots_R)
        return np.ascontiguousarray(self.memories_PS[memory_slots_R, : lengths_R.max(initial=0)]), lengths_R

    # for the search

    def reorder(self, slots_R: np.ndarray, parents_R: np.ndarray, longest: int) -> None:
        """Give each slot r the history of ``parents_R[r]``, up to ``longest`` positions."""
        self.histories_RS[slots_R, :longest] = self.histories_RS[parents_R, :longest]

    def tokens(self, slot: int, first: int, end: int) -> np.ndarray:
        """The input tokens of the slot's history, positions ``first`` to ``end`` (exclusive)."""
        return self._tokens_M[self.histories_RS[slot, first:end]]

    def past(self, slots_R: np.ndarray, firsts_R: np.ndarray, lengths_R: np.ndarray) -> np.ndarray:
        """past_RT: the ``lengths_R`` tokens of each slot from position ``firsts_R`` on, then -1."""
        columns_T = np.arange(lengths_R.max(initial=0))
        inside_RT = columns_T < lengths_R[:, None]
        positions_RT = np.where(inside_RT, firsts_R[:, None] + columns_T, 0)
        return np.where(inside_RT, self._tokens_M[self.histories_RS[slots_R[:, None], positions_RT]], np.int32(-1))

    def keep_attention(self, slots_N: np.ndarray, positions_N: np.ndarray, attention_NS: np.ndarray) -> None:
        """Store the attention of appended tokens."""
        stored_MS, width = self._attention_MS, attention_NS.shape[1]
        if len(stored_MS) < self.target.rows or stored_MS.shape[1] < width:
            self._attention_MS = np.zeros((self.target.rows, max(width, stored_MS.shape[1])), stored_MS.dtype)
            self._attention_MS[: len(stored_MS), : stored_MS.shape[1]] = stored_MS
        self._attention_MS[self.histories_RS[slots_N, positions_N], :width] = attention_NS

    def attention(self, slot: int, first: int, end: int) -> np.ndarray:
        """attention_TS of the slot's positions ``first`` to ``end`` (exclusive), over its sentence's memory."""
        width = self._memory_lengths_P[self._memory_slots_R[slot]]
        return self._attention_MS[self.histories_RS[slot, first:end], :width]

    # freeing memory

    def _return_dropped_rows(self) -> None:
        """Return to the pool the rows of dropped beams, which no history has any more."""
        in_use_M = np.zeros(self.target.rows, bool)
        in_use_M[self.histories_RS[self.histories_RS >= 0]] = True
        dropped_RS = (self._written_rows_RS >= 0) & ~in_use_M[self._written_rows_RS]
        self.target.give_back(self._written_rows_RS[dropped_RS])
        self._written_rows_RS[dropped_RS] = -1

    def shrink(self, rows: int, memory_rows: int) -> None:
        """Shrink a pool of more than four times the expected rows; rows of kept beginnings are expected too."""
        rows += self.kept_rows if self._beginnings else 0
        if self.target.rows > max(LEAST_ROWS, 4 * rows):
            self._return_dropped_rows()
            self._shrink_target(rows)
        if self.memory.rows > max(LEAST_ROWS, 4 * memory_rows):
            inside_PS = np.arange(self.memories_PS.shape[1]) < self._memory_lengths_P[:, None]
            rows_M = self.memories_PS[inside_PS]
            self.memories_PS[inside_PS] = np.arange(len(rows_M), dtype=np.int32)
            self.memory.keep_only(rows_M, max(LEAST_ROWS, len(rows_M), memory_rows))

    def _shrink_target(self, rows: int) -> None:
        inside_RS = self.histories_RS >= 0
        # np.unique imports a module at its first call; a process forked meanwhile would wait for the import's lock.
        in_use_M = np.zeros(self.target.rows, bool)
        beginnings = (beginning.rows_T for beginning in self._beginnings)
        in_use_M[np.concatenate([self.histories_RS[inside_RS], *self._first_pass_rows.values(), *beginnings])] = True
        old_row_K = np.flatnonzero(in_use_M).astype(np.int32)  # by new row
        rows = max(LEAST_ROWS, len(old_row_K), rows)
        new_row_M = np.zeros(self.target.rows, np.int32)  # by old row
        new_row_M[old_row_K] = np.arange(len(old_row_K), dtype=np.int32)
        self.histories_RS[inside_RS] = new_row_M[self.histories_RS[inside_RS]]
        is_row_RS = self._written_rows_RS >= 0
        self._written_rows_RS[is_row_RS] = new_row_M[self._written_rows_RS[is_row_RS]]
        self._first_pass_rows = {slot: new_row_M[rows_T] for slot, rows_T in self._first_pass_rows.items()}
        self._beginnings = [Beginning(tokens_T, new_row_M[rows_T]) for tokens_T, rows_T in self._beginnings]
        if len(self._holders_M):
            self._hold(np.zeros(0, np.int32))  # extends the array to the pool's length
            self._holders_M = _extended(self._holders_M[old_row_K], rows - len(old_row_K), 0)
        self._tokens_M = _extended(self._tokens_M[old_row_K], rows - len(old_row_K), 0)
        # The pool may have grown since attention was last stored.
        attention_MS = _extended(self._attention_MS, self.target.rows - len(self._attention_MS), 0)
        self._attention_MS = _extended(attention_MS[old_row_K], rows - len(old_row_K), 0)
        self.target.keep_only(old_row_K, rows)


def common_length(a_T: np.ndarray, b_T: np.ndarray) -> int:
    """How many tokens are equal before the first that differs."""
    length = min(len(a_T), len(b_T))
    different = np.flatnonzero(a_T[:length] != b_T[:length])
    return int(different[0]) if len(different) else length


def _extended(values: np.ndarray, rows: int, fill: int) -> np.ndarray:
    """The array with ``rows`` more rows of ``fill``."""
    return np.concatenate([values, np.full((rows, *values.shape[1:]), fill, values.dtype)])


def _widened(table_RS: np.ndarray, columns: int, fill: int) -> np.ndarray:
    """The table with at least ``columns`` columns, new ones of ``fill``; if it has to grow, its width doubles."""
    if columns <= table_RS.shape[1]:
        return table_RS
    wider_RS = np.full((len(table_RS), max(columns, 2 * table_RS.shape[1])), fill, table_RS.dtype)
    wider_RS[:, : table_RS.shape[1]] = table_RS
    return wider_RS
