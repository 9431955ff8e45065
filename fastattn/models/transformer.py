"""The Transformer encoder-decoder (Vaswani 2017): the encoder's stack, and a decoder with a cached step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.layers import AttentionBias, Embedding, FeedForward, Linear, Norm, Parameters
from fastattn.lazy import lazy
from fastattn.models.autoregression import AUTOREGRESSIONS
from fastattn.models.encoder import EncoderStack
from fastattn.models.memory import Memory
from fastattn.models.output import Output
from fastattn.models.sizes import DecoderSizes
from fastattn.ops import Ops
from fastattn.position_bias import PositionBias
from fastattn.spec import Checkpoint, StackSpec


class RowPool(Protocol):
    """Rows of keys and values, or of states, [M, E] a layer, or wider."""

    layers: list[np.ndarray]


class KeyValueCache(Protocol):
    """What a cached step needs of ``fastattn.decoding.cache.Cache``."""

    @property
    def own(self) -> RowPool: ...

    @property
    def memory(self) -> RowPool: ...

    def append(self, slots_N: np.ndarray, positions_N: np.ndarray, tokens_N: np.ndarray) -> np.ndarray: ...

    def index(self, slots_R: np.ndarray, longest: int) -> np.ndarray: ...

    def previous(self, slots_R: np.ndarray, positions_R: np.ndarray) -> np.ndarray: ...

    def memory_index(self, slots_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


class CrossAttention:
    """Multi-head attention over a memory, from ``name.query``, ``name.key_value`` and ``name.output``."""

    def __init__(self, parameters: Parameters, name: str):
        self.query, self.output = Linear(parameters, f"{name}.query"), Linear(parameters, f"{name}.output")
        self.key_value = Linear(parameters, f"{name}.key_value")


class DecoderBlock:
    """What looks back, cross-attention, feed-forward; each x + f(norm(x)) with ``pre_norm``, else norm(x + f(x))."""

    def __init__(self, parameters: Parameters, number: int, spec: StackSpec):
        layer = f"decoder.layers.{number}"
        self.number, self.pre_norm = number, spec.pre_norm
        self.autoregression = AUTOREGRESSIONS[spec.autoregression](parameters, number, spec)
        self.cross_attention = CrossAttention(parameters, f"{layer}.cross_attention")
        self.cross_norm = Norm(parameters, f"{layer}.cross_attention.norm", spec)
        self.feed_forward = FeedForward(parameters, f"{layer}.feed_forward", spec)
        self.feed_forward_norm = Norm(parameters, f"{layer}.feed_forward.norm", spec)

    def __call__(self, x_ND: np.ndarray, positions_N: np.ndarray, reach: "CachedReach | FullReach") -> np.ndarray:
        """``reach`` says what the rows attend to: a cache, or one another."""
        cross = self.cross_attention
        x_ND = self.autoregression(x_ND, positions_N, reach)
        if self.pre_norm:
            x_ND = cross.output(reach.attend_memory(self.number, cross.query(self.cross_norm(x_ND))), x_ND)
            return self.feed_forward(self.feed_forward_norm(x_ND), x_ND)
        x_ND = self.cross_norm(cross.output(reach.attend_memory(self.number, cross.query(x_ND)), x_ND))
        return self.feed_forward_norm(self.feed_forward(x_ND, x_ND))


class Heads:
    """How a stack's attention is laid out in its rows, and whose weights stand for the alignment."""

    def __init__(self, spec: StackSpec):
        queries, self.keys = spec.heads * spec.head_width, spec.key_heads * spec.head_width
        self.key_column, self.value_column = queries, queries + self.keys
        self.shape: dict[str, Any] = {
            "heads": spec.heads,
            "key_heads": spec.key_heads,
            "head_width": spec.head_width,
            "scale": spec.query_scale,
        }
        self.alignment_layer = spec.alignment_layer % spec.layers
        self.alignment_heads = spec.alignment_heads or spec.heads


