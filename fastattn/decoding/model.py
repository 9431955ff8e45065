"""What decoding needs of a model: any that has these members can be searched, sampled, streamed and scored."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fastattn.layers.rows import LayerCache
from fastattn.models.memory import Memory
from fastattn.models.output import Output
from fastattn.models.sizes import DecoderSizes
from fastattn.ops import Ops


class Model(Protocol):
    """A decoder, with or without an encoder; ids are int32. What a row gives depends on its own sequence alone."""

    @property
    def ops(self) -> Ops: ...

    @property
    def sizes(self) -> DecoderSizes: ...

    @property
    def output(self) -> Output: ...

    def encode(self, ids_B: Sequence[np.ndarray]) -> Memory:
        """The sources' memory, their keys and values projected; without rows where there is no encoder."""
        ...

    def keep_memory(self, cache: LayerCache, rows_N: np.ndarray, memory: Memory) -> None:
        """Write its keys and values to these rows of the cache's memory."""
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
        """Several tokens of each sequence, ragged, each after those before it: (hidden_ND, attention_NS or None).

        Whole sequences: one causal pass over them and their memory. With a cache, sequence b begins slot
        ``slots_B[b]``, where what is kept of it is kept.
        firsts_B  int64; the sequences go on instead, from the position where each slot's history in the cache ends (0:
                  from the start), and what they see, memory included, is the cache's. Such chunks have the bits of as
                  many steps, wherever a sequence is cut; a pass over whole sequences has others, since its attention
                  sums in another order, but for those layers that look back without attention.
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
        """One token for each slot: (hidden_RD, attention_RS or None). The cache gains a row a slot."""
        ...
