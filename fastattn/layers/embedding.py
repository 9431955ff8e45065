"""Ids and positions to rows."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn.errors import InputError
from fastattn.layers.growing import GrowingTable
from fastattn.layers.linear import Linear
from fastattn.layers.norm import Norm
from fastattn.layers.parameters import Parameters
from fastattn.spec.architecture import StackSpec


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


def counted_rows(ids_N: np.ndarray, positions_N: np.ndarray, padding: int) -> np.ndarray:
    """The rows of a table whose first is the id padding's, which does not count: the other ids' follow in order.

    fairseq's make_positions. Positions are those of whole sequences, end to end.
    """
    rows_N, padding_N = positions_N + 1, ids_N == padding
    if padding_N.any():
        before_N = np.cumsum(padding_N) - padding_N
        rows_N -= before_N - before_N[np.arange(len(ids_N)) - positions_N]
        rows_N[padding_N] = 0
    return np.asarray(rows_N)


class PositionTable:
    """Learned positions, [P, D]; a longer sentence is an InputError."""

    def __init__(self, table_PD: np.ndarray):
        self.table_PD = table_PD

    def __call__(self, longest: int) -> np.ndarray:
        if longest > len(self.table_PD):
            raise InputError(f"the model has {len(self.table_PD)} positions, the sequence needs {longest}")
        return self.table_PD


class TypedPositions:
    """Learned positions and token types in one table, whose row type * P + position is their sum; [U * P, D].

    table_PD  None: there are no learned positions, so P is 1
    """

    def __init__(self, table_PD: np.ndarray | None, types_UD: np.ndarray):
        self.types = len(types_UD)
        self.positions = 1 if table_PD is None else len(table_PD)
        self.has_positions = table_PD is not None
        # in this order: the sums of positions and of type 0 are those of loaders that have added them
        with np.errstate(invalid="ignore", over="ignore"):  # weights of any size are sound data
            sums_UPD = types_UD[:, None] if table_PD is None else table_PD + types_UD[:, None]
        self.table_ND = np.ascontiguousarray(sums_UPD.reshape(-1, types_UD.shape[1]))

    def rows(self, positions_N: np.ndarray, types_N: np.ndarray | None) -> np.ndarray:
        """The table's row of each position and type; None: all are of type 0."""
        rows_N = positions_N if self.has_positions else np.zeros_like(positions_N)
        return rows_N if types_N is None else (rows_N + types_N * self.positions).astype(np.int32)


def added_positions(
    parameters: Parameters, stack: str, spec: StackSpec, dtype: Any
) -> Callable[[int], np.ndarray | None]:
    """The table of the first positions that is added to the embedding, by their number; None for those in attention."""
    if spec.positions.kind == "sinusoid":
        # tables of 512 would take 1.6 ms of every start
        return GrowingTable(lambda positions: sinusoid_table(positions, spec.width, dtype, spec.positions.start), 64)
    if spec.positions.has_table:
        return PositionTable(parameters.tensor(f"{stack}.positions"))
    return lambda longest: None


class Embedding:
    """Ids, positions and token types to rows: table[id] * scale + position + type, norm and projection to the width D.

    The last four only where the spec has them, norm and projection in its order. The id -1 embeds to zeros (its
    position is still added). An id outside the vocabulary, and a type that the model does not have, are InputErrors.
    """

    def __init__(self, parameters: Parameters, stack: str, spec: StackSpec):
        self.ops, self.scale = parameters.ops, spec.embedding_scale
        self.table, self.vocabulary = parameters.table(f"{stack}.embedding.weight"), spec.vocabulary
        self.dtype = parameters.tensor(f"{stack}.embedding.weight").dtype
        self.padding = spec.positions.padding if spec.positions.has_table else -1
        self.positions = added_positions(parameters, stack, spec, self.dtype)
        self.typed = None
        if spec.token_types:
            table_PD = parameters.optional(f"{stack}.positions")
            self.typed = TypedPositions(table_PD, parameters.tensor(f"{stack}.token_types"))
        norm = Norm(parameters, f"{stack}.embedding_norm", spec.norms) if spec.norms.embedding else None
        projection = Linear(parameters, f"{stack}.embedding_projection") if spec.embedding_width else None
        order = (projection, norm) if spec.norm_after_projection else (norm, projection)
        self.finishing = [step for step in order if step is not None]

    def __call__(self, ids_N: np.ndarray, positions_N: np.ndarray, types_N: np.ndarray | None = None) -> np.ndarray:
        if len(ids_N) and not -1 <= int(ids_N.min()) <= int(ids_N.max()) < self.vocabulary:
            wrong = ids_N.min() if ids_N.min() < -1 else ids_N.max()
            raise InputError(f"token id {wrong} is outside the vocabulary of {self.vocabulary}")
        if self.padding >= 0:
            positions_N = counted_rows(ids_N, positions_N, self.padding)
        table_PD = self.positions(int(positions_N.max()) + 1 if len(positions_N) else 0)
        if self.typed is not None:
            table_PD, positions_N = self.typed.table_ND, self._typed_rows(self.typed, positions_N, types_N)
        x_ND = self.ops.embed(ids_N, self.table, self.scale, positions_N, table_PD)
        for step in self.finishing:
            x_ND = step(x_ND)
        return x_ND

    def _typed_rows(self, typed: TypedPositions, positions_N: np.ndarray, types_N: np.ndarray | None) -> np.ndarray:
        if types_N is not None and len(types_N) and not 0 <= int(types_N.min()) <= int(types_N.max()) < typed.types:
            raise InputError(f"token types from 0 to {typed.types - 1} are known, got {types_N.max()}")
        return typed.rows(positions_N, types_N)
