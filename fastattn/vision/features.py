"""Attention within grids of features: masks from coarser grids, between scales, of patches to each other."""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from fastattn.arguments.images import PixelGrid, Window
from fastattn.arguments.recurrent import Columns
from fastattn.array_attention.arguments import MAX_HEAD_WIDTH, number
from fastattn.errors import InputError, check_count, described
from fastattn.layers.attention import SelfAttention
from fastattn.layers.attention_inputs import WholeRows
from fastattn.layers.blocks import FeedForward
from fastattn.layers.images import image_starts
from fastattn.models.residual import ResidualBlock
from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, NormSpec, StackSpec
from fastattn.spec.images import BlockPlace, ResidualSpec, tap_rows
from fastattn.vision.module import ImageModule, StateReader, check_window

HALVING = Window((3, 3), (2, 2), (1, 1))
MOST_SCALE = 8.0


class ResidualAttention(ImageModule):
    """(1 + M) F: features F by a trunk, a mask M of them that has looked at coarser grids (Wang 2017, section 3).

    Tensors: trunk.0, .1 and so on make F; down.i and up.i go to the grid that a maximum of 3 x 3 has halved i + 1 times
    and back by bilinear samples, skip.i adds what down.i had made to what comes back there. Each of these is a residual
    unit by timm's names: conv1, bn1, conv2, bn2. M is the sigmoid of mask.0, the batch norm mask.1, relu and mask.3,
    convolutions of 1 x 1.
    """

    def __init__(self, state: StateReader):
        super().__init__(state)
        self.channels = channels = state.size("mask.0")
        self._trunk = [self._unit(state, f"trunk.{i}") for i in state.numbers("trunk")]
        levels = len(state.numbers("down"))
        self._down, self._up = ([self._unit(state, f"{way}.{i}") for i in range(levels)] for way in ("down", "up"))
        self._skip = [self._unit(state, f"skip.{i}") for i in range(levels - 1)]
        self._inner = state.convolution("mask.0", channels, channels, "relu", norm="mask.1")
        weight_FD = state.take("mask.3.weight", channels, channels, 1, 1)[:, :, 0, 0]
        state.add("mask.3", weight_FD, "mask.3.bias")
        self._outer = state.parameters.packed("mask.3")

    def _unit(self, state: StateReader, name: str) -> ResidualBlock:
        channels = self.channels
        for i in (1, 2):
            weight_FCYX = state.take(f"{name}.conv{i}.weight", channels, channels, 3, 3)
            state.add(f"{name}.{i}", tap_rows(weight_FCYX), norm=f"{name}.bn{i}")
        spec = ResidualSpec(image=(channels, 1, 1), stem=channels, blocks=(1,), widths=(channels,))
        return ResidualBlock(state.parameters, name, spec, BlockPlace(channels, channels, channels, 1, 0))

    def mask(self, x: np.ndarray) -> np.ndarray:
        """M, the mean of its channels: float32 [B, Y, X]."""
        x_ND, grid = self._pixels(x)
        inner_ND = self._before_mask(x_ND, grid)
        return np.asarray(self.ops.linear(inner_ND, self._outer, "sigmoid")).mean(axis=1).reshape(grid)

    def _before_mask(self, x_ND: np.ndarray, grid: PixelGrid) -> np.ndarray:
        grids, made = [grid], [x_ND]
        for unit in self._down:
            halved_ND = self.ops.pool_windows(made[-1], grids[-1], HALVING, "max")
            rows_ND, out = unit(halved_ND, HALVING.over(grids[-1]))
            grids.append(out)
            made.append(rows_ND)
        y_ND = made[-1]
        for i in reversed(range(len(self._down))):
            y_ND = self._resized(self._up[i](y_ND, grids[i + 1])[0], grids[i + 1], grids[i])
            if i:
                y_ND = self.ops.add_rows(y_ND, self._skip[i - 1](made[i], grids[i])[0])
        return self._inner(y_ND, grid)[0]

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        inner_ND = self._before_mask(x_ND, grid)
        for unit in self._trunk:
            x_ND, _ = unit(x_ND, grid)
        return self.ops.linear(inner_ND, self._outer, "sigmoid", residual_NF=x_ND, multiply_NF=x_ND), grid


