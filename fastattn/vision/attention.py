"""Attention to images: to channels, to pixels, within grids of features. A cell of a coarse grid is a pixel too."""

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

import numpy as np

from fastattn.arguments.images import PixelGrid, Window
from fastattn.arguments.recurrent import Columns
from fastattn.array_attention.arguments import MAX_HEAD_WIDTH, finite_number
from fastattn.errors import InputError, check_bool, check_count, described
from fastattn.layers.attention import SelfAttention
from fastattn.layers.attention_inputs import WholeRows
from fastattn.layers.blocks import FeedForward
from fastattn.layers.images import ChannelAndPixelGate, ChannelGate, image_starts
from fastattn.models.residual import ResidualBlock
from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, NormSpec, StackSpec
from fastattn.spec.images import BlockSizes, ResidualSpec, tap_rows
from fastattn.vision.module import ImageModule, StateReader, check_window

HALVING = Window((3, 3), (2, 2), (1, 1))
MOST_SCALE = 8.0


class SqueezeExcitation(ImageModule):
    """x sigmoid(W2 relu(W1 mean(x))): a gate of each channel from the means of all channels (Hu 2018, section 3).

    Tensors by timm's names: fc1 and fc2, 1 x 1 convolutions.
    """

    def __init__(self, state: StateReader):
        super().__init__(state)
        self.channels = state.size("fc1", 1)
        state.add_gate("", self.channels)
        self._gate = ChannelGate(state.parameters, "gate")

    def weights(self, x: np.ndarray) -> np.ndarray:
        """The gates of each image's channels: float32 [B, C]."""
        return np.asarray(self._gate.gates(*self._pixels(x)))

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        return self._gate(x_ND, grid), grid


