"""The memory: an encoder's output for a decoder."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Memory:
    """A batch of encoded sources, for the decoder's attention: sentence b is rows starts[b] .. starts[b + 1].

    rows_ND      the encoder's last hidden states
    keys_values  for each decoder layer [N, E]: keys and values of these rows side by side, as in the cache; [] for a
                 model without an encoder
    """

    rows_ND: np.ndarray
    starts_B1: np.ndarray
    keys_values: list[np.ndarray]
