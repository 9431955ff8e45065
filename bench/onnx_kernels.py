"""ONNX Runtime's side of each operation, from a problem's arrays and form; BERT's encoder of fused operators."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from bench.case import Side
from bench.onnx_session import session
from bench.operations.table import Arrays
from fastattn.arguments.images import Window
from fastattn.ops.cpu import current_threads
from fastattn.spec.rounding import quantize
from fastattn.weights import read

MICROSOFT = "com.microsoft"  # ONNX Runtime's fused operators, which its optimizer uses for transformers
TYPES = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64}


class Graph:
    """Nodes and weights in order of creation; values are identified by name."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, name: str, dtype: str, shape: list[Any]) -> str:
        """Add an input; a dimension that is a str is variable."""
        self._inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))
        return name

    def weight(self, array: np.ndarray) -> str:
        name = f"weight{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; returns the name of its only output."""
        name = f"value{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def model(self, output: str) -> bytes:
        """The graph that computes ``output``, as an .onnx file."""
        out = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self._nodes, "graph", self._inputs, [out], self._weights)
        imports = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def _side(graph: Graph, output: str, feeds: dict[str, Any]) -> Side:
    runner = session(graph.model(output), current_threads())
    return Side({"": lambda: runner.run(None, feeds)[0]}, view=lambda out: out.reshape(-1, out.shape[-1]))


def linear(arrays: Arrays, activation: str, precision: str) -> Side:
    if precision in ("bfloat16", "int4"):
        return Side(absent=f"no {precision}")
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


GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}  # for each gate in ONNX's order, its place in fastattn's


def recur(arrays: Arrays, cell: str, precision: str) -> Side:
    """A recurrent layer over sentences of one length, without earlier states; a step's rows lie side by side."""
    if precision == "bfloat16" or (precision == "int8" and cell != "lstm"):
        return Side(absent="no such operator")
    directions, B = 2 if "weight_1" in arrays else 1, len(arrays["starts"]) - 1
    units = arrays["weight_0"].shape[1]

    def ordered(name: str) -> np.ndarray:
        gates = [np.split(arrays[f"{name}_{d}"], len(GATES[cell])) for d in range(directions)]
        return np.stack([np.concatenate([parts[g] for g in GATES[cell]]) for parts in gates])

    x_TBD = np.ascontiguousarray(arrays["x"].reshape(B, -1, arrays["x"].shape[1]).swapaxes(0, 1))
    graph, weights = Graph(), [ordered("input"), ordered("weight")]
    x, biases = (
        graph.input("x", "float32", list(x_TBD.shape)),
        np.concatenate([ordered("input_bias"), ordered("bias")], 1),
    )
    options = {"hidden_size": units, "direction": "bidirectional" if directions == 2 else "forward"}
    if precision == "int8":
        quantized = [[quantize(matrix, "a layer") for matrix in both] for both in weights]
        values = [graph.weight(np.stack([matrix.values_FD.T for matrix in both])) for both in quantized]
        scales = [np.stack([matrix.multipliers_F for matrix in both]) for both in quantized]
        places = [graph.weight(matrix) for scale in scales for matrix in (scale, np.zeros(scale.shape, np.int8))]
        inputs = (x, *values, graph.weight(biases), "", "", "", "", *places)
        output = graph.add("DynamicQuantizeLSTM", *inputs, domain=MICROSOFT, **options)
    elif cell == "lstm":
        output = graph.add("LSTM", x, *map(graph.weight, (*weights, biases)), **options)
    else:
        output = graph.add("GRU", x, *map(graph.weight, (*weights, biases)), linear_before_reset=1, **options)
    runner = session(graph.model(output), current_threads())
    return Side(
        {"": lambda: runner.run(None, {"x": x_TBD})[0]},
        view=lambda out: out.transpose(2, 0, 1, 3).reshape(len(arrays["x"]), -1),
    )


def pixels(images_BCYX: np.ndarray) -> np.ndarray:
    return images_BCYX.transpose(0, 2, 3, 1).reshape(-1, images_BCYX.shape[1])


