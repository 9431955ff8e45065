"""A residual network in PyTorch with timm's names: plain, in groups, with squeeze and excitation or CBAM."""

from typing import Any

import torch
from torch import nn


class SqueezeExcitation(nn.Module):
    """Hu 2018."""

    def __init__(self, channels: int, inner: int):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.fc2(torch.relu(self.fc1(x.mean((2, 3), keepdim=True)))))


class Channels(nn.Module):
    """CBAM's gates of channels (Woo 2018)."""

    def __init__(self, channels: int, inner: int):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, inner, 1, bias=False)
        self.fc2 = nn.Conv2d(inner, channels, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, peak = x.mean((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
        return x * torch.sigmoid(self.fc2(torch.relu(self.fc1(mean))) + self.fc2(torch.relu(self.fc1(peak))))


class ConvNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 1, 7, padding=3, bias=False), nn.BatchNorm2d(1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.bn(self.conv(x))


class Places(nn.Module):
    """CBAM's gates of places."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = ConvNorm()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        summary = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
        return x * torch.sigmoid(self.conv(summary))


class Cbam(nn.Module):
    def __init__(self, channels: int, inner: int):
        super().__init__()
        self.channel, self.spatial = Channels(channels, inner), Places()

    def forward(self, x: torch.Tensor) -> Any:
        return self.spatial(self.channel(x))


GATES = {"squeeze-excitation": SqueezeExcitation, "cbam": Cbam}


class Block(nn.Module):
    def __init__(self, inputs: int, width: int, expansion: int, stride: int, groups: int, gate: str, inner: int):
        super().__init__()
        outputs = width * expansion
        if expansion == 1:
            sides = [(inputs, width, 3, stride, 1), (width, width, 3, 1, 1)]
        else:
            sides = [(inputs, width, 1, 1, 1), (width, width, 3, stride, groups), (width, outputs, 1, 1, 1)]
        self.count = len(sides)
        for i, (before, after, side, step, parts) in enumerate(sides):
            conv = nn.Conv2d(before, after, side, step, side // 2, groups=parts, bias=False)
            self.add_module(f"conv{i + 1}", conv)
            self.add_module(f"bn{i + 1}", nn.BatchNorm2d(after))
        self.se = GATES[gate](outputs, inner) if gate != "none" else nn.Identity()
        self.downsample = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = torch.relu(y) if i < self.count else y
        return torch.relu(self.se(y) + self.downsample(x))


class ResidualNetwork(nn.Module):
    """Images [B, 3, Y, X] -> the last grid [B, D, y, x]; ``expansion`` above 1: blocks of three convolutions."""

    def __init__(
        self,
        blocks: tuple[int, ...],
        widths: tuple[int, ...],
        expansion: int = 1,
        groups: int = 1,
        gate: str = "none",
        stem: int = 64,
        side: int = 7,
    ):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, stem, side, 2, side // 2, bias=False), nn.BatchNorm2d(stem)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.stages = len(blocks)
        inputs = stem
        for stage, (count, width) in enumerate(zip(blocks, widths)):
            layers = []
            for block in range(count):
                stride, inner = 2 if stage and not block else 1, max(8, width * expansion // 16)
                layers.append(Block(inputs, width, expansion, stride, groups, gate, inner))
                inputs = width * expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return x
