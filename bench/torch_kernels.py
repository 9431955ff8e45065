"""PyTorch's operations: each function takes a problem's arrays and form and returns the side of a case.

Inputs are first converted, untimed, to the form with which PyTorch is fastest.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from bench.case import Side
from bench.operations.table import Arrays
from fastattn.arguments.images import Window

ACTIVATIONS = {"none": lambda x: x, "gelu": F.gelu}


def _side(call: Callable[[], Any], view: Callable[[Any], np.ndarray] = np.asarray) -> Side:
    return Side({"": torch.inference_mode()(call)}, view=view)


def _tensors(arrays: Arrays, *names: str) -> list[torch.Tensor]:
    return [torch.from_numpy(arrays[name]) for name in names]


def linear(arrays: Arrays, activation: str, precision: str) -> Side:
    """In bfloat16, inputs and results are bfloat16 too, as when PyTorch runs a model in it."""
    if precision == "int4":
        return Side(absent="no int4 of float32 rows")
    x_t, weight_t, bias_t = _tensors(arrays, "x", "weight", "bias")
    activate = ACTIVATIONS[activation]
    if precision == "int8":
        layer = torch.nn.Linear(*weight_t.T.shape)
        layer.weight.data, layer.bias.data = weight_t, bias_t
        quantized = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(layer), {torch.nn.Linear})
        return _side(lambda: activate(quantized(x_t)))
    tensors = [tensor.to(getattr(torch, precision)) for tensor in (x_t, weight_t, bias_t)]
    return _side(lambda: activate(F.linear(*tensors)), lambda out: out.float().numpy())


def layer_norm(arrays: Arrays, epsilon: float) -> Side:
    x_t, weight_t, bias_t, residual_t = _tensors(arrays, "x", "weight", "bias", "residual")
    return _side(lambda: F.layer_norm(x_t + residual_t, weight_t.shape, weight_t, bias_t, epsilon))


def embed(arrays: Arrays, scale: float) -> Side:
    ids_t, table_t, positions_t, position_table_t = _tensors(arrays, "ids", "table", "positions", "position_table")
    return _side(lambda: F.embedding(ids_t, table_t).mul_(scale).add_(F.embedding(positions_t, position_table_t)))


def _heads_first(array: np.ndarray) -> torch.Tensor:
    """A contiguous tensor BHTK of an array BTHK."""
    return torch.from_numpy(np.ascontiguousarray(array.transpose(0, 2, 1, 3)))


def attention(arrays: Arrays, heads: int, key_heads: int, head_width: int, causal: bool) -> Side:
    """Attention over sentences of one length."""
    batch, width = len(arrays["query_starts"]) - 1, heads * head_width
    rows = [arrays[name] for name in ("query", "key", "value")]
    tensors = [_heads_first(array.reshape(batch, -1, heads, head_width)) for array in rows]
    return _side(
        lambda: F.scaled_dot_product_attention(*tensors, is_causal=causal),
        lambda out: out.numpy().transpose(0, 2, 1, 3).reshape(-1, width),
    )


def attention_step(arrays: Arrays, heads: int, key_heads: int, head_width: int) -> Side:
    """Each row's keys and values are gathered beforehand, untimed: PyTorch needs no table of indices."""
    rows, width = len(arrays["index"]), heads * head_width
    key_value = arrays["key_value"][arrays["index"]]
    parts = arrays["query"][:, None], key_value[:, :, :width], key_value[:, :, width:]
    tensors = [_heads_first(part.reshape(rows, -1, heads, head_width)) for part in parts]
    return _side(lambda: F.scaled_dot_product_attention(*tensors), lambda out: out.numpy().reshape(rows, -1))


def project_top_k(arrays: Arrays, k: int) -> Side:
    tensors = _tensors(arrays, "x", "weight", "bias")
    return _side(
        lambda: torch.topk(torch.log_softmax(F.linear(*tensors), dim=1), k, dim=1), lambda result: result.values.numpy()
    )