def convolution(arrays: Arrays, grid: tuple[int, int, int], window: Window, groups: int) -> tuple[bytes, np.ndarray]:
    """(the model of a convolution, its images BCYX)."""
    images_BCYX = np.ascontiguousarray(arrays["x"].reshape(*grid, -1).transpose(0, 3, 1, 2))
    weight_FCYX = arrays["weight"].reshape(len(arrays["weight"]), *window.size, -1).transpose(0, 3, 1, 2)
    graph = Graph()
    inputs = graph.input("x", "float32", list(images_BCYX.shape)), *map(graph.weight, (weight_FCYX, arrays["bias"]))
    options = {"strides": [*window.stride], "pads": [*window.padding] * 2, "dilations": [*window.dilation]}
    return graph.model(graph.add("Conv", *inputs, group=groups, **options)), images_BCYX


def convolve(
    arrays: Arrays, grid: tuple[int, int, int], window: Window, groups: int, activation: str, precision: str
) -> Side:
    """Channels first; ONNX Runtime itself converts to blocks and back."""
    if precision != "float32" or activation != "none":
        return Side(absent=f"no {precision}, {activation}")
    model, images_BCYX = convolution(arrays, grid, window, groups)
    runner = session(model, current_threads())
    return Side({"": lambda: runner.run(None, {"x": images_BCYX})[0]}, view=pixels)


def convolve_depthwise(arrays: Arrays, grid: tuple[int, int, int], window: Window, activation: str) -> Side:
    form = {"grid": grid, "window": window, "groups": arrays["x"].shape[1], "activation": activation}
    return convolve(arrays | {"weight": arrays["weight"].T}, **form, precision="float32")


def bert_model(folder: Path) -> bytes:
    """The .onnx file; its inputs are ids [B, T] and lengths [B], int32, its output the last layer's rows [B, T, D].

    It uses attention over packed projections (com.microsoft.Attention), and gelu fused with its bias.
    """
    checkpoint = read(folder)
    spec, tensors = checkpoint.spec.encoder, checkpoint.tensors
    if (
        spec is None
        or (spec.norms.before, spec.norms.embedding) != (False, True)
        or (spec.feed_forward.activation, spec.positions.kind) != ("gelu", "table")
        or not spec.token_types
    ):
        raise ValueError(f"expected a BERT encoder, got {spec}")
    graph = Graph()
    ids, lengths = graph.input("ids", "int32", ["B", "T"]), graph.input("lengths", "int32", ["B"])

    def constant(values: list[int]) -> str:
        return graph.weight(np.array(values, np.int64))

    def norm(x: str, name: str) -> str:
        weights = [graph.weight(tensors[f"{name}.{part}"]) for part in ("weight", "bias")]
        return graph.add("LayerNormalization", x, *weights, epsilon=spec.norms.epsilon)

    def product(x: str, name: str) -> tuple[str, str]:
        """(x W', the bias, which the next operator adds)."""
        weight = graph.weight(tensors[f"{name}.weight"].T)
        return graph.add("MatMul", x, weight), graph.weight(tensors[f"{name}.bias"])

    def added(x: str, name: str) -> str:
        return graph.add("Add", *product(x, name))

    tokens = graph.add("Gather", graph.weight(tensors["encoder.embedding.weight"]), ids)
    length = graph.add("Shape", ids, start=1, end=2)
    places = graph.weight(tensors["encoder.positions"] + tensors["encoder.token_types"][0])  # one text has type 0
    positions = graph.add("Slice", places, constant([0]), length, constant([0]))
    x = norm(graph.add("Add", tokens, positions), "encoder.embedding_norm")
    for i in range(spec.layers):
        layer = f"encoder.layers.{i}"
        qkv = [tensors[f"{layer}.self_attention.qkv.{part}"] for part in ("weight", "bias")]
        seen = graph.add(
            "Attention",
            x,
            *(graph.weight(array) for array in (qkv[0].T, qkv[1])),
            lengths,
            domain=MICROSOFT,
            num_heads=spec.attention.heads,
        )
        output = added(seen, f"{layer}.self_attention.output")
        x = norm(graph.add("Add", output, x), f"{layer}.self_attention.norm")
        inner = graph.add("BiasGelu", *product(x, f"{layer}.feed_forward.inner"), domain=MICROSOFT)
        outer = added(inner, f"{layer}.feed_forward.outer")
        x = norm(graph.add("Add", outer, x), f"{layer}.feed_forward.norm")
    return graph.model(x)
