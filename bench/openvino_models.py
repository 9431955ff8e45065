"""Models of OpenVINO: traced from PyTorch, rounded to int8 by NNCF."""

from collections.abc import Sequence
from typing import Any

import nncf
import numpy as np
import openvino
import torch

from bench.silence import silent


def traced(module: torch.nn.Module, inputs: Sequence[np.ndarray]) -> Any:
    """The model of a PyTorch module, traced with ``inputs``; sizes may differ from theirs."""
    with silent():
        return openvino.convert_model(module, example_input=tuple(map(torch.from_numpy, inputs)))


def rounded(model: Any, samples: list[list[np.ndarray]]) -> Any:
    with silent():
        return nncf.quantize(
            model, nncf.Dataset(samples), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(samples)
        )
