"""Networks for images that bench.train trained, against PyTorch."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from bench.checks import Data, Findings, check
from bench.checks.recurrent import trained_folder
from fastattn import vision
from fastattn.arguments.images import PixelGrid, Window
from fastattn.array_attention.torch_state import torch_state
from fastattn.ops import cpu
from fastattn.vision.module import StateReader


def _digits_here(state: Mapping[str, Any], images: np.ndarray) -> np.ndarray:
    """The logits of bench.train.digits' network, by our modules and operations alone."""
    reader, half = StateReader(torch_state(state, ""), "", "cpu", "float32"), Window((2, 2), (2, 2))
    x = vision.SpatialTransformer.from_torch(state, "straighten.")(images)
    x_ND, grid = x.transpose(0, 2, 3, 1).reshape(-1, 1), PixelGrid(len(x), *x.shape[2:])
    x_ND, grid = reader.convolution("features.0", 1, 0, "relu")(x_ND, grid)
    x_ND, grid = cpu.pool_windows(x_ND, grid, half, "max"), half.over(grid)
    x_ND, grid = reader.convolution("features.3", x_ND.shape[1], 0, "relu")(x_ND, grid)
    x = vision.CBAM.from_torch(state, "cbam.")(x_ND.reshape(*grid, -1).transpose(0, 3, 1, 2))
    x_ND = cpu.pool_windows(x.transpose(0, 2, 3, 1).reshape(grid.rows, -1), grid, half, "max")
    channels_first = x_ND.reshape(grid.images, -1, x_ND.shape[1]).transpose(0, 2, 1).reshape(grid.images, -1)
    return reader.linear("top", channels_first.shape[1])(np.ascontiguousarray(channels_first))


@check(
    "trained-digits",
    "a small network with a spatial transformer and CBAM reads as many held-out digits right as in PyTorch",
)
def digits_read(findings: Findings, data: Data) -> None:
    import torch

    from bench.train import digits

    images, labels = digits.held_out()
    net = digits.load(trained_folder(data, "digits", "torch.pth"))
    with torch.inference_mode():
        theirs = net(torch.from_numpy(images)).numpy()
    ours = _digits_here(net.state_dict(), images)
    right, expected = (int((one.argmax(1) == labels).sum()) for one in (ours, theirs))
    findings.at_least(f"{expected} right in PyTorch,", right, f"here of {len(labels)}", expected)
    findings.at_most("too many here:", right - expected, "digits", 0)
    findings.at_most("logits differ by", float(np.abs(ours - theirs).max()), "", 1e-3)


@check("trained-captions", "captions of 500 unseen pictures, greedily, equal PyTorch's, and where each word looked")
def captions_equal(findings: Findings, data: Data, hard: bool = False) -> None:
    from bench.train import captions

    folder = trained_folder(data, "captions-hard" if hard else "captions", "torch.pth")
    images, sentences = captions.examples(500, 0)
    said, weights = captions.load(folder, hard).caption(captions.as_tensor(images))
    found: Any = vision.Captioner(folder, "float32").caption(images, beam_size=1)
    same = [(one, looked) for one, sentence, looked in zip(found, said, weights, strict=True) if one.text == sentence]
    far = max(float(np.abs(one.attention_WYX.reshape(looked.shape) - looked).max()) for one, looked in same)
    findings.at_least("equal:", len(same), "captions", len(images))
    findings.at_most("weights differ by", far, "", 1e-4)
    right = sum(one.text == sentence for one, sentence in zip(found, sentences, strict=True))
    findings.say(f"{right / len(images):.1%} describe the picture exactly")


check("trained-captions-hard", "likewise of a captioner that was trained to look at one place for each word")(
    partial(captions_equal, hard=True)
)
