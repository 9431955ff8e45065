"""The rows of distances that disentangled attention looks at besides keys and queries (He 2021)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn.layers.linear import Linear
from fastattn.layers.norm import Norm
from fastattn.layers.parameters import Parameters
from fastattn.ops.attention import Heads
from fastattn.spec.architecture import Disentangled, PositionSpec, StackSpec

ALL = 1 << 62  # rows of a sequence: more than any has
LEAST = 128  # distances that are packed at first; twice as many whenever a sequence is longer


def log_buckets(distance: np.ndarray, buckets: int, max_distance: int) -> np.ndarray:
    """DeBERTa-v2's bucket of each distance, of the same sign: half of them are exact, the rest grow logarithmically.

    max_distance  the distance below which the last bucket ends
    """
    exact = buckets // 2
    far = np.log(np.maximum(np.abs(distance), exact) / exact) / np.log((max_distance - 1) / exact) * (exact - 1)
    far_buckets = np.sign(distance) * (np.ceil(far).astype(np.int64) + exact)
    return np.where(np.abs(distance) <= exact, distance, far_buckets)


def distance_numbers(distance: np.ndarray, spec: PositionSpec) -> np.ndarray:
    """The row in the table of distances of each query position less key position."""
    half = spec.distance_rows // 2
    bucket = log_buckets(distance, spec.buckets, spec.max_distance) if spec.buckets else distance
    return np.clip(bucket + half, 0, 2 * half - 1)


class DistanceRows:
    """Keys and queries of distances, packed for ``ops.attention``; made for the first sequence that needs them.

    From ``stack.distances`` and ``.distance_norm``, by ``layer.self_attention.distances`` or, shared, by the
    projection of the rows: ``qkv``.
    """

    def __init__(self, parameters: Parameters, name: str, spec: StackSpec, qkv: Callable[..., np.ndarray]):
        self.ops, self.positions, attention = parameters.ops, spec.positions, spec.attention
        self.form = spec.positions.disentangled or Disentangled()
        stack = name.partition(".")[0]
        self.table_LD = parameters.tensor(f"{stack}.distances")
        self.norm = Norm(parameters, f"{stack}.distance_norm", spec.norms) if self.form.norm else None
        self.projection = qkv if self.form.shared else Linear(parameters, f"{name}.distances")
        self.key_column = attention.query_width if self.form.shared or self.form.to_content else 0
        self.heads = Heads(attention.heads, attention.key_heads, attention.head_width, scale=attention.query_scale)
        self._made: tuple[int, Any] = 0, None  # replaced at once: another thread sees either the old or the new

    def __call__(self, longest: int) -> Any:
        """Those of the distances between so many positions, and perhaps of more."""
        reached, packed = self._made
        if longest > reached:
            reached = max(longest, 2 * reached, LEAST)
            self._made = reached, packed = self._pack(reached)
        return packed

    def _pack(self, longest: int) -> tuple[int, Any]:
        """(for which longest sequence, the packed rows): for any once they reach to where all distances share a row."""
        numbers_L = distance_numbers(np.arange(longest - 1, -longest, -1), self.positions)
        behind_P, ahead_P = numbers_L[longest - 1 :: -1], numbers_L[longest - 1 :]
        shared_P = (behind_P == len(self.table_LD) - 1) & (ahead_P == 0)
        if shared_P.any():
            farthest = int(np.argmax(shared_P))
            numbers_L, longest = numbers_L[longest - 1 - farthest : longest + farthest], ALL
        first = int(numbers_L[-1])  # the numbers fall as keys move ahead
        rows_LE, width = self._rows(first, int(numbers_L[0]) + 1), self.heads.query_heads * self.heads.width
        numbers_L = numbers_L - first
        key_LE = rows_LE[numbers_L, self.key_column : self.key_column + width] if self.form.to_position else None
        query_LE = rows_LE[numbers_L, :width] if self.form.to_content else None
        return longest, self.ops.pack_distances(key_LE, query_LE, self.heads)

    def _rows(self, first: int, stop: int) -> np.ndarray:
        """What the projection makes of some rows of the table."""
        x_LD = self.ops.embed(np.arange(first, stop, dtype=np.int32), self.table_LD)
        return np.asarray(self.projection(x_LD if self.norm is None else self.norm(x_LD)))
