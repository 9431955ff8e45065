"""Heads: layers behind an encoder's last hidden states, which give logits of texts or of tokens."""

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.layers.linear import Linear
from fastattn.layers.norm import Norm
from fastattn.layers.parameters import Parameters
from fastattn.spec.architecture import HeadSpec

# The rows that a head takes -> the pooling that takes them; each row is taken as it is.
POOLINGS = {"first": "cls", "last": "lasttoken", "mean": "mean"}


class Head:
    """The layers of a HeadSpec, from the tensors ``head.*``.

    precision  of the last product; "": that of the model. The others are in float32, whatever the model's are.
    """

    def __init__(self, parameters: Parameters, spec: HeadSpec, precision: str = "float32"):
        self.ops, self.spec = parameters.ops, spec
        self.inner = Linear(parameters, "head.inner", spec.activation, "float32") if spec.inner_width else None
        self.norm = None if spec.norm is None else Norm(parameters, "head.norm", spec.norm)
        self.output = parameters.packed("head.output", precision)

    def __call__(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        """outputs_BF of the sentences, or outputs_NF of each of their rows, from the last hidden states.

        starts_B1  where each sentence's rows start, and where the last one's end
        """
        if self.spec.rows == "each":
            rows_ND = self._between(rows_ND, starts_B1)
        else:
            rows_ND = self.ops.pool(rows_ND, starts_B1, [POOLINGS[self.spec.rows]])
        outputs_NF: np.ndarray = self.ops.linear(self._inside(rows_ND), self.output)
        return outputs_NF

    def peaks(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        """peaks_BF: of each number the largest among a sentence's rows, no less than 0; for a head of each row.

        Raises CheckpointError for rows that are not finite, which the largest number would hide.
        """
        inside_ND = self._inside(self._between(rows_ND, starts_B1))
        if not np.isfinite(np.asarray(inside_ND)).all():
            raise CheckpointError("the model's output is not a number: its weights hold NaN, or overflow")
        return self.ops.project_peaks(inside_ND, starts_B1 - starts_B1[0], self.output)

    def top_k(self, rows_ND: np.ndarray, rows_R: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(log_probs_Rk, ids_Rk): the k most probable outputs of the rows of those numbers; for a head of each row."""
        return self.ops.project_top_k(self._inside(self.ops.take_rows(rows_ND, rows_R)), self.output, k)

    def _between(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        """The rows of these sentences, where the batch has others too."""
        first, end = int(starts_B1[0]), int(starts_B1[-1])
        return rows_ND if (first, end) == (0, len(rows_ND)) else self.ops.take_rows(rows_ND, np.arange(first, end))

    def _inside(self, rows_ND: np.ndarray) -> np.ndarray:
        """The input of the last layer."""
        if self.inner is not None:
            rows_ND = self.inner(rows_ND)
        return rows_ND if self.norm is None else self.norm(rows_ND)
