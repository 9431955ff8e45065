"""The modules of ``fastattn.vision`` in PyTorch, from their papers' formulas; timm's names where timm has them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.torch_residual import Block


def _chain(widths: list[int], sides: list[int], stride: int = 1, last: bool = True) -> nn.Sequential:
    """Convolutions padded as "same", each with relu, which the last may lack."""
    parts: list[nn.Module] = []
    for inputs, outputs, side in zip(widths[:-1], widths[1:], sides, strict=True):
        parts += [nn.Conv2d(inputs, outputs, side, stride, side // 2), nn.ReLU()]
    return nn.Sequential(*parts[: None if last else -1])


class ConvNorm(nn.Module):
    def __init__(self, *sizes: int, **more: int):
        super().__init__()
        self.conv = nn.Conv2d(*sizes, bias=False, **more)  # type: ignore[arg-type]
        self.bn = nn.BatchNorm2d(sizes[1])

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn(self.conv(x)))


class Selection(nn.Module):
    def __init__(self, channels: int, paths: int, inner: int):
        super().__init__()
        self.fc_reduce, self.bn = nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.fc_select = nn.Conv2d(inner, channels * paths, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, paths, C, Y, X] -> [B, paths, C, 1, 1]"""
        scores = self.fc_select(torch.relu(self.bn(self.fc_reduce(x.sum(1).mean((2, 3), keepdim=True)))))
        return scores.reshape(*x.shape[:3], 1, 1).softmax(1)


class SelectiveKernel(nn.Module):
    """Li 2019."""

    def __init__(
        self, channels: int, outputs: int, paths: int, inner: int, stride: int = 1, groups: int = 1, split: bool = False
    ):
        super().__init__()
        self.split = split
        inputs = channels // paths if split else channels
        self.paths = nn.ModuleList(
            ConvNorm(inputs, outputs, 3, stride, padding=1 + i, dilation=1 + i, groups=groups) for i in range(paths)
        )
        self.attn = Selection(outputs, paths, inner)

    def forward(self, x: Tensor) -> Tensor:
        inputs = x.chunk(len(self.paths), 1) if self.split else [x] * len(self.paths)
        outputs = torch.stack([path(part) for path, part in zip(self.paths, inputs, strict=True)], 1)
        return (outputs * self.attn(outputs)).sum(1)


class SpatialTransformer(nn.Module):
    """Jaderberg 2015, as PyTorch's tutorial has it."""

    def __init__(
        self, widths: list[int], sides: list[int], inputs: int, inner: int, size: tuple[int, int] | None = None
    ):
        super().__init__()
        parts: list[nn.Module] = []
        for before, after, side in zip(widths[:-1], widths[1:], sides, strict=True):
            parts += [nn.Conv2d(before, after, side), nn.MaxPool2d(2, 2), nn.ReLU()]
        self.localization, self.size = nn.Sequential(*parts), size
        self.fc_loc = nn.Sequential(nn.Linear(inputs, inner), nn.ReLU(), nn.Linear(inner, 6))

    def forward(self, x: Tensor) -> Tensor:
        maps = self.fc_loc(self.localization(x).flatten(1)).view(-1, 2, 3)
        size = [*x.shape[:2], *(self.size or x.shape[2:])]
        return functional.grid_sample(x, functional.affine_grid(maps, size, align_corners=False), align_corners=False)


