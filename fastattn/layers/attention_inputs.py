"""The rows of a pass and the keys that they may attend to: those of whole sequences, or of a key-value cache.

The classes are plain data for the layers; a lazy attribute, which only some layers need, is computed at first use.
"""

from collections.abc import Callable
from dataclasses import field

import numpy as np

from fastattn.arguments.attention import KeyIndex, PositionBias, RaggedBatch
from fastattn.arguments.steps import StepRows
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.ops.protocol import Ops
from fastattn.system.records import dataclass, lazy


@dataclass(frozen=True, eq=False)
class Memory:
    """A batch of encoded sources, for the decoder's attention: sentence b is rows starts[b] .. starts[b + 1].

    rows_ND      the encoder's last hidden states
    keys_values  for each decoder layer the keys and values of these rows side by side, [N, E], as in the cache; [] for
                 a model without an encoder
    """

    rows_ND: np.ndarray
    starts_B1: np.ndarray
    keys_values: list[np.ndarray]


@dataclass(eq=False)
class WholeRows:
    """Packed sequences, b from row starts[b] to starts[b + 1]: rows attend to their sequence.

    bias_of           from a number of positions to the stack's bias of sequences up to that length
    causal            whether a row attends to no later rows
    memory            what the rows attend to besides their sequence; None: nothing
    cache             row n is cached in the cache's row ``cached_N[n]``; None: no cache
    wants_attention   whether cross-attention sets ``attention_NS``: each row's attention over the memory
    cross_attentions  gets every layer's cross-attention, [B, heads, T, S] each; None: it is not stored
    types_N           the rows' token types; None: 0
    visible_B         int64, which rows of its sequence a row sees: the first n, for -n the last n; None: all
    shares_N          by which hard attention draws keys, of ``KeyValueCache.drawn_shares``; None: no key is drawn
    last_BS           set by recurrent encoders: the states at the ends of the sequences
    narrow            whether attention's products may be in bfloat16
    first_only        whether the last layer needs the first row of each sequence alone; no sequence is empty then
    may_begin         whether rows may be the first of their sequence; CachedRows and RecordedRows say so too
    """

    ops: Ops
    starts_B1: np.ndarray
    positions_N: np.ndarray
    bias_of: Callable[[int], PositionBias | None]
    causal: bool = False
    memory: Memory | None = None
    cache: KeyValueCache | None = None
    cached_N: np.ndarray | None = None
    wants_attention: bool = False
    cross_attentions: list[np.ndarray] | None = None
    types_N: np.ndarray | None = None
    visible_B: np.ndarray | None = None
    shares_N: np.ndarray | None = None
    narrow: bool = False
    first_only: bool = False
    attention_NS: np.ndarray | None = None
    last_BS: np.ndarray | None = None
    _batches: dict[tuple[int, int] | None, RaggedBatch] = field(default_factory=dict)
    may_begin = True

    def batch(self, window: tuple[int, int] | None = None) -> RaggedBatch:
        """The batch for ``ops.attention``: rows see the visible keys of ``window``, (before, after); None: all."""
        if window not in self._batches:
            lengths_B, seen_N2 = np.diff(self.starts_B1), None
            visible_B = lengths_B if self.visible_B is None else self.visible_B
            if window is not None or self.causal or self.visible_B is not None:
                before, after = window or (-1, -1)
                reach, stops_B = (before, 0 if self.causal else after), np.where(visible_B < 0, lengths_B, visible_B)
                seen_N2 = self.ops.seen_around(self.starts_B1, stops_B, np.zeros(1, np.int64), *reach)
                if (visible_B < 0).any():
                    firsts_N = np.repeat(np.where(visible_B < 0, lengths_B + visible_B, 0), lengths_B)
                    np.maximum(seen_N2[:, 0], firsts_N, out=seen_N2[:, 0])
            self._batches[window] = RaggedBatch(self.starts_B1, self.starts_B1, seen_N2)
        return self._batches[window]

    @lazy
    def rows_N(self) -> np.ndarray:
        """The number of each row in the cache's table of rows, or without a cache in a table of these rows alone."""
        return np.arange(self.starts_B1[-1], dtype=np.int32) if self.cached_N is None else self.cached_N

    @lazy
    def longest(self) -> int:
        """The number of rows of the longest sequence."""
        return int(np.diff(self.starts_B1).max(initial=0))

    @lazy
    def bias(self) -> PositionBias | None:
        return self.bias_of(self.longest)

    @lazy
    def previous_N(self) -> np.ndarray:
        """The row before each row; -1 where a sequence begins."""
        previous_N = np.roll(self.rows_N, 1)
        previous_N[self.starts_B1[:-1][np.diff(self.starts_B1) > 0]] = -1
        return previous_N

    def states(self, layer: int, x_ND: np.ndarray, width: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(states_MW, previous_N, rows_N): a table of states, and the table's rows of each previous and each own state.

        width  of a state; 0: that of x
        """
        if self.cache is None:
            states_MW = self.ops.empty_table(len(x_ND), width or x_ND.shape[1], x_ND.dtype)
        else:
            states_MW = self.cache.target.layers[layer]
        return states_MW, self.previous_N, self.rows_N


class CachedRows:
    """New tokens of a cache's slots; each attends to its slot's history up to itself and to the slot's memory.

    counts_R   how many tokens each slot has, in order, a chunk of its sequence; None: one token, a step
    attention  ``wants_attention`` of WholeRows
    """

    def __init__(
        self,
        cache: KeyValueCache,
        slots_R: np.ndarray,
        tokens_N: np.ndarray,
        positions_N: np.ndarray,
        bias: Callable[[int], PositionBias | None],
        counts_R: np.ndarray | None = None,
        attention: bool = False,
    ):
        self.cache, self.slots_R, self.positions_N, self.may_begin = cache, slots_R, positions_N, True
        # for each token the index of its slot in slots_R; None: token n is of slots_R[n]
        self.owners_N = None if counts_R is None else np.repeat(np.arange(len(slots_R)), counts_R)
        self.slots_N = slots_R if self.owners_N is None else slots_R[self.owners_N]
        self.rows_N = cache.append(self.slots_N, positions_N, tokens_N)
        self.types_N = None
        self.wants_attention = attention
        self.attention_NS: np.ndarray | None = None
        self._bias = bias

    @lazy
    def history(self) -> tuple[KeyIndex, PositionBias | None]:
        """The keys that the tokens see in self-attention, and the bias."""
        lengths_N = self.positions_N.astype(np.int64) + 1
        index_RS = self.cache.history_index(self.slots_R, int(lengths_N.max()))
        return KeyIndex(index_RS, lengths_N, self.owners_N), self._bias(index_RS.shape[1])

    @lazy
    def memory(self) -> KeyIndex:
        """The keys that the tokens see in cross-attention."""
        index_RS, lengths_R = self.cache.memory_index(self.slots_R)
        lengths_N = lengths_R if self.owners_N is None else lengths_R[self.owners_N]
        return KeyIndex(index_RS, lengths_N, self.owners_N)

    @lazy
    def shares_N(self) -> np.ndarray:
        return self.cache.drawn_shares(self.slots_N, self.positions_N)

    @lazy
    def previous_N(self) -> np.ndarray:
        return self.cache.previous_rows(self.slots_N, self.positions_N)

    def states(self, layer: int, x_ND: np.ndarray, width: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As in WholeRows."""
        return self.cache.target.layers[layer], self.previous_N, self.rows_N


class RecordedRows:
    """Rows of a recorded step, like CachedRows, none the first of its sequence; only StepRows' arrays change."""

    def __init__(self, cache: KeyValueCache, rows: StepRows, bias: Callable[[int], PositionBias | None]):
        self.cache, self.positions_N = cache, rows.positions_R
        self.rows_N, self.previous_N = rows.rows_R, rows.previous_R
        self.may_begin, self.wants_attention, self.types_N = False, False, None
        self.attention_NS: np.ndarray | None = None
        histories_RS, memories_PS = cache.histories_RS, cache.memories_PS
        self.history = KeyIndex(histories_RS, rows.lengths_R, rows.slots_R), bias(histories_RS.shape[1])
        self.memory = KeyIndex(memories_PS, rows.memory_lengths_R, rows.memory_slots_R)

    def states(self, layer: int, x_ND: np.ndarray, width: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As in WholeRows."""
        return self.cache.target.layers[layer], self.previous_N, self.rows_N


Rows = WholeRows | CachedRows | RecordedRows
