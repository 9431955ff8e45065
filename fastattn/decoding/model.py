"""The Protocol of a model that can be decoded: searched, sampled, streamed and scored."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fastattn.layers.attention_inputs import LayerCache
from fastattn.models.memory import Memory
from fastattn.models.output import OutputProjection
from fastattn.models.sizes import DecoderSizes
from fastattn.ops.protocol import Ops
from fastattn.ops.step_rows import StepRows


class Model(Protocol):
    """A decoder, with or without an encoder; ids are int32. A row's results depend on its own sequence alone."""

    @property
    def ops(self) -> Ops: ...

    @property
    def sizes(self) -> DecoderSizes: ...

    @property
    def output(self) -> OutputProjection: ...

    def encode(self, ids_B: Sequence[np.ndarray]) -> Memory:
        """The sources' memory, keys and values projected; without rows if there is no encoder."""
        ...

    def keep_memory(self, cache: LayerCache, rows_N: np.ndarray, memory: Memory) -> None:
        """Write the memory's keys and values to these rows of the cache's memory pool."""
        ...

    def prefill(
        self,
        tokens_N: np.ndarray,
        starts_B1: np.ndarray,
        memory: Memory | None = None,
        *,
        attention: bool = False,
        cache: LayerCache | None = None,
        slots_B: np.ndarray | None = None,
        firsts_B: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """One causal pass over several tokens of each sequence, ragged: (hidden_ND, attention_NS or None).

        Without firsts_B: whole sequences, with their memory. With a cache, sequence b goes to slot ``slots_B[b]``.
        firsts_B  int64: chunks of sequences, which continue each slot's history in the cache at this position (0: its
                  start) and attend to the cache, memory included. Chunks have the bits of as many steps, wherever a
                  sequence is cut. A pass over whole sequences has other bits, since attention sums in another order
                  there; layers that look back without attention have the same.
        """
        ...

    def step(
        self,
        cache: LayerCache,
        slots_R: np.ndarray,
        tokens_R: np.ndarray,
        positions_R: np.ndarray,
        attention: bool = False,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """One token for each slot: (hidden_RD, attention_RS or None); adds a row a slot to the cache."""
        ...

    def step_of(self, cache: LayerCache, rows: StepRows) -> np.ndarray:
        """hidden_RD of a step to be recorded: one token for each row, none the first of its sequence.

        No position of a later run is beyond the greatest of the rows' now. The caller keeps the cache's tables of rows.
        """
        ...
