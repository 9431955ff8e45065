"""What the kernels that choose among logits are given: edits, targets, lists of the best."""

import numpy as np

from fastattn.kernels.arguments import BestLists, EditedLogits
from fastattn.ops.edits import Edits
from fastattn.runtime.arena import empty

NO_TARGETS = np.empty(0, np.int32)


def prepared(edits: Edits, rows: int, targets_R: np.ndarray) -> EditedLogits:
    """Edits and targets, int32 or empty, as the kernels take them."""
    none = np.empty((rows, 0), np.int32)
    suppressed_RJ, penalized_RJ = (none if ids is None else ids for ids in (edits.suppressed_RJ, edits.penalized_RJ))
    logits_R = np.full(len(targets_R), -np.inf, np.float32)
    return EditedLogits(suppressed_RJ, penalized_RJ, np.float32(edits.penalty), targets_R, logits_R)


def empty_lists(*shape: int) -> BestLists:
    """Lists of a shape that ends with k, which a kernel clears."""
    return BestLists(empty(shape), empty(shape, np.int32))
