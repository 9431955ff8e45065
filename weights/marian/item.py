"""One array of a Marian model, from either container."""

from dataclasses import dataclass

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.quantized import QuantizedTensor, Tensor
from fastattn.system.records import lazy

FLOATS = ("float32", "float16")
SETTINGS = "special:model.yml"


@dataclass(frozen=True, eq=False)
class Item:
    """A view of the file's bytes in the shape that the file gives; Marian stores weights as [inputs, outputs].

    where       its name in errors
    multiplier  of an int8 matrix: what its values are multiplied by; None for other arrays
    """

    where: str
    stored: np.ndarray
    multiplier: np.float32 | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @lazy
    def vector(self) -> np.ndarray:
        """The values flattened, float32."""
        return np.require(self._floats().reshape(-1), np.float32, ["C", "A", "W"])

    @lazy
    def rows(self) -> Tensor:
        """The matrix as stored: an embedding table."""
        return self._matrix(self.stored)

    @lazy
    def columns(self) -> Tensor:
        """The matrix transposed: a linear weight, [outputs, inputs]."""
        return self._matrix(self.stored.T)

    def matrix(self, transposed: bool) -> Tensor:
        return self.columns if transposed else self.rows

    def _matrix(self, values: np.ndarray) -> Tensor:
        if self.multiplier is not None:
            return QuantizedTensor(np.ascontiguousarray(values), np.full(len(values), self.multiplier))
        self._floats()
        return np.require(values, np.float32, ["C", "A", "W"])

    def _floats(self) -> np.ndarray:
        if self.stored.dtype.name not in FLOATS or self.multiplier is not None:
            kind = "quantized" if self.multiplier is not None else self.stored.dtype.name
            raise CheckpointError(f"{self.where} should be one of {', '.join(FLOATS)}, is {kind}")
        return self.stored
