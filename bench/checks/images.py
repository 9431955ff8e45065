"""Images: convolutions, modules, what was trained, and ViT, against PyTorch, ONNX Runtime and OpenVINO."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import OURS, Case, Side, largest_difference, same_directions
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, compare, milliseconds, plural
from bench.checks.recurrent import trained_folder
from bench.kernel_cases import case_of
from bench.measure import peak_flops
from bench.operations import OPERATIONS
from bench.operations.table import Problem
from bench.timing import library_threads
from fastattn import Encoder, vision
from fastattn.arguments.images import PixelGrid, Window
from fastattn.array_attention.torch_state import torch_state
from fastattn.ops import cpu
from fastattn.ops.cpu import use_threads
from fastattn.vision.module import StateReader

PEERS = ("PyTorch", "ONNX Runtime")


@check(
    "images-convolution",
    "one thread and two, float32: 3x3 of 64 channels of 56 x 56 and of 256 of 8 x 14 x 14, 1x1 of 256 of 8 x 28 x 28, "
    "depthwise 3x3 of 256 of 8 x 28 x 28 and, stride 2, of 128 of 8 x 56 x 56: ahead of PyTorch and of ONNX Runtime; "
    "7x7 of 3 channels of 224 x 224, stride 2: at least 80%",
)
def images_convolution(findings: Findings, data: Data) -> None:
    """Rates are of the multiplications that the definition has: of a 3x3 convolution by patches, which does with 4 / 9
    of them, they may be above the peak."""
    problems = [
        OPERATIONS[name].problem(size) for name in ("convolve", "convolve_depthwise") for size in OPERATIONS[name].large
    ]
    for threads in THREADS:
        peak = peak_flops(threads) / 1e9
        for problem in problems:
            _against_peers(problem, threads, peak, findings)


def _against_peers(problem: Problem, threads: int, peak: float, findings: Findings) -> None:
    with use_threads(threads), library_threads(threads):
        case = case_of(problem)
        del case.sides["NumPy"]
    sides = compare(case, threads, rounds=9, seconds=1.0)
    share = f"{case.work / sides[OURS]['seconds'] / peak:.0%} of the peak"
    wanted = 1.0 if problem.arrays["x"].shape[1] > 3 else 0.8
    for peer in PEERS:
        remark = f"{sides[OURS]['rate']}, {share}; theirs {sides[peer]['rate']} {sides[peer]['setting']}"
        findings.at_least(f"{plural(threads)}, {case.name}:", sides[peer]["ratio"], f"x {peer}", wanted, remark)


Made = tuple[type, Any, dict[str, Any], int, int]  # our class, the twin, settings, channels, the least side
SIZES = 12  # random ones of each module


def _twins(rng: np.random.Generator) -> Iterator[Made]:
    from bench import torch_residual, torch_vision

    def some(least: int, most: int) -> int:
        return int(rng.integers(least, most + 1))

    channels, inner = some(1, 40), some(1, 20)
    yield vision.SqueezeExcitation, torch_residual.SqueezeExcitation(channels, inner), {}, channels, 1
    yield vision.CBAM, torch_residual.Cbam(channels, inner), {}, channels, 1
    paths, groups, split = some(2, 3), some(1, 3), bool(some(0, 1))
    inputs = some(1, 5) * groups * (paths if split else 1)
    settings = {"stride": some(1, 3), "groups": groups, "split": split}
    kernels = torch_vision.SelectiveKernel(inputs, some(1, 6) * groups, paths, inner, **settings)
    yield vision.SelectiveKernel, kernels, settings, inputs, 1
    size = some(20, 33)
    first, second = some(3, 7), some(2, 4)
    left = ((size - first + 1) // 2 - second + 1) // 2
    widths = [some(1, 4), some(2, 9), some(2, 9)]
    out = {"size": (some(1, 40), some(1, 40))} if some(0, 1) else {}
    spatial = torch_vision.SpatialTransformer(widths, [first, second], widths[-1] * left**2, inner, **out)
    yield vision.SpatialTransformer, spatial, out, widths[0], -size
    channels, width, patches, side = some(1, 4), some(4, 30), some(1, 12), 2 * some(1, 6) + 1
    stride = some(1, 2)
    capacity = torch_vision.dynamic_capacity(
        [channels, some(3, 9), width], [channels, some(3, 9), width], some(2, 10), patches, side, stride
    )
    settings = {"patches": patches, "side": side, "fine_stride": stride}
    yield vision.DynamicCapacity, capacity, settings, channels, 9
    yield vision.ResidualAttention, torch_vision.ResidualAttention(width, some(1, 2), some(1, 3)), {}, width, 3
    scales = (1.0, 0.5, 0.75)[: some(2, 3)]
    scaled = torch_vision.MultiScaleAttention([channels, some(2, 9), some(1, 9)], inner, scales)
    yield vision.MultiScaleAttention, scaled, {"scales": scales}, channels, 2
    heads, patch = some(1, 4), some(0, 5)
    width = heads * some(1, 9)
    block = torch_vision.PatchAttention(width, heads, some(3, 40), channels, patch)
    yield vision.PatchAttention, block, {"heads": heads}, channels if patch else width, max(1, patch)


@check(
    "images-modules",
    f"every module of fastattn.vision equals its twin in PyTorch to 1e-4 of the largest number, {SIZES} random sizes",
)
def modules(findings: Findings, data: Data) -> None:
    import torch

    from bench.torch_residual import shake

    worst: dict[str, float] = {}
    for seed in range(SIZES):
        torch.manual_seed(seed)
        rng = np.random.default_rng([32, seed])
        for ours, twin, settings, channels, least in _twins(rng):
            shake(twin.eval(), seed)
            count, size = (
                int(rng.integers(1, 4)),
                [-least] * 2 if least < 0 else (least + rng.integers(0, 24, 2)).tolist(),
            )
            x = rng.standard_normal((count, channels, *size), np.float32)
            module = ours.from_torch({f"a.{name}": one for name, one in twin.state_dict().items()}, "a.", **settings)
            pairs: list[tuple[Callable, Callable]] = [(module, twin)]
            if hasattr(twin, "saliency"):
                pairs.append((module.saliency, twin.saliency))
                pairs.append((module.probabilities, lambda x, twin=twin: twin.answer(twin(x)).softmax(1)))
            for mine, theirs in pairs:
                with torch.no_grad():
                    expected = theirs(torch.from_numpy(x)).numpy()
                found = mine(x)
                far = np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30)
                far = far if found.shape == expected.shape and found.dtype == np.float32 else np.inf
                name = f"{ours.__name__}{'' if mine is module else '.' + mine.__name__}"
                worst[name] = max(worst.get(name, 0.0), float(far))
    for name, far in worst.items():
        findings.at_most(f"{name}:", far, "of the largest", 1e-4)


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
