"""The operations as PyTorch has them: each function takes our arrays and gives the side of a case.

Inputs are brought into the form PyTorch is quickest with beforehand, untimed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from bench.case import Side

ACTIVATIONS = {"none": lambda x: x, "gelu": F.gelu}


def _side(call: Callable[[], Any], view: Callable[[Any], np.ndarray] = np.asarray) -> Side:
    @torch.inference_mode()
    def run() -> Any:
        return call()

    return Side({"": run}, view=view)


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, activation: str, precision: str) -> Side:
    """In bfloat16 all of it is, inputs and results too, which is how PyTorch runs a model in it."""
    x_t, weight_t, bias_t = (torch.from_numpy(array) for array in (x, weight, bias))
    activate = ACTIVATIONS[activation]
    if precision == "int8":
        layer = torch.nn.Linear(*weight_t.T.shape)
        layer.weight.data, layer.bias.data = weight_t, bias_t
        quantised = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(layer), {torch.nn.Linear})
        return _side(lambda: activate(quantised(x_t)))
    tensors = [tensor.to(getattr(torch, precision)) for tensor in (x_t, weight_t, bias_t)]
    return _side(lambda: activate(F.linear(*tensors)), lambda out: out.float().numpy())


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, epsilon: float, residual: np.ndarray) -> Side:
    x_t, weight_t, bias_t, residual_t = (torch.from_numpy(array) for array in (x, weight, bias, residual))
    return _side(lambda: F.layer_norm(x_t + residual_t, weight_t.shape, weight_t, bias_t, epsilon))


def embed(ids: np.ndarray, table: np.ndarray, scale: float, positions: np.ndarray, position_table: np.ndarray) -> Side:
    ids_t, table_t, positions_t, position_table_t = (
        torch.from_numpy(array) for array in (ids, table, positions, position_table)
    )
    return _side(lambda: F.embedding(ids_t, table_t).mul_(scale).add_(F.embedding(positions_t, position_table_t)))


def _heads_first(array: np.ndarray) -> torch.Tensor:
    """BTHK to a contiguous tensor BHTK."""
    return torch.from_numpy(np.ascontiguousarray(array.transpose(0, 2, 1, 3)))


def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, causal: bool) -> Side:
    tensors = [_heads_first(array) for array in (query, key, value)]
    return _side(
        lambda: F.scaled_dot_product_attention(*tensors, is_causal=causal),
        lambda out: out.numpy().transpose(0, 2, 1, 3).reshape(-1, query.shape[2] * query.shape[3]),
    )


def attention_step(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> Side:
    """Keys and values [R, S, H, K] of each row laid out for it beforehand: PyTorch is spared the table of indices."""
    tensors = [_heads_first(array) for array in (query[:, None], key, value)]
    return _side(
        lambda: F.scaled_dot_product_attention(*tensors),
        lambda out: out.numpy().reshape(len(query), -1),
    )


def project_top_k(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, k: int) -> Side:
    tensors = [torch.from_numpy(array) for array in (x, weight, bias)]
    return _side(
        lambda: torch.topk(torch.log_softmax(F.linear(*tensors), dim=1), k, dim=1),
        lambda result: result.values.numpy(),
    )
