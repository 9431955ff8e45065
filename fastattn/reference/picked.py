"""Some outputs of a linear layer, for rows to choose from."""

import numpy as np

from fastattn.quantized import Tensor
from fastattn.reference.packing import PackedLinear


class Picked:
    """Some outputs of a linear layer, from which a row chooses; ids int32, rising."""

    def __init__(self, linear: PackedLinear, ids: np.ndarray):
        self.linear, self.ids = linear, ids


def pack_rows(weight_FD: Tensor, packed: PackedLinear) -> PackedLinear:
    """The weights that ``packed`` was made of, for ``pick``."""
    return packed


def pick(linear: PackedLinear, ids: np.ndarray) -> Picked:
    """The outputs ``ids`` of the layer."""
    return Picked(linear, ids)
