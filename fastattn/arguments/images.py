"""Images whose pixels are rows, with the channels last, and windows that move over images."""

from typing import NamedTuple


class PixelGrid(NamedTuple):
    """Images of one size in rows: row (b * height + y) * width + x is the pixel (y, x) of image b."""

    images: int
    height: int
    width: int

    @property
    def rows(self) -> int:
        return self.images * self.height * self.width


class Window(NamedTuple):
    """A window that moves over an image; each field is (y, x), in pixels.

    padding   pixels on both sides: zeros for a sum, -inf for a maximum
    dilation  the distance from one tap of the window to the next
    """

    size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def over(self, grid: PixelGrid) -> PixelGrid:
        """The grid of the window's positions; a side is 0 where the window is larger than the padded image."""
        height, width = (
            max(0, (length + 2 * self.padding[i] - self.dilation[i] * (self.size[i] - 1) - 1) // self.stride[i] + 1)
            for i, length in enumerate(grid[1:])
        )
        return PixelGrid(grid.images, height, width)
