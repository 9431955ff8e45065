"""Layers, built once from a checkpoint's tensors on a namespace of operations (``fastattn.kernels`` or another).

Every layer works on packed rows: N rows of any sentences, each with its position; none knows of padding. What a
StackSpec names by a string is looked up in a dictionary when the layer is built, never while it runs.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError, InputError
from fastattn.ops import Ops, PackedLinear
from fastattn.position_bias import PositionBias
from fastattn.rounding import quantize
from fastattn.spec import Alibi, QuantizedTensor, Rotary, StackSpec, Tensor


class Parameters:
    """A checkpoint's tensors, packed on demand into the operations' layout; tied weights are packed once.

    precision  of the products: "float32", "bfloat16" or "int8"
    kept       where packed weights are kept for the next process: a PackedFile, or None
    factors    int8 only: gives input factors by tensor name; asked once, if any layer has to be quantised here
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        ops: Ops,
        precision: str = "float32",
        kept: Any = None,
        factors: Callable[[], Mapping[str, np.ndarray]] = dict,
    ):
        self.ops, self.precision, self._kept, self._factors = ops, precision, kept, cache(factors)
        self._tensors = tensors
        self._packed: dict[tuple[int, int], PackedLinear] = {}

    def tensor(self, name: str) -> Any:
        """An array; of linear weights and embedding tables perhaps a QuantizedTensor."""
        return self._tensors[name]

    def optional(self, name: str) -> Any:
        """``tensor``, or None where there is none of that name."""
        return self._tensors.get(name)

    def packed(self, name: str) -> PackedLinear:
        """``name.weight`` and, where there is one, ``name.bias`` as the operations' linear weights."""
        weight_FD, bias_F = self.tensor(name + ".weight"), self.optional(name + ".bias")
        key = id(weight_FD), id(bias_F)
        if key not in self._packed:
            make = partial(self._pack, f"{name}.weight", bias_F)
            self._packed[key] = make() if self._kept is None else self._kept.linear(name, weight_FD.shape, make)
        return self._packed[key]

    def _pack(self, name: str, bias_F: np.ndarray | None) -> PackedLinear:
        weight_FD = self.tensor(name)
        if self.precision == "int8" and not isinstance(weight_FD, QuantizedTensor):
            weight_FD = quantize(weight_FD, name, self._factors().get(name))
        return self.ops.pack_linear(weight_FD, bias_F, self.precision)

    def table(self, name: str) -> Tensor | PackedLinear:
        """An embedding's table; where a projection with its very numbers is tied to it, that one's packed weights.

        So the table is held once. An int8 table that is not stays as it is, a view of the file.
        """
        table_VD = self.tensor(name)
        tied = self._tensors.get("decoder.projection.weight") is table_VD
        same = self.precision == ("int8" if isinstance(table_VD, QuantizedTensor) else "float32")
        return self.packed("decoder.projection") if tied and same else table_VD


class Linear:
    """y = activation(x W' + b) [* multiply] [+ residual]; from the tensors ``name.weight`` and ``name.bias``."""

    def __init__(self, parameters: Parameters, name: str, activation: str = "none"):
        self.ops = parameters.ops
        self.weights = parameters.packed(name)
        self.activation = activation

    def __call__(
        self, x_ND: np.ndarray, residual_NF: np.ndarray | None = None, multiply_NF: np.ndarray | None = None
    ) -> np.ndarray:
        return self.ops.linear(x_ND, self.weights, self.activation, residual_NF, multiply_NF)


class LayerNorm:
    """Layer normalisation of x + residual, from ``name.weight`` and perhaps ``name.bias``."""

    def __init__(self, parameters: Parameters, name: str, epsilon: float):
        self.ops, self.epsilon = parameters.ops, epsilon
        self.weight_D, self.bias_D = parameters.tensor(name + ".weight"), parameters.optional(name + ".bias")

    def __call__(self, x_ND: np.ndarray, residual_ND: np.ndarray | None = None) -> np.ndarray:
        return self.ops.layer_norm(x_ND, self.weight_D, self.bias_D, self.epsilon, residual_ND)


