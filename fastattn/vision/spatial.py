"""Attention to places: images straightened, patches looked at closely."""

from itertools import pairwise

import numpy as np

from fastattn.arguments.images import PixelGrid, Window
from fastattn.errors import InputError, check_count, described
from fastattn.vision.module import ImageModule, StateReader, check_window


class SpatialTransformer(ImageModule):
    """The image that an affine map, found in it by convolutions, makes of it by bilinear samples (Jaderberg 2015).

    Tensors by the names of PyTorch's tutorial: localization.0, .3, .6 and so on are convolutions without padding, each
    followed by a maximum of 2 x 2 and relu; fc_loc.0, relu, fc_loc.2 make the map's six numbers of all that is left.
    size  (height, width) of the result; None: that of the image
    """

    def __init__(self, state: StateReader, size: tuple[int, int] | None = None):
        super().__init__(state)
        self._size = None
        if size is not None:
            if not isinstance(size, (tuple, list)) or len(size) != 2:
                raise InputError(f"size: expected (height, width), got {described(size)}")
            self._size = check_count("size's height", size[0]), check_count("size's width", size[1])
        numbers = state.numbers("localization") or [0]
        self.channels = state.size(f"localization.{numbers[0]}", 1)
        widths = [self.channels, *(state.size(f"localization.{i}") for i in numbers)]
        self._convolutions = [
            state.convolution(f"localization.{i}", *sides, "relu", padded=False)
            for i, sides in zip(numbers, pairwise(widths))
        ]
        weight_FE = state.take("fc_loc.0.weight", 0, 0)
        self._places, rest = divmod(weight_FE.shape[1], widths[-1])
        if rest:
            raise InputError(f"state: expected fc_loc.0 of a multiple of {widths[-1]} inputs, got {weight_FE.shape[1]}")
        inner = len(weight_FE)  # its inputs are channels with their places; rows are places with their channels
        weight_FE = weight_FE.reshape(inner, widths[-1], -1).transpose(0, 2, 1).reshape(inner, -1)
        state.add("inner", weight_FE, "fc_loc.0.bias")
        self._inner, self._outer = state.parameters.packed("inner"), state.linear("fc_loc.2", inner, 6)

    def maps(self, x: np.ndarray) -> np.ndarray:
        """Each image's map from the result's coordinates to its own, both -1 to 1: float32 [B, 2, 3]."""
        return self._maps(*self._pixels(x))

    def _maps(self, x_ND: np.ndarray, grid: PixelGrid) -> np.ndarray:
        half = Window((2, 2), (2, 2))
        for convolution in self._convolutions:
            check_window(convolution.window, grid)
            x_ND, grid = convolution(x_ND, grid)
            out = check_window(half, grid)
            x_ND, grid = self.ops.pool_windows(x_ND, grid, half, "max"), out
        if grid.height * grid.width != self._places:
            raise InputError(f"x: expected images that leave {self._places} places, got {grid.height} x {grid.width}")
        rows_BE = x_ND.reshape(grid.images, -1)
        return np.asarray(self._outer(self.ops.linear(rows_BE, self._inner, "relu"))).reshape(-1, 2, 3)

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        out, maps_B23 = PixelGrid(grid.images, *(self._size or grid[1:])), self._maps(x_ND, grid)
        y_P, x_P = ((2 * np.mgrid[: out.height, : out.width] + 1).reshape(2, -1).T / out[1:] - 1).T
        places_P3 = np.stack([x_P, y_P, np.ones_like(x_P)], axis=1)
        sides_2 = np.array(grid[:0:-1])  # width, height
        points_BP2 = ((places_P3 @ maps_B23.transpose(0, 2, 1) + 1) * sides_2 - 1) / 2
        points_BP2 = np.ascontiguousarray(points_BP2[..., ::-1], np.float32)
        return self.ops.sample_pixels(x_ND, grid, points_BP2, "zeros"), out


