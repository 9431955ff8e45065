"""ONNX Runtime's attention operators on arrays [B, H, T, K], laid out beforehand, untimed, as each takes them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.attention_cases import Arrays, positions_first
from bench.case import Side
from bench.onnx_kernels import MICROSOFT, Graph
from bench.onnx_session import session

NAMES = ("query", "key", "value")
OPSET = 23  # the first with Attention
# It stores all scores, several times: beyond so many it takes gigabytes, and ten times as long as the fused operator.
MOST_SCORES = 1 << 28


def _side(arrays: list[np.ndarray], operator: str, threads: int, domain: str = "", **attributes: Any) -> Any:
    graph = Graph()
    feeds = dict(zip(NAMES, arrays, strict=True))
    values = [graph.input(name, "float32", list(array.shape)) for name, array in feeds.items()]
    output = graph.add(operator, *values, domain=domain, **attributes)
    runner = session(graph.model(output, OPSET), threads)
    return lambda: runner.run(None, feeds)[0]


def _rows(arrays: Arrays) -> list[np.ndarray]:
    """Copies [B, T, H K]."""
    return [positions_first(array).reshape(len(array), array.shape[2], -1) for array in arrays]


def _heads_first(shape: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    B, H, T, K = shape
    return lambda out: out.reshape(B, T, H, K).swapaxes(1, 2)


def multi_head(arrays: Arrays, causal: bool, threads: int) -> Side:
    """The fused operator that its optimizer uses for transformers."""
    attributes = {"num_heads": arrays[0].shape[1], "unidirectional": int(causal)}
    call = _side(_rows(arrays), "MultiHeadAttention", threads, MICROSOFT, **attributes)
    return Side({"": call}, view=_heads_first(arrays[0].shape))


def attention(arrays: Arrays, causal: bool, threads: int) -> Side:
    if _scores(arrays) > MOST_SCORES:
        return Side(absent="scores too large")
    return Side({"": _side(list(arrays), "Attention", threads, is_causal=int(causal))})


def attention_of_rows(arrays: Arrays, causal: bool, threads: int) -> Side:
    if _scores(arrays) > MOST_SCORES:
        return Side(absent="scores too large")
    heads = {"q_num_heads": arrays[0].shape[1], "kv_num_heads": arrays[1].shape[1]}
    call = _side(_rows(arrays), "Attention", threads, is_causal=int(causal), **heads)
    return Side({"": call}, view=_heads_first(arrays[0].shape))


def _scores(arrays: Arrays) -> int:
    B, H, T, _ = arrays[0].shape
    return B * H * T * arrays[1].shape[2]


OPERATORS = {"MultiHeadAttention": multi_head, "Attention": attention, "Attention of rows": attention_of_rows}
