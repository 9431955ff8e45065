"""Ids and positions to rows."""

from typing import Any

import numpy as np

from fastattn.errors import InputError
from fastattn.layers.norm import Norm
from fastattn.layers.parameters import Parameters
from fastattn.spec import StackSpec


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
    """Sinusoids; the table grows by doubling."""

    def __init__(self, width: int, dtype: Any, start: int):
        self.start = start
        self.table_PD = sinusoid_table(512, width, dtype, start)

    def __call__(self, longest: int) -> np.ndarray:
        table_PD = self.table_PD
        if longest > len(table_PD):
            # Assigned at once, so that another thread sees either the old table or the new one.
            size = max(longest, 2 * len(table_PD))
            self.table_PD = table_PD = sinusoid_table(size, table_PD.shape[1], table_PD.dtype, self.start)
        return table_PD


POSITIONS: dict[str, Any] = {
    "none": lambda parameters, stack, spec, dtype: NoPositions(),
    "table": lambda parameters, stack, spec, dtype: PositionTable(parameters.tensor(f"{stack}.positions")),
    "sinusoid": lambda parameters, stack, spec, dtype: SinusoidPositions(spec.width, dtype, spec.positions.start),
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
        self.positions = POSITIONS[spec.positions.kind](parameters, stack, spec, self.dtype)
        self.norm = Norm(parameters, f"{stack}.embedding_norm", spec.norms) if spec.norms.embedding else None

    def __call__(self, ids_N: np.ndarray, positions_N: np.ndarray) -> np.ndarray:
        if len(ids_N) and not -1 <= int(ids_N.min()) <= int(ids_N.max()) < self.vocabulary:
            wrong = ids_N.min() if ids_N.min() < -1 else ids_N.max()
            raise InputError(f"token id {wrong} is outside the vocabulary of {self.vocabulary}")
        table_PD = self.positions(int(positions_N.max()) + 1 if len(positions_N) else 0)
        x_ND = self.ops.embed(ids_N, self.table, self.scale, positions_N, table_PD)
        return x_ND if self.norm is None else self.norm(x_ND)