class DynamicCapacity(nn.Module):
    """Almahairi 2016, the gradient by autograd; ``forward`` gives features, ``answer`` logits."""

    def __init__(self, coarse: nn.Sequential, fine: nn.Sequential, classes: int, patches: int, side: int, step: int):
        super().__init__()
        self.coarse, self.fine, self.patches, self.side, self.step = coarse, fine, patches, side, step
        self.top = nn.Linear([layer for layer in coarse if isinstance(layer, nn.Conv2d)][-1].out_channels, classes)

    def answer(self, features: Tensor) -> Tensor:
        """Logits, whose maxima go to the first of equal places."""
        return self.top(features.flatten(2).max(2).values)

    def saliency(self, x: Tensor) -> Tensor:
        """Saliency [B, y, x]."""
        features = self.coarse(x).detach().requires_grad_()
        with torch.enable_grad():
            logs = self.answer(features).log_softmax(1)
            entropy = -(logs.exp() * logs).sum()
            (gradient,) = torch.autograd.grad(entropy, features)
        return gradient.pow(2).sum(1).sqrt()

    def forward(self, x: Tensor) -> Tensor:
        features = self.coarse(x).clone()
        columns, half = features.shape[3], self.side // 2
        places_BP = self.saliency(x).flatten(1).sort(dim=1, descending=True, stable=True).indices[:, : self.patches]
        padded = functional.pad(x, (half, half, half, half))
        for b, places in enumerate(places_BP.tolist()):
            for place in places:
                top, left = place // columns * self.step, place % columns * self.step
                patch = padded[b : b + 1, :, top : top + self.side, left : left + self.side]
                features[b, :, place // columns, place % columns] = self.fine(patch).amax((2, 3))[0]
        return features


class ResidualAttention(nn.Module):
    """Wang 2017."""

    def __init__(self, channels: int, trunk: int, levels: int):
        super().__init__()

        def units(count: int) -> nn.ModuleList:
            return nn.ModuleList(Block(channels, channels, 1, 1, 1, "none", 0) for _ in range(count))

        self.trunk, self.down, self.up, self.skip = units(trunk), units(levels), units(levels), units(levels - 1)
        first, last = nn.Conv2d(channels, channels, 1, bias=False), nn.Conv2d(channels, channels, 1)
        self.mask = nn.Sequential(first, nn.BatchNorm2d(channels), nn.ReLU(), last)

    def forward(self, x: Tensor) -> Tensor:
        features, grids = x, [x]
        for unit in self.trunk:
            features = unit(features)
        for unit in self.down:
            grids.append(unit(functional.max_pool2d(grids[-1], 3, 2, 1)))
        y = grids[-1]
        for i in reversed(range(len(self.down))):
            y = functional.interpolate(self.up[i](y), grids[i].shape[2:], mode="bilinear", align_corners=False)
            if i:
                y = y + self.skip[i - 1](grids[i])
        return (1 + torch.sigmoid(self.mask(y))) * features


class MultiScaleAttention(nn.Module):
    """Chen 2016."""

    def __init__(self, widths: list[int], inner: int, scales: tuple[float, ...] = (1.0, 0.5)):
        super().__init__()
        self.scales, self.network = scales, _chain(widths, [3] * (len(widths) - 1), last=False)
        self.attention = _chain([len(scales) * widths[-1], inner, len(scales)], [3, 1], last=False)

    def forward(self, x: Tensor) -> Tensor:
        def resized(y: Tensor, size: Any) -> Tensor:
            return functional.interpolate(y, tuple(size), mode="bilinear", align_corners=False)

        sizes = [[max(1, int(side * scale)) for side in x.shape[2:]] for scale in self.scales]
        grids = [resized(self.network(resized(x, size)), x.shape[2:]) for size in sizes]
        weights = self.attention(torch.cat(grids, 1)).softmax(1)
        return sum((weights[:, s : s + 1] * grid for s, grid in enumerate(grids)), torch.zeros(()))


class PatchAttention(nn.Module):
    """A block of timm's VisionTransformer, perhaps after its patches (Dosovitskiy 2021)."""

    def __init__(self, width: int, heads: int, inner: int, channels: int = 0, patch: int = 0):
        super().__init__()
        self.heads = heads
        if patch:
            self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(channels, width, patch, patch)})
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, inner), "fc2": nn.Linear(inner, width)})

    def forward(self, x: Tensor) -> Tensor:
        if hasattr(self, "patch_embed"):
            x = self.patch_embed["proj"](x)
        rows = x.flatten(2).transpose(1, 2)
        B, P, D = rows.shape
        query, key, value = self.attn["qkv"](self.norm1(rows)).view(B, P, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (query @ key.transpose(2, 3) * query.shape[3] ** -0.5).softmax(3)
        rows = rows + self.attn["proj"]((weights @ value).transpose(1, 2).reshape(B, P, D))
        rows = rows + self.mlp["fc2"](functional.gelu(self.mlp["fc1"](self.norm2(rows))))
        return rows.transpose(1, 2).reshape(x.shape)


def dynamic_capacity(
    widths: list[int], fine: list[int], classes: int, patches: int, side: int, fine_stride: int = 1
) -> DynamicCapacity:
    """Coarse convolutions of 3 x 3 at stride 2, fine ones of 3 x 3; widths with the images' channels before them."""
    networks = _chain(widths, [3] * (len(widths) - 1), 2), _chain(fine, [3] * (len(fine) - 1), fine_stride)
    return DynamicCapacity(*networks, classes, patches, side, 2 ** (len(widths) - 1))
