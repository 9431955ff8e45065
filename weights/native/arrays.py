"""The arrays of fastattn's own model.safetensors: float32, bfloat16, or an int8 matrix and its factors."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.quantized import QuantizedTensor, Tensor
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.tensor_mapping import as_float32

MULTIPLIER, INPUT_SCALE, INPUT_FACTORS = ".multiplier", ".input_scale", ".input_factors"


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Whether it is a linear weight or an embedding table: only these are stored at fewer bits; no head's are."""
    return name.endswith(".weight") and len(shape) == 2 and not name.startswith("head.")


@dataclass(frozen=True)
class SavedTensor:
    """One tensor of the file; ``beside`` has the factors of an int8 matrix by the end of their names."""

    stored: StoredTensor
    beside: Mapping[str, StoredTensor] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def vector(self) -> np.ndarray:
        return self._float32().reshape(-1)

    def matrix(self, transposed: bool = False) -> Tensor:
        if transposed:
            return np.ascontiguousarray(as_float32(self.matrix()).T)
        return self._float32() if self.beside is None else _quantized(self.stored, self.beside)

    def _float32(self) -> np.ndarray:
        if self.stored.dtype not in ("F32", "BF16"):
            raise CheckpointError(f"{self.stored.where} should be F32 or BF16, is {self.stored.dtype}")
        return self.stored.float32()


def pair(stored: Mapping[str, StoredTensor]) -> dict[str, SavedTensor]:
    """The file's tensors by name; factors are joined to their matrix."""
    factors = {
        name: {end: stored[name + end] for end in (MULTIPLIER, INPUT_SCALE, INPUT_FACTORS) if name + end in stored}
        for name, tensor in stored.items()
        if tensor.dtype == "I8" and is_matrix(name, tensor.shape)
    }
    factor_names = {name + end for name, beside in factors.items() for end in beside}
    return {name: SavedTensor(tensor, factors.get(name)) for name, tensor in stored.items() if name not in factor_names}


def _quantized(values: StoredTensor, beside: Mapping[str, StoredTensor]) -> QuantizedTensor:
    rows, columns = values.shape
    multipliers = beside.get(MULTIPLIER)
    if multipliers is None or multipliers.dtype != "F32" or multipliers.shape != (rows,):
        raise CheckpointError(f"{values.where}{MULTIPLIER} should be there, F32 [{rows}]")
    inputs: dict[str, np.ndarray | None] = {}
    for end, count in ((INPUT_SCALE, 1), (INPUT_FACTORS, columns)):
        tensor = beside.get(end)
        if tensor is not None and (tensor.dtype != "F32" or tensor.shape != (count,)):
            raise CheckpointError(f"{tensor.where} should be F32 [{count}]")
        inputs[end] = None if tensor is None else tensor.float32()
    scale = inputs[INPUT_SCALE]
    try:
        return QuantizedTensor(
            values.array(), multipliers.float32(), None if scale is None else scale.item(), inputs[INPUT_FACTORS]
        )
    except CheckpointError as error:
        raise CheckpointError(f"{values.where}: {error}") from None
