"""Changes to single logits before the softmax: an argument of the projections."""

from typing import NamedTuple

import numpy as np


class Edits(NamedTuple):
    """Lists of ids, a row each, padded with -1; None where there is nothing to edit.

    suppressed_RJ  int32 ids whose logits count as -inf.
    penalized_RJ   int32 ids, each once a row, whose logits are divided by ``penalty`` where they are positive and
                   multiplied by it where negative (Keskar 2019, section 4.1), before others are suppressed.
    """

    suppressed_RJ: np.ndarray | None = None
    penalized_RJ: np.ndarray | None = None
    penalty: float = 1.0

    def of(self, rows_n: np.ndarray) -> "Edits":
        """The edits of some of the rows."""
        suppressed_RJ, penalized_RJ = (ids_RJ if ids_RJ is None else ids_RJ[rows_n] for ids_RJ in self[:2])
        return Edits(suppressed_RJ, penalized_RJ, self.penalty)


NO_EDITS = Edits()