class RMSNorm:
    """Root mean square normalisation of x + residual, from ``name.weight``."""

    def __init__(self, parameters: Parameters, name: str, epsilon: float):
        self.ops, self.epsilon = parameters.ops, epsilon
        self.weight_D = parameters.tensor(name + ".weight")

    def __call__(self, x_ND: np.ndarray, residual_ND: np.ndarray | None = None) -> np.ndarray:
        return self.ops.rms_norm(x_ND, self.weight_D, self.epsilon, residual_ND)


NORMS: dict[str, type[LayerNorm] | type[RMSNorm]] = {"layer": LayerNorm, "rms": RMSNorm}


def Norm(parameters: Parameters, name: str, spec: StackSpec) -> LayerNorm | RMSNorm:
    """The spec's norm with the tensors of ``name``."""
    return NORMS[spec.norm](parameters, name, spec.norm_epsilon)


def sinusoid_table(positions: int, width: int, dtype: Any = np.float32, start: int = 1) -> np.ndarray:
    """Position p as q = p + start: sines of q exp(-i ln 10000 / (width / 2 - 1)), then cosines; table_PD.

    tensor2tensor's form of Vaswani 2017, section 3.5; an odd width ends in a column of zeros.
    """
    half = width // 2
    timescale_K = np.exp(-np.log(10000.0) / max(half - 1, 1) * np.arange(half))
    angle_PK = np.arange(start, start + positions)[:, None] * timescale_K
    table_PD = np.zeros((positions, width), dtype)
    table_PD[:, :half] = np.sin(angle_PK)
    table_PD[:, half : 2 * half] = np.cos(angle_PK)
    return table_PD


class NoPositions:
    """Nothing is added to the embedding."""

    def __call__(self, longest: int) -> None:
        return None


class PositionTable:
    """Learned positions, [P, D]; a longer sentence is an InputError."""

    def __init__(self, table_PD: np.ndarray):
        self.table_PD = table_PD

    def __call__(self, longest: int) -> np.ndarray:
        if longest > len(self.table_PD):
            raise InputError(f"the model has {len(self.table_PD)} positions, the sequence needs {longest}")
        return self.table_PD


class SinusoidPositions:
    """Sinusoids for as many positions as were ever asked for; the table doubles."""

    def __init__(self, width: int, dtype: Any, start: int):
        self.start = start
        self.table_PD = sinusoid_table(512, width, dtype, start)

    def __call__(self, longest: int) -> np.ndarray:
        table_PD = self.table_PD
        if longest > len(table_PD):
            # Assigned whole, so that another thread sees the old table or the new one.
            size = max(longest, 2 * len(table_PD))
            self.table_PD = table_PD = sinusoid_table(size, table_PD.shape[1], table_PD.dtype, self.start)
        return table_PD


POSITIONS: dict[str, Any] = {
    "none": lambda parameters, stack, spec, dtype: NoPositions(),
    "table": lambda parameters, stack, spec, dtype: PositionTable(parameters.tensor(f"{stack}.positions")),
    "sinusoid": lambda parameters, stack, spec, dtype: SinusoidPositions(spec.width, dtype, spec.sinusoid_start),
    # These three act inside the attention.
    "rotary": lambda parameters, stack, spec, dtype: NoPositions(),
    "alibi": lambda parameters, stack, spec, dtype: NoPositions(),
    "relative": lambda parameters, stack, spec, dtype: NoPositions(),
}


class Embedding:
    """Ids and positions to rows: table[id] * scale + position, then the embedding norm where the spec has one.

    The id -1 embeds to zeros (its position is still added). An id outside the vocabulary is an InputError.
    """

    def __init__(self, parameters: Parameters, stack: str, spec: StackSpec):
        self.ops, self.scale = parameters.ops, spec.embedding_scale
        self.table, self.vocabulary = parameters.table(f"{stack}.embedding.weight"), spec.vocabulary
        self.dtype = parameters.tensor(f"{stack}.embedding.weight").dtype
        self.positions = POSITIONS[spec.positions](parameters, stack, spec, self.dtype)
        self.norm = Norm(parameters, f"{stack}.embedding_norm", spec) if spec.embedding_norm else None

    def __call__(self, ids_N: np.ndarray, positions_N: np.ndarray) -> np.ndarray:
        if len(ids_N) and not -1 <= int(ids_N.min()) <= int(ids_N.max()) < self.vocabulary:
            wrong = ids_N.min() if ids_N.min() < -1 else ids_N.max()
            raise InputError(f"token id {wrong} is outside the vocabulary of {self.vocabulary}")
        table_PD = self.positions(int(positions_N.max()) + 1 if len(positions_N) else 0)
        x_ND = self.ops.embed(ids_N, self.table, self.scale, positions_N, table_PD)
        return x_ND if self.norm is None else self.norm(x_ND)


