"""A stack over an image's patches (Dosovitskiy 2021): its inputs are rows of pixels, a row of zeros before them."""

import numpy as np

from fastattn.layers.blocks import Linear, Norm
from fastattn.layers.parameters import Parameters
from fastattn.models.stack import AttentionStack
from fastattn.spec.architecture import StackSpec
from fastattn.spec.images import PatchSpec


class PatchEmbedding:
    """A linear layer of each patch plus its position, and perhaps a norm: ``stack.patches``, ``.positions``."""

    def __init__(self, parameters: Parameters, stack: str, spec: StackSpec):
        self.ops, self.linear = parameters.ops, Linear(parameters, f"{stack}.patches")
        self.position_PD = parameters.tensor(f"{stack}.positions")
        self.dtype = self.position_PD.dtype
        self.norm = Norm(parameters, f"{stack}.embedding_norm", spec.norms) if spec.norms.embedding else None

    def __call__(
        self, patches_NE: np.ndarray, positions_N: np.ndarray, types_N: np.ndarray | None = None
    ) -> np.ndarray:
        x_ND: np.ndarray = self.linear(patches_NE, residual_NF=self.ops.embed(positions_N, self.position_PD))
        return x_ND if self.norm is None else self.norm(x_ND)


class PatchStack(AttentionStack):
    """Blocks of attention over the rows of images."""

    Embedding, input_dtype = PatchEmbedding, np.float32

    def __init__(self, parameters: Parameters, name: str, spec: PatchSpec):
        super().__init__(parameters, name, spec.blocks)
