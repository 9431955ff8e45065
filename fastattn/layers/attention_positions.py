"""Positions inside attention: rotated queries and keys, or biased scores."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.layers.growing import GrowingTable
from fastattn.layers.parameters import Parameters
from fastattn.ops.attention import PositionBias
from fastattn.ops.protocol import Ops
from fastattn.spec.architecture import Alibi, AttentionSpec, Rotary, StackSpec, Stretch

# The bias of queries and keys at positions below a number.
Bias = Callable[[int], PositionBias | None]


@lru_cache(16)  # one for the layers of a model that have the same
def rotary_tables(rotary: Rotary, positions: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """(cos_PK, sin_PK) of the first positions."""
    frequency_K = rotary.base ** (-np.arange(0, rotary.width, 2) / rotary.width)
    size = 1.0
    if rotary.stretch is not None:
        kept_K, size = _KEPT[rotary.stretch.kind](rotary, rotary.stretch, frequency_K), rotary.stretch.size
        frequency_K = frequency_K * (kept_K + (1 - kept_K) / rotary.stretch.factor)
    angle_PK = (np.arange(positions) / rotary.scale)[:, None] * frequency_K
    return (np.cos(angle_PK) * size).astype(dtype), (np.sin(angle_PK) * size).astype(dtype)


def _kept_by_pairs(rotary: Rotary, stretch: Stretch, frequency_K: np.ndarray) -> np.ndarray:
    """YaRN's ramp along the numbers of the pairs, from the one with the fast turns to the one with the slow ones."""

    def pair(turns: float) -> float:
        return rotary.width * math.log(stretch.length / (turns * 2 * math.pi)) / (2 * math.log(rotary.base))

    first, last = pair(stretch.fast), pair(stretch.slow)
    if stretch.whole:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotary.width - 1)
    ramp_K = (np.arange(len(frequency_K)) - first) / ((last - first) or 0.001)
    return 1 - np.clip(ramp_K, 0, 1)


def _kept_by_turns(rotary: Rotary, stretch: Stretch, frequency_K: np.ndarray) -> np.ndarray:
    """Llama 3's ramp along the turns."""
    turns_K = stretch.length / (2 * np.pi) * frequency_K
    return np.clip((turns_K - stretch.slow) / (stretch.fast - stretch.slow), 0, 1)


# How much of each frequency is kept as it is, from 0 to 1.
_KEPT = {"yarn": _kept_by_pairs, "llama3": _kept_by_turns}


class RotaryPositions:
    """Rotary positions (Su 2021): rotates the query and key heads of fused QKV rows; the tables grow by doubling."""

    def __init__(self, ops: Ops, spec: AttentionSpec, rotary: Rotary):
        self.ops, self.rotary, self.positions = ops, rotary, 512
        # Queries and keys lie side by side, so one call rotates them all.
        self.heads, self.head_width = spec.heads + spec.key_heads, spec.head_width

    def __call__(self, qkv_NE: np.ndarray, positions_N: np.ndarray) -> None:
        longest = int(positions_N.max()) + 1 if len(positions_N) else 0
        if longest > self.positions:
            self.positions = max(longest, 2 * self.positions)
        tables = rotary_tables(self.rotary, max(self.positions, longest), qkv_NE.dtype)
        self.ops.rotate(qkv_NE, positions_N, *tables, 0, self.heads, self.head_width, self.rotary.interleaved)


def alibi_slopes(heads: int) -> np.ndarray:
    """The slopes of Press 2022: a geometric sequence from 2^(-8/n) for n a power of two, else that of the power
    below, followed by every second slope of the power above."""
    power = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 / power * np.arange(1, power + 1))
    between = 2.0 ** (-4.0 / power * np.arange(1, 2 * (heads - power) + 1, 2))
    return np.concatenate([slopes, between])


def distance_bias(make: Callable[[np.ndarray], np.ndarray]) -> Bias:
    """A bias looked up by distance, shared by the layers; ``make``: distance_L -> table_HL."""

    def table(positions: int) -> PositionBias:
        return PositionBias(table_HL=np.ascontiguousarray(make(np.arange(1 - positions, positions))))

    return GrowingTable(table, 512)


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


def _alibi(parameters: Parameters, stack: str, spec: StackSpec) -> Bias:
    dtype, alibi = parameters.tensor(f"{stack}.embedding.weight").dtype, spec.positions.alibi or Alibi()
    scale = (spec.attention.query_scale or spec.attention.head_width**-0.5) if alibi.scaled else 1.0
    slopes_H = alibi_slopes(spec.attention.heads) * scale
    if alibi.symmetric:  # to both sides (Günther 2023)
        return distance_bias(lambda distance_L: (-slopes_H[:, None] * np.abs(distance_L)).astype(dtype))
    bias = PositionBias(slopes_H=slopes_H.astype(dtype), from_start=alibi.positive_positions)
    return lambda longest: bias


def _relative(parameters: Parameters, stack: str, spec: StackSpec) -> Bias:
    positions, bidirectional = spec.positions, stack == "encoder"
    least = 4 if bidirectional else 2
    if not 0 < positions.buckets // least < positions.max_distance:
        raise CheckpointError(
            f"relative positions need {least} buckets or more and a maximum distance beyond the exact ones, got "
            f"{positions.buckets} buckets and distance {positions.max_distance}"
        )
    bias_HU = parameters.tensor(f"{stack}.relative_bias").T

    def make(distance_L: np.ndarray) -> np.ndarray:
        return bias_HU[:, relative_buckets(distance_L, positions.buckets, positions.max_distance, bidirectional)]

    return distance_bias(make)


_BIASES: dict[str, Callable[[Parameters, str, StackSpec], Bias]] = {"alibi": _alibi, "relative": _relative}


def position_bias(parameters: Parameters, stack: str, spec: StackSpec) -> Bias:
    """The bias of a stack's self-attention by ALiBi (Press 2022), by T5's relative positions, or none."""
    make = _BIASES.get(spec.positions.kind)
    return make(parameters, stack, spec) if make else lambda longest: None