class CachedReach:
    """New tokens of slots: each sees its slot's history in the cache, itself included, and its sentence's memory.

    counts_R  how many of each slot, in order: a chunk of its sequence; None: one, which is a step
    """

    def __init__(
        self,
        decoder: "DecoderStack",
        cache: KeyValueCache,
        slots_R: np.ndarray,
        tokens_N: np.ndarray,
        positions_N: np.ndarray,
        attention: bool,
        counts_R: np.ndarray | None = None,
    ):
        self.ops, self.heads, self.bias, self.cache = decoder.ops, decoder.heads, decoder.bias, cache
        self.slots_R, self.positions_N = slots_R, positions_N
        # of each token the number of its slot, where that is not its own
        self.owners_N = None if counts_R is None else np.repeat(np.arange(len(slots_R)), counts_R)
        self.slots_N = slots_R if self.owners_N is None else slots_R[self.owners_N]
        self.rows_N = cache.append(self.slots_N, positions_N, tokens_N)
        self.memory_index_RS, lengths_R = cache.memory_index(slots_R)
        self.memory_lengths_N = lengths_R if self.owners_N is None else lengths_R[self.owners_N]
        self.wants_attention = attention
        self.attention_NS: np.ndarray | None = None

    @lazy
    def history(self) -> tuple[np.ndarray, np.ndarray, PositionBias | None]:
        """(index_RS, lengths_N, bias) of what self-attention sees, which alone needs all of it."""
        lengths_N = self.positions_N.astype(np.int64) + 1
        index_RS = self.cache.index(self.slots_R, int(lengths_N.max()))
        return index_RS, lengths_N, self.bias(index_RS.shape[1])

    @lazy
    def previous_N(self) -> np.ndarray:
        return self.cache.previous(self.slots_N, self.positions_N)

    def states(self, layer: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(states_ME, previous_N, rows_N): a table of states, the row that each row continues, and its own."""
        return self.cache.own.layers[layer], self.previous_N, self.rows_N

    def attend(self, layer: int, qkv_NE: np.ndarray) -> np.ndarray:
        keys_values_ME = self.cache.own.layers[layer]
        self.ops.write_rows(keys_values_ME, self.rows_N, qkv_NE, self.heads.key_column)
        index_RS, lengths_N, bias = self.history
        return self.ops.attention_step(
            qkv_NE,
            keys_values_ME,
            keys_values_ME,
            index_RS,
            lengths_N,
            value_column=self.heads.keys,
            rows_N=self.owners_N,
            positions=bias,
            **self.heads.shape,
        )

    def attend_memory(self, layer: int, query_NF: np.ndarray) -> np.ndarray:
        weights_NHS = None
        if self.wants_attention and layer == self.heads.alignment_layer:
            N, S = len(query_NF), self.memory_index_RS.shape[1]
            weights_NHS = self.ops.empty((N, self.heads.shape["heads"], S), query_NF.dtype)
        keys_values_ME = self.cache.memory.layers[layer]
        context_NF = self.ops.attention_step(
            query_NF,
            keys_values_ME,
            keys_values_ME,
            self.memory_index_RS,
            self.memory_lengths_N,
            value_column=self.heads.keys,
            rows_N=self.owners_N,
            weights_NHS=weights_NHS,
            **self.heads.shape,
        )
        if weights_NHS is not None:
            self.attention_NS = np.asarray(self.ops.average_heads(weights_NHS, self.heads.alignment_heads))
        return context_NF


class FullReach:
    """Whole target sequences at once: each row sees its own sequence up to itself and its memory."""

    def __init__(self, decoder: "DecoderStack", starts_B1: np.ndarray, memory: Memory, attention: bool):
        self.ops, self.heads, self.state = decoder.ops, decoder.heads, (decoder.state_width, decoder.embedding.dtype)
        self.rounded = decoder.rounded
        self.starts_B1, self.memory = starts_B1, memory
        self.bias = decoder.bias(int(np.diff(starts_B1).max(initial=0)))
        self.seen_N2 = self.ops.seen_keys(starts_B1, np.diff(starts_B1), causal=True)
        self.wants_attention = attention
        self.attention_NS: np.ndarray | None = None
        self.cache: KeyValueCache | None = None
        self.rows_N = np.arange(starts_B1[-1], dtype=np.int32)

    def keep_in(self, cache: KeyValueCache, rows_N: np.ndarray) -> None:
        """Have the keys and values, or the states, written to these rows of the cache."""
        self.cache, self.rows_N = cache, rows_N

    @lazy
    def previous_N(self) -> np.ndarray:
        """The row before each row; -1 where a sequence begins."""
        previous_N = np.roll(self.rows_N, 1)
        previous_N[self.starts_B1[:-1][np.diff(self.starts_B1) > 0]] = -1
        return previous_N

    def states(self, layer: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As CachedReach has them."""
        width, dtype = self.state
        cache = self.cache
        table = self.ops.empty_table(len(self.rows_N), width, dtype) if cache is None else cache.own.layers[layer]
        return table, self.previous_N, self.rows_N

    def attend(self, layer: int, qkv_NE: np.ndarray) -> np.ndarray:
        if self.rounded:  # as a later step finds them
            self.ops.round_rows(qkv_NE, self.heads.key_column)
        if self.cache is not None:
            self.ops.write_rows(self.cache.own.layers[layer], self.rows_N, qkv_NE, self.heads.key_column)
        return self.ops.attention(
            qkv_NE,
            qkv_NE,
            qkv_NE,
            self.starts_B1,
            self.starts_B1,
            key_column=self.heads.key_column,
            value_column=self.heads.value_column,
            seen_N2=self.seen_N2,
            positions=self.bias,
            **self.heads.shape,
        )

    def attend_memory(self, layer: int, query_NF: np.ndarray) -> np.ndarray:
        lengths_B = np.diff(self.starts_B1)
        weights_BHTS = None
        if self.wants_attention and layer == self.heads.alignment_layer:
            T, S = int(lengths_B.max(initial=0)), int(np.diff(self.memory.starts_B1).max(initial=0))
            weights_BHTS = self.ops.empty((len(lengths_B), self.heads.shape["heads"], T, S), query_NF.dtype)
        context_NF = self.ops.attention(
            query_NF,
            self.memory.keys_values[layer],
            self.memory.keys_values[layer],
            self.starts_B1,
            self.memory.starts_B1,
            value_column=self.heads.keys,
            weights_BHTS=weights_BHTS,
            **self.heads.shape,
        )
        if weights_BHTS is not None:
            attention_BTS = np.asarray(self.ops.average_heads(weights_BHTS, self.heads.alignment_heads))
            self.attention_NS = np.concatenate([attention_BTS[b, :length] for b, length in enumerate(lengths_B)])
        return context_NF


class DecoderStack:
    """Embedding, blocks, final norm; from the tensors ``decoder.*``."""

    def __init__(self, parameters: Parameters, spec: StackSpec):
        self.ops, self.spec, self.heads = parameters.ops, spec, Heads(spec)
        self.embedding = Embedding(parameters, "decoder", spec)
        self.bias = AttentionBias(parameters, "decoder", spec)
        # Keys and values, to bfloat16; but not where there is a memory alone: little is read then, and BLEU is 0.01
        # to 0.04 higher without (Firefox, en-pt and pt-en).
        autoregression = AUTOREGRESSIONS[spec.autoregression]
        self.rounded = parameters.precision != "float32" and autoregression.rounded
        self.state_width = autoregression.state_width(spec)
        self.blocks = [DecoderBlock(parameters, i, spec) for i in range(spec.layers)]
        self.final_norm = Norm(parameters, "decoder.final_norm", spec) if spec.final_norm else None

    def __call__(self, tokens_N: np.ndarray, positions_N: np.ndarray, reach: CachedReach | FullReach) -> np.ndarray:
        """hidden_ND, ready for the projection."""
        if self.spec.start_from_zero_embedding:
            tokens_N = np.where(positions_N == 0, -1, tokens_N).astype(np.int32)
        x_ND = self.embedding(tokens_N, positions_N)
        for block in self.blocks:
            x_ND = block(x_ND, positions_N, reach)
        if self.final_norm is not None:
            x_ND = self.final_norm(x_ND)
        if self.spec.output_scale != 1.0:
            x_ND = self.ops.scale_rows(x_ND, self.spec.output_scale)
        return x_ND


class EncoderDecoder:
    """A translation model; ``ops`` is ``fastattn.kernels``, or another namespace of the same operations.

    Token ids are int32; precision, kept and factors are those of Parameters. Raises CheckpointError for a checkpoint
    without a decoder that attends to an encoder.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        ops: Ops,
        precision: str = "float32",
        kept: Any = None,
        factors: Callable[[], Mapping[str, np.ndarray]] = dict,
    ):
        decoder = checkpoint.spec.decoder
        if decoder is None or not decoder.cross_attention:
            raise CheckpointError(f"expected an encoder-decoder checkpoint, got {checkpoint.spec.kind!r}")
        parameters = Parameters(checkpoint.tensors, ops, precision, kept, factors)
        self.spec, self.ops = checkpoint.spec, ops
        self.encoder = EncoderStack(parameters, checkpoint.spec.encoder)
        self.decoder = DecoderStack(parameters, decoder)
        pickable = checkpoint.shortlist is not None or getattr(checkpoint.text, "vocabulary_map", None) is not None
        self.output = Output(parameters, checkpoint.shortlist, pickable)
        dtype = self.decoder.embedding.dtype
        self.sizes = DecoderSizes(
            positions=decoder.max_positions,
            vocabulary=decoder.vocabulary,
            layers=decoder.layers,
            layer_weights=decoder.layers
            * decoder.width
            * (2 * decoder.inner_width + 6 * decoder.heads * decoder.head_width),
            row_width=self.decoder.state_width,
            memory_width=2 * self.decoder.heads.keys,
            row_dtype=np.dtype(np.uint16) if self.decoder.rounded else dtype,
            dtype=dtype,
        )

    def encode(self, ids_B: Sequence[np.ndarray]) -> Memory:
        """The sentences' memory; raises as ``EncoderStack.encode``."""
        rows_ND, starts_B1 = self.encoder.encode(ids_B)
        keys_values = [block.cross_attention.key_value(rows_ND) for block in self.decoder.blocks]
        if self.decoder.rounded:
            for keys_values_NE in keys_values:
                self.ops.round_rows(keys_values_NE, 0)
        return Memory(rows_ND, starts_B1, keys_values)

    def keep_memory(self, cache: KeyValueCache, rows_N: np.ndarray, memory: Memory) -> None:
        """Write its keys and values to these rows of the cache's memory."""
        for keys_values_ME, keys_values_NE in zip(cache.memory.layers, memory.keys_values):
            self.ops.write_rows(keys_values_ME, rows_N, keys_values_NE, 0)

    def prefill(
        self,
        tokens_N: np.ndarray,
        starts_B1: np.ndarray,
        memory: Memory | None = None,
        *,
        attention: bool = False,
        cache: KeyValueCache | None = None,
        slots_B: np.ndarray | None = None,
        firsts_B: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Several tokens of each sequence; see ``fastattn.decoding.model.Model``."""
        lengths_B = np.diff(starts_B1)
        begins_B = -starts_B1[:-1] if firsts_B is None else firsts_B - starts_B1[:-1]
        positions_N = (np.arange(len(tokens_N)) + np.repeat(begins_B, lengths_B)).astype(np.int32)
        reach: CachedReach | FullReach
        if firsts_B is not None:
            assert cache is not None and slots_B is not None
            reach = CachedReach(self.decoder, cache, slots_B, tokens_N, positions_N, attention, lengths_B)
        else:
            assert memory is not None
            reach = FullReach(self.decoder, starts_B1, memory, attention)
            if cache is not None and slots_B is not None:
                reach.keep_in(cache, cache.append(np.repeat(slots_B, lengths_B), positions_N, tokens_N))
        return self.decoder(tokens_N, positions_N, reach), reach.attention_NS

    def step(
        self,
        cache: KeyValueCache,
        slots_R: np.ndarray,
        tokens_R: np.ndarray,
        positions_R: np.ndarray,
        attention: bool = False,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """One token for each slot: (hidden_RD, attention_RS or None). The cache gains a row a slot."""
        reach = CachedReach(self.decoder, cache, slots_R, tokens_R, positions_R, attention)
        return self.decoder(tokens_R, positions_R, reach), reach.attention_NS
