"""Encoders of images as plain data: patches with attention, convolutions, and how a picture becomes an image."""

from typing import NamedTuple

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import StackSpec, check_counts, check_known
from fastattn.system.records import dataclass


class _ImageStack:
    """The common part of encoders of images."""

    cross_attention = projection_bias = False
    vocabulary = 0  # inputs are not ids
    parts = ""  # what the stack is made of, for an error message

    def check_role(self, name: str) -> None:
        if name == "decoder":
            raise CheckpointError(f"{self.parts} are an encoder's")


@dataclass(frozen=True)
class PatchSpec(_ImageStack):
    """Attention over a class row and a row for each patch of an image (Dosovitskiy 2021, section 3.1).

    blocks  the stack behind the patches' linear layer, with a table of positions. The table's first row is the class
            token's embedding plus its position, minus the bias of the patches' layer
    """

    kind = "patches"
    parts = "patches"
    pooling = "cls"  # from rows to a vector
    blocks: StackSpec
    image: tuple[int, int, int]  # channels, height and width
    patch: tuple[int, int]  # height and width

    def __post_init__(self) -> None:
        names = ("channels", "height", "width", "patch_height", "patch_width")
        check_counts(1, **dict(zip(names, (*self.image, *self.patch))))
        if self.blocks.vocabulary or self.blocks.positions.limit != 1 + self.patches:
            raise CheckpointError(f"the image has {self.patches} patches, which need a position each and one before")

    @property
    def layers(self) -> int:
        return self.blocks.layers

    @property
    def width(self) -> int:
        return self.blocks.width

    @property
    def max_positions(self) -> int:
        return self.blocks.max_positions

    @property
    def patches(self) -> int:
        """How many patches an image has; pixels at the right and lower edge that fill no patch are ignored."""
        return (self.image[1] // self.patch[0]) * (self.image[2] // self.patch[1])

    @property
    def patch_values(self) -> int:
        """How many numbers a patch has: those of each channel in turn, row by row."""
        return self.image[0] * self.patch[0] * self.patch[1]


MAX_SIDE = 1 << 11  # pixels of an image's side, more than any model has
# Weights of a block's result before the addition: of channels (Hu 2018), or of channels, then of positions (Woo 2018).
GATES = ("none", "squeeze-excitation", "cbam")


class BlockSizes(NamedTuple):
    """A residual block's channels before, in and behind its convolutions, its stride, and its gate's inner width."""

    inputs: int
    width: int
    outputs: int
    stride: int
    gate_width: int

    @property
    def has_shortcut(self) -> bool:
        """Whether the block's input goes through a convolution before it is added."""
        return self.stride > 1 or self.inputs != self.outputs


@dataclass(frozen=True)
class ResidualSpec(_ImageStack):
    """A residual network (He 2016, version 1.5), batch norms folded into weights; a row is a pixel of the last grid."""

    kind = "convolutional"
    parts = "convolutions of images"
    pooling = "mean"
    max_positions = 0
    image: tuple[int, int, int]  # channels, height and width
    stem: int  # the width of the first convolution
    blocks: tuple[int, ...]  # of each stage; a stage but the first halves its grid
    widths: tuple[int, ...]  # of the stages' inner convolutions
    stem_size: int = 7  # side of the first convolution's window, which is padded as "same"
    stem_stride: int = 2
    stem_pool: bool = True  # whether a maximum of 3 x 3 at stride 2 follows
    expansion: int = 1  # a stage's outer width / its inner width; 1: blocks are 3x3, 3x3; above 1: 1x1, 3x3, 1x1
    groups: int = 1  # of the 3x3 convolutions of blocks with three convolutions (Xie 2017)
    gate: str = "none"  # a name in GATES
    squeezed: tuple[int, ...] = ()  # for each stage the inner width of its gates

    def __post_init__(self) -> None:
        check_counts(1, stem=self.stem, stem_size=self.stem_size, stem_stride=self.stem_stride)
        check_counts(1, expansion=self.expansion, groups=self.groups, stages=len(self.blocks))
        check_counts(1, **dict(zip(("channels", "height", "width"), self.image)))
        check_counts(1, **{"a stage's blocks": min(self.blocks), "a stage's width": min(self.widths, default=0)})
        check_known("gate of blocks", self.gate, GATES)
        if self.stem_size % 2 == 0:
            raise CheckpointError(f"the first convolution's side should be odd, is {self.stem_size}")
        if len(self.widths) != len(self.blocks) or any(width % self.groups for width in self.widths):
            raise CheckpointError(f"{len(self.blocks)} stages in {self.groups} groups cannot have widths {self.widths}")
        if len(self.squeezed) != (self.gate != "none") * len(self.blocks):
            raise CheckpointError(f"{len(self.blocks)} stages with gate {self.gate} cannot squeeze to {self.squeezed}")

    @property
    def layers(self) -> int:
        return sum(self.blocks)

    @property
    def width(self) -> int:
        return self.widths[-1] * self.expansion

    states = width  # numbers of a decoder's first state, which is the mean of the rows

    @property
    def block_sizes(self) -> list["BlockSizes"]:
        sizes, inputs = [], self.stem
        for stage, (blocks, width) in enumerate(zip(self.blocks, self.widths)):
            for block in range(blocks):
                outputs, stride = width * self.expansion, 2 if stage and not block else 1
                gate_width = self.squeezed[stage] if self.squeezed else 0
                sizes.append(BlockSizes(inputs, width, outputs, stride, gate_width))
                inputs = outputs
        return sizes

    @property
    def grid(self) -> tuple[int, int]:
        """The height and width of the last grid."""
        strides = [self.stem_stride, *[2] * self.stem_pool, *[sizes.stride for sizes in self.block_sizes]]
        height, width = self.image[1:]
        for stride in strides:
            height, width = -(-height // stride), -(-width // stride)
        return height, width

    @property
    def row_values(self) -> int:
        """How many numbers a row of the input has: inputs have a row for each pixel of the last grid."""
        channels, height, width = self.image
        return -(-channels * height * width // (self.grid[0] * self.grid[1]))


def tap_rows(weight_FCYX: np.ndarray) -> np.ndarray:
    """A convolution's weight as rows [F, taps C] for ``convolve``: taps in turn, each with all its channels."""
    return np.ascontiguousarray(weight_FCYX.transpose(0, 2, 3, 1)).reshape(len(weight_FCYX), -1)


NORM_TENSORS = ("running_mean", "running_var", "weight", "bias")  # PyTorch's names of the first four fields below


class BatchNorm(NamedTuple):
    """The statistics of a batch norm, and its weights, [F] each (Ioffe 2015)."""

    mean: np.ndarray
    variance: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    epsilon: float = 1e-5

    def folded(self, weight_FE: np.ndarray, bias_F: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(weight, bias) of one layer in place of a layer (``weight_FE``, ``bias_F``) and this norm behind it."""
        factor_F = self.weight / np.sqrt(self.variance + np.float32(self.epsilon))
        shift_F = -self.mean if bias_F is None else bias_F - self.mean
        return weight_FE * factor_F[:, None], shift_F * factor_F + self.bias


@dataclass(frozen=True, eq=False)
class PictureSpec:
    """The steps, in this order, from a picture to an image [C, Y, X], and to its vector."""

    size: tuple[int, int]  # (height, width) after resizing; (0, n): n is the shorter side; (0, 0): no resizing
    resample: int  # the number of Pillow's filter
    crop: tuple[int, int]  # (height, width) of the middle that stays, with zeros around a smaller picture; (0, 0): all
    factor: float  # multiplies values from 0 to 255
    mean: tuple[float, ...]  # of each channel x, which becomes (x - mean) / deviation
    deviation: tuple[float, ...]
    projection_ED: np.ndarray | None = None  # of pooled rows, float32 without a bias; None: pooled rows are the vector
    rounds: bool = False  # whether a half pixel where the crop begins is rounded to even, as in torchvision, else down
    white: bool = False  # whether transparent pixels are laid on white, else they keep their colours
