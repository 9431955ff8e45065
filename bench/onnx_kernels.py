"""The operations as ONNX Runtime has them: each function takes our arrays and gives the side of a case."""

from typing import Any

import numpy as np

from bench.case import Side
from bench.onnx_graph import MICROSOFT, Graph
from bench.onnx_session import session
from fastattn.kernels import thread_limit
from fastattn.rounding import quantize


def _side(graph: Graph, output: str, feeds: dict[str, Any]) -> Side:
    runner = session(graph.model(output), thread_limit())
    return Side({"": lambda: runner.run(None, feeds)[0]}, view=lambda out: out.reshape(-1, out.shape[-1]))


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, activation: str, precision: str) -> Side:
    if precision == "bfloat16":
        return Side(absent="no bfloat16")
    graph = Graph()
    rows = graph.input("x", "float32", list(x.shape))
    if precision == "int8":
        quantised = quantize(weight, "a product's weights")
        columns = [graph.weight(array) for array in (quantised.values_FD.T, quantised.multipliers_F)]
        product = graph.add("DynamicQuantizeMatMul", rows, *columns, domain=MICROSOFT)
    else:
        product = graph.add("MatMul", rows, graph.weight(weight.T))
    if activation == "none":
        output = graph.add("Add", product, graph.weight(bias))
    else:
        output = graph.add({"gelu": "BiasGelu"}[activation], product, graph.weight(bias), domain=MICROSOFT)
    return _side(graph, output, {"x": x})


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, epsilon: float, residual: np.ndarray) -> Side:
    feeds = {"x": x, "residual": residual}
    graph = Graph()
    inputs = [graph.input(name, "float32", list(array.shape)) for name, array in feeds.items()]
    weights = [graph.weight(weight), graph.weight(bias)]
    output = graph.add("LayerNormalization", graph.add("Add", *inputs), *weights, epsilon=epsilon)
    return _side(graph, output, feeds)


def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, causal: bool) -> Side:
    B, T, H, K = query.shape
    graph = Graph()
    feeds = {"query": query, "key": key, "value": value}
    inputs = [graph.input(name, "float32", [B, T, H * K]) for name in feeds]
    output = graph.add("MultiHeadAttention", *inputs, domain=MICROSOFT, num_heads=H, unidirectional=int(causal))
    return _side(graph, output, {name: array.reshape(B, T, H * K) for name, array in feeds.items()})
