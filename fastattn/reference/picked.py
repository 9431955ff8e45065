"""The projection onto few words, each row's own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastattn.reference.packing import PackedLinear
from fastattn.reference.select import best, edited_logits, log_softmax
from fastattn.spec import Tensor


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


def picked_all(
    x_RD: np.ndarray,
    picked_R: Sequence[Picked],
    suppressed_RJ: np.ndarray | None = None,
    penalised_RJ: np.ndarray | None = None,
    penalty: float = 1.0,
) -> np.ndarray:
    """``project_all`` of rows that choose from the outputs picked for each: the logits of all others are -inf."""
    return log_softmax(_picked_logits(x_RD, picked_R, suppressed_RJ, penalised_RJ, penalty))


def _picked_logits(x_RD: np.ndarray, picked_R: Sequence[Picked], *edits: Any) -> np.ndarray:
    logits_RV = edited_logits(x_RD, picked_R[0].linear, *edits)
    for logits_V, picked in zip(logits_RV, picked_R):
        others = np.ones(len(logits_V), bool)
        others[picked.ids] = False
        logits_V[others] = -np.inf
    return logits_RV


def picked_top_k(
    x_RD: np.ndarray,
    picked_R: Sequence[Picked],
    k: int,
    suppressed_RJ: np.ndarray | None = None,
    penalised_RJ: np.ndarray | None = None,
    penalty: float = 1.0,
    normalised: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """The k most probable of ``picked_all``, as ``project_top_k`` gives them."""
    logits_RV = _picked_logits(x_RD, picked_R, suppressed_RJ, penalised_RJ, penalty)
    return best(log_softmax(logits_RV) if normalised else logits_RV, k)


def picked_log_probs(
    x_RD: np.ndarray,
    picked_R: Sequence[Picked],
    targets_R: np.ndarray,
    suppressed_RJ: np.ndarray | None = None,
    penalised_RJ: np.ndarray | None = None,
    penalty: float = 1.0,
) -> np.ndarray:
    """``picked_all`` at one target id a row."""
    log_probs_RV = picked_all(x_RD, picked_R, suppressed_RJ, penalised_RJ, penalty)
    return log_probs_RV[np.arange(len(log_probs_RV)), targets_R]
