"""Images: what was trained, and ViT, against PyTorch, ONNX Runtime and OpenVINO."""

import tempfile
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import OURS, Case, Side, largest_difference, same_directions
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, compare, milliseconds, plural
from bench.checks.recurrent import trained_folder
from bench.timing import library_threads
from fastattn import Encoder, vision
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


VIT = {"image_size": [224, 224], "patch_size": 16}  # and the rest as transformers' defaults, which are ViT-B's
FLOPS = 35.1e9  # of an image: 12 layers of 197 rows, 768 wide
BATCHES = (1, 8)
WANTED = {"float32": 1.0, "int8": 1.2}


@check(
    "pictures-vit",
    "ViT-B/16 at random, 12 layers, one image and eight, one thread and two, from pixels to vectors: ahead of the "
    "fastest of PyTorch, ONNX Runtime and OpenVINO in float32, 1.2 x in int8",
)
def vit(findings: Findings, data: Data) -> None:
    from bench import torch_encoders

    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch_encoders.write_vit(folder, **VIT)
        for (precision, least), batch, threads in product(WANTED.items(), BATCHES, THREADS):
            images_BCYX = rng.standard_normal((batch, 3, 224, 224), np.float32)
            with library_threads(threads):
                pictures = Encoder(folder, precision, threads)._pictures

                def ours(images_BCYX: np.ndarray = images_BCYX, pictures: object = pictures) -> np.ndarray:
                    return pictures.of_images([*images_BCYX])  # type: ignore[attr-defined]

                samples = [rng.standard_normal((1, 3, 224, 224), np.float32) for _ in range(8)]
                runs = {"ONNX Runtime": {"": torch_encoders.onnx_runtime_vit(folder, batch, threads, precision)}}
                runs["OpenVINO"] = {"": torch_encoders.openvino_vit(folder, samples, threads, precision)}
                if precision == "float32":
                    runs["PyTorch"] = torch_encoders.pytorch_vit(folder)
                sides = {OURS: Side({"": ours})}
                for engine, calls in runs.items():
                    sides[engine] = Side({how: partial(call, images_BCYX) for how, call in calls.items()})
                agree = largest_difference if precision == "float32" else same_directions
                case = Case(f"ViT-B/16, {batch}", batch, "images/s", sides, FLOPS * batch, agree=agree)
                found = compare(case, threads, rounds=5, seconds=12.0)
            fastest = min((name for name in found if name != OURS), key=lambda name: found[name]["seconds"])
            remark = milliseconds({name: one["seconds"] for name, one in found.items()})
            what = f"{precision}, {batch} image{'s'[: batch > 1]}, {plural(threads)}:"
            findings.at_least(what, found[fastest]["ratio"], f"x {fastest}", least, remark)
            findings.say(found[OURS]["rate"])
