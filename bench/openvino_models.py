"""Models of OpenVINO: traced from PyTorch, rounded to int8 by NNCF, compiled for a number of threads."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino

from bench.request import silent


def traced(module: Any, inputs: Sequence[np.ndarray]) -> Any:
    """The model of a PyTorch module, traced with ``inputs``; sizes may differ from theirs."""
    import torch

    with silent():
        return openvino.convert_model(module, example_input=tuple(map(torch.from_numpy, inputs)))


def rounded(model: Any, samples: list[list[np.ndarray]]) -> Any:
    import nncf

    kind, given = nncf.ModelType.TRANSFORMER, nncf.Dataset(samples)
    with silent():
        return nncf.quantize(model, given, model_type=kind, subset_size=len(samples))


# The setting of its precision hint, without which it may take bfloat16; int8 models have theirs in their graph.
HINTS = {"float32": "f32", "bfloat16": "bf16"}


def has_bfloat16() -> bool:
    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def runner(model: Any | Path, threads: int, precision: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """(ids, mask) [B, T], int64 -> the model's output; one request at a time, by all threads."""
    settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    if precision in HINTS:
        settings["INFERENCE_PRECISION_HINT"] = HINTS[precision]
    compiled = openvino.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()

    def run(ids_BT: np.ndarray, mask_BT: np.ndarray) -> np.ndarray:
        return np.array(request.infer([ids_BT, mask_BT][: len(compiled.inputs)])[0])

    return run
