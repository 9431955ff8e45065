"""A subset of a linear layer's outputs, for rows to choose from."""

import numpy as np

from fastattn.ops.reference.packing import ReferenceLinear
from fastattn.spec.quantized import Tensor


class ReferenceSubset:
    """A subset of a linear layer's outputs, from which a row chooses; ids int32, ascending."""

    place = 0, 0, 0  # in memory, for kernels alone

    def __init__(self, linear: ReferenceLinear, ids: np.ndarray):
        self.linear, self.ids = linear, ids


def pack_rows(weight_FD: Tensor, packed: ReferenceLinear) -> ReferenceLinear:
    """The weights of ``packed``, for ``select_outputs``."""
    return packed


def select_outputs(linear: ReferenceLinear, ids: np.ndarray) -> ReferenceSubset:
    """The outputs ``ids`` of the layer."""
    return ReferenceSubset(linear, ids)
