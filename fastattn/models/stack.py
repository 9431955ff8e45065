"""Stacks of layers, from a model's inputs to hidden states; the module ``stacks`` has them by kind."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fastattn.layers.attention import Bias, CrossAttention, SelfAttention, position_bias
from fastattn.layers.attention_inputs import Rows
from fastattn.layers.blocks import (
    RECURRENCES,
    AverageAttention,
    ConvolvedBlock,
    Embedding,
    FeedForward,
    Linear,
    Norm,
    ParallelSublayers,
    SimpleRecurrence,
)
from fastattn.layers.parameters import Parameters
from fastattn.spec.architecture import StackSpec
from fastattn.spec.images import PatchSpec

Sublayer = Callable[[np.ndarray, Rows], np.ndarray]


class Stack:
    """Base of all kinds of stacks, made from the tensors ``name.*``.

    dtype          of the rows
    input_dtype    of the inputs: ids, unless the kind takes rows
    bias           from a length to the bias of attention's scores in sequences up to that length
    attends        whether there is self-attention, which has to be causal in a decoder
    causal         whether an encoder's self-attention is causal
    layer_weights  about how many weights the layers have

    Of a decoder:
    records        whether a step consists of operations that can be recorded
    row_widths     for each layer the width of a cached row: keys and values, or a state
    memory_widths  for each layer the width of a cached row of the memory; (): no memory
    head_width     of cached keys and values; 0: states are cached
    rounds_rows    whether keys and values are cached as bfloat16
    aligns         whether the decoder attends to its memory
    draws          whether samples draw the keys of the memory that they attend to
    projection_precision  of the output projection; "": that of the parameters
    output_cap     of logits; 0: none
    """

    input_dtype: type = np.int32
    attends = causal = records = rounds_rows = draws = False
    aligns = True
    projection_precision = ""
    output_cap = 0.0
    head_width = 0
    row_widths: tuple[int, ...] = ()
    memory_widths: tuple[int, ...] = ()
    layer_weights = 0
    dtype = np.dtype(np.float32)
    bias: Bias = staticmethod(lambda longest: None)

    def __call__(self, inputs_N: np.ndarray, rows: Rows) -> np.ndarray:
        """The last hidden states: x_ND."""
        raise NotImplementedError

    def states(self, inputs_N: np.ndarray, rows: Rows) -> Iterator[np.ndarray]:
        """x_ND after the embedding, after each layer and at the end; the last has the bits that a call returns."""
        raise NotImplementedError

    def project_memory(self, rows_ND: np.ndarray, last_BS: np.ndarray | None = None) -> list[np.ndarray]:
        """The rows of the memory that a decoder caches for each layer: [N, width], or [B, width] for each sentence.

        rows_ND  an encoder's last hidden states
        last_BS  a recurrent encoder's states at the ends of the sentences
        """
        return []


class Block(NamedTuple):
    """The sublayers of a block (Vaswani 2017, section 3.1); the mixer combines the rows of each sequence."""

    mixer: SelfAttention | SimpleRecurrence | AverageAttention
    cross_attention: CrossAttention | None
    feed_forward: FeedForward


class AttentionStack(Stack):
    """Embedding, blocks, final norm, in every variety of a StackSpec."""

    Embedding: type = Embedding  # made with (parameters, name, spec), called with (inputs, positions, types)

    def __init__(self, parameters: Parameters, name: str, spec: StackSpec):
        self.ops, self.spec, self.causal = parameters.ops, spec, spec.causal
        self.embedding = self.Embedding(parameters, name, spec)
        self.dtype = self.embedding.dtype
        self.bias = position_bias(parameters, name, spec)
        mixer_kind = SelfAttention if spec.recurrence is None else RECURRENCES[spec.recurrence.kind]
        self.blocks = [
            Block(
                mixer_kind(parameters, layer, number, spec),
                CrossAttention(parameters, layer, number, spec) if spec.cross_attention else None,
                FeedForward(parameters, layer, spec),
            )
            for number, layer in enumerate(f"{name}.layers.{i}" for i in range(spec.layers))
        ]
        by_block: list[list[Sublayer]] = [[one for one in block if one is not None] for block in self.blocks]
        if spec.parallel:
            by_block = [[ParallelSublayers(block.mixer, block.feed_forward)] for block in self.blocks]
        if spec.convolution is not None:
            by_block[0] = [ConvolvedBlock(parameters, name, spec, spec.convolution, by_block[0])]
        self._sublayers_by_block = by_block
        self._sublayers = [sublayer for sublayers in by_block for sublayer in sublayers]
        self.final_norm = Norm(parameters, f"{name}.final_norm", spec.norms) if spec.norms.final else None
        mixer, inner = self.blocks[0].mixer, spec.feed_forward.inner_width
        self.attends, self.rounds_rows = isinstance(mixer, SelfAttention), mixer.rounds_rows
        self.head_width = spec.attention.head_width if self.attends else 0
        self.row_widths = (mixer.row_width,) * spec.layers
        self.records, self.output_cap = True, spec.output_cap
        self.memory_widths = (2 * spec.attention.key_width,) * spec.layers if spec.cross_attention else ()
        self.layer_weights = spec.layers * spec.width * (2 * inner + 6 * spec.attention.query_width)

    def __call__(self, inputs_N: np.ndarray, rows: Rows) -> np.ndarray:
        return self.transform(self.embed(inputs_N, rows), rows)

    def transform(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        """The last hidden states from the embedded inputs."""
        for sublayer in self._sublayers:
            x_ND = sublayer(x_ND, rows)
        return self._finish(x_ND)

    def states(self, inputs_N: np.ndarray, rows: Rows) -> Iterator[np.ndarray]:
        x_ND = self.embed(inputs_N, rows)
        yield x_ND
        for sublayers in self._sublayers_by_block:
            for sublayer in sublayers:
                x_ND = sublayer(x_ND, rows)
            yield x_ND
        yield self._finish(x_ND)

    def project_memory(self, rows_ND: np.ndarray, last_BS: np.ndarray | None = None) -> list[np.ndarray]:
        return [block.cross_attention.key_value(rows_ND) for block in self.blocks if block.cross_attention is not None]

    def embed(self, inputs_N: np.ndarray, rows: Rows) -> np.ndarray:
        """The inputs' rows, with positions and token types."""
        if self.spec.start_from_zero_embedding and rows.may_begin:
            inputs_N = np.where(rows.positions_N == 0, -1, inputs_N).astype(np.int32)
        x_ND: np.ndarray = self.embedding(inputs_N, rows.positions_N, rows.types_N)
        return x_ND

    def _finish(self, x_ND: np.ndarray) -> np.ndarray:
        if self.final_norm is not None:
            x_ND = self.final_norm(x_ND)
        if self.spec.output_scale != 1.0:
            x_ND = self.ops.scale_rows(x_ND, self.spec.output_scale)
        return x_ND


class PatchEmbedding:
    """A linear layer of each patch plus its position, then perhaps a norm."""

    def __init__(self, parameters: Parameters, stack: str, spec: StackSpec):
        self.ops, self.linear = parameters.ops, Linear(parameters, f"{stack}.patches")
        self.position_PD = parameters.tensor(f"{stack}.positions")
        self.dtype = self.position_PD.dtype
        self.norm = Norm(parameters, f"{stack}.embedding_norm", spec.norms) if spec.norms.embedding else None

    def __call__(
        self, patches_NE: np.ndarray, positions_N: np.ndarray, types_N: np.ndarray | None = None
    ) -> np.ndarray:
        x_ND: np.ndarray = self.linear(patches_NE, residual_NF=self.ops.embed(positions_N, self.position_PD))
        return x_ND if self.norm is None else self.norm(x_ND)


class PatchStack(AttentionStack):
    """Blocks of attention over an image's patches (Dosovitskiy 2021): a row of zeros, then rows of patches' pixels."""

    Embedding, input_dtype = PatchEmbedding, np.float32

    def __init__(self, parameters: Parameters, name: str, spec: PatchSpec):
        super().__init__(parameters, name, spec.blocks)
