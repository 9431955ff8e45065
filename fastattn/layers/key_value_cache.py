"""The key-value cache: a pool of rows of keys and values, and tables of the rows that each slot sees.

A slot is a beam of a sentence: a row of the decoding batch. A memory slot holds the rows that the slots of one
sentence, or of several with equal beginnings, share: those of its memory and of a first pass. Each step gives every
active slot one row of the pool for its new key and value; the slot's history lists its rows from its first token on.
Reordering beams copies lists of row numbers, never keys or values. A sentence that ends returns its rows; rows of beams
that ended earlier are returned when rows are short. So memory follows the tokens in use, whatever the mix of lengths.

Without a memory, a row depends only on the tokens up to its own, so histories may share first rows. Each history holds
the rows that it shares, and so do the beginnings that are kept for later sequences.
"""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from fastattn.layers.draws import uniform
from fastattn.ops.protocol import Ops
from fastattn.ops.row_pool import RowPool
from fastattn.system.records import dataclass

FIRST_POSITIONS, FIRST_MEMORY = 64, 32  # columns of the tables, which double
LEAST_ROWS = 256  # smaller pools do not shrink
KEPT_BYTES = 1 << 27  # of beginnings for later sequences


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes of the key-value cache, and limits of sequences.

    max_positions  how many tokens the decoder has positions for; 0: no limit
    layer_weights  about how many weights its layers have, without the projection
    row_widths     for each layer the width of a cached row of a target position
    memory_widths  for each layer the width of a cached row of a memory position: keys, then values; (): no memory
    row_dtype      of cached rows: uint16, the bits of bfloat16, for keys and values if products are narrower than
                   float32, since reading them bounds a step; or as ``Decoder.cache_in`` sets it
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
    """Tokens that sequences may begin with, and their rows."""

    tokens_T: np.ndarray
    rows_T: np.ndarray


