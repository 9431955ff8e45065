"""Encoders of transformers as PyTorch modules that exporters take; ViT in other engines.

Texts: (ids, mask) [B, T], int64 -> rows [B, T, D]. ViT: pixels [B, 3, Y, X] -> the first rows [B, D].
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from bench.request import silent


class Rows(torch.nn.Module):
    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]


def rows_module(folder: Path, attention: str, kind: str = "AutoModel") -> Rows:
    """The folder's model in float32.

    kind       the class of transformers
    attention  one of transformers' implementations; ValueError for one that the model has not
    """
    with silent():
        loaded = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    loaded.config.use_cache = False
    return Rows(loaded).eval()


Run = Callable[[np.ndarray], np.ndarray]


class FirstRows(torch.nn.Module):
    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> Any:
        return self.model(pixel_values=pixel_values).last_hidden_state[:, 0]


def write_vit(folder: Path, **config: Any) -> None:
    torch.manual_seed(0)
    with silent():
        transformers.ViTModel(transformers.ViTConfig(**config), add_pooling_layer=False).save_pretrained(folder)


def vit_module(folder: Path, attention: str) -> FirstRows:
    with silent():
        loaded = transformers.ViTModel.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=attention, add_pooling_layer=False
        )
    return FirstRows(loaded).eval()


def pytorch_vit(folder: Path) -> dict[str, Run]:
    def runner(model: FirstRows) -> Run:
        def run(images_BCYX: np.ndarray) -> np.ndarray:
            with torch.inference_mode():
                first_BD: np.ndarray = model(torch.from_numpy(images_BCYX)).numpy()
            return first_BD

        return run

    return {attention: runner(vit_module(folder, attention)) for attention in ("sdpa", "eager")}


def onnx_vit(folder: Path, batch: int, precision: str) -> Path:
    """An .onnx file for so many images; int8 is dynamic, with a scale a column."""
    target = folder / f"vit-{batch}-{precision}.onnx"
    given = (torch.zeros(batch, 3, *transformers.ViTConfig.from_pretrained(folder).image_size),)
    with silent():
        torch.onnx.export(vit_module(folder, "eager"), given, target, dynamo=True, external_data=False, verbose=False)
        if precision == "int8":
            from bench.onnx_session import quantized

            quantized(target)
    return target


def onnx_runtime_vit(folder: Path, batch: int, threads: int, precision: str) -> Run:
    from bench.onnx_session import session

    runner = session(str(onnx_vit(folder, batch, precision)), threads)
    name = runner.get_inputs()[0].name
    return lambda images_BCYX: np.asarray(runner.run(None, {name: images_BCYX})[0])


def openvino_vit(folder: Path, samples: list[np.ndarray], threads: int, precision: str) -> Run:
    """int8 is NNCF's, calibrated with the samples."""
    from bench.openvino_models import rounded, runner, traced

    model = traced(vit_module(folder, "sdpa"), samples[:1])
    if precision == "int8":
        model = rounded(model, [[sample] for sample in samples])
    run = runner(model, threads, precision)
    return lambda images_BCYX: run(images_BCYX, images_BCYX)
