"""Encoders of images as plain data: patches before attention, and how a picture becomes an image."""

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import StackSpec, check_counts
from fastattn.system.records import dataclass


@dataclass(frozen=True)
class PatchSpec:
    """Attention over the patches of an image, a row each, behind a row for the whole (Dosovitskiy 2021, section 3.1).

    blocks  behind the patches' linear layer; their positions are a table whose first row is that of the whole: the
            class's embedding plus its position, less the bias that patches have
    image   channels, height and width
    patch   height and width
    """

    kind = "patches"
    cross_attention = False
    projection_bias = False
    vocabulary = 0  # its inputs are no ids
    blocks: StackSpec
    image: tuple[int, int, int]
    patch: tuple[int, int]

    def __post_init__(self) -> None:
        names = ("channels", "height", "width", "patch_height", "patch_width")
        check_counts(1, **dict(zip(names, (*self.image, *self.patch))))
        if self.blocks.vocabulary or self.blocks.positions.limit != 1 + self.patches:
            raise CheckpointError(f"the image has {self.patches} patches, which need a position each and one before")

    @property
    def layers(self) -> int:
        """Those of the blocks, as the next three."""
        return self.blocks.layers

    @property
    def width(self) -> int:
        return self.blocks.width

    @property
    def positions(self) -> object:
        return self.blocks.positions

    @property
    def max_positions(self) -> int:
        return self.blocks.max_positions

    @property
    def patches(self) -> int:
        """How many an image has; what is left over at its right and lower edge is none."""
        return (self.image[1] // self.patch[0]) * (self.image[2] // self.patch[1])

    @property
    def patch_values(self) -> int:
        """The numbers of a patch: each channel's, row by row."""
        return self.image[0] * self.patch[0] * self.patch[1]

    def check_role(self, name: str) -> None:
        """Raise CheckpointError for a decoder."""
        if name == "decoder":
            raise CheckpointError("patches are an encoder's")


@dataclass(frozen=True, eq=False)
class PictureSpec:
    """How a picture becomes an image [C, Y, X], in this order, and what its vector is.

    size      (height, width) it is resized to; (0, n): its shorter side to n, the other in proportion; (0, 0): not
    resample  the number of Pillow's filter
    crop      (height, width) of the middle that is kept, zeros around a smaller one; (0, 0): all
    factor    by which values from 0 to 255 are multiplied
    mean, deviation   of each channel: (x - mean) / deviation
    projection_ED     of the first row of the last hidden states, float32 without a bias; None: the row itself
    """

    size: tuple[int, int]
    resample: int
    crop: tuple[int, int]
    factor: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    projection_ED: np.ndarray | None = None
