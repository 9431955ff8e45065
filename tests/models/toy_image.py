"""A toy: an encoder of images (Dosovitskiy 2021), from an array [H, W, C] by patches and attention to a vector."""

import numpy as np

from fastattn.layers.blocks import Linear
from fastattn.models.encoder import EncoderModel
from fastattn.models.stack import AttentionStack
from fastattn.spec.architecture import StackSpec
from fastattn.spec.tensors import STACKS

PATCH, CHANNELS = 4, 3  # an image is cut into squares of PATCH by PATCH


class PatchSpec(StackSpec):
    """A StackSpec whose inputs are patches."""

    kind = "toy-patches"


def shapes(spec):
    return STACKS["attention"](spec) | {"patches.weight": (spec.width, PATCH * PATCH * CHANNELS)}


class PatchEmbedding:
    """A linear layer, and a learned position for each patch."""

    def __init__(self, parameters, stack, spec):
        self.ops, self.linear = parameters.ops, Linear(parameters, f"{stack}.patches")
        self.position_PD = parameters.tensor(f"{stack}.positions")
        self.dtype = self.position_PD.dtype

    def __call__(self, patches_NF, positions_N, types_N=None):
        return self.linear(patches_NF, residual_NF=self.ops.embed(positions_N, self.position_PD))


class PatchStack(AttentionStack):
    """Blocks of attention over patches."""

    Embedding, input_dtype = PatchEmbedding, np.float32


class ImageModel(EncoderModel):
    """Vectors of images: the mean of the last hidden states of their patches."""

    def vectors(self, images_BHWC):
        rows_ND, starts_B1 = self.encode([patches(image_HWC) for image_HWC in images_BHWC])
        return self.encoder.ops.pool(rows_ND, starts_B1, ["mean"])


def patches(image_HWC):
    """[patches, PATCH * PATCH * C], row by row."""
    H, W, C = image_HWC.shape
    cut = image_HWC.reshape(H // PATCH, PATCH, W // PATCH, PATCH, C).transpose(0, 2, 1, 3, 4)
    return cut.reshape(-1, PATCH * PATCH * C)
