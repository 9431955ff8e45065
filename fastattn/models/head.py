"""What follows an encoder's last hidden states, in every variety of a HeadSpec: logits of texts or of tokens."""

import numpy as np

from fastattn.layers.linear import Linear
from fastattn.layers.norm import Norm
from fastattn.layers.parameters import Parameters
from fastattn.spec import HeadSpec

# The rows that a head takes -> the pooling that takes them; each row is taken as it is.
POOLINGS = {"first": "cls", "last": "lasttoken", "mean": "mean"}


class Head:
    """Numbers from hidden states, from the tensors ``head.*``; its products are in float32, whatever the others are."""

    def __init__(self, parameters: Parameters, spec: HeadSpec):
        self.ops, self.spec = parameters.ops, spec
        self.inner = Linear(parameters, "head.inner", spec.activation, "float32") if spec.inner_width else None
        self.norm = None if spec.norm is None else Norm(parameters, "head.norm", spec.norm)
        self.output = Linear(parameters, "head.output", precision="float32")

    def __call__(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        """outputs_BF of the sentences, or outputs_NF of each row, from the last hidden states.

        starts_B1  where each sentence's rows start, and where the last one's end
        """
        if self.spec.rows != "each":
            rows_ND = self.ops.pool(rows_ND, starts_B1, [POOLINGS[self.spec.rows]])
        if self.inner is not None:
            rows_ND = self.inner(rows_ND)
        if self.norm is not None:
            rows_ND = self.norm(rows_ND)
        outputs_NF: np.ndarray = self.output(rows_ND)
        return outputs_NF
