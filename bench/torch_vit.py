"""ViT in PyTorch by transformers, and what other engines make of it: pixels [B, 3, Y, X] -> the first rows [B, D]."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from bench.silence import silent

Run = Callable[[np.ndarray], np.ndarray]


class FirstRows(torch.nn.Module):
    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> Any:
        return self.model(pixel_values=pixel_values).last_hidden_state[:, 0]


def write(folder: Path, **config: Any) -> None:
    torch.manual_seed(0)
    with silent():
        transformers.ViTModel(transformers.ViTConfig(**config), add_pooling_layer=False).save_pretrained(folder)


def module(folder: Path, attention: str) -> FirstRows:
    with silent():
        loaded = transformers.ViTModel.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=attention, add_pooling_layer=False
        )
    return FirstRows(loaded).eval()


def pytorch(folder: Path) -> dict[str, Run]:
    def runner(model: FirstRows) -> Run:
        def run(images_BCYX: np.ndarray) -> np.ndarray:
            with torch.inference_mode():
                first_BD: np.ndarray = model(torch.from_numpy(images_BCYX)).numpy()
            return first_BD

        return run

    return {attention: runner(module(folder, attention)) for attention in ("sdpa", "eager")}


def onnx(folder: Path, batch: int, precision: str) -> Path:
    """An .onnx file for so many images; int8 is dynamic, with a scale a column."""
    target = folder / f"vit-{batch}-{precision}.onnx"
    given = (torch.zeros(batch, 3, *transformers.ViTConfig.from_pretrained(folder).image_size),)
    with silent():
        torch.onnx.export(module(folder, "eager"), given, target, dynamo=True, external_data=False, verbose=False)
        if precision == "int8":
            from bench.onnx_session import quantized

            quantized(target)
    return target


def onnx_runtime(folder: Path, batch: int, threads: int, precision: str) -> Run:
    from bench.onnx_session import session

    runner = session(str(onnx(folder, batch, precision)), threads)
    name = runner.get_inputs()[0].name
    return lambda images_BCYX: np.asarray(runner.run(None, {name: images_BCYX})[0])


def openvino(folder: Path, samples: list[np.ndarray], threads: int, precision: str) -> Run:
    """int8 is NNCF's, calibrated with the samples."""
    from bench.openvino_models import rounded, traced
    from bench.openvino_session import runner

    model = traced(module(folder, "sdpa"), samples[:1])
    if precision == "int8":
        model = rounded(model, [[sample] for sample in samples])
    run = runner(model, threads, precision)
    return lambda images_BCYX: run(images_BCYX, images_BCYX)
