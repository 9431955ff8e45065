"""fastattn.attention and its peers on the same arrays, which lie as PyTorch's and ONNX's do: (B, H, T, K)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import fastattn
from bench.case import OURS, Case, Side, peer
from bench.operations.table import normal

Shape = tuple[int, int, int, int]
Arrays = Sequence[np.ndarray]  # query, key, value

SHAPES: list[Shape] = [(8, 12, 512, 64), (1, 12, 2048, 64), (1, 8, 8192, 64), (32, 12, 128, 32), (64, 8, 32, 64)]


def inputs(shape: Shape, keys: int | None = None) -> Arrays:
    """Query (B, H, T, K), key and value (B, H, ``keys``, K) in float32; None: T keys."""
    B, H, T, K = shape
    rng = np.random.default_rng(sum(shape))
    S = T if keys is None else keys
    return normal(rng, B, H, T, K), normal(rng, B, H, S, K), normal(rng, B, H, S, K)


def positions_first(array: np.ndarray) -> np.ndarray:
    """A copy [B, T, H, K] of an array [B, H, T, K], or the reverse."""
    return np.ascontiguousarray(array.swapaxes(1, 2))


def ours(arrays: Arrays, layout: str = "BHTK", **options: Any) -> Callable[[], np.ndarray]:
    return partial(fastattn.attention, *arrays, layout=layout, **options)


def name(shape: Shape, causal: bool) -> str:
    return f"{shape}{', causal' if causal else ''}"


def case(shape: Shape, causal: bool, threads: int) -> Case:
    """The same call of ours, PyTorch and ONNX Runtime, each of whose operators is a side of its own."""
    arrays = inputs(shape)
    B, H, T, K = shape
    flops = 4.0 * B * H * K * T * ((T + 1) / 2 if causal else T)
    sides = {
        OURS: Side({"": ours(arrays, causal=causal)}),
        "PyTorch": peer(("torch",), "bench.torch_kernels", lambda torch: torch.scaled(arrays, causal)),
    }
    for operator in ("MultiHeadAttention", "Attention", "Attention of rows"):
        sides[f"ONNX Runtime {operator}"] = peer(
            ("onnx", "onnxruntime"),
            "bench.onnx_kernels",
            lambda onnx, operator=operator: onnx.attention_operator(arrays, operator, causal, threads),
        )
    return Case(name(shape, causal), flops / 1e9, "GFLOP/s", sides, flops)
