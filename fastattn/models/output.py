"""From hidden states to the next token: the projection onto the vocabulary, or onto subsets of it."""

from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.layers.parameters import Parameters
from fastattn.ops.protocol import OutputSubset
from fastattn.ops.steps import NO_EDITS, Edits
from fastattn.spec.checkpoint import Shortlist


class OutputProjection:
    """A softmax over ``decoder.projection``.

    shortlist     the checkpoint's, or None
    restrictable  whether rows may choose from subsets of the outputs: ``select_outputs`` needs it
    """

    def __init__(self, parameters: Parameters, shortlist: Shortlist | None = None, restrictable: bool = False):
        self.ops, self.shortlist = parameters.ops, shortlist
        self.projection = parameters.packed("decoder.projection")
        if restrictable:
            weight_VD = parameters.tensor("decoder.projection.weight")
            self._rows = cache(partial(self.ops.pack_rows, weight_VD, self.projection))  # made when first used

    def select_outputs(self, ids: np.ndarray) -> OutputSubset:
        """The subset of the outputs with these ids: int32, ascending."""
        return self.ops.select_outputs(self._rows(), ids)

    def top_k(
        self,
        hidden_RD: np.ndarray,
        k: int,
        edits: Edits = NO_EDITS,
        subsets_R: Sequence[OutputSubset] | None = None,
        normalized: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k most probable next tokens: (log_probs_Rk, ids_Rk), best first.

        subsets_R   the outputs that each row chooses from, None: all; here and below
        normalized  False: logits instead of log-probabilities; only if k tokens are sure to be left
        Raises CheckpointError where the weights give NaN or infinity.
        """
        outputs = self.projection if subsets_R is None else subsets_R
        log_probs_Rk, ids_Rk = self.ops.project_top_k(hidden_RD, outputs, k, edits, normalized)
        # A NaN logit shows in its row's sum; among the best logits only infinities show, or NaN in all of them.
        self.check(not (np.isnan(log_probs_Rk) if normalized else ~np.isfinite(log_probs_Rk)).any())
        return log_probs_Rk, ids_Rk

    @staticmethod
    def check(are_numbers: bool) -> None:
        """Raise CheckpointError for outputs that are not numbers."""
        if not are_numbers:
            raise CheckpointError("the model's output is not a number: its weights hold NaN or infinity, or overflow")

    def all_log_probs(
        self, hidden_RD: np.ndarray, edits: Edits = NO_EDITS, subsets_R: Sequence[OutputSubset] | None = None
    ) -> np.ndarray:
        """log_probs_RV of every next token."""
        return self.ops.project_all(hidden_RD, self.projection if subsets_R is None else subsets_R, edits)

    def log_probs(
        self,
        hidden_ND: np.ndarray,
        targets_N: np.ndarray,
        edits: Edits = NO_EDITS,
        subsets_N: Sequence[OutputSubset] | None = None,
    ) -> np.ndarray:
        """The log-probability of each row's target token."""
        return self.ops.log_probs(hidden_ND, self.projection if subsets_N is None else subsets_N, targets_N, edits)
