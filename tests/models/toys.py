"""Toys: a recurrent encoder-decoder with additive attention (Bahdanau 2015) in NumPy, and an encoder of images.

Images become patches by squares (Dosovitskiy 2021), attention among them a vector.
"""

from typing import NamedTuple

import numpy as np

from fastattn.layers.attention_inputs import WholeRows
from fastattn.layers.blocks import Linear
from fastattn.models.encoder import EncoderModel
from fastattn.models.stack import AttentionStack, Stack
from fastattn.spec.architecture import StackSpec
from fastattn.spec.tensors import STACKS


class RecurrentSpec(NamedTuple):
    """A layer whose state is tanh(W x + U state); a decoder adds to W x what it attends to."""

    width: int
    vocabulary: int
    cross_attention: bool = False
    kind, layers, max_positions, projection_bias = "toy-recurrent", 1, 0, False

    def check_role(self, name):
        assert self.cross_attention == (name == "decoder")


def recurrent_shapes(spec):
    names = ("embedding", "input", "state", *(("query", "key", "context", "score") if spec.cross_attention else ()))
    rows = {"embedding": spec.vocabulary, "score": 1}
    return {f"{name}.weight": (rows.get(name, spec.width), spec.width) for name in names}


class RecurrentStack(Stack):
    """Each row continues the state of the one before it, in a table of states: as in layers/blocks.py."""

    def __init__(self, parameters, name, spec):
        self.row_widths, self.memory_widths = (spec.width,), (2 * spec.width,) if spec.cross_attention else ()
        self.weights = {
            tensor.split(".")[0]: parameters.tensor(f"{name}.{tensor}") for tensor in recurrent_shapes(spec)
        }

    def project_memory(self, rows_ND, last_BS=None):
        return [np.concatenate([rows_ND @ self.weights["key"].T, rows_ND], axis=1)]

    def __call__(self, ids_N, rows):
        D, x_ND = self.row_widths[0], self.weights["embedding"][ids_N] @ self.weights["input"].T
        states_MW, previous_N, rows_N = rows.states(0, x_ND)
        for n in range(len(x_ND)):
            state_D = states_MW[previous_N[n], :D] if previous_N[n] >= 0 else np.zeros(D, np.float32)
            if self.memory_widths:
                x_ND[n] += self.weights["context"] @ self.attend(state_D, *np.hsplit(self.memory_of(rows, n), 2))
            states_MW[rows_N[n], :D] = np.tanh(x_ND[n] + self.weights["state"] @ state_D)
        return states_MW[rows_N, :D].copy()

    def attend(self, state_D, key_SD, value_SD):
        weight_S = np.exp(np.tanh(key_SD + self.weights["query"] @ state_D) @ self.weights["score"][0])
        return weight_S / weight_S.sum() @ value_SD

    def memory_of(self, rows, n):
        if isinstance(rows, WholeRows):
            b = np.searchsorted(rows.starts_B1, n, side="right") - 1
            return rows.memory.keys_values[0][rows.memory.starts_B1[b] : rows.memory.starts_B1[b + 1]]
        index_RS, lengths_N, owners_N, *_ = rows.memory
        index_S = index_RS[n if owners_N is None else owners_N[n], : lengths_N[n]]
        return rows.cache.memory.layers[0][index_S, : self.memory_widths[0]]


PATCH, CHANNELS = 4, 3  # an image is cut into squares of PATCH by PATCH


class PatchSpec(StackSpec):
    """A StackSpec whose inputs are patches."""

    kind = "toy-patches"


def patch_shapes(spec):
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


SHAPES = {"toy-recurrent": recurrent_shapes, "toy-patches": patch_shapes}
