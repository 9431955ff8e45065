"""ViT-B/16 at its published size against the fastest of the engines that run it."""

import tempfile
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from bench.case import OURS, Case, Side, largest_difference
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, compare, milliseconds, plural
from bench.timing import library_threads
from fastattn import Encoder

SIZES = {"image_size": [224, 224], "patch_size": 16}  # and the rest as transformers' defaults, which are ViT-B's
FLOPS = 35.1e9  # of an image: 12 layers of 197 rows, 768 wide
BATCHES = (1, 8)
WANTED = {"float32": 1.0, "int8": 1.2}


def _same_directions(ours_BD: np.ndarray, other_BD: np.ndarray) -> tuple[bool, str]:
    lengths_B = np.linalg.norm(ours_BD, axis=1) * np.linalg.norm(other_BD, axis=1)
    least = float(((ours_BD * other_BD).sum(axis=1) / lengths_B).min())
    return least >= 0.9, f"cosine at least {least:.3f}"


@check(
    "pictures-vit",
    "ViT-B/16 at random, 12 layers, one image and eight, one thread and two, from pixels to vectors: ahead of the "
    "fastest of PyTorch, ONNX Runtime and OpenVINO in float32, 1.2 x in int8",
)
def vit(findings: Findings, data: Data) -> None:
    from bench import torch_vit

    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch_vit.write(folder, **SIZES)
        for (precision, least), batch, threads in product(WANTED.items(), BATCHES, THREADS):
            images_BCYX = rng.standard_normal((batch, 3, 224, 224), np.float32)
            with library_threads(threads):
                pictures = Encoder(folder, precision, threads)._pictures

                def ours(images_BCYX: np.ndarray = images_BCYX, pictures: object = pictures) -> np.ndarray:
                    return pictures.of_images([*images_BCYX])  # type: ignore[attr-defined]

                samples = [rng.standard_normal((1, 3, 224, 224), np.float32) for _ in range(8)]
                runs = {"ONNX Runtime": {"": torch_vit.onnx_runtime(folder, batch, threads, precision)}}
                runs["OpenVINO"] = {"": torch_vit.openvino(folder, samples, threads, precision)}
                if precision == "float32":
                    runs["PyTorch"] = torch_vit.pytorch(folder)
                sides = {OURS: Side({"": ours})}
                for engine, calls in runs.items():
                    sides[engine] = Side({how: partial(call, images_BCYX) for how, call in calls.items()})
                agree = largest_difference if precision == "float32" else _same_directions
                case = Case(f"ViT-B/16, {batch}", batch, "images/s", sides, FLOPS * batch, agree=agree)
                found = compare(case, threads, rounds=5, seconds=12.0)
            fastest = min((name for name in found if name != OURS), key=lambda name: found[name]["seconds"])
            remark = milliseconds({name: one["seconds"] for name, one in found.items()})
            what = f"{precision}, {batch} image{'s'[: batch > 1]}, {plural(threads)}:"
            findings.at_least(what, found[fastest]["ratio"], f"x {fastest}", least, remark)
            findings.say(found[OURS]["rate"])
