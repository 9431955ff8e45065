"""What the kernels that choose among logits are given: edits, targets, lists of the best."""

import numpy as np

from fastattn.ops.edits import Edits
from fastattn.runtime.arena import empty

NO_TARGETS = np.empty(0, np.int32)


def prepared(edits: Edits, rows: int, targets_R: np.ndarray) -> tuple:
    """(suppressed_RJ, penalized_RJ, penalty, targets_R, logits_R) as the kernels take them: empty lists for none.

    targets_R  int32, or empty; logits_R is written: the edited logits of these ids, -inf for one not among the outputs
    """
    none = np.empty((rows, 0), np.int32)
    suppressed_RJ, penalized_RJ = (none if ids_RJ is None else ids_RJ for ids_RJ in edits[:2])
    logits_R = np.full(len(targets_R), -np.inf, np.float32)
    return suppressed_RJ, penalized_RJ, np.float32(edits.penalty), targets_R, logits_R


def empty_lists(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    """(values, ids) of a shape that ends with k, which a kernel clears."""
    return empty(shape), empty(shape, np.int32)
