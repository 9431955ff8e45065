"""A stack of blocks, an encoder's or a decoder's, in every variety of a StackSpec."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fastattn.layers.attention import CrossAttention, SelfAttention
from fastattn.layers.attention_inputs import Rows
from fastattn.layers.attention_positions import AttentionBias
from fastattn.layers.convolution import Convolved
from fastattn.layers.embedding import Embedding
from fastattn.layers.linear import FeedForward
from fastattn.layers.norm import Norm
from fastattn.layers.parameters import Parameters
from fastattn.layers.recurrence import RECURRENCES, AverageAttention, SimpleRecurrence
from fastattn.spec.architecture import StackSpec

Sublayer = Callable[[np.ndarray, Rows], np.ndarray]


class Block(NamedTuple):
    """The sublayers of a block (Vaswani 2017, section 3.1); the mixer combines the rows of a sequence."""

    mixer: SelfAttention | SimpleRecurrence | AverageAttention
    cross_attention: CrossAttention | None
    feed_forward: FeedForward


class Stack:
    """Embedding, blocks, final norm; from the tensors ``name.*``.

    attends             whether rows look at others of their sequence by attention
    row_width, rounded  the width of a cached row, and whether it is bfloat16: see SelfAttention
    """

    def __init__(self, parameters: Parameters, name: str, spec: StackSpec):
        self.ops, self.spec = parameters.ops, spec
        self.embedding = Embedding(parameters, name, spec)
        self.bias = AttentionBias(parameters, name, spec)
        self.blocks = [_block(parameters, f"{name}.layers.{i}", i, spec) for i in range(spec.layers)]
        self._parts: list[list[Sublayer]] = [[part for part in block if part is not None] for block in self.blocks]
        if spec.convolution is not None:
            self._parts[0] = [Convolved(parameters, name, spec, spec.convolution, self._parts[0])]
        self._sublayers = [sublayer for parts in self._parts for sublayer in parts]
        self.final_norm = Norm(parameters, f"{name}.final_norm", spec.norms) if spec.norms.final else None
        self.attends = isinstance(self.blocks[0].mixer, SelfAttention)
        self.row_width, self.rounded = self.blocks[0].mixer.row_width, self.blocks[0].mixer.rounded

    def __call__(self, ids_N: np.ndarray, rows: Rows) -> np.ndarray:
        """The last hidden states: x_ND."""
        x_ND = self._embedded(ids_N, rows)
        for sublayer in self._sublayers:
            x_ND = sublayer(x_ND, rows)
        return self._finished(x_ND)

    def states(self, ids_N: np.ndarray, rows: Rows) -> Iterator[np.ndarray]:
        """x_ND after the embedding, after each block and at the end: what a call returns, with the same bits."""
        x_ND = self._embedded(ids_N, rows)
        yield x_ND
        for parts in self._parts:
            for sublayer in parts:
                x_ND = sublayer(x_ND, rows)
            yield x_ND
        yield self._finished(x_ND)

    def _embedded(self, ids_N: np.ndarray, rows: Rows) -> np.ndarray:
        if self.spec.start_from_zero_embedding and rows.begins:
            ids_N = np.where(rows.positions_N == 0, -1, ids_N).astype(np.int32)
        return self.embedding(ids_N, rows.positions_N, rows.types_N)

    def _finished(self, x_ND: np.ndarray) -> np.ndarray:
        if self.final_norm is not None:
            x_ND = self.final_norm(x_ND)
        if self.spec.output_scale != 1.0:
            x_ND = self.ops.scale_rows(x_ND, self.spec.output_scale)
        return x_ND


def _block(parameters: Parameters, layer: str, number: int, spec: StackSpec) -> Block:
    mixer = SelfAttention if spec.recurrence is None else RECURRENCES[spec.recurrence.kind]
    return Block(
        mixer(parameters, layer, number, spec),
        CrossAttention(parameters, layer, number, spec) if spec.cross_attention else None,
        FeedForward(parameters, layer, spec),
    )