class DynamicCapacity(ImageModule):
    """Coarse features of all places, fine ones where they matter: where the answer's entropy leans on the coarse ones.

    Almahairi 2016: c = coarse(x); the answer is softmax(top(max of c)), H its entropy; a place's saliency is the length
    of dH/dc there, by hand: dH/d scores = -p (log p + H), which goes through ``top`` to the place of each maximum. Of
    the most salient places c becomes the maximum of ``fine`` of the patch around them. Images in, features out.

    Tensors: coarse.0, .2 and so on, fine.0, .2 and so on, convolutions of odd sides padded as "same", each with relu;
    top, a linear layer.
    patches        how many places are looked at closely
    side           of a patch, odd, in pixels
    coarse_stride, fine_stride  of each convolution
    """

    def __init__(
        self, state: StateReader, patches: int = 8, side: int = 9, coarse_stride: int = 2, fine_stride: int = 1
    ):
        super().__init__(state)
        self._patches, self._side = check_count("patches", patches), check_count("side", side)
        if side % 2 == 0:
            raise InputError(f"side: expected an odd number, got {side}")
        self.channels, strides = state.size("coarse.0", 1), {"coarse": coarse_stride, "fine": fine_stride}
        self._networks, outputs = {}, 0
        for name, stride in strides.items():
            numbers = state.numbers(name) or [0]
            widths = [self.channels, *(state.size(f"{name}.{i}") for i in numbers)]
            widths[-1] = outputs or widths[-1]
            outputs = widths[-1]
            self._networks[name] = [
                state.convolution(f"{name}.{i}", *sides, "relu", stride=check_count(f"{name}_stride", stride))
                for i, sides in zip(numbers, pairwise(widths))
            ]
        self._step = coarse_stride ** len(self._networks["coarse"])  # pixels between places
        self._top_FD = state.take("top.weight", 0, outputs)
        self._top = state.linear("top", outputs)

    def saliency(self, x: np.ndarray) -> np.ndarray:
        """How much each place matters, float32 [B, y, x]."""
        c_ND, grid = self._features("coarse", *self._pixels(x))
        return self._saliency(c_ND, grid).reshape(grid)

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """The answer by the features that this makes of images: float32 [B, classes]."""
        features_ND, grid = self._run(*self._pixels(x))
        return self.ops.softmax(self._top(self.ops.pool_areas(features_ND, grid, _whole(grid), "max")))

    def _features(self, name: str, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        for convolution in self._networks[name]:
            x_ND, grid = convolution(x_ND, grid)
        return x_ND, grid

    def _saliency(self, c_ND: np.ndarray, grid: PixelGrid) -> np.ndarray:
        """[B, places]"""
        c_BPD = np.asarray(c_ND).reshape(grid.images, -1, c_ND.shape[1])
        peaks_BD = self.ops.pool_areas(c_ND, grid, _whole(grid), "max")
        p_BF = np.asarray(self.ops.softmax(self._top(peaks_BD)))
        logs_BF = np.log(np.maximum(p_BF, np.finfo(np.float32).tiny))
        entropy_B1 = -(p_BF * logs_BF).sum(axis=1, keepdims=True)
        squares_BD = (-p_BF * (logs_BF + entropy_B1) @ self._top_FD) ** 2
        saliency_BP = np.zeros(c_BPD.shape[:2], np.float32)
        np.add.at(saliency_BP, (np.arange(grid.images)[:, None], c_BPD.argmax(axis=1)), squares_BD)
        return np.sqrt(saliency_BP)

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        c_ND, out = self._features("coarse", x_ND, grid)
        saliency_BP = self._saliency(c_ND, out)
        chosen_BK = np.argsort(-saliency_BP, axis=1, kind="stable")[:, : self._patches]
        middles_BK2 = np.stack([chosen_BK // out.width, chosen_BK % out.width], axis=-1) * self._step
        around_P2 = np.moveaxis(np.mgrid[: self._side, : self._side], 0, -1).reshape(-1, 2) - self._side // 2
        points_BP2 = (middles_BK2[:, :, None] + around_P2).reshape(grid.images, -1, 2).astype(np.float32)
        patches_ND = self.ops.sample_pixels(x_ND, grid, points_BP2, "zeros")
        fine_ND, small = self._features("fine", patches_ND, PixelGrid(chosen_BK.size, self._side, self._side))
        fine_KD = np.asarray(self.ops.pool_areas(fine_ND, small, _whole(small), "max"))
        features_ND = np.array(c_ND)
        features_ND[(chosen_BK + np.arange(grid.images)[:, None] * out.height * out.width).reshape(-1)] = fine_KD
        return self.ops.as_rows(features_ND), out


def _whole(grid: PixelGrid) -> PixelGrid:
    """One area for each image."""
    return PixelGrid(grid.images, 1, 1)