def softmax(arrays: Arrays) -> Side:
    (x_t,) = _tensors(arrays, "x")
    return _side(lambda: torch.softmax(x_t, dim=1))


def recur(arrays: Arrays, cell: str, precision: str) -> Side:
    """A recurrent layer over sentences of one length, without earlier states."""
    if precision == "bfloat16":
        return Side(absent="no case of one type")
    directions, B = 2 if "weight_1" in arrays else 1, len(arrays["starts"]) - 1
    make = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell]
    units, width = arrays["weight_0"].shape[1], arrays["x"].shape[1]
    layer = make(width, units, batch_first=True, bidirectional=directions == 2).eval()
    names = {"input": "weight_ih", "weight": "weight_hh", "input_bias": "bias_ih", "bias": "bias_hh"}
    layer.load_state_dict({
        f"{theirs}_l0{'_reverse' * d}": torch.from_numpy(arrays[f"{name}_{d}"])
        for name, theirs in names.items()
        for d in range(directions)
    })  # fmt: skip
    model = torch.nn.Sequential(layer)
    if precision == "int8":
        model = torch.ao.quantization.quantize_dynamic(model, {make})
    x_t = torch.from_numpy(arrays["x"]).reshape(B, -1, width)
    return _side(lambda: model(x_t), lambda result: result[0].numpy().reshape(len(arrays["x"]), -1))


def _images(rows_ND: np.ndarray, grid: tuple[int, int, int]) -> torch.Tensor:
    """Images BCYX, channels last in memory, from pixels that are rows."""
    return torch.from_numpy(rows_ND.reshape(*grid, rows_ND.shape[1])).permute(0, 3, 1, 2)


def _pixels(images_BCYX: Any) -> np.ndarray:
    if isinstance(images_BCYX, torch.Tensor):
        dense = images_BCYX.to_dense() if images_BCYX.layout == torch._mkldnn else images_BCYX
        images_BCYX = dense.float().numpy()
    return images_BCYX.transpose(0, 2, 3, 1).reshape(-1, images_BCYX.shape[1])


def _image_side(call: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> Side:
    """Channels last or first in memory, or in oneDNN's blocks, if it has the operation (its name there)."""
    calls = {}
    for layout in ("channels last", "channels first", "blocked"):
        form = torch.channels_last if layout == "channels last" else torch.contiguous_format
        inputs = [tensor.contiguous(memory_format=form) if tensor.dim() == 4 else tensor for tensor in tensors]
        if layout == "blocked":
            if tensors[0].dtype != torch.float32:
                continue
            inputs = [tensor.to_mkldnn() for tensor in inputs]
        calls[layout] = torch.inference_mode()(lambda inputs=inputs: call(*inputs))
    return Side(calls, view=_pixels)


def convolve(
    arrays: Arrays, grid: tuple[int, int, int], window: Window, groups: int, activation: str, precision: str
) -> Side:
    """In bfloat16, images and results are bfloat16 too."""
    if precision == "int8":
        return Side(absent="no dynamic int8")
    weight_FYXC = arrays["weight"].reshape(len(arrays["weight"]), *window.size, -1)
    tensors = _images(arrays["x"], grid), torch.from_numpy(weight_FYXC).permute(0, 3, 1, 2), *_tensors(arrays, "bias")
    activate, (_, *steps) = ACTIVATIONS[activation], window
    return _image_side(
        lambda *inputs: activate(F.conv2d(*inputs, *steps, groups)),
        *(tensor.to(getattr(torch, precision)) for tensor in tensors),
    )


def convolve_depthwise(arrays: Arrays, grid: tuple[int, int, int], window: Window, activation: str) -> Side:
    weight_DT = np.ascontiguousarray(arrays["weight"].T)
    form = {"grid": grid, "window": window, "groups": len(weight_DT), "activation": activation}
    return convolve(arrays | {"weight": weight_DT}, **form, precision="float32")


def pool_windows(arrays: Arrays, grid: tuple[int, int, int], window: Window, mode: str) -> Side:
    return _image_side(lambda x: F.max_pool2d(x, *window), _images(arrays["x"], grid))
