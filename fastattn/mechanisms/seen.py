"""Which keys a query sees: small frozen objects, of which ``attend`` takes one or a tuple as ``seen``.

With a tuple, a query sees the keys that all items of it show. Positions t of queries and s of keys count from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fastattn.array_attention.arguments import check_dtype, seen_sides
from fastattn.errors import InputError, check_count, described
from fastattn.mechanisms.arrays import check_integers, check_number, project, shape_of, vector_per_head
from fastattn.ops.protocol import Ops

FAR = 1 << 40  # beyond any array's positions
MAX_NODES = 1 << 30


@dataclass(frozen=True)
class View:
    """What the queries of a call see, as options of ``attention``; None: no such limit.

    lengths_B  keys at or past a sentence's length are padding
    causal     keys s <= t + offset
    window     (left, right): keys t + offset - left <= s <= t + offset + right
    mask       broadcasts to (B, H, T, S); True is seen
    headless   whether the caller's arrays have no axis of heads
    """

    ops: Ops
    shape: tuple[int, int, int, int]  # B, H, T, S
    headless: bool = False
    lengths_B: np.ndarray | None = None
    causal: bool = False
    offset_B: np.ndarray | None = None
    window: tuple[int, int] | None = None
    mask: np.ndarray | None = None

    def four_axes(self, array: np.ndarray) -> np.ndarray:
        """An array that broadcasts to the caller's weights, (B, T, S) or (B, H, T, S), with all four axes."""
        if self.headless and array.ndim == 3:
            return array[:, None]
        return array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim < 4 else array

    def options(self) -> dict[str, Any]:
        ranges = {"lengths": self.lengths_B, "causal": self.causal, "offset": self.offset_B, "window": self.window}
        return {**ranges, "mask": self.mask}

    def ranges(self) -> np.ndarray:
        """[B, T, 2] int64: the first key that a query sees, and the key behind its last, before the mask."""
        B, _, T, S = self.shape
        lengths_B = np.full(B, S) if self.lengths_B is None else self.lengths_B
        offset_B = np.zeros(B, np.int64) if self.offset_B is None else self.offset_B
        sides = seen_sides(self.causal, self.window or (None, None))
        seen_BT2 = self.ops.seen_around(np.arange(B + 1) * T, lengths_B, offset_B, *sides).reshape(B, T, 2)
        first, stop = seen_BT2[..., 0], seen_BT2[..., 1]
        stop = np.maximum(stop, 0)
        return np.stack([np.minimum(first, stop), stop], axis=-1)

    def joint_mask(self) -> np.ndarray:
        """All limits as one mask, which broadcasts to (B, H, T, S)."""
        ranges_BT2, keys_S = self.ranges()[:, None], np.arange(self.shape[3])
        mask = (keys_S >= ranges_BT2[..., :1]) & (keys_S < ranges_BT2[..., 1:])
        return mask if self.mask is None else mask & self.mask


@dataclass(frozen=True)
class Everything:
    """All keys: global attention (Luong 2015, section 3.1)."""

    def limit(self, view: View) -> View:
        return view


@dataclass(frozen=True)
class Padded:
    """The first ``lengths`` keys of each sentence; the keys behind them are padding.

    lengths  an integer for all sentences, or one for each, 0 to S
    """

    lengths: Any

    def limit(self, view: View) -> View:
        lengths_B = check_integers("lengths", self.lengths, view.shape[:1], 0, view.shape[3])
        return replace(view, lengths_B=lengths_B if view.lengths_B is None else np.minimum(view.lengths_B, lengths_B))


@dataclass(frozen=True)
class Causal:
    """Keys s <= t + offset, no later ones (Vaswani 2017, section 3.2.3).

    offset  an integer for all sentences, or one for each: how many keys stand before the first query's own key
    """

    offset: Any = 0

    def limit(self, view: View) -> View:
        if view.causal:
            raise InputError("seen: expected one Causal, got two")
        offset_B = check_integers("offset", self.offset, view.shape[:1], -FAR, FAR)
        return replace(view, causal=True, offset_B=offset_B)