class CBAM(ImageModule):
    """Gates of channels by their means and maxima over pixels, then of pixels by those over channels (Woo 2018, s. 3).

    Tensors by timm's names: channel.fc1, channel.fc2, spatial.conv.conv of 7 x 7 and the batch norm spatial.conv.bn.
    """

    def __init__(self, state: StateReader):
        super().__init__(state)
        self.channels = state.size("channel.fc1", 1)
        state.add_gate("channel.", self.channels, 2)  # mean and maximum each go through the MLP, and are then added
        weight_FE = state.take("spatial.conv.conv.weight", 1, 2, 7, 7).transpose(0, 2, 3, 1).reshape(1, -1)
        state.add("gate.spatial", weight_FE, "spatial.conv.conv.bias", "spatial.conv.bn")
        self._gate = ChannelAndPixelGate(state.parameters, "gate")

    def weights(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The gates of each image's channels and pixels: float32 [B, C] and [B, Y, X]."""
        x_ND, grid = self._pixels(x)
        channels_BD = self._gate.channels(x_ND, grid)
        pixels_N1 = self._gate.pixels(self.ops.gate_pixels(x_ND, grid, channels_BD), grid)
        return np.asarray(channels_BD), np.asarray(pixels_N1).reshape(grid)

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        return self._gate(x_ND, grid), grid


class SelectiveKernel(ImageModule):
    """The sum of convolutions of several sizes, weighted in each channel by a softmax (Li 2019, section 3.1).

    Tensors by timm's names: paths.0.conv, paths.0.bn and so on, attn.fc_reduce, attn.bn and attn.fc_select.
    stride, groups  of the convolutions
    dilation        True: path i has dilation 1 + i, so that 3 x 3 filters reach 3 x 3, then 5 x 5; False: 1
    split           True: each path takes its share of the channels, as with timm's ``split_input``
    """

    def __init__(
        self, state: StateReader, stride: int = 1, groups: int = 1, dilation: bool = True, split: bool = False
    ):
        super().__init__(state)
        stride, groups = check_count("stride", stride), check_count("groups", groups)
        self._splits, dilates = check_bool("split", split), check_bool("dilation", dilation)
        numbers = state.numbers("paths")
        if numbers != list(range(max(2, len(numbers)))):
            raise InputError(f"state: expected paths.0, paths.1 and so on, got paths {numbers}")
        outputs, self._inputs = state.size("paths.0.conv"), state.size("paths.0.conv", 1) * groups
        self.channels = self._inputs * (len(numbers) if self._splits else 1)
        self._paths = [
            state.convolution(
                f"paths.{i}.conv", self._inputs, outputs, "relu",
                norm=f"paths.{i}.bn", stride=stride, groups=groups, dilation=1 + i if dilates else 1,
            )
            for i in numbers
        ]  # fmt: skip
        inner = state.size("attn.fc_reduce")
        self._reduce = state.convolution("attn.fc_reduce", outputs, inner, "relu", norm="attn.bn")
        self._select = state.convolution("attn.fc_select", inner, outputs * len(numbers))

    def weights(self, x: np.ndarray) -> np.ndarray:
        """The weight of each path in each image's channels: float32 [B, paths, C], whose sums over paths are 1."""
        return self._attend(*self._pixels(x))[2].transpose(1, 0, 2)

    def _attend(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[list[np.ndarray], PixelGrid, np.ndarray]:
        """(each path's rows, their grid, weights_PBF)."""
        inputs_P, rows_P, means_P = [x_ND] * len(self._paths), [], []
        if self._splits:
            firsts = range(0, len(inputs_P) * self._inputs, self._inputs)
            inputs_P = [self.ops.join_columns([Columns(x_ND, first, self._inputs)]) for first in firsts]
        for input_ND, path in zip(inputs_P, self._paths):
            rows_NF, out = path(input_ND, grid)
            means_P.append(self.ops.pool(rows_NF, image_starts(out), ["mean"]))
            rows_P.append(rows_NF)
        mean_BF = reduce(self.ops.add_rows, means_P)
        scores_BE, _ = self._select(*self._reduce(mean_BF, _one_area(grid)))
        scores_PBF = np.asarray(scores_BE).reshape(grid.images, len(rows_P), -1).transpose(1, 0, 2)
        powers_PBF = np.exp(scores_PBF - scores_PBF.max(axis=0))
        return rows_P, out, powers_PBF / powers_PBF.sum(axis=0)

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        rows_P, out, weights_PBF = self._attend(x_ND, grid)
        gate, pairs = self.ops.gate_pixels, zip(rows_P, weights_PBF)
        gated_P = (gate(rows_NF, out, np.ascontiguousarray(weights_BF)) for rows_NF, weights_BF in pairs)
        return reduce(self.ops.add_rows, gated_P), out


class ResidualAttention(ImageModule):
    """(1 + M) F: features F of a trunk, and a mask M of F, which coarser grids contribute to (Wang 2017, section 3).

    Tensors: trunk.0, .1 and so on make F. down.i works on the grid that a maximum of 3 x 3 has halved i + 1 times, up.i
    on the same grid on the way back (by bilinear samples), after skip.i has added the rows of down.i. Each of these is
    a residual unit by timm's names: conv1, bn1, conv2, bn2. M is the sigmoid of mask.0, the batch norm mask.1, relu and
    mask.3; mask.0 and mask.3 are convolutions of 1 x 1.
    """

    def __init__(self, state: StateReader):
        super().__init__(state)
        self.channels = channels = state.size("mask.0")
        self._trunk = [self._unit(state, f"trunk.{i}") for i in state.numbers("trunk")]
        depth = len(state.numbers("down"))
        self._down, self._up = ([self._unit(state, f"{side}.{i}") for i in range(depth)] for side in ("down", "up"))
        self._skip = [self._unit(state, f"skip.{i}") for i in range(depth - 1)]
        self._inner_layer = state.convolution("mask.0", channels, channels, "relu", norm="mask.1")
        weight_FD = state.take("mask.3.weight", channels, channels, 1, 1)[:, :, 0, 0]
        state.add("mask.3", weight_FD, "mask.3.bias")
        self._outer_layer = state.parameters.packed("mask.3")

    def _unit(self, state: StateReader, name: str) -> ResidualBlock:
        channels = self.channels
        for i in (1, 2):
            weight_FCYX = state.take(f"{name}.conv{i}.weight", channels, channels, 3, 3)
            state.add(f"{name}.{i}", tap_rows(weight_FCYX), norm=f"{name}.bn{i}")
        spec = ResidualSpec(image=(channels, 1, 1), stem=channels, blocks=(1,), widths=(channels,))
        return ResidualBlock(state.parameters, name, spec, BlockSizes(channels, channels, channels, 1, 0))

    def mask(self, x: np.ndarray) -> np.ndarray:
        """The mean of the channels of M: float32 [B, Y, X]."""
        x_ND, grid = self._pixels(x)
        inner_ND = self._mask_input(x_ND, grid)
        return np.asarray(self.ops.linear(inner_ND, self._outer_layer, "sigmoid")).mean(axis=1).reshape(grid)

    def _mask_input(self, x_ND: np.ndarray, grid: PixelGrid) -> np.ndarray:
        grids, levels = [grid], [x_ND]
        for unit in self._down:
            halved_ND = self.ops.pool_windows(levels[-1], grids[-1], HALVING, "max")
            rows_ND, out = unit(halved_ND, HALVING.over(grids[-1]))
            grids.append(out)
            levels.append(rows_ND)
        y_ND = levels[-1]
        for i in reversed(range(len(self._down))):
            y_ND = self._resize(self._up[i](y_ND, grids[i + 1])[0], grids[i + 1], grids[i])
            if i:
                y_ND = self.ops.add_rows(y_ND, self._skip[i - 1](levels[i], grids[i])[0])
        return self._inner_layer(y_ND, grid)[0]

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        inner_ND = self._mask_input(x_ND, grid)
        for unit in self._trunk:
            x_ND, _ = unit(x_ND, grid)
        return self.ops.linear(inner_ND, self._outer_layer, "sigmoid", residual_NF=x_ND, multiply_NF=x_ND), grid


class MultiScaleAttention(ImageModule):
    """One network at several sizes of the image, and a softmax over the sizes at each pixel (Chen 2016, section 3).

    Tensors: network.0, .2 and so on, convolutions of odd sides padded as "same" with relu between them. attention.0 and
    .2, such convolutions too, make the scores of all sizes from the features of all sizes, side by side.
    scales  the factors of the image's sides; the features are resized to the image's size
    """

    def __init__(self, state: StateReader, scales: Sequence[float] = (1.0, 0.5)):
        super().__init__(state)
        if not isinstance(scales, (tuple, list)) or not scales:
            raise InputError(f"scales: expected several numbers, got {described(scales)}")
        self._scales = [finite_number("scales", scale) for scale in scales]
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
        self._inner_layer = state.convolution("attention.0", len(self._scales) * inputs, inner, "relu")
        self._outer_layer = state.convolution("attention.2", inner, len(self._scales))

    def weights(self, x: np.ndarray) -> np.ndarray:
        """The weight of each size at each pixel: float32 [B, scales, Y, X], whose sums over scales are 1."""
        x_ND, grid = self._pixels(x)
        return np.ascontiguousarray(self._attend(x_ND, grid)[1].reshape(*grid, -1).transpose(0, 3, 1, 2))

    def _attend(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[list[np.ndarray], np.ndarray]:
        """(each scale's features, weights_NS)."""
        features_S = []
        for scale in self._scales:
            scaled_grid = PixelGrid(grid.images, *(max(1, int(side * scale)) for side in grid[1:]))
            y_ND = self._resize(x_ND, grid, scaled_grid)
            for convolution in self._network:
                y_ND, _ = convolution(y_ND, scaled_grid)
            features_S.append(self._resize(y_ND, scaled_grid, grid))
        joined_NE = self.ops.join_columns([Columns(y_ND, 0, y_ND.shape[1]) for y_ND in features_S])
        return features_S, np.asarray(self.ops.softmax(self._outer_layer(*self._inner_layer(joined_NE, grid))[0]))

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        features_S, weights_NS = self._attend(x_ND, grid)
        gate, pairs = self.ops.gate_pixels, zip(features_S, weights_NS.T)
        gated_S = (gate(y_ND, grid, None, np.ascontiguousarray(weights_N[:, None])) for y_ND, weights_N in pairs)
        return reduce(self.ops.add_rows, gated_S), grid


class PatchAttention(ImageModule):
    """A block of a Vision Transformer: each patch attends to all patches of its image (Dosovitskiy 2021, section 3.1).

    Tensors by timm's names: norm1, attn.qkv, attn.proj, norm2, mlp.fc1, mlp.fc2; and perhaps patch_embed.proj, which
    cuts the image into patches. Without patch_embed each pixel is a patch.
    heads    the number of heads
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
        sublayers = {"self_attention": (("qkv", "attn.qkv", 3 * width, width), ("output", "attn.proj", width, width))}
        sublayers["feed_forward"] = (("inner", "mlp.fc1", inner, width), ("outer", "mlp.fc2", width, inner))
        for i, (sublayer, layers) in enumerate(sublayers.items(), 1):
            state.add(f"block.{sublayer}.norm", state.take(f"norm{i}.weight", width), f"norm{i}.bias")
            for layer, timm_name, *shape in layers:
                state.add(f"block.{sublayer}.{layer}", state.take(f"{timm_name}.weight", *shape), f"{timm_name}.bias")
        self._attention_spec, feed_forward = AttentionSpec(heads, heads, width // heads), FeedForwardSpec(inner, "gelu")
        norms = NormSpec(epsilon=finite_number("epsilon", epsilon))
        spec = StackSpec(
            layers=1, width=width, vocabulary=0, attention=self._attention_spec, feed_forward=feed_forward, norms=norms
        )
        self._attention = SelfAttention(state.parameters, "block", 0, spec)
        self._feed_forward = FeedForward(state.parameters, "block", spec)

    def weights(self, x: np.ndarray) -> np.ndarray:
        """The attention of each patch, row after row, to each patch of its image: float32 [B, heads, P, P]."""
        x_ND, grid = self._patches(*self._pixels(x))
        qkv_NE = np.asarray(self._attention.qkv(self._attention.input_of(x_ND)))
        K = self._attention_spec.head_width
        query, key, _ = qkv_NE.reshape(grid.images, -1, 3, self._attention_spec.heads, K).transpose(2, 0, 3, 1, 4)
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


class SpatialTransformer(ImageModule):
    """Bilinear samples of an image at an affine map's points; convolutions of the image make the map (Jaderberg 2015).

    Tensors by the names of PyTorch's tutorial: localization.0, .3, .6 and so on are convolutions without padding, each
    followed by a maximum of 2 x 2 and relu; fc_loc.0, relu and fc_loc.2 turn their result into the map's six numbers.
    size  (height, width) of the result; None: that of the image
    """

    def __init__(self, state: StateReader, size: tuple[int, int] | None = None):
        super().__init__(state)
        self._result_size = None
        if size is not None:
            if not isinstance(size, (tuple, list)) or len(size) != 2:
                raise InputError(f"size: expected (height, width), got {described(size)}")
            self._result_size = check_count("size's height", size[0]), check_count("size's width", size[1])
        numbers = state.numbers("localization") or [0]
        self.channels = state.size(f"localization.{numbers[0]}", 1)
        widths = [self.channels, *(state.size(f"localization.{i}") for i in numbers)]
        self._convolutions = [
            state.convolution(f"localization.{i}", *channels, "relu", padded=False)
            for i, channels in zip(numbers, pairwise(widths))
        ]
        weight_FE = state.take("fc_loc.0.weight", 0, 0)
        self._area, remainder = divmod(weight_FE.shape[1], widths[-1])  # pixels of the last grid
        if remainder:
            raise InputError(f"state: expected fc_loc.0 of a multiple of {widths[-1]} inputs, got {weight_FE.shape[1]}")
        inner = len(weight_FE)  # torch orders the weights by channel, then pixel; rows here are by pixel, then channel
        weight_FE = weight_FE.reshape(inner, widths[-1], -1).transpose(0, 2, 1).reshape(inner, -1)
        state.add("inner", weight_FE, "fc_loc.0.bias")
        self._inner_layer, self._outer_layer = state.parameters.packed("inner"), state.linear("fc_loc.2", inner, 6)

    def maps(self, x: np.ndarray) -> np.ndarray:
        """Each image's map from the result's coordinates to the image's, both -1 to 1: float32 [B, 2, 3]."""
        return self._maps(*self._pixels(x))

    def _maps(self, x_ND: np.ndarray, grid: PixelGrid) -> np.ndarray:
        pool = Window((2, 2), (2, 2))
        for convolution in self._convolutions:
            check_window(convolution.window, grid)
            x_ND, grid = convolution(x_ND, grid)
            out = check_window(pool, grid)
            x_ND, grid = self.ops.pool_windows(x_ND, grid, pool, "max"), out
        if grid.height * grid.width != self._area:
            raise InputError(f"x: expected images that leave {self._area} places, got {grid.height} x {grid.width}")
        rows_BE = x_ND.reshape(grid.images, -1)
        return np.asarray(self._outer_layer(self.ops.linear(rows_BE, self._inner_layer, "relu"))).reshape(-1, 2, 3)

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        out, maps_B23 = PixelGrid(grid.images, *(self._result_size or grid[1:])), self._maps(x_ND, grid)
        y_P, x_P = ((2 * np.mgrid[: out.height, : out.width] + 1).reshape(2, -1).T / out[1:] - 1).T
        result_P3 = np.stack([x_P, y_P, np.ones_like(x_P)], axis=1)
        sides_2 = np.array(grid[:0:-1])  # width, height
        points_BP2 = ((result_P3 @ maps_B23.transpose(0, 2, 1) + 1) * sides_2 - 1) / 2
        points_BP2 = np.ascontiguousarray(points_BP2[..., ::-1], np.float32)
        return self.ops.sample_pixels(x_ND, grid, points_BP2, "zeros"), out


class DynamicCapacity(ImageModule):
    """Coarse features of all cells of a grid, and fine ones of those cells on which the answer's entropy depends most.

    Almahairi 2016: c = coarse(x); the answer is softmax(top(max of c)), H its entropy. A cell's saliency is the length
    of dH/dc there, by a formula: dH/d scores = -p (log p + H), which goes through ``top`` to the cell of each maximum.
    In the most salient cells the maximum of ``fine`` of the patch around the cell replaces c. A call returns features.

    Tensors: coarse.0, .2 and so on, fine.0, .2 and so on, convolutions of odd sides padded as "same", each with relu;
    top, a linear layer.
    patches        how many cells get fine features
    side           of a patch, odd, in pixels
    coarse_stride, fine_stride  of each convolution of the network
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
            widths[-1] = outputs = outputs or widths[-1]  # both networks have the same outputs
            self._networks[name] = [
                state.convolution(f"{name}.{i}", *channels, "relu", stride=check_count(f"{name}_stride", stride))
                for i, channels in zip(numbers, pairwise(widths))
            ]
        self._cell_step = coarse_stride ** len(self._networks["coarse"])  # pixels between cells
        self._top_FD = state.take("top.weight", 0, outputs)
        self._top = state.linear("top", outputs)

    def saliency(self, x: np.ndarray) -> np.ndarray:
        """The saliency of each cell, float32 [B, y, x]."""
        c_ND, grid = self._features("coarse", *self._pixels(x))
        return self._saliency(c_ND, grid).reshape(grid)

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """The answer for each image, from its features: float32 [B, classes]."""
        features_ND, grid = self._run(*self._pixels(x))
        return self.ops.softmax(self._top(self.ops.pool_areas(features_ND, grid, _one_area(grid), "max")))

    def _features(self, name: str, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        for convolution in self._networks[name]:
            x_ND, grid = convolution(x_ND, grid)
        return x_ND, grid

    def _saliency(self, c_ND: np.ndarray, grid: PixelGrid) -> np.ndarray:
        """The saliency of each image's cells, [B, cells]."""
        c_BPD = np.asarray(c_ND).reshape(grid.images, -1, c_ND.shape[1])
        peaks_BD = self.ops.pool_areas(c_ND, grid, _one_area(grid), "max")
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
        cells_BK = np.argsort(-saliency_BP, axis=1, kind="stable")[:, : self._patches]
        centres_BK2 = np.stack([cells_BK // out.width, cells_BK % out.width], axis=-1) * self._cell_step
        offsets_P2 = np.moveaxis(np.mgrid[: self._side, : self._side], 0, -1).reshape(-1, 2) - self._side // 2
        points_BP2 = (centres_BK2[:, :, None] + offsets_P2).reshape(grid.images, -1, 2).astype(np.float32)
        patches_ND = self.ops.sample_pixels(x_ND, grid, points_BP2, "zeros")
        fine_ND, fine_grid = self._features("fine", patches_ND, PixelGrid(cells_BK.size, self._side, self._side))
        fine_KD = np.asarray(self.ops.pool_areas(fine_ND, fine_grid, _one_area(fine_grid), "max"))
        features_ND = np.array(c_ND)
        features_ND[(cells_BK + np.arange(grid.images)[:, None] * out.height * out.width).reshape(-1)] = fine_KD
        return self.ops.as_rows(features_ND), out


def _one_area(grid: PixelGrid) -> PixelGrid:
    """A grid of one area for each image."""
    return PixelGrid(grid.images, 1, 1)
