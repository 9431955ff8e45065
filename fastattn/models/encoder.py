"""The Transformer encoder (Vaswani 2017, section 3.1) in every variety of a StackSpec, BERT among them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fastattn.errors import InputError
from fastattn.layers import AttentionBias, Embedding, FeedForward, Norm, Parameters, SelfAttention
from fastattn.ops import Ops
from fastattn.position_bias import PositionBias
from fastattn.spec import Checkpoint, StackSpec

# Rows that go through all layers together, for each thread: what they become between two products stays in L2, and
# weights that come from memory are still shared by many. int8, one Zen 4 core, us a token at 384 rows and at 2,000:
# MiniLM 70 and 82, zh-en 113 and 131; float32 is the same at both.
CHUNK = 384


class EncoderBlock:
    """Self-attention, then feed-forward; each x + f(norm(x)) with ``pre_norm``, norm(x + f(x)) without."""

    def __init__(self, parameters: Parameters, layer: str, spec: StackSpec):
        self.attention = SelfAttention(parameters, f"{layer}.self_attention", "encoder", spec)
        self.attention_norm = Norm(parameters, f"{layer}.self_attention.norm", spec)
        self.feed_forward = FeedForward(parameters, f"{layer}.feed_forward", spec)
        self.feed_forward_norm = Norm(parameters, f"{layer}.feed_forward.norm", spec)
        self.pre_norm = spec.pre_norm

    def __call__(
        self, x_ND: np.ndarray, starts_B1: np.ndarray, positions_N: np.ndarray, bias: PositionBias | None
    ) -> np.ndarray:
        if self.pre_norm:
            x_ND = self.attention(self.attention_norm(x_ND), starts_B1, positions_N, bias, x_ND)
            return self.feed_forward(self.feed_forward_norm(x_ND), x_ND)
        x_ND = self.attention_norm(self.attention(x_ND, starts_B1, positions_N, bias, x_ND))
        return self.feed_forward_norm(self.feed_forward(x_ND, x_ND))


class EncoderStack:
    """Embedding, blocks, final norm; from the tensors ``encoder.*``."""

    def __init__(self, parameters: Parameters, spec: StackSpec):
        self.ops, self.spec = parameters.ops, spec
        self.embedding = Embedding(parameters, "encoder", spec)
        self.bias = AttentionBias(parameters, "encoder", spec)
        self.blocks = [EncoderBlock(parameters, f"encoder.layers.{i}", spec) for i in range(spec.layers)]
        self.final_norm = Norm(parameters, "encoder.final_norm", spec) if spec.final_norm else None

    def encode(self, ids_B: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(rows_ND, starts_B1): the last hidden states of the sentences end to end; ids are int32, one array each.

        Sentence b holds rows starts[b] .. starts[b + 1]; an empty one holds none. A sentence longer than the model
        has positions for, or an id outside the vocabulary, is an InputError.
        """
        starts_B1 = np.zeros(len(ids_B) + 1, np.int64)
        np.cumsum([len(ids) for ids in ids_B], out=starts_B1[1:])
        longest = int(np.diff(starts_B1).max(initial=0))
        if 0 < self.spec.max_positions < longest:
            raise InputError(f"the model has {self.spec.max_positions} positions, the sequence needs {longest}")
        parts = []
        chunk, first = CHUNK * self.ops.current_threads(), 0
        while first < len(ids_B):
            end = max(first + 1, int(np.searchsorted(starts_B1, starts_B1[first] + chunk, side="right")) - 1)
            if starts_B1[first] < starts_B1[end]:
                within_B1 = starts_B1[first : end + 1] - starts_B1[first]
                parts.append(self._rows(ids_B[first:end], within_B1))
            first = end
        none_ND = self.ops.empty((0, self.spec.width), self.embedding.dtype)
        return self.ops.concatenate_rows(parts or [none_ND]), starts_B1

    def _rows(self, ids_B: Sequence[np.ndarray], starts_B1: np.ndarray) -> np.ndarray:
        """rows_ND of sentences that go through the layers together."""
        ids_N = np.concatenate(ids_B).astype(np.int32, copy=False)
        positions_N = np.concatenate([np.arange(len(ids), dtype=np.int32) for ids in ids_B])
        x_ND = self.embedding(ids_N, positions_N)
        bias = self.bias(int(np.diff(starts_B1).max()))
        for block in self.blocks:
            x_ND = block(x_ND, starts_B1, positions_N, bias)
        return x_ND if self.final_norm is None else self.final_norm(x_ND)


class EncoderModel:
    """An encoder on its own; ``ops`` is ``fastattn.kernels``, or another namespace of the same operations.

    precision, kept and factors are those of Parameters.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        ops: Ops,
        precision: str = "float32",
        kept: Any = None,
        factors: Callable[[], Mapping[str, np.ndarray]] = dict,
    ):
        parameters = Parameters(checkpoint.tensors, ops, precision, kept, factors)
        self.encoder = EncoderStack(parameters, checkpoint.spec.encoder)

    def encode(self, ids_B: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(rows_ND, starts_B1) as ``EncoderStack.encode``."""
        return self.encoder.encode(ids_B)