class RotaryPositions:
    """Rotary positions (Su 2021): turns the queries' and keys' heads of fused QKV rows; the tables double."""

    def __init__(self, ops: Ops, spec: StackSpec, rotary: Rotary, dtype: Any):
        self.ops, self.rotary, self.dtype = ops, rotary, dtype
        # Queries and keys lie side by side, so one call turns them all.
        self.heads, self.head_width = spec.heads + spec.key_heads, spec.head_width
        self.tables = self._make(512)

    def _make(self, positions: int) -> tuple[np.ndarray, np.ndarray]:
        frequency_K = self.rotary.base ** (-np.arange(0, self.rotary.width, 2) / self.rotary.width)
        angle_PK = (np.arange(positions) / self.rotary.scale)[:, None] * frequency_K
        return np.cos(angle_PK).astype(self.dtype), np.sin(angle_PK).astype(self.dtype)

    def __call__(self, qkv_NE: np.ndarray, positions_N: np.ndarray) -> None:
        cos_PK, sin_PK = self.tables
        longest = int(positions_N.max()) + 1 if len(positions_N) else 0
        if longest > len(cos_PK):
            self.tables = cos_PK, sin_PK = self._make(max(longest, 2 * len(cos_PK)))
        self.ops.rotate(qkv_NE, positions_N, cos_PK, sin_PK, 0, self.heads, self.head_width, self.rotary.interleaved)


def alibi_slopes(heads: int) -> np.ndarray:
    """The slopes of Press 2022: a geometric sequence from 2^(-8/n) for n a power of two, else that of the power
    below, followed by every second slope of the power above."""
    power = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 / power * np.arange(1, power + 1))
    between = 2.0 ** (-4.0 / power * np.arange(1, 2 * (heads - power) + 1, 2))
    return np.concatenate([slopes, between])


class AlibiBias:
    """Attention with linear biases (Press 2022), shared by the layers."""

    def __init__(self, spec: StackSpec, alibi: Alibi, dtype: Any):
        scale = (spec.query_scale or spec.head_width**-0.5) if alibi.scaled else 1.0
        slopes_H = (alibi_slopes(spec.heads) * scale).astype(dtype)
        self.bias = PositionBias(slopes_H=slopes_H, from_start=alibi.positive_positions)

    def __call__(self, longest: int) -> PositionBias:
        """Of queries and keys at positions below ``longest``."""
        return self.bias