@dataclass(frozen=True)
class Restricted:
    """``size`` keys around position t, from t - size // 2 on; the work is O(size T K) (Vaswani 2017, section 4)."""

    size: int

    def limit(self, view: View) -> View:
        size = min(check_count("size", self.size), FAR)
        return _with_window(view, size // 2, (size - 1) // 2)


@dataclass(frozen=True)
class LocalMonotonic:
    """Keys t - distance to t + distance: local-m (Luong 2015, section 3.2)."""

    distance: int

    def limit(self, view: View) -> View:
        distance = int(check_integers("distance", self.distance, (), 0, FAR))
        return _with_window(view, distance, distance)


def _with_window(view: View, left: int, right: int) -> View:
    """The view with this window, or with what both windows show."""
    if view.window is not None:
        left, right = min(left, view.window[0]), min(right, view.window[1])
    return replace(view, window=(left, right))


@dataclass(frozen=True, eq=False)
class Mask:
    """Any mask: bool, broadcast to (B, H, T, S), or to (B, T, S) where queries have no heads; True is seen."""

    mask: np.ndarray

    def limit(self, view: View) -> View:
        check_dtype("mask", self.mask, np.bool_)
        mask = view.four_axes(self.mask)
        if mask.ndim != 4 or any(axis not in (1, size) for axis, size in zip(mask.shape, view.shape)):
            raise InputError(f"mask: expected a shape that broadcasts to {view.shape}, got {self.mask.shape}")
        return replace(view, mask=mask if view.mask is None else view.mask & mask)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The neighbours of a graph's nodes: node t sees keys indices[starts[t]:starts[t + 1]] (CSR).

    starts   integers [T + 1], ascending from 0 to the number of indices
    indices  integers, 0 to S - 1
    """

    starts: Any
    indices: Any

    @classmethod
    def from_edges(cls, edges: Any, nodes: int, self_loops: bool = True) -> "Neighbours":
        """Neighbours in an undirected graph of edges, pairs of nodes; ``self_loops``: a node is its own neighbour."""
        nodes = check_count("nodes", nodes)
        if nodes > MAX_NODES:
            raise InputError(f"nodes: expected at most {MAX_NODES}, got {described(nodes)}")
        shape = shape_of("edges", edges)
        if shape != (0,) and shape[1:] != (2,):
            raise InputError(f"edges: expected pairs of nodes, got shape {shape}")
        edges = edges if shape[0] else np.empty(shape, int)
        pairs_E2 = check_integers("edges", edges, shape, 0, nodes - 1).reshape(-1, 2)
        pairs = [pairs_E2, pairs_E2[:, ::-1]]
        if self_loops:
            pairs.append(np.repeat(np.arange(nodes)[:, None], 2, axis=1))
        pairs_E2 = np.unique(np.concatenate(pairs), axis=0)
        starts = np.searchsorted(pairs_E2[:, 0], np.arange(nodes + 1))
        return cls(starts, np.ascontiguousarray(pairs_E2[:, 1]))

    def checked_arrays(self, nodes: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
        """(starts, indices), int64; InputError unless they are a graph of ``nodes`` nodes and ``keys`` keys."""
        indices_E = check_integers("indices", self.indices, shape_of("indices", self.indices), 0, keys - 1)
        if indices_E.ndim != 1:
            raise InputError(f"indices: expected one axis, got shape {indices_E.shape}")
        starts_N1 = check_integers("starts", self.starts, (nodes + 1,), 0, len(indices_E))
        if starts_N1[0] != 0 or starts_N1[-1] != len(indices_E) or (np.diff(starts_N1) < 0).any():
            raise InputError(f"starts: expected to rise from 0 to {len(indices_E)}, the number of indices")
        return starts_N1, indices_E

    def limit(self, view: View) -> View:
        _, _, T, S = view.shape
        starts_N1, indices_E = self.checked_arrays(T, S)
        mask_TS = np.zeros((T, S), bool)
        mask_TS[np.repeat(np.arange(T), np.diff(starts_N1)), indices_E] = True
        if np.count_nonzero(mask_TS) < len(indices_E):
            raise InputError("indices: expected each neighbour once, beside this score or other parts of what is seen")
        return Mask(mask_TS).limit(view)


@dataclass(frozen=True, eq=False)
class LocalPredictive:
    """Keys within ``distance`` D of a position p that the query predicts: local-p (Luong 2015, equations 9 and 10).

    p = S sigmoid(v . tanh(W q)), where S is the sentence's number of keys. The weights of the softmax over the window
    are multiplied by exp(-(s - p)**2 / (2 sigma**2)), sigma = D / 2.
    weight  W (D', K), or (H, D', K);  vector  v (D',), or (H, D')
    """

    weight: np.ndarray
    vector: np.ndarray
    distance: float

    def centres(self, query_BTHK: np.ndarray, view: View) -> np.ndarray:
        """p, float32 (B, T, H)."""
        B, H, _, S = view.shape
        hidden_BTHD = project(view.ops, query_BTHK, "weight", self.weight, "tanh")
        vector_HD = vector_per_head("vector", self.vector, H, hidden_BTHD.shape[3])
        share_BTH1 = project(view.ops, hidden_BTHD, "vector", np.ascontiguousarray(vector_HD[:, None]), "sigmoid")
        lengths_B = np.full(B, S) if view.lengths_B is None else view.lengths_B
        return share_BTH1[..., 0] * lengths_B[:, None, None].astype(np.float32)

    def windows(self, centre_BTH: np.ndarray, view: View) -> np.ndarray:
        """[B, T, H, 2] int64: the first key within the distance that the view shows, and the key behind the last."""
        distance = min(check_number("distance", self.distance, 0), float(FAR))
        is_finite_BTH = np.isfinite(centre_BTH)
        centre = np.where(is_finite_BTH, centre_BTH, 0).astype(np.float64)
        first, stop = np.ceil(centre - distance).astype(np.int64), np.floor(centre + distance).astype(np.int64) + 1
        ranges_BT2 = view.ranges()[:, :, None]
        # A position that is not finite shows the first key, whose weight becomes NaN.
        stop = np.minimum(np.where(is_finite_BTH, stop, 1), ranges_BT2[..., 1])
        first = np.minimum(np.maximum(first, ranges_BT2[..., 0]), stop)
        return np.stack([first, stop], axis=-1)

    def decay(self) -> float:
        """1 / (2 sigma**2), within float32 for any distance; for distance 0 only a key at the position has a weight."""
        return 2.0 / min(max(float(self.distance), 1e-15), 1e15) ** 2


@dataclass(frozen=True)
class Sentences:
    """Sentences that lie end to end in one row of queries and keys (B is 1), each of which sees only its own keys.

    query_starts, key_starts  integers [sentences + 1], from 0 to T and to S; key_starts None: ``query_starts``
    """

    query_starts: Any
    key_starts: Any = None

    def spans(self, view: View) -> list[tuple[slice, slice]]:
        """The queries and the keys of each sentence, as slices."""
        batch, _, queries, keys = view.shape
        if batch != 1:
            raise InputError(f"query: expected a batch of 1, in which the sentences lie end to end, got {batch}")
        key_starts: Sequence[int] = self.query_starts if self.key_starts is None else self.key_starts
        slices = []  # of queries, of keys
        for name, starts, rows in (("query_starts", self.query_starts, queries), ("key_starts", key_starts, keys)):
            starts = check_integers(name, starts, shape_of(name, starts), 0, rows)
            if starts.ndim != 1 or not len(starts) or starts[0] or starts[-1] != rows or (np.diff(starts) < 0).any():
                raise InputError(f"{name}: expected to rise from 0 to {rows}")
            slices.append([slice(int(a), int(b)) for a, b in zip(starts[:-1], starts[1:])])
        if len(slices[0]) != len(slices[1]):
            expected, got = map(len, slices)
            raise InputError(f"key_starts: expected {expected} sentences, as in query_starts, got {got}")
        return list(zip(*slices))


Limit: TypeAlias = Everything | Padded | Causal | Restricted | LocalMonotonic | Mask | Neighbours
Seen: TypeAlias = Limit | LocalPredictive | Sentences
