"""Positions inside attention: rotated queries and keys, or biased scores."""

from typing import Any

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.layers.parameters import Parameters
from fastattn.ops import Ops
from fastattn.position_bias import PositionBias
from fastattn.spec import Alibi, AttentionSpec, PositionSpec, Rotary, StackSpec


class RotaryPositions:
    """Rotary positions (Su 2021): rotates the query and key heads of fused QKV rows; the tables grow by doubling."""

    def __init__(self, ops: Ops, spec: AttentionSpec, rotary: Rotary, dtype: Any):
        self.ops, self.rotary, self.dtype = ops, rotary, dtype
        # Queries and keys lie side by side, so one call rotates them all.
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

    def __init__(self, spec: AttentionSpec, alibi: Alibi, dtype: Any):
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

    def __init__(self, bias_UH: np.ndarray, spec: PositionSpec, bidirectional: bool):
        exact = spec.buckets // (4 if bidirectional else 2)
        if not 0 < exact < spec.max_distance:
            raise CheckpointError(
                f"relative positions need {4 if bidirectional else 2} buckets or more and a maximum distance beyond "
                f"the exact ones, got {spec.buckets} buckets and distance {spec.max_distance}"
            )
        self.bias_HU = np.ascontiguousarray(bias_UH.T)
        self.spec, self.bidirectional = spec, bidirectional
        self.bias = self._make(512)

    def _make(self, positions: int) -> PositionBias:
        distance_L = np.arange(1 - positions, positions)
        bucket_L = relative_buckets(distance_L, self.spec.buckets, self.spec.max_distance, self.bidirectional)
        return PositionBias(table_HL=np.ascontiguousarray(self.bias_HU[:, bucket_L]))

    def __call__(self, longest: int) -> PositionBias:
        """Of queries and keys at positions below ``longest``."""
        bias = self.bias
        assert bias.table_HL is not None
        positions = bias.table_HL.shape[1] // 2 + 1
        if longest > positions:
            self.bias = bias = self._make(max(longest, 2 * positions))
        return bias


def _alibi(parameters: Parameters, stack: str, spec: StackSpec) -> AlibiBias:
    dtype = parameters.tensor(f"{stack}.embedding.weight").dtype
    return AlibiBias(spec.attention, spec.positions.alibi or Alibi(), dtype)


def _relative(parameters: Parameters, stack: str, spec: StackSpec) -> RelativeBias:
    bias_UH = parameters.tensor(f"{stack}.relative_bias")
    return RelativeBias(bias_UH, spec.positions, bidirectional=stack == "encoder")


BIASES: dict[str, Any] = {"alibi": _alibi, "relative": _relative}


class AttentionBias:
    """The position bias of a stack's self-attention: none, ALiBi or T5's relative bias."""

    def __init__(self, parameters: Parameters, stack: str, spec: StackSpec):
        make = BIASES.get(spec.positions.kind)
        self.bias = make(parameters, stack, spec) if make else None

    def __call__(self, longest: int) -> PositionBias | None:
        """Of queries and keys at positions below ``longest``."""
        return None if self.bias is None else self.bias(longest)