class KeyValueCache:
    """Keys and values of the target positions of slots, and of the memories (encoded sources) of memory slots.

    target  a pool of rows of target positions: keys and values, or states
    memory  a pool of rows of memory positions: keys, then values
    rows, memory_rows  how many rows of each are expected
    """

    def __init__(self, ops: Ops, sizes: DecoderSizes, rows: int, memory_rows: int):
        self.target = RowPool(ops, sizes.row_widths, sizes.row_dtype, rows)
        self.memory = RowPool(ops, sizes.memory_widths, sizes.row_dtype, memory_rows)
        self.histories_RS = np.full((0, FIRST_POSITIONS), -1, np.int32)  # -1 behind each history
        self._written_RS = np.full((0, FIRST_POSITIONS), -1, np.int32)  # rows that the slot wrote itself; -1: none
        self._memory_slots_R = np.zeros(0, np.int64)
        self._keys_R = np.zeros(0, np.uint64)  # of samples; 0: none
        self._free_slots: list[int] = []
        self.memories_PS = np.zeros((0, FIRST_MEMORY), np.int32)
        self._memory_lengths_P = np.zeros(0, np.int64)
        self._users_P = np.zeros(0, np.int64)  # sentences that use each memory slot
        self._begun: dict[int, np.ndarray] = {}  # rows of a first pass, by memory slot
        self._memory_slots: dict[Hashable, int] = {}  # by the key of the beginning
        self._free_memory_slots: list[int] = []
        self._tokens_M = np.zeros(0, np.int32)
        self._attention_MS = np.zeros((0, 0), sizes.dtype)
        self._holders_M = np.zeros(0, np.int32)  # how many histories and beginnings hold each shared row
        self._held: dict[int, int] = {}  # how many first rows of a slot's history are shared
        self._beginnings: list[Beginning] = []  # the oldest first
        self.keeps = not sizes.memory_widths  # whether histories may share rows
        self._most_kept = KEPT_BYTES // max(1, sum(sizes.row_widths) * sizes.row_dtype.itemsize)

    # memory slots and slots

    def add_memory_slots(self, starts_B1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(memory_slots_B, rows_N): new memory slots, and their rows of the memory pool, which the caller writes."""
        lengths_B = np.diff(starts_B1)
        B = len(lengths_B)
        if len(self._free_memory_slots) < B:
            before, added = len(self._users_P), max(B, len(self._users_P))
            self.memories_PS = _extended(self.memories_PS, added, 0)
            self._memory_lengths_P = _extended(self._memory_lengths_P, added, 0)
            self._users_P = _extended(self._users_P, added, 0)
            self._free_memory_slots.extend(range(before + added - 1, before - 1, -1))
        memory_slots_B = np.array([self._free_memory_slots.pop() for _ in range(B)], np.int64)
        rows_N = self.memory.take(int(starts_B1[-1]))
        self.memories_PS = _widened(self.memories_PS, int(lengths_B.max(initial=0)), 0)
        columns_N = np.arange(starts_B1[-1]) - np.repeat(starts_B1[:-1], lengths_B)
        self.memories_PS[np.repeat(memory_slots_B, lengths_B), columns_N] = rows_N
        self._memory_lengths_P[memory_slots_B] = lengths_B
        return memory_slots_B, rows_N

    def add_slots(self, memory_slot: int, count: int, key: int = 0) -> np.ndarray:
        """slots_R: ``count`` slots for another sentence of the memory slot; ``key`` of a sample, see ``draws``."""
        if len(self._free_slots) < count:
            before, added = len(self.histories_RS), max(count, len(self.histories_RS))
            self.histories_RS = _extended(self.histories_RS, added, -1)
            self._written_RS = _extended(self._written_RS, added, -1)
            self._memory_slots_R = _extended(self._memory_slots_R, added, 0)
            self._keys_R = _extended(self._keys_R, added, 0)
            self._free_slots.extend(range(before + added - 1, before - 1, -1))
        slots_R = np.array([self._free_slots.pop() for _ in range(count)], np.int64)
        self._memory_slots_R[slots_R], self._keys_R[slots_R] = memory_slot, key
        self._users_P[memory_slot] += 1
        return slots_R

    def keep_beginning(self, memory_slot: int, slot: int, key: Hashable) -> None:
        """Give the slot's history so far to the memory slot: later sentences with that key start from it."""
        length = self.length(slot)
        self._begun[memory_slot] = self.histories_RS[slot, :length].copy()
        self._written_RS[slot, :length] = -1
        self._memory_slots[key] = memory_slot

    def memory_slot_of(self, key: Hashable) -> int | None:
        """The memory slot that keeps the beginning with that key, or None."""
        return self._memory_slots.get(key)

    def begin_like(self, slot: int, memory_slot: int) -> None:
        """Start the slot's history with the memory slot's beginning."""
        rows_T = self._begun[memory_slot]
        self.histories_RS[slot, : len(rows_T)] = rows_T

    def release(self, memory_slot: int, slots_R: np.ndarray) -> None:
        """Free a sentence's slots and rows, and after the memory slot's last sentence that slot's rows."""
        for slot in slots_R.tolist() if self.keeps else ():
            self._release_rows(self.histories_RS[slot, : self._held.pop(slot, 0)])
        written_RS = self._written_RS[slots_R]
        self.target.give_back(written_RS[written_RS >= 0])
        self._written_RS[slots_R] = -1
        self.histories_RS[slots_R] = -1
        self._free_slots.extend(slots_R.tolist())
        self._users_P[memory_slot] -= 1
        if not self._users_P[memory_slot]:
            self.memory.give_back(self.memories_PS[memory_slot, : self._memory_lengths_P[memory_slot]])
            self.target.give_back(self._begun.pop(memory_slot, np.zeros(0, np.int32)))
            self._memory_lengths_P[memory_slot] = 0
            self._free_memory_slots.append(memory_slot)
            self._memory_slots = {key: number for key, number in self._memory_slots.items() if number != memory_slot}

    # beginnings that several sequences have

    def shared_rows(self, slot: int, length: int) -> np.ndarray:
        """The rows of the slot's first positions, with which further histories may begin from now on."""
        held, rows_T = self._held.get(slot, 0), self.histories_RS[slot, :length].copy()
        if length > held:
            self._written_RS[slot, held:length] = -1
            self._hold(rows_T[held:])
            self._held[slot] = length
        return rows_T

    def begin_with(self, slot: int, rows_T: np.ndarray) -> None:
        """Start the slot's history with rows of ``shared_rows`` or ``longest_beginning``."""
        self.take_rows(0, len(rows_T))
        self.histories_RS[slot, : len(rows_T)] = rows_T
        self._hold(rows_T)
        self._held[slot] = len(rows_T)

    def longest_beginning(self, tokens_T: np.ndarray) -> np.ndarray:
        """rows_T of the longest common beginning of the tokens and a kept one, which counts as the newest then."""
        longest_T, newest = np.zeros(0, np.int32), 0
        for number, beginning in enumerate(self._beginnings):
            same = common_beginning(beginning.tokens_T, tokens_T)
            if same > len(longest_T):
                longest_T, newest = beginning.rows_T[:same], number
        if len(longest_T):
            self._beginnings.append(self._beginnings.pop(newest))
        return longest_T

    def keep(self, slot: int, length: int) -> None:
        """Keep the slot's first positions, as many as there is room for, for later sequences.

        The oldest beginnings go where room is short.
        """
        length = min(length, self._most_kept)
        tokens_T = self.tokens(slot, 0, length)
        common = [common_beginning(beginning.tokens_T, tokens_T) for beginning in self._beginnings]
        if length in common:  # a kept beginning begins with it
            self._beginnings.append(self._beginnings.pop(common.index(length)))
            return
        rows_T = self.shared_rows(slot, length)
        self._hold(rows_T)
        pairs = list(zip(self._beginnings, common))
        self._beginnings = [old for old, same in pairs if same < len(old.tokens_T)] + [Beginning(tokens_T, rows_T)]
        for old, same in pairs:
            if same == len(old.tokens_T):
                self._release_rows(old.rows_T)
        while self.kept_rows > self._most_kept:
            self._release_rows(self._beginnings.pop(0).rows_T)

    @property
    def kept_rows(self) -> int:
        """How many different rows the beginnings have."""
        kept_M = np.zeros(self.target.rows, bool)
        for beginning in self._beginnings:
            kept_M[beginning.rows_T] = True
        return int(kept_M.sum())

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
        """Forget the slot's positions from ``length`` on, whose rows the slot wrote itself."""
        written_T = self._written_RS[slot, length:]
        self.target.give_back(written_T[written_T >= 0])
        self._written_RS[slot, length:] = self.histories_RS[slot, length:] = -1

    @property
    def slots(self) -> int:
        """The number of slots in use."""
        return len(self.histories_RS) - len(self._free_slots)

    # for models

    def append(self, slots_N: np.ndarray, positions_N: np.ndarray, tokens_N: np.ndarray) -> np.ndarray:
        """rows_N int32: a row for each new token, at its slot and position, to which layers write keys and values."""
        rows_N = self.take_rows(len(slots_N), int(positions_N.max()))
        self.histories_RS[slots_N, positions_N] = rows_N
        self._written_RS[slots_N, positions_N] = rows_N
        self._tokens_M[rows_N] = tokens_N
        return rows_N

    def take_rows(self, count: int, last: int) -> np.ndarray:
        """rows_N int32: unused rows; the tables get room for positions up to ``last``."""
        if last >= self.histories_RS.shape[1]:
            self.histories_RS = _widened(self.histories_RS, last + 1, -1)
            self._written_RS = _widened(self._written_RS, last + 1, -1)
        if count > self.target.free:
            self._collect()
        rows_N = self.target.take(count)
        if len(self._tokens_M) < self.target.rows:
            self._tokens_M = _extended(self._tokens_M, self.target.rows - len(self._tokens_M), 0)
        return rows_N

    # for recorded steps, which write the tables themselves

    @property
    def written_tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The tables that a step writes: histories_RS, the rows that each slot wrote itself, the rows' tokens."""
        return self.histories_RS, self._written_RS, self._tokens_M

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """All arrays that a step reads or writes; where one is replaced, the step has to be recorded anew."""
        return (*self.written_tables, self.memories_PS, *self.target.layers, *self.memory.layers)

    @property
    def size(self) -> int:
        """About how many bytes the cache takes."""
        return sum(table.nbytes for table in self.tables)

    def memory_slots(self, slots_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(memory_slots_R, memory_lengths_R) of the slots."""
        memory_slots_R = self._memory_slots_R[slots_R]
        return memory_slots_R, self._memory_lengths_P[memory_slots_R]

    # for the search

    def index(self, slots_R: np.ndarray, longest: int) -> np.ndarray:
        """index_RS: the rows of each slot's history, in order, then 0."""
        return np.maximum(self.histories_RS[slots_R, :longest], 0)

    def previous(self, slots_R: np.ndarray, positions_R: np.ndarray) -> np.ndarray:
        """previous_R int32: the row of the previous position; -1 for the first position."""
        return np.where(positions_R > 0, self.histories_RS[slots_R, positions_R - 1], np.int32(-1))

    def shares(self, slots_N: np.ndarray, positions_N: np.ndarray) -> np.ndarray:
        """shares_N in [0, 1), by which hard attention draws the key of each of a sample's tokens; NaN: no sample."""
        keys_N = self._keys_R[slots_N]
        # by the complements of the positions: the search draws tokens by the positions
        return np.where(keys_N == 0, np.nan, uniform(keys_N, ~positions_N.astype(np.int64)))

    def memory_index(self, slots_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(index_RS, lengths_R): the memory rows of each slot's sentence."""
        memory_slots_R, lengths_R = self.memory_slots(slots_R)
        return np.ascontiguousarray(self.memories_PS[memory_slots_R, : lengths_R.max(initial=0)]), lengths_R

    def reorder(self, slots_R: np.ndarray, parents_R: np.ndarray, longest: int) -> None:
        """Slot r takes over the history of ``parents_R[r]``, up to ``longest`` positions."""
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
        source = self._memory_lengths_P[self._memory_slots_R[slot]]
        return self._attention_MS[self.histories_RS[slot, first:end], :source]

    # freeing memory

    def _collect(self) -> None:
        """Return the rows of dropped beams: slots wrote them and no history has them any more."""
        alive_M = np.zeros(self.target.rows, bool)
        alive_M[self.histories_RS[self.histories_RS >= 0]] = True
        dead_RS = (self._written_RS >= 0) & ~alive_M[self._written_RS]
        self.target.give_back(self._written_RS[dead_RS])
        self._written_RS[dead_RS] = -1

    def shrink(self, rows: int, memory_rows: int) -> None:
        """Shrink a pool of more than four times the expected rows; kept beginnings are expected too."""
        rows += self.kept_rows if self._beginnings else 0
        if self.target.rows > max(LEAST_ROWS, 4 * rows):
            self._collect()
            self._shrink_target(rows)
        if self.memory.rows > max(LEAST_ROWS, 4 * memory_rows):
            inside_PS = np.arange(self.memories_PS.shape[1]) < self._memory_lengths_P[:, None]
            kept_M = self.memories_PS[inside_PS]
            self.memories_PS[inside_PS] = np.arange(len(kept_M), dtype=np.int32)
            self.memory.keep_only(kept_M, max(LEAST_ROWS, len(kept_M), memory_rows))

    def _shrink_target(self, rows: int) -> None:
        inside_RS = self.histories_RS >= 0
        # Not np.unique: its first call imports a module, whose lock a process forked meanwhile would wait for for ever.
        alive_M = np.zeros(self.target.rows, bool)
        shared = (beginning.rows_T for beginning in self._beginnings)
        alive_M[np.concatenate([self.histories_RS[inside_RS], *self._begun.values(), *shared])] = True
        kept_M = np.flatnonzero(alive_M).astype(np.int32)
        rows = max(LEAST_ROWS, len(kept_M), rows)
        renumbered_M = np.zeros(self.target.rows, np.int32)
        renumbered_M[kept_M] = np.arange(len(kept_M), dtype=np.int32)
        self.histories_RS[inside_RS] = renumbered_M[self.histories_RS[inside_RS]]
        written_RS = self._written_RS >= 0
        self._written_RS[written_RS] = renumbered_M[self._written_RS[written_RS]]
        self._begun = {memory_slot: renumbered_M[rows_T] for memory_slot, rows_T in self._begun.items()}
        self._beginnings = [beginning._replace(rows_T=renumbered_M[beginning.rows_T]) for beginning in self._beginnings]
        if len(self._holders_M):
            self._hold(np.zeros(0, np.int32))  # extends it to the pool's length
            self._holders_M = _extended(self._holders_M[kept_M], rows - len(kept_M), 0)
        self._tokens_M = _extended(self._tokens_M[kept_M], rows - len(kept_M), 0)
        # Rows added since attention was last kept have none.
        attention_MS = _extended(self._attention_MS, self.target.rows - len(self._attention_MS), 0)
        self._attention_MS = _extended(attention_MS[kept_M], rows - len(kept_M), 0)
        self.target.keep_only(kept_M, rows)


def common_beginning(a_T: np.ndarray, b_T: np.ndarray) -> int:
    """How many first tokens are equal."""
    length = min(len(a_T), len(b_T))
    different = np.flatnonzero(a_T[:length] != b_T[:length])
    return int(different[0]) if len(different) else length


def _extended(values: np.ndarray, rows: int, fill: int) -> np.ndarray:
    """The array with ``rows`` more rows of ``fill``."""
    return np.concatenate([values, np.full((rows, *values.shape[1:]), fill, values.dtype)])


def _widened(table_RS: np.ndarray, columns: int, fill: int) -> np.ndarray:
    if columns <= table_RS.shape[1]:
        return table_RS
    wider_RS = np.full((len(table_RS), max(columns, 2 * table_RS.shape[1])), fill, table_RS.dtype)
    wider_RS[:, : table_RS.shape[1]] = table_RS
    return wider_RS
