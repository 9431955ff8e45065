"""ONNX Runtime's operations: each function takes a problem's arrays and form and returns a side."""

from typing import Any

from bench.case import Side
from bench.onnx_graph import MICROSOFT, Graph
from bench.onnx_session import session
from bench.operations.table import Arrays
from fastattn.ops.cpu import thread_limit
from fastattn.spec.rounding import quantize


def _side(graph: Graph, output: str, feeds: dict[str, Any]) -> Side:
    runner = session(graph.model(output), thread_limit())
    return Side({"": lambda: runner.run(None, feeds)[0]}, view=lambda out: out.reshape(-1, out.shape[-1]))


def linear(arrays: Arrays, activation: str, precision: str) -> Side:
    if precision == "bfloat16":
        return Side(absent="no bfloat16")
    x, weight, bias = (arrays[name] for name in ("x", "weight", "bias"))
    graph = Graph()
    rows = graph.input("x", "float32", list(x.shape))
    if precision == "int8":
        quantized = quantize(weight, "a product's weights")
        columns = [graph.weight(array) for array in (quantized.values_FD.T, quantized.multipliers_F)]
        product = graph.add("DynamicQuantizeMatMul", rows, *columns, domain=MICROSOFT)
    else:
        product = graph.add("MatMul", rows, graph.weight(weight.T))
    if activation == "none":
        output = graph.add("Add", product, graph.weight(bias))
    else:
        output = graph.add({"gelu": "BiasGelu"}[activation], product, graph.weight(bias), domain=MICROSOFT)
    return _side(graph, output, {"x": x})


def layer_norm(arrays: Arrays, epsilon: float) -> Side:
    feeds = {name: arrays[name] for name in ("x", "residual")}
    graph = Graph()
    inputs = [graph.input(name, "float32", list(array.shape)) for name, array in feeds.items()]
    weights = [graph.weight(arrays[name]) for name in ("weight", "bias")]
    output = graph.add("LayerNormalization", graph.add("Add", *inputs), *weights, epsilon=epsilon)
    return _side(graph, output, feeds)


def attention(arrays: Arrays, heads: int, key_heads: int, head_width: int, causal: bool) -> Side:
    """Attention over sentences of one length."""
    batch, width = len(arrays["query_starts"]) - 1, heads * head_width
    feeds = {name: arrays[name].reshape(batch, -1, width) for name in ("query", "key", "value")}
    graph = Graph()
    inputs = [graph.input(name, "float32", list(array.shape)) for name, array in feeds.items()]
    output = graph.add("MultiHeadAttention", *inputs, domain=MICROSOFT, num_heads=heads, unidirectional=int(causal))
    return _side(graph, output, feeds)


def softmax(arrays: Arrays) -> Side:
    graph = Graph()
    rows = graph.input("x", "float32", list(arrays["x"].shape))
    return _side(graph, graph.add("Softmax", rows), arrays)