class MultiScaleAttention(ImageModule):
    """One network at several sizes of the image, a softmax over the sizes at each place (Chen 2016, section 3).

    Tensors: network.0, .2 and so on, convolutions of odd sides padded as "same" with relu between them; attention.0 and
    .2, likewise, make a score of each size of the features of all, side by side.
    scales  of the image's sides; features are resized to the image's own
    """

    def __init__(self, state: StateReader, scales: Sequence[float] = (1.0, 0.5)):
        super().__init__(state)
        if not isinstance(scales, (tuple, list)) or not scales:
            raise InputError(f"scales: expected several numbers, got {described(scales)}")
        self._scales = [number("scales", scale) for scale in scales]
        if not all(0 < scale <= MOST_SCALE for scale in self._scales):
            raise InputError(f"scales: expected numbers above 0 and at most {MOST_SCALE:g}, got {self._scales}")
        numbers = state.numbers("network") or [0]
        self.channels = inputs = state.size(f"network.{numbers[0]}", 1)
        self._network = []
        for i in numbers:
            activation = "none" if i == numbers[-1] else "relu"
            self._network.append(state.convolution(f"network.{i}", inputs, 0, activation))
            inputs = state.size(f"network.{i}")
        inner = state.size("attention.0")
        self._inner = state.convolution("attention.0", len(self._scales) * inputs, inner, "relu")
        self._outer = state.convolution("attention.2", inner, len(self._scales))

    def weights(self, x: np.ndarray) -> np.ndarray:
        """How much each place takes of each size: float32 [B, scales, Y, X], whose sums over scales are 1."""
        x_ND, grid = self._pixels(x)
        return np.ascontiguousarray(self._attend(x_ND, grid)[1].reshape(*grid, -1).transpose(0, 3, 1, 2))

    def _attend(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[list[np.ndarray], np.ndarray]:
        """(features of each scale, weights_NS)."""
        features_S = []
        for scale in self._scales:
            size = PixelGrid(grid.images, *(max(1, int(side * scale)) for side in grid[1:]))
            y_ND = self._resized(x_ND, grid, size)
            for convolution in self._network:
                y_ND, _ = convolution(y_ND, size)
            features_S.append(self._resized(y_ND, size, grid))
        joined_NE = self.ops.join_columns([Columns(y_ND, 0, y_ND.shape[1]) for y_ND in features_S])
        return features_S, np.asarray(self.ops.softmax(self._outer(*self._inner(joined_NE, grid))[0]))

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        features_S, weights_NS = self._attend(x_ND, grid)
        gated_S = (
            self.ops.gate_pixels(features_ND, grid, None, np.ascontiguousarray(weights_N[:, None]))
            for features_ND, weights_N in zip(features_S, weights_NS.T)
        )
        return reduce(self.ops.add_rows, gated_S), grid


class PatchAttention(ImageModule):
    """A block of a Vision Transformer: every patch looks at all patches of its image (Dosovitskiy 2021, section 3.1).

    Tensors by timm's names: norm1, attn.qkv, attn.proj, norm2, mlp.fc1, mlp.fc2; and perhaps patch_embed.proj, whose
    patches the image is cut into. Without it each place is a patch.
    heads    of the attention
    epsilon  of the norms
    """

    def __init__(self, state: StateReader, heads: int, epsilon: float = 1e-6):
        super().__init__(state)
        width, inner = len(state.take("norm1.weight", 0)), len(state.take("mlp.fc1.bias", 0))
        if width % check_count("heads", heads) or width // heads > MAX_HEAD_WIDTH:
            raise InputError(f"heads: expected a number that divides the width {width}, got {heads}")
        self.channels, self._embedding = width, None
        if state.has("patch_embed.proj.weight"):
            self.channels, size = (state.size("patch_embed.proj", axis) for axis in (1, 2))
            self._embedding = state.convolution("patch_embed.proj", self.channels, width, stride=size, padded=False)
        sizes = {"self_attention": (("qkv", "attn.qkv", 3 * width, width), ("output", "attn.proj", width, width))}
        sizes["feed_forward"] = (("inner", "mlp.fc1", inner, width), ("outer", "mlp.fc2", width, inner))
        for i, (part, layers) in enumerate(sizes.items()):
            state.add(f"block.{part}.norm", state.take(f"norm{i + 1}.weight", width), f"norm{i + 1}.bias")
            for ours, theirs, *shape in layers:
                state.add(f"block.{part}.{ours}", state.take(f"{theirs}.weight", *shape), f"{theirs}.bias")
        spec = StackSpec(
            layers=1,
            width=width,
            vocabulary=0,
            attention=AttentionSpec(heads, heads, width // heads),
            feed_forward=FeedForwardSpec(inner, "gelu"),
            norms=NormSpec(epsilon=number("epsilon", epsilon)),
        )
        self._heads = spec.attention
        self._attention = SelfAttention(state.parameters, "block", 0, spec)
        self._feed_forward = FeedForward(state.parameters, "block", spec)

    def weights(self, x: np.ndarray) -> np.ndarray:
        """How much each patch, row after row, looks at each of its image: float32 [B, heads, P, P]."""
        x_ND, grid = self._patches(*self._pixels(x))
        qkv_NE = np.asarray(self._attention.qkv(self._attention.entering(x_ND)))
        K = self._heads.head_width
        query, key, _ = qkv_NE.reshape(grid.images, -1, 3, self._heads.heads, K).transpose(2, 0, 3, 1, 4)
        scores_BHPP = query @ key.swapaxes(2, 3) / np.float32(K**0.5)
        return np.asarray(self.ops.softmax(scores_BHPP.reshape(-1, scores_BHPP.shape[3]))).reshape(scores_BHPP.shape)

    def _patches(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        if self._embedding is None:
            return x_ND, grid
        check_window(self._embedding.window, grid)
        return self._embedding(x_ND, grid)

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        x_ND, grid = self._patches(x_ND, grid)
        rows = WholeRows(self.ops, image_starts(grid), np.zeros(grid.rows, np.int32), lambda longest: None)
        return self._feed_forward(self._attention(x_ND, rows), rows), grid