def relative_buckets(distance: np.ndarray, buckets: int, max_distance: int, bidirectional: bool) -> np.ndarray:
    """T5's bucket of each key position less query position (Raffel 2020, section 2.1).

    Half the buckets are exact distances, the rest grow logarithmically up to ``max_distance``; where keys may lie
    ahead, half of all are for them.
    """
    bucket = np.zeros(distance.shape, np.int64)
    if bidirectional:
        buckets //= 2
        bucket += np.where(distance > 0, buckets, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = buckets // 2
    far = np.log(np.maximum(distance, exact) / exact) / np.log(max_distance / exact) * (buckets - exact)
    return bucket + np.where(distance < exact, distance, np.minimum(exact + far.astype(np.int64), buckets - 1))


class RelativeBias:
    """T5's learned bias by bucketed distance, shared by the layers; the table of distances doubles."""

    def __init__(self, bias_UH: np.ndarray, spec: StackSpec, bidirectional: bool):
        exact = spec.relative_buckets // (4 if bidirectional else 2)
        if not 0 < exact < spec.relative_max_distance:
            raise CheckpointError(
                f"relative positions need {4 if bidirectional else 2} buckets or more and a maximum distance beyond "
                f"the exact ones, got {spec.relative_buckets} buckets and distance {spec.relative_max_distance}"
            )
        self.bias_HU = np.ascontiguousarray(bias_UH.T)
        self.spec, self.bidirectional = spec, bidirectional
        self.bias = self._make(512)

    def _make(self, positions: int) -> PositionBias:
        bucket_L = relative_buckets(
            np.arange(1 - positions, positions),
            self.spec.relative_buckets,
            self.spec.relative_max_distance,
            self.bidirectional,
        )
        return PositionBias(table_HL=np.ascontiguousarray(self.bias_HU[:, bucket_L]))

    def __call__(self, longest: int) -> PositionBias:
        """Of queries and keys at positions below ``longest``."""
        bias = self.bias
        assert bias.table_HL is not None
        positions = bias.table_HL.shape[1] // 2 + 1
        if longest > positions:
            self.bias = bias = self._make(max(longest, 2 * positions))
        return bias


BIASES: dict[str, Any] = {
    "alibi": lambda parameters, stack, spec, dtype: AlibiBias(spec, spec.alibi or Alibi(), dtype),
    "relative": lambda parameters, stack, spec, dtype: RelativeBias(
        parameters.tensor(f"{stack}.relative_bias"), spec, bidirectional=stack == "encoder"
    ),
}


class AttentionBias:
    """What a stack adds to its self-attention's scores by position: nothing, ALiBi or T5's relative bias."""

    def __init__(self, parameters: Parameters, stack: str, spec: StackSpec):
        dtype = parameters.tensor(f"{stack}.embedding.weight").dtype
        make = BIASES.get(spec.positions)
        self.bias = make(parameters, stack, spec, dtype) if make else None

    def __call__(self, longest: int) -> PositionBias | None:
        """Of queries and keys at positions below ``longest``."""
        return None if self.bias is None else self.bias(longest)


class SelfAttention:
    """Multi-head attention of a stack's rows over themselves, from ``name.qkv`` and ``name.output``.

    ``project`` and ``output`` serve a decoder as well; ``__call__`` is the whole of an encoder's ragged batch.
    """

    def __init__(self, parameters: Parameters, name: str, stack: str, spec: StackSpec):
        self.ops = parameters.ops
        self.qkv, self.output = Linear(parameters, f"{name}.qkv"), Linear(parameters, f"{name}.output")
        queries, keys = spec.heads * spec.head_width, spec.key_heads * spec.head_width
        self.key_column, self.value_column = queries, queries + keys
        self.shape: dict[str, Any] = {
            "heads": spec.heads,
            "key_heads": spec.key_heads,
            "head_width": spec.head_width,
        }
        self.scale = spec.query_scale
        self.rotary = None
        if spec.positions == "rotary":
            dtype = parameters.tensor(f"{stack}.embedding.weight").dtype
            self.rotary = RotaryPositions(self.ops, spec, spec.rotary or Rotary(spec.head_width), dtype)

    def project(self, x_ND: np.ndarray, positions_N: np.ndarray) -> np.ndarray:
        """qkv_NE of the rows: queries, keys, values side by side, rotary positions applied."""
        qkv_NE = self.qkv(x_ND)
        if self.rotary is not None:
            self.rotary(qkv_NE, positions_N)
        return qkv_NE

    def __call__(
        self,
        x_ND: np.ndarray,
        starts_B1: np.ndarray,
        positions_N: np.ndarray,
        bias: PositionBias | None = None,
        residual_ND: np.ndarray | None = None,
    ) -> np.ndarray:
        qkv_NE = self.project(x_ND, positions_N)
        context_NF = self.ops.attention(
            qkv_NE,
            qkv_NE,
            qkv_NE,
            starts_B1,
            starts_B1,
            key_column=self.key_column,
            value_column=self.value_column,
            scale=self.scale,
            positions=bias,
            **self.shape,
        )
        return self.output(context_NF, residual_ND)


class FeedForward:
    """outer(activation(inner(x)) [* inner_linear(x)]) [+ residual]; gated by the spec (Shazeer 2020)."""

    def __init__(self, parameters: Parameters, name: str, spec: StackSpec):
        self.inner = Linear(parameters, f"{name}.inner", spec.activation)
        self.gate = Linear(parameters, f"{name}.inner_linear") if spec.gated else None
        self.outer = Linear(parameters, f"{name}.outer")

    def __call__(self, x_ND: np.ndarray, residual_ND: np.ndarray | None = None) -> np.ndarray:
        gate_NF = None if self.gate is None else self.gate(x_ND)
        return self.outer(self.inner(x_ND, multiply_NF=gate_NF), residual_ND)
